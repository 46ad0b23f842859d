"""Packets and outputs as Spark rows: of a single step (stream), or with the number of their step (batch)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from itertools import chain, groupby
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Row

from windrow import model as m
from windrow.engine.changelog import StepOutput, empty_by_sink
from windrow.engine.columns import Blob, pack, unpack
from windrow.engine.messages import Message, Packet, Records, decode_message, encode_message
from windrow.engine.operators.base import GroupOutput, GroupStats
from windrow.engine.state.store import MemoryState
from windrow.runtime.spark.transport import TableTransport, read_stream, read_table

PACKET_DDL = "key_group int, kind string, fields string, blob binary"
OUTPUT_DDL = (
    "key_group int, sink string, changes binary, late binary, dead binary, clocks binary, stats string, "
    "observed array<binary>"
)

Columns = Row | dict[str, Any]
"""A row from Spark or Arrow, indexed by column name."""

_PACKET = pa.schema(
    [
        ("key_group", pa.int32()),
        ("kind", pa.string()),
        ("fields", pa.string()),
        ("blob", pa.binary()),
    ]
)


def packet_batch(packet: Packet) -> pa.RecordBatch:
    """Return a packet as a row."""
    return pa.RecordBatch.from_arrays([[value] for value in _columns(packet)], schema=_PACKET)


def packet_frame(packets: Iterable[Packet]) -> pd.DataFrame:
    """Return packets as rows."""
    return pd.DataFrame([_columns(packet) for packet in packets], columns=_PACKET.names)


def _columns(packet: Packet) -> tuple[int, str, str, Blob]:
    return packet.key_group, *encode_message(packet.message)


def read_packets(frames: Iterable[pd.DataFrame]) -> Iterator[Packet]:
    """Yield the packets in rows; their records may be in files (see `with_records`)."""
    for frame in frames:
        for row in frame.to_dict("records"):
            yield Packet(row["key_group"], decode_message(row["kind"], row["fields"], row["blob"]))


def with_records(message: Message) -> Message:
    """Return the message with its records, reading them from their file if they have one.

    Call this once per message, as it deletes the file.
    """
    return replace(message, blob=read_stream(message.blob)) if isinstance(message, Records) else message


def output_frame(key_group: int, output: GroupOutput, transport: TableTransport) -> pd.DataFrame:
    """Return a key group's output as one row for each sink."""
    return pd.DataFrame([{"key_group": key_group, **row} for row in _output_columns(output, transport)])


def _output_columns(output: GroupOutput, transport: TableTransport) -> Iterator[dict[str, Any]]:
    """Yield the columns of one row for each sink; a table without rows is null."""
    stats, observed = json.dumps(asdict(output.stats)), list(output.observed)
    for sink, rows in output.by_sink.items():
        tables = {field.name: transport.put(getattr(rows, field.name)) for field in fields(StepOutput)}
        yield {"sink": sink, **tables, "stats": stats, "observed": observed}
        # only the first row has the blobs of the key group's probe
        observed = []


def outputs(graph: m.Graph, rows: Iterable[Columns]) -> list[GroupOutput]:
    """Return the outputs of key groups read from rows, sorted by key group."""
    nothing = empty_by_sink(graph)
    found: dict[int, dict[str, Columns]] = {}
    for row in rows:
        found.setdefault(row["key_group"], {})[row["sink"]] = row
    return [_output(nothing, found[group]) for group in sorted(found)]


def _output(nothing: Mapping[str, StepOutput], rows: Mapping[str, Columns]) -> GroupOutput:
    by_sink = {}
    for name, empty in nothing.items():
        row = rows[name]
        tables = {
            field.name: getattr(empty, field.name) if row[field.name] is None else read_table(row[field.name])
            for field in fields(StepOutput)
        }
        by_sink[name] = StepOutput(**tables)
    observed = tuple(bytes(blob) for row in rows.values() for blob in row["observed"])
    return GroupOutput(by_sink, group_stats(next(iter(rows.values()))["stats"]), observed=observed)


def group_stats(text: str) -> GroupStats:
    """Parse a key group's statistics."""
    stats = json.loads(text)
    for name in ("watermarks", "offsets"):
        stats[name] = {int(partition): value for partition, value in stats[name].items()}
    return GroupStats(**stats)


NUMBERED_PACKET_DDL = f"slice int, {PACKET_DDL}"
RESULT_DDL = f"position int, {OUTPUT_DDL}, state binary"
_RESULT = pa.schema(
    [
        ("position", pa.int32()),
        ("key_group", pa.int32()),
        ("sink", pa.string()),
        *((field.name, pa.binary()) for field in fields(StepOutput)),
        ("stats", pa.string()),
        ("observed", pa.list_(pa.binary())),
        ("state", pa.binary()),
    ]
)
_STATE = pa.schema([("kind", pa.string()), ("bucket", pa.int64()), ("blob", pa.binary())])
_STATE_BYTES = 64 << 20


def numbered(number: int, packet: Packet) -> pa.RecordBatch:
    """Return a packet as a row with the number of its step."""
    batch = packet_batch(packet)
    columns = [pa.array([number], pa.int32()), *batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=["slice", *batch.schema.names])


def by_slice(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, list[Message]]]:
    """Yield the number and the messages of each step, from rows ordered by step."""
    rows = chain.from_iterable(batch.to_pylist() for batch in batches)
    for number, group in groupby(rows, lambda row: row["slice"]):
        yield number, [decode_message(row["kind"], row["fields"], row["blob"]) for row in group]


def output_rows(number: int, group: int, output: GroupOutput, transport: TableTransport) -> Iterator[pa.RecordBatch]:
    """Yield the output of a key group in a step as one row for each sink."""
    for row in _output_columns(output, transport):
        yield _row(position=number, key_group=group, **row)


def state_rows(position: int, group: int, state: MemoryState) -> Iterator[pa.RecordBatch]:
    """Yield the state of a key group in rows of up to 64 MiB."""
    for blob in packed_state(state):
        yield _row(position=position, key_group=group, state=blob)


def packed_state(state: MemoryState) -> Iterator[bytes]:
    """Yield the packed state of a key group in pieces of up to 64 MiB; a larger blob is a piece of its own."""

    def pack_entries() -> bytes:
        return pack(pa.table([list(column) for column in zip(*entries, strict=True)], schema=_STATE))

    entries: list[tuple[str | None, int | None, bytes]] = [(None, None, state.summary() or b"")]
    for (kind, bucket), blob in state.items():
        if sum(len(entry[2]) for entry in entries) + len(blob) > _STATE_BYTES:
            yield pack_entries()
            entries = []
        entries.append((kind, bucket, blob))
    yield pack_entries()


def state_of(pieces: Iterable[Blob]) -> MemoryState:
    """Restore the state of a key group from the pieces of `packed_state`."""
    state = MemoryState()
    for piece in pieces:
        for entry in unpack(piece).to_pylist():
            if entry["kind"] is not None:
                state.set(entry["kind"], entry["bucket"], entry["blob"])
            elif entry["blob"]:
                state.set_summary(entry["blob"])
    return state


def _row(**values: Any) -> pa.RecordBatch:  # noqa: ANN401 - the columns of `_RESULT`
    return pa.RecordBatch.from_pylist([values], schema=_RESULT)
