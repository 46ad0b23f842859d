"""How far behind the log's end a run is, asked beside its steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from windrow.errors import WindrowError
from windrow.hosts.report import OnStep
from windrow.sources import Cut, Source

_EVERY = 1.0
"""Seconds between two questions."""
_LEAVE = 2.0
"""Seconds that a question which is being answered may hold up the end of a run."""
_SHARE = 0.02
"""So much of the time at most is spent on asking."""


class LagWatch:
    """Asks a source for its ends in a thread of its own, so that no step waits for the answer.

    `reached` is asked once a step, by its epoch, for the next offset of each partition after it.
    """

    def __init__(self, source: Source, reached: Callable[[int], Cut]) -> None:
        self._source = source
        self._reached = reached
        self._ends: Mapping[int, tuple[int, int]] | None = None
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
        return lambda report: on_step(replace(report, lag=self._lag(report.epoch)))

    def _lag(self, epoch: int) -> dict[int, int] | None:
        ends = self._ends
        return None if ends is None else lag(ends, self._reached(epoch))

    def _ask(self) -> None:
        wait = 0.0
        while not self._closed.wait(wait):
            began = time.monotonic()
            try:
                self._ends = self._source.ends()
            except WindrowError:
                self._ends = None  # a log that cannot be read ends the run, which says why
            wait = max(_EVERY, (time.monotonic() - began) / _SHARE)


def lag(ends: Mapping[int, tuple[int, int]], reached: Cut) -> dict[int, int]:
    """Return how many offsets are between what was reached and the end of each partition.

    Where nothing was reached, a partition is behind by all that it holds; an end that is older than what was reached
    is no lag.
    """
    return {partition: max(0, end - reached.get(partition, first)) for partition, (first, end) in sorted(ends.items())}
