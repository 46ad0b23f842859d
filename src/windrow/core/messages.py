"""Messages from ingest to a key group: packets of records, and the event times of a partition, packed small.

A packet is one row for one key group, whatever the number of records in it. An adaptive watermark needs the event
times of all records, whatever their key, so every key group receives them: as offsets and times of one or two bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from windrow.core.columns import MIN_TIME, Blob, Micros, pack, to_micros, unpack

PacketKind = Literal["records", "parts", "dead", "times", "clock", "tick", "lost", "idle", "end"]


@dataclass(frozen=True)
class Packet:
    """A message to one key group, as one row.

    ``records`` carries good records (`windrow.core.schema.record_schema`), ``dead`` carries dead letters, both packed
    in `blob`. ``parts`` carries panes (or slices), aggregated by the group `partition` of a salted pipeline, of `next`
    records of one step. ``times`` carries the event times of all good records of a partition, whatever their key, from
    the offset `first` on (`pack_times`); only where the delay depends on them. ``clock`` says where a partition
    is at the end of the step: its `watermark` as far as the step's records moved it, the `first` offset that the
    step read and the `next` one to be read, and the greatest event time that it `reached` in the step. ``tick`` is the
    processing time, in `watermark`. ``lost`` says that records of a partition are lost, that it resumes at the offset
    `first`, and in `blob` what happened. ``idle`` is sent where a replay ends: by the journal `partition` is idle, and
    the low watermark is not below `watermark`. ``end`` is the end of the input.
    """

    key_group: int
    kind: PacketKind
    partition: int = -1
    watermark: int = 0
    first: int = 0
    next: int = 0
    reached: int = MIN_TIME
    blob: Blob = b""


_UNITS = (1_000_000, 1_000, 1)
"""Seconds, milliseconds and microseconds, in which sources mostly give times."""
_WIDTHS = ((pa.uint8(), 1 << 8), (pa.uint16(), 1 << 16), (pa.uint32(), 1 << 32))


def pack_times(offsets: Micros, times: Micros) -> bytes:
    """Pack ascending offsets and the event times at them, all in microseconds.

    A time is stored as a multiple of a unit above the least time, an offset as the gap to the one before; both in the
    narrowest type that holds them. Without gaps, nothing is stored of the offsets.
    """
    least = int(times.min())
    above = times - least
    unit = next(unit for unit in _UNITS if not (above % unit).any())
    gaps = np.diff(offsets, prepend=offsets[0] - 1) - 1
    gap = _narrow(gaps) if gaps.any() else pa.nulls(len(gaps))
    metadata = {"first": str(offsets[0]), "least": str(least), "unit": str(unit)}
    return pack(pa.table({"gap": gap, "time": _narrow(above // unit)}).replace_schema_metadata(metadata))


def unpack_times(blob: bytes) -> tuple[Micros, Micros]:
    """Read the offsets and times that `pack_times` wrote."""
    table = unpack(blob)
    first, least, unit = (int(table.schema.metadata[name]) for name in (b"first", b"least", b"unit"))
    gap = table.column("gap")
    gaps = np.zeros(len(gap), dtype=np.int64) if pa.types.is_null(gap.type) else to_micros(gap)
    return first - 1 + np.cumsum(gaps + 1), least + to_micros(table.column("time")) * unit


def _narrow(values: Micros) -> pa.Array:
    most = int(values.max())
    width = next((width for width, above in _WIDTHS if most < above), pa.int64())
    return pa.array(values).cast(width)
