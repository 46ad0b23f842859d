"""Packets and outputs as rows of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields, replace
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Row

from windrow.core.changelog import StepOutput
from windrow.core.messages import Packet
from windrow.core.operators.base import GroupOutput, GroupStats
from windrow.hosts.stream.carrier import Carrier, opened, taken
from windrow.model import AnyPipeline

PACKET_DDL = (
    "key_group int, kind string, partition int, watermark long, first long, next long, reached long, blob binary"
)
OUTPUT_DDL = "key_group int, changes binary, late binary, dead binary, clocks binary, stats string"

Columns = Row | dict[str, Any]
"""A row by the names of its columns, as Spark or Arrow gives it."""

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
            packet = Packet(**{field.name: row[field.name] for field in fields(Packet)})
            yield replace(packet, blob=opened(packet.blob)) if packet.kind == "records" else packet


def output_frame(key_group: int, output: GroupOutput, carrier: Carrier) -> pd.DataFrame:
    """Write a key group's output as a row."""
    return pd.DataFrame([{"key_group": key_group, **output_columns(output, carrier)}])


def output_columns(output: GroupOutput, carrier: Carrier) -> dict[str, bytes | str | None]:
    """Write an output as columns of a row; a table without rows is null."""
    tables = {field.name: carrier.put(getattr(output.rows, field.name)) for field in fields(StepOutput)}
    return {**tables, "stats": json.dumps(asdict(output.stats))}


def outputs(pipeline: AnyPipeline, rows: Iterable[Columns]) -> list[GroupOutput]:
    """Read rows as key groups' outputs, in the order of their numbers."""
    none = StepOutput.empty(pipeline)
    return [_output(none, row) for row in sorted(rows, key=lambda row: row["key_group"])]


def _output(none: StepOutput, row: Columns) -> GroupOutput:
    tables = {
        field.name: getattr(none, field.name) if row[field.name] is None else taken(row[field.name])
        for field in fields(StepOutput)
    }
    return GroupOutput(StepOutput(**tables), group_stats(row["stats"]))


def group_stats(text: str) -> GroupStats:
    """Read a key group's stats."""
    stats = json.loads(text)
    for name in ("watermarks", "offsets"):
        stats[name] = {int(partition): value for partition, value in stats[name].items()}
    return GroupStats(**stats)
