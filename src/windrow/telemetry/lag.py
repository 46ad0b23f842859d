"""How far a run is behind the end of its log: in offsets, and in time if the log has timestamps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import TracebackType
from typing import Self

from windrow.connectors.cuts import Cut
from windrow.connectors.follower import SlotLag
from windrow.connectors.source import Source
from windrow.errors import WindrowError
from windrow.telemetry.facts import PartitionName
from windrow.telemetry.reports import Lag, OnLag, OnStep, StepReport, now_micros

_EVERY = 1.0
"""Minimum seconds between two queries."""
_LEAVE = 2.0
"""Maximum seconds by which a running query may delay the end of a run."""
_SHARE = 0.02
"""Maximum share of the time spent on queries."""


class LagWatch:
    """Queries the end offsets of a source in a background thread, so that no step has to wait for them.

    After the step of an epoch, `reached` returns the next offset of each partition; it is called once per step. `epoch`
    is the last epoch committed before the run started. `on_lag` is called after each query, so the lag is updated
    between steps, too. `slots` returns how far the logs of tables are behind the tables.
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
        self._thread = threading.Thread(target=self._work, name="windrow-lag", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join(_LEAVE)

    def with_lag(self, on_step: OnStep) -> OnStep:
        """Wrap `on_step` so that each report includes the lag."""
        return lambda report: on_step(self._add_lag(report))

    def _add_lag(self, report: StepReport) -> StepReport:
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

    def _work(self) -> None:
        wait = 0.0
        while not self._closed.wait(wait):
            began = time.monotonic()
            try:
                self._ends = self._source.ends()
                self._on_lag(self._now(self._ends))
            except (WindrowError, OSError):
                self._ends = None  # a log that cannot be read ends the run with its error
            wait = max(_EVERY, (time.monotonic() - began) / _SHARE)


def lag(ends: Mapping[int, tuple[int, int]], reached: Cut) -> dict[PartitionName, int]:
    """Return how many offsets each partition is behind its end.

    For a partition that has no offset yet, all its records count. If the end is below the offset because the end was
    queried earlier, the lag is 0.
    """
    return {partition: max(0, end - reached.get(partition, first)) for partition, (first, end) in sorted(ends.items())}


def lag_seconds(
    behind: Mapping[PartitionName, int], log_times: Mapping[PartitionName, int], committed: int | None
) -> dict[PartitionName, float] | None:
    """Return the age in seconds of the last record read from each partition, or 0 if all its records were read.

    `log_times` are the log timestamps of these records; `committed` is the commit time of the step, in microseconds.
    Partitions without log timestamps are omitted. Return None if no partition is left, or if `committed` is None.
    """
    if committed is None:
        return None
    found = {
        partition: max(0.0, (committed - log_times[partition]) / 1_000_000) if offsets else 0.0
        for partition, offsets in behind.items()
        if not offsets or partition in log_times
    }
    return found or None
