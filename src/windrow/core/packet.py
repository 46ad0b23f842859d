"""What travels from the clock stage to a key group: one row, whatever the number of records in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windrow.core.micros import BEFORE_ALL
from windrow.core.packing import Blob

PacketKind = Literal["records", "parts", "dead", "times", "clock", "tick", "lost", "idle", "end"]


@dataclass(frozen=True)
class Packet:
    """One row for one key group.

    ``records`` carries good records (`windrow.core.records.record_schema`), ``dead`` carries dead letters, both packed
    in `blob`. ``parts`` carries panes (or slices), aggregated by the group `partition` of a salted pipeline, of `next`
    records of one step. ``times`` carries the event times of all good records of a partition, whatever their key, from
    the offset `first` on (`windrow.core.times`); only where the delay depends on them. ``clock`` says where a partition
    stands at the end of the step: its `watermark` as far as the step's records moved it, the `first` offset that the
    step read and the `next` one to be read, and the greatest event time that it `reached` in the step. ``tick`` is the
    processing time, in `watermark`. ``lost`` says that records of a partition are gone, that it goes on at the offset
    `first`, and in `blob` what happened. ``idle`` is what a journal says where a replay ends: `partition` is idle, and
    the low watermark is not below `watermark`. ``end`` is the end of the input.
    """

    key_group: int
    kind: PacketKind
    partition: int = -1
    watermark: int = 0
    first: int = 0
    next: int = 0
    reached: int = BEFORE_ALL
    blob: Blob = b""
