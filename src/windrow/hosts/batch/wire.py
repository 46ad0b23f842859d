"""Packets and outputs of numbered steps as rows of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import chain, groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from windrow.core.changelog import StepOutput
from windrow.core.columns import pack, unpack
from windrow.core.messages import Packet
from windrow.core.operators.base import GroupOutput
from windrow.core.state.store import MemoryState
from windrow.hosts.stream.carrier import Carrier
from windrow.hosts.stream.wire import PACKET_DDL as ONE_STEP_DDL
from windrow.hosts.stream.wire import output_columns, packet_batch

PACKET_DDL = f"slice int, {ONE_STEP_DDL}"
RESULT_DDL = (
    "position int, key_group int, changes binary, late binary, dead binary, clocks binary, state binary, stats string"
)
_RESULT = pa.schema(
    [
        ("position", pa.int32()),
        ("key_group", pa.int32()),
        *((field.name, pa.binary()) for field in fields(StepOutput)),
        ("state", pa.binary()),
        ("stats", pa.string()),
    ]
)
_STATE = pa.schema([("kind", pa.string()), ("bucket", pa.int64()), ("blob", pa.binary())])
_STATE_BYTES = 64 << 20


def numbered(number: int, packet: Packet) -> pa.RecordBatch:
    """Write a packet of a step as a row."""
    batch = packet_batch(packet)
    columns = [pa.array([number], pa.int32()), *batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=["slice", *batch.schema.names])


def by_slice(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, list[Packet]]]:
    """Read rows that are ordered by step; yield each step that has some."""
    names = [field.name for field in fields(Packet)]
    rows = chain.from_iterable(batch.to_pylist() for batch in batches)
    for number, group in groupby(rows, lambda row: row["slice"]):
        yield number, [Packet(**{name: row[name] for name in names}) for row in group]


def output_row(number: int, group: int, output: GroupOutput, carrier: Carrier) -> pa.RecordBatch:
    """Write what a key group gives in a step."""
    return _row(position=number, key_group=group, **output_columns(output, carrier))


def state_rows(position: int, group: int, state: MemoryState) -> Iterator[pa.RecordBatch]:
    """Write what a key group knows, in rows of some MB."""
    held: list[tuple[str | None, int | None, bytes]] = [(None, None, state.summary() or b"")]
    for (kind, bucket), blob in state.items():
        if sum(len(entry[2]) for entry in held) + len(blob) > _STATE_BYTES:
            yield _row(position=position, key_group=group, state=_packed(held))
            held = []
        held.append((kind, bucket, blob))
    yield _row(position=position, key_group=group, state=_packed(held))


def state_of(rows: Iterable[Row]) -> MemoryState:
    """Read what `state_rows` wrote of one key group."""
    state = MemoryState()
    for row in rows:
        for entry in unpack(row["state"]).to_pylist():
            if entry["kind"] is not None:
                state.set(entry["kind"], entry["bucket"], entry["blob"])
            elif entry["blob"]:
                state.set_summary(entry["blob"])
    return state


def _packed(entries: list[tuple[str | None, int | None, bytes]]) -> bytes:
    return pack(pa.table([list(column) for column in zip(*entries, strict=True)], schema=_STATE))


def _row(**values: Any) -> pa.RecordBatch:  # noqa: ANN401 - the columns of `_RESULT`
    return pa.RecordBatch.from_pylist([values], schema=_RESULT)
