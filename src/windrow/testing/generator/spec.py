"""The specification of a generated log, its counts, and the pace of a live one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from windrow.errors import InputError
from windrow.model import format_duration

_MILLISECOND = 1_000
_SECOND = 1_000_000
_HOUR = 3_600 * _SECOND
START = 1_767_225_600 * _SECOND
"""2026-01-01 00:00:00 UTC."""


@dataclass(frozen=True)
class LogSpec:
    """A log of events: `events` purchases of `users` users in `partitions` partitions; times in microseconds.

    Event times are spread evenly over `duration` from `start`, in whole milliseconds. A record arrives in the log an
    exponential delay of mean `disorder` after its event; `late_share` of them 2 to 90 minutes later still. Of the
    records `malformed_share` are unusable in some way, `duplicate_share` come a second time, and `hot_key_share` are
    of one user. A user's records are all in one partition. `log_time` writes the time of arrival into each record, as
    ``_log_time``. Raises InputError for what makes no sense.
    """

    logs: ClassVar[tuple[str, ...]] = ("",)

    events: int = 1_000_000
    users: int = 10_000
    partitions: int = 4
    seed: int = 1
    start: int = START
    duration: int = 24 * _HOUR
    disorder: int = 4 * _SECOND
    late_share: float = 0.003
    malformed_share: float = 0.001
    duplicate_share: float = 0.0
    hot_key_share: float = 0.0
    log_time: bool = False

    def __post_init__(self) -> None:
        _at_least(self, {"events": 0, "users": 1, "partitions": 1, "duration": _MILLISECOND, "disorder": 0})
        for name in ("late_share", "malformed_share", "duplicate_share", "hot_key_share"):
            if not 0 <= getattr(self, name) <= 1:
                msg = f"{name} must be from 0 to 1, not {getattr(self, name)}"
                raise InputError(msg)


@dataclass(frozen=True)
class NexmarkSpec:
    """Logs of an online auction, of `events` events in all, each log in `partitions` partitions; times in microseconds.

    Of 50 events one is a person, 3 are auctions and 46 are bids, each kind in a log of its own. Event times are spread
    evenly over `duration` from `start`, in whole milliseconds. A record arrives in its log a uniform delay of mean
    `disorder` after its event, so at most twice that. `log_time` writes the time of arrival into each record, as
    ``_log_time``. Raises InputError for what makes no sense.
    """

    logs: ClassVar[tuple[str, ...]] = ("persons", "auctions", "bids")

    events: int = 1_000_000
    partitions: int = 4
    seed: int = 1
    start: int = START
    duration: int = 24 * _HOUR
    disorder: int = 4 * _SECOND
    log_time: bool = False

    def __post_init__(self) -> None:
        _at_least(self, {"events": 0, "partitions": 1, "duration": _MILLISECOND, "disorder": 0})

    def records(self, events: int) -> dict[str, int]:
        """Return how many of the first `events` events are in each log."""
        rounds, rest = divmod(events, NEXMARK_ROUND)
        counts, first = {}, 0
        for log, share in zip(self.logs, NEXMARK_SHARES, strict=True):
            counts[log] = rounds * share + min(max(rest - first, 0), share)
            first += share
        return counts


NEXMARK_SHARES = (1, 3, 46)
"""Of a round of events so many are persons, auctions and bids, in this order."""

NEXMARK_ROUND = sum(NEXMARK_SHARES)


def _at_least(spec: LogSpec | NexmarkSpec, limits: dict[str, int]) -> None:
    for name, least in limits.items():
        if getattr(spec, name) < least:
            text = format_duration if name in ("duration", "disorder") else str
            msg = f"{name} must be at least {text(least)}, not {text(getattr(spec, name))}"
            raise InputError(msg)


@dataclass(frozen=True)
class Made:
    """The numbers of records written; `late`, `malformed` and `duplicates` are among `records`."""

    records: int = 0
    late: int = 0
    malformed: int = 0
    duplicates: int = 0

    def __add__(self, other: Made) -> Made:
        return Made(
            self.records + other.records,
            self.late + other.late,
            self.malformed + other.malformed,
            self.duplicates + other.duplicates,
        )


_TICK = 0.1


def _now() -> int:
    return time.time_ns() // 1000


def _wait(seconds: float) -> bool:
    return threading.Event().wait(seconds)


@dataclass(frozen=True)
class LivePace:
    """`rate` events a second; `now` returns microseconds, and `wait` waits some seconds and returns whether to stop."""

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
