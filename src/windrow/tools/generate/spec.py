"""The specification of a generated log, its counts, and the pace of a live one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from windrow import model as m
from windrow.errors import InputError

_MILLISECOND = 1_000
_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
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
        _shares(self, ("late_share", "malformed_share", "duplicate_share", "hot_key_share"))


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


@dataclass(frozen=True)
class FraudSpec:
    """A log of `events` purchases by cards in `partitions` partitions, some of them fraud; times in microseconds.

    `cards` people buy where they live, or where they travel to; None is a hundred for each purchase a second, and at
    least 10,000. At `fraud_share` of the purchases a case of fraud begins; the purchases at which the rule for its kind
    holds have labels, which are no part of the records. Event times are spread evenly over `duration` from `start`. A
    record arrives in the log an exponential delay of mean `disorder` after its event; `late_share` of them up to
    `late_by` later still, and `duplicate_share` come a second time. A card's records are all in one partition, that of
    the CRC-32 of its name, as librdkafka's `consistent` partitioner chooses it. `log_time` writes the time of arrival
    into each record, as ``_log_time``. Raises InputError for what makes no sense.
    """

    logs: ClassVar[tuple[str, ...]] = ("",)

    events: int = 1_000_000
    cards: int | None = None
    partitions: int = 4
    seed: int = 1
    start: int = START
    duration: int = 24 * _HOUR
    disorder: int = 4 * _SECOND
    late_share: float = 0.003
    late_by: int = 15 * _MINUTE
    duplicate_share: float = 0.0
    fraud_share: float = 0.001
    log_time: bool = False

    def __post_init__(self) -> None:
        least = {"events": 0, "partitions": 1, "duration": _MINUTE, "disorder": 0, "late_by": 0}
        _at_least(self, least if self.cards is None else {**least, "cards": 1})
        _shares(self, ("late_share", "duplicate_share", "fraud_share"))

    def cards_at(self, rate: float) -> int:
        """Return the number of cards for so many purchases a second; raise InputError if `cards` are too few."""
        if self.cards is None:
            return max(_CARDS, math.ceil(rate * _CARDS_OF_EACH))
        least = math.ceil(rate * _SECONDS_BETWEEN)
        if self.cards < least:
            msg = (
                f"cards must be at least {least:,} for {rate:,.6g} purchases a second, not {self.cards:,}: a card is "
                "used twice a minute at most, in the mean"
            )
            raise InputError(msg)
        return self.cards


_CARDS = 10_000
_CARDS_OF_EACH = 100
_SECONDS_BETWEEN = 30

AnySpec = LogSpec | NexmarkSpec | FraudSpec

NEXMARK_SHARES = (1, 3, 46)
"""Of a round of events so many are persons, auctions and bids, in this order."""

NEXMARK_ROUND = sum(NEXMARK_SHARES)


def _at_least(spec: AnySpec, limits: dict[str, int]) -> None:
    for name, least in limits.items():
        if getattr(spec, name) < least:
            text = m.format_duration if name in ("duration", "disorder", "late_by") else str
            msg = f"{name} must be at least {text(least)}, not {text(getattr(spec, name))}"
            raise InputError(msg)


def _shares(spec: AnySpec, names: tuple[str, ...]) -> None:
    for name in names:
        if not 0 <= getattr(spec, name) <= 1:
            msg = f"{name} must be from 0 to 1, not {getattr(spec, name)}"
            raise InputError(msg)


@dataclass(frozen=True)
class Made:
    """The numbers of records written; `late`, `malformed`, `duplicates` and those with `labels` are among `records`."""

    records: int = 0
    late: int = 0
    malformed: int = 0
    duplicates: int = 0
    labels: int = 0

    def __add__(self, other: Made) -> Made:
        return Made(
            self.records + other.records,
            self.late + other.late,
            self.malformed + other.malformed,
            self.duplicates + other.duplicates,
            self.labels + other.labels,
        )


def _now() -> int:
    return time.time_ns() // 1000


def _wait(seconds: float) -> bool:
    return threading.Event().wait(seconds)


@dataclass(frozen=True)
class LivePace:
    """`rate` events a second, some every `tick` seconds.

    `now` returns microseconds, and `wait` waits some seconds and returns whether to stop.
    """

    rate: float
    now: Callable[[], int] = _now
    wait: Callable[[float], bool] = _wait
    tick: float = 0.1

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
            if sent == events or self.wait(self.tick):
                return
