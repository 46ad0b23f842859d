"""What a clock journal tells a replay: floors, ends, and who was silent where the replay ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from windrow.core.floors import LOST, NO_FLOORS, Floors
from windrow.core.micros import BEFORE_ALL
from windrow.core.schema import CLOCKS

_AT_RECORD = ("joined", "active")
"""Reasons whose offset is that of a record that was read, and not the next to be read."""


@dataclass(frozen=True)
class Silence:
    """The partitions that are idle where a replay ends, and what the low watermark is not below there (micros)."""

    partitions: tuple[int, ...] = ()
    low: int = BEFORE_ALL


NO_SILENCE = Silence()


@dataclass(frozen=True)
class Retelling:
    """What a replay repeats; `ends` are the next offsets at which a run was told the end of the input, in order.

    `rows` are those of the journal that a replay writes again, as it does not come upon them itself: all but the ends.
    """

    floors: Floors = NO_FLOORS
    ends: tuple[dict[int, int], ...] = ()
    silence: Silence = NO_SILENCE
    rows: pa.Table = field(default_factory=CLOCKS.empty_table)

    @staticmethod
    def of(journal: pa.Table, end: Mapping[int, int] | None = None) -> Retelling:
        """Read a clock journal (`windrow.core.schema.CLOCKS`, by epoch) up to the next offsets of `end`, if given."""
        partitions, offsets, reasons = (journal.column(name).to_pylist() for name in ("partition", "offset", "reason"))
        known = [
            end is None or _is_before(partition, offset, reason, end)
            for partition, offset, reason in zip(partitions, offsets, reasons, strict=True)
        ]
        journal = journal.select(CLOCKS.names).filter(pa.array(known, pa.bool_()))
        rows = journal.filter(pc.not_equal(journal.column("reason"), "end"))
        # of an end that is further on in one partition, nothing is told
        ends = [
            one
            for one in _ends(zip(partitions, offsets, reasons, strict=True))
            if end is None or all(offset <= end.get(partition, 0) for partition, offset in one.items())
        ]
        return Retelling(Floors.of(rows), tuple(ends), _silence(rows, end), rows)


def _is_before(partition: int, offset: int, reason: str, end: Mapping[int, int]) -> bool:
    reached = end.get(partition, 0)
    return offset < reached if reason in _AT_RECORD else offset <= reached


def _ends(rows: Iterable[tuple[int, int, str]]) -> list[dict[int, int]]:
    """Gather the rows of each end: those of one step are ordered by partition, and begin with the lowest."""
    ends: list[dict[int, int]] = []
    before = None
    for partition, offset, reason in rows:
        if reason == "end":
            if before is None or partition <= before:
                ends.append({})
            ends[-1][partition] = offset
            before = partition
        elif reason.startswith(LOST):
            # a log that begins anew has these offsets again, and was not ended there
            for one in ends:
                if partition in one:
                    one[partition] = min(one[partition], offset)
    return ends


def _silence(rows: pa.Table, end: Mapping[int, int] | None) -> Silence:
    """Return who fell idle and did not come back; times stay numbers, as they may be of any year."""
    idle: dict[int, int | None] = {}
    partitions, offsets, reasons = (rows.column(name).to_pylist() for name in ("partition", "offset", "reason"))
    lows = rows.column("low_watermark").cast(pa.int64()).to_pylist()
    for partition, offset, reason, low in zip(partitions, offsets, reasons, lows, strict=True):
        # who has records that the journal's run has not come to is not idle
        if reason == "idle" and (end is None or offset == end.get(partition, 0)):
            idle[partition] = low
        elif reason in _AT_RECORD:
            idle.pop(partition, None)
    return Silence(tuple(sorted(idle)), max((low for low in idle.values() if low is not None), default=BEFORE_ALL))
