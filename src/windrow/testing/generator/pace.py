"""A live stream: so many events a second, now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_TICK = 0.1


def _now() -> int:
    return time.time_ns() // 1000


def _wait(seconds: float) -> bool:
    return threading.Event().wait(seconds)


@dataclass(frozen=True)
class Pace:
    """`rate` events a second; `now` tells microseconds, and `wait` waits some seconds and says whether to stop."""

    rate: float
    now: Callable[[], int] = _now
    wait: Callable[[float], bool] = _wait

    def portions(self, events: int) -> Iterator[tuple[int, int]]:
        """Yield (how many events are due, the time), until there were `events` or `wait` says to stop."""
        start = self.now()
        sent = 0
        while True:
            now = self.now()
            due = min(events, int((now - start) * self.rate / 1_000_000))
            if due > sent:
                yield due - sent, now
                sent = due
            if sent == events or self.wait(_TICK):
                return
