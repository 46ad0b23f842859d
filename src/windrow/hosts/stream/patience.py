"""How long a run goes on trying after a fault that may pass by itself."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT = 60.0
"""Seconds without a step, after which a run gives up."""

_LEAST = 3
"""So often it tries again in any case: a step of its own may take longer than the limit."""

_FIRST, _LONGEST = 0.5, 8.0
"""Seconds to wait before the first try and, as each wait is twice the one before, at the most."""


class Patience:
    """Says whether to try again, and when; each step that is committed between two faults renews it."""

    def __init__(self, limit: float = LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._epoch: int | None = None
        self._since = 0.0
        self._tries = 0
        self._pause = _FIRST

    @property
    def waited(self) -> float:
        """Seconds since the first of the faults that no step came between."""
        return self._clock() - self._since

    def after(self, epoch: int) -> float | None:
        """Return the seconds to wait after a fault, None to give up; `epoch` is the last that was committed."""
        if epoch != self._epoch:
            self._epoch, self._since, self._tries, self._pause = epoch, self._clock(), 0, _FIRST
        if self.waited >= self._limit and self._tries >= _LEAST:
            return None
        self._tries += 1
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST)
        return pause
