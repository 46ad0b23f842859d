"""Clock journal: moves of clocks that the log's records alone do not explain, which a replay reads to repeat a run.

A row says that a partition joined late, became active again, became idle or lost records, or that the input ended. It
has the first offset at which this applies, the partition's clock there, and the low watermark. From these rows, a
replay reads lower bounds of the watermarks at records (`WatermarkBounds`), the ends of the input, and the partitions
that are idle where the replay ends (`IdleAtEnd`). With these, its results are the same as those of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.engine.columns import MIN_TIME, Micros
from windrow.engine.schema import CLOCKS

LOST = "lost: "
"""Prefix of the reason in a row about lost records, followed by a description."""

_AT_RECORD = ("joined", "active")
"""Reasons with the offset of a record that was read; all others have the next offset to read."""


@dataclass(frozen=True)
class WatermarkBounds:
    """Lower bounds of the watermarks at records, as sorted rows of (partition, offset, watermark).

    A bound applies from its offset on.
    """

    rows: tuple[tuple[int, int, int], ...] = ()

    @staticmethod
    def of(journal: pa.Table) -> WatermarkBounds:
        """Read a clock journal (`windrow.engine.schema.CLOCKS`).

        If records were lost, its rows must be in the order of epochs.
        """
        rows: set[tuple[int, int, int]] = set()
        for partition, offset, reason, low in _journal_rows(journal):
            if reason.startswith(LOST):
                # a log that starts again has these offsets again
                rows = {row for row in rows if row[0] != partition or row[1] <= offset}
            if (reason in _AT_RECORD or reason.startswith(LOST)) and low is not None:
                rows.add((partition, offset, low))
        return WatermarkBounds(tuple(sorted(rows)))

    def at(self, partition: int, offsets: Micros) -> Micros:
        """Return the bound at each offset of a partition, or `MIN_TIME` where there is no bound."""
        rows = np.array([row[1:] for row in self.rows if row[0] == partition], dtype=np.int64).reshape(-1, 2)
        lows = np.concatenate(([MIN_TIME], np.maximum.accumulate(rows[:, 1])))
        bounds: Micros = lows[np.searchsorted(rows[:, 0], offsets, side="right")]
        return bounds


NO_BOUNDS = WatermarkBounds()


@dataclass(frozen=True)
class IdleAtEnd:
    """The partitions that are idle where a replay ends, each with a lower bound of its source's low watermark."""

    lows: tuple[tuple[int, int], ...] = ()

    @property
    def partitions(self) -> tuple[int, ...]:
        """The idle partitions in ascending order."""
        return tuple(partition for partition, _ in self.lows)


NO_IDLE = IdleAtEnd()


@dataclass(frozen=True)
class JournalReplay:
    """The parts of a clock journal that a replay repeats.

    For each end of the input, in order, `ends` has the next offsets. `rows` has all rows except those for ends of the
    input; the replay copies these rows because it does not produce them itself.
    """

    bounds: WatermarkBounds = NO_BOUNDS
    ends: tuple[dict[int, int], ...] = ()
    idle_at_end: IdleAtEnd = NO_IDLE
    rows: pa.Table = field(default_factory=CLOCKS.empty_table)

    @staticmethod
    def of(journal: pa.Table, end: Mapping[int, int] | None = None) -> JournalReplay:
        """Read a clock journal (`windrow.engine.schema.CLOCKS`, by epoch) up to the next offsets in `end`, if given."""
        all_rows = _journal_rows(journal)
        known = [end is None or _is_before(partition, offset, reason, end) for partition, offset, reason, _ in all_rows]
        journal = journal.select(CLOCKS.names).filter(pa.array(known, pa.bool_()))
        rows = journal.filter(pc.not_equal(journal.column("reason"), "end"))
        # ends beyond `end` in any partition are left out
        ends = [
            offsets
            for offsets in _ends(all_rows)
            if end is None or all(offset <= end.get(partition, 0) for partition, offset in offsets.items())
        ]
        return JournalReplay(WatermarkBounds.of(rows), tuple(ends), _idle_at_end(rows, end), rows)


_JournalRow = tuple[int, int, str, int | None]
"""Partition, offset, reason and low watermark (in microseconds, as it may be outside the years 1 to 9999)."""


def _journal_rows(journal: pa.Table) -> list[_JournalRow]:
    lows = journal.column("low_watermark").cast(pa.int64())
    columns = [*(journal.column(name) for name in ("partition", "offset", "reason")), lows]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _is_before(partition: int, offset: int, reason: str, end: Mapping[int, int]) -> bool:
    reached = end.get(partition, 0)
    return offset < reached if reason in _AT_RECORD else offset <= reached


def _ends(rows: Iterable[_JournalRow]) -> list[dict[int, int]]:
    """Group the rows of each end of the input.

    An end has one row for each partition, so a second row of a partition starts the next end. The rows of a step are in
    the order of partitions within their source, but sources are in no particular order.
    """
    ends: list[dict[int, int]] = []
    for partition, offset, reason, _ in rows:
        if reason == "end":
            if not ends or partition in ends[-1]:
                ends.append({})
            ends[-1][partition] = offset
        elif reason.startswith(LOST):
            # a log that starts again has these offsets again, and did not end there
            for end in ends:
                if partition in end:
                    end[partition] = min(end[partition], offset)
    return ends


def _idle_at_end(rows: pa.Table, end: Mapping[int, int] | None) -> IdleAtEnd:
    """Return the partitions that became idle and remained idle."""
    idle: dict[int, int] = {}
    for partition, offset, reason, low in _journal_rows(rows):
        # a partition with records beyond those of the journal's run is not idle
        if reason == "idle" and (end is None or offset == end.get(partition, 0)):
            idle[partition] = MIN_TIME if low is None else low
        elif reason in _AT_RECORD:
            idle.pop(partition, None)
    return IdleAtEnd(tuple(sorted(idle.items())))
