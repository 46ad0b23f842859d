"""Follows the files and tables of sources during a run, each in its own thread, and decides when to retry."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from windrow.connectors.follower import Follower, SlotLag
from windrow.errors import RunError, SourceError, WindrowError
from windrow.telemetry.reports import Fault, OnTrouble

_SETTLED = 10.0
"""Seconds without a fault after which the next fault counts as a new one."""
_LEAVE = 10.0
"""Seconds that a follower has at the end to record its position."""


LIMIT, CLUSTER_LIMIT = 60.0, 600.0
"""Seconds without a step after which a run gives up; a cluster takes tens of seconds to replace executors."""

_LEAST = 3
"""Minimum number of retries, because a single step may take longer than the limit."""

_FIRST, _LONGEST = 0.5, 8.0
"""Initial and maximum seconds to wait before a retry; each wait is twice as long as the previous one."""


class RetryPolicy:
    """Decides whether and when to retry; a step that is committed between two faults resets the policy."""

    def __init__(self, limit: float = LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._epoch: int | None = None
        self._since = 0.0
        self._tries = 0
        self._pause = _FIRST

    @property
    def waited(self) -> float:
        """Seconds since the first fault after the last step."""
        return self._clock() - self._since

    def after(self, epoch: int) -> float | None:
        """Return the seconds to wait after a fault, or None to give up; `epoch` is the last committed epoch."""
        if epoch != self._epoch:
            self._epoch, self._since, self._tries, self._pause = epoch, self._clock(), 0, _FIRST
        if self.waited >= self._limit and self._tries >= _LEAST:
            return None
        self._tries += 1
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST)
        return pause


class Following:
    """Runs followers until the block ends, and restarts them after a temporary fault as `retries` decides.

    `on_trouble` is called for each temporary fault, and `warn` for problems that do not stop a follower.
    """

    def __init__(
        self,
        followers: Mapping[str, Follower],
        retries: Callable[[], RetryPolicy],
        on_trouble: OnTrouble,
        warn: Callable[[str], None],
    ) -> None:
        self._followers = followers
        self._retries = retries
        self._on_trouble = on_trouble
        self._warn = warn
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._threads = [
            threading.Thread(target=self._follow, args=(follower,), name=f"windrow-follow-{name}", daemon=True)
            for name, follower in followers.items()
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_LEAVE)

    def raise_failure(self) -> None:
        """Raise the error that made a follower give up, if one did."""
        if self._failure is not None:
            raise self._failure

    def lags(self) -> Sequence[SlotLag]:
        """Return the replication lag of each followed table that reports one."""
        return tuple(lag for follower in self._followers.values() if (lag := follower.lag) is not None)

    def _follow(self, follower: Follower) -> None:
        retries, faults = self._retries(), 0
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                follower.follow(self._stop, self._warn)
            except WindrowError as exc:
                faults += time.monotonic() - began > _SETTLED
                pause = retries.after(faults) if isinstance(exc, RunError) and exc.passes else None
                if pause is None:
                    # another class, as the run must not retry it again
                    self._failure = SourceError(str(exc)) if isinstance(exc, RunError) else exc
                    return
                self._on_trouble(Fault.of(exc, f"{exc}; trying again in {pause:g} s"))
                self._stop.wait(pause)
            except Exception as exc:  # noqa: BLE001 - without this thread the run would wait for records forever
                self._failure = exc
                return
