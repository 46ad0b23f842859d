"""Clock journal: the moves of clocks that the log's records alone do not explain, read by a replay to repeat a run.

A row says that a partition joined late, came back, fell idle, lost records, or that the input ended; it holds the
first offset that it is true of, the partition's clock there and the low watermark. From these rows a replay takes the
watermarks that records are not below (`WatermarkBounds`), the ends of the input, and which partitions are idle where
it ends (`IdleAtEnd`); with them it computes what the run computed.
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
"""Prefix of the reason of a row that says which records are lost; what happened follows."""

_AT_RECORD = ("joined", "active")
"""Reasons whose offset is that of a record that was read; of all others it is the next one to be read."""


@dataclass(frozen=True)
class WatermarkBounds:
    """Lower bounds of the watermarks at records: rows of (partition, offset, watermark), sorted.

    A bound holds from its offset on.
    """

    rows: tuple[tuple[int, int, int], ...] = ()

    @staticmethod
    def of(journal: pa.Table) -> WatermarkBounds:
        """Read a clock journal (`windrow.engine.schema.CLOCKS`) that is in the order of epochs if records were lost."""
        columns = zip(
            journal.column("partition").to_pylist(),
            journal.column("offset").to_pylist(),
            journal.column("low_watermark").cast(pa.int64()).to_pylist(),
            journal.column("reason").to_pylist(),
            strict=True,
        )
        rows: set[tuple[int, int, int]] = set()
        for partition, offset, low, reason in columns:
            if reason.startswith(LOST):
                # a log that starts again has these offsets once more
                rows = {row for row in rows if row[0] != partition or row[1] <= offset}
            if (reason in _AT_RECORD or reason.startswith(LOST)) and low is not None:
                rows.add((partition, offset, low))
        return WatermarkBounds(tuple(sorted(rows)))

    def at(self, partition: int, offsets: Micros) -> Micros:
        """Return the bound at each offset of a partition; `MIN_TIME` where there is none."""
        rows = np.array([row[1:] for row in self.rows if row[0] == partition], dtype=np.int64).reshape(-1, 2)
        lows = np.concatenate(([MIN_TIME], np.maximum.accumulate(rows[:, 1])))
        bounds: Micros = lows[np.searchsorted(rows[:, 0], offsets, side="right")]
        return bounds


NO_BOUNDS = WatermarkBounds()


@dataclass(frozen=True)
class IdleAtEnd:
    """The partitions that are idle where a replay ends, each with a lower bound of its source's low watermark there."""

    lows: tuple[tuple[int, int], ...] = ()

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions, in order."""
        return tuple(partition for partition, _ in self.lows)


NO_IDLE = IdleAtEnd()


@dataclass(frozen=True)
class JournalReplay:
    """The parts of a clock journal that a replay repeats.

    `ends` are the next offsets at each end of the input, in order. `rows` are the rows that a replay copies because it
    does not produce them itself: all but the ends.
    """

    bounds: WatermarkBounds = NO_BOUNDS
    ends: tuple[dict[int, int], ...] = ()
    idle_at_end: IdleAtEnd = NO_IDLE
    rows: pa.Table = field(default_factory=CLOCKS.empty_table)

    @staticmethod
    def of(journal: pa.Table, end: Mapping[int, int] | None = None) -> JournalReplay:
        """Read a clock journal (`windrow.engine.schema.CLOCKS`, by epoch) up to the next offsets of `end`, if given."""
        partitions, offsets, reasons = (journal.column(name).to_pylist() for name in ("partition", "offset", "reason"))
        known = [
            end is None or _is_before(partition, offset, reason, end)
            for partition, offset, reason in zip(partitions, offsets, reasons, strict=True)
        ]
        journal = journal.select(CLOCKS.names).filter(pa.array(known, pa.bool_()))
        rows = journal.filter(pc.not_equal(journal.column("reason"), "end"))
        # an end that lies beyond `end` in any partition is left out
        ends = [
            one
            for one in _ends(zip(partitions, offsets, reasons, strict=True))
            if end is None or all(offset <= end.get(partition, 0) for partition, offset in one.items())
        ]
        return JournalReplay(WatermarkBounds.of(rows), tuple(ends), _idle_at_end(rows, end), rows)


def _is_before(partition: int, offset: int, reason: str, end: Mapping[int, int]) -> bool:
    reached = end.get(partition, 0)
    return offset < reached if reason in _AT_RECORD else offset <= reached


def _ends(rows: Iterable[tuple[int, int, str]]) -> list[dict[int, int]]:
    """Group the rows of each end: it has one for each partition, so one that is there already starts the next.

    The rows of a step are in the order of partitions within their source, but not of the sources.
    """
    ends: list[dict[int, int]] = []
    for partition, offset, reason in rows:
        if reason == "end":
            if not ends or partition in ends[-1]:
                ends.append({})
            ends[-1][partition] = offset
        elif reason.startswith(LOST):
            # a log that starts again has these offsets once more, and did not end there
            for end in ends:
                if partition in end:
                    end[partition] = min(end[partition], offset)
    return ends


def _idle_at_end(rows: pa.Table, end: Mapping[int, int] | None) -> IdleAtEnd:
    """Return the partitions that became idle and stayed so; times stay numbers, as they may be of any year."""
    idle: dict[int, int] = {}
    partitions, offsets, reasons = (rows.column(name).to_pylist() for name in ("partition", "offset", "reason"))
    lows = rows.column("low_watermark").cast(pa.int64()).to_pylist()
    for partition, offset, reason, low in zip(partitions, offsets, reasons, lows, strict=True):
        # a partition with records beyond those of the journal's run is not idle
        if reason == "idle" and (end is None or offset == end.get(partition, 0)):
            idle[partition] = MIN_TIME if low is None else low
        elif reason in _AT_RECORD:
            idle.pop(partition, None)
    return IdleAtEnd(tuple(sorted(idle.items())))
