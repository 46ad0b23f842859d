"""Packets and outputs as rows of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields

import pandas as pd
import pyarrow as pa

from windrow.core.operators.base import GroupOutput, GroupStats
from windrow.core.output import StepOutput
from windrow.core.packet import Packet
from windrow.hosts.stream.carrier import Carrier, taken
from windrow.model import AnyPipeline

PACKET_DDL = (
    "key_group int, kind string, partition int, watermark long, first long, next long, reached long, blob binary"
)
OUTPUT_DDL = "key_group int, changes binary, late binary, dead binary, clocks binary, stats string"

_PACKET = pa.schema(
    [
        ("key_group", pa.int32()),
        ("kind", pa.string()),
        ("partition", pa.int32()),
        ("watermark", pa.int64()),
        ("first", pa.int64()),
        ("next", pa.int64()),
        ("reached", pa.int64()),
        ("blob", pa.binary()),
    ]
)


def packet_batch(packet: Packet) -> pa.RecordBatch:
    """Write a packet as a row."""
    return pa.RecordBatch.from_pylist([asdict(packet)], schema=_PACKET)


def packet_frame(packets: Iterable[Packet]) -> pd.DataFrame:
    """Write packets as rows."""
    return pd.DataFrame([asdict(packet) for packet in packets], columns=[field.name for field in fields(Packet)])


def packets(frames: Iterable[pd.DataFrame]) -> Iterator[Packet]:
    """Read rows as packets."""
    for frame in frames:
        for row in frame.to_dict("records"):
            yield Packet(**{field.name: row[field.name] for field in fields(Packet)})


def output_frame(key_group: int, output: GroupOutput, carrier: Carrier) -> pd.DataFrame:
    """Write a key group's output as a row; a table without rows is null."""
    row: dict[str, object] = {"key_group": key_group}
    for field in fields(StepOutput):
        row[field.name] = carrier.put(getattr(output.rows, field.name))
    row["stats"] = json.dumps(asdict(output.stats))
    return pd.DataFrame([row])


def outputs(pipeline: AnyPipeline, batch: pa.RecordBatch | pa.Table) -> Iterator[GroupOutput]:
    """Read rows as key groups' outputs, in the order of their numbers."""
    none = StepOutput.empty(pipeline)
    for row in sorted(batch.to_pylist(), key=lambda row: row["key_group"]):
        tables = {
            field.name: getattr(none, field.name) if row[field.name] is None else taken(row[field.name])
            for field in fields(StepOutput)
        }
        yield GroupOutput(StepOutput(**tables), group_stats(row["stats"]))


def group_stats(text: str) -> GroupStats:
    """Read a key group's stats."""
    stats = json.loads(text)
    for name in ("watermarks", "offsets"):
        stats[name] = {int(partition): value for partition, value in stats[name].items()}
    return GroupStats(**stats)
