"""Follows the files and tables of sources while a run takes steps, each in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from windrow.connectors.source import Follower, SlotLag
from windrow.errors import RunError, SourceError, WindrowError
from windrow.telemetry.reports import Fault, OnTrouble

_SETTLED = 10.0
"""Seconds without a fault after which the next one is taken for a new one."""
_LEAVE = 10.0
"""Seconds that a follower is given to note how far it is."""


class Retries(Protocol):
    """Decides whether and when to retry; see `windrow.runtime.stream.run.RetryPolicy`."""

    def after(self, epoch: int) -> float | None:
        """Return the seconds to wait after a fault, None to give up."""
        ...


class Following:
    """Runs followers until the block ends, and again after a fault that may pass, as `retries` has it.

    `on_trouble` is called with each of these faults, `warn` with what a follower goes on in spite of.
    """

    def __init__(
        self,
        followers: Mapping[str, Follower],
        retries: Callable[[], Retries],
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
            threading.Thread(target=self._follow, args=(one,), name=f"windrow-follow-{name}", daemon=True)
            for name, one in followers.items()
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
        """Raise the error with which a follower gave up, if one did."""
        if self._failure is not None:
            raise self._failure

    def lags(self) -> Sequence[SlotLag]:
        """Return how far the logs of tables are behind the tables."""
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
                    # it was retried here: the run is not to do so once more
                    self._failure = SourceError(str(exc)) if isinstance(exc, RunError) else exc
                    return
                self._on_trouble(Fault.of(exc, f"{exc}; trying again in {pause:g} s"))
                self._stop.wait(pause)
            except Exception as exc:  # noqa: BLE001 - without its thread the run would wait for records for ever
                self._failure = exc
                return
