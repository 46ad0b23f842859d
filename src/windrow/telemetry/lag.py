"""How far a run is behind the end of its log: in offsets, and in time where the log has timestamps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import TracebackType
from typing import Self

from windrow.connectors.cuts import Cut
from windrow.connectors.source import SlotLag, Source
from windrow.errors import WindrowError
from windrow.telemetry.facts import PartitionName
from windrow.telemetry.reports import Lag, OnLag, OnStep, StepReport, now_micros

_EVERY = 1.0
"""Seconds between two questions."""
_LEAVE = 2.0
"""Seconds that a question which is being answered may hold up the end of a run."""
_SHARE = 0.02
"""So much of the time at most is spent on asking."""


class LagWatch:
    """Asks a source for its ends in a thread of its own, so that no step waits for the answer.

    `reached` is asked once a step, by its epoch, for the next offset of each partition after it; `epoch` is the last
    that was committed before. `on_lag` is called with each answer, so the lag grows where no step is taken, too.
    `slots` returns how far the logs of tables are behind the tables.
    """

    def __init__(
        self,
        source: Source,
        reached: Callable[[int], Cut],
        epoch: int = -1,
        on_lag: OnLag = lambda _: None,
        slots: Callable[[], Sequence[SlotLag]] = tuple,
    ) -> None:
        self._source = source
        self._reached = lru_cache(maxsize=2)(reached)
        self._epoch = epoch
        self._on_lag = on_lag
        self._slots = slots
        self._ends: Mapping[int, tuple[int, int]] | None = None
        self._log_times: dict[PartitionName, int] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="windrow-lag", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join(_LEAVE)

    def telling(self, on_step: OnStep) -> OnStep:
        """Return what is called with each step, and calls `on_step` with the step and its lag."""
        return lambda report: on_step(self._with_lag(report))

    def _with_lag(self, report: StepReport) -> StepReport:
        self._log_times |= report.log_times
        self._epoch = report.epoch
        ends, reached = self._ends, self._reached(report.epoch)
        report = report.up_to(reached)
        if ends is None:
            return report
        behind = lag(ends, reached)
        return replace(report, lag=behind, lag_seconds=lag_seconds(behind, self._log_times, report.committed))

    def _now(self, ends: Mapping[int, tuple[int, int]]) -> Lag:
        behind, now = lag(ends, self._reached(self._epoch)), now_micros()
        return Lag(now, behind, lag_seconds(behind, dict(self._log_times), now), tuple(self._slots()))

    def _ask(self) -> None:
        wait = 0.0
        while not self._closed.wait(wait):
            began = time.monotonic()
            try:
                self._ends = self._source.ends()
                self._on_lag(self._now(self._ends))
            except WindrowError:
                self._ends = None  # a log that cannot be read ends the run, which says why
            wait = max(_EVERY, (time.monotonic() - began) / _SHARE)


def lag(ends: Mapping[int, tuple[int, int]], reached: Cut) -> dict[PartitionName, int]:
    """Return how many offsets are between what was reached and the end of each partition.

    Where nothing was reached, a partition is behind by all that it holds; an end that is older than what was reached
    is no lag.
    """
    return {partition: max(0, end - reached.get(partition, first)) for partition, (first, end) in sorted(ends.items())}


def lag_seconds(
    behind: Mapping[PartitionName, int], log_times: Mapping[PartitionName, int], committed: int | None
) -> dict[PartitionName, float] | None:
    """Return by partition how many seconds ago the log had what was read last; 0 where all was read.

    `log_times` are log timestamps of the last records that were read, `committed` is when that was known. Without log
    timestamps it is unknown how far a partition is behind; None if it is known of none.
    """
    if committed is None:
        return None
    found = {
        partition: max(0.0, (committed - log_times[partition]) / 1_000_000) if offsets else 0.0
        for partition, offsets in behind.items()
        if not offsets or partition in log_times
    }
    return found or None
