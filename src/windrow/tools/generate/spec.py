"""The specification of a generated log, the record counts, and the pace of a live log."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, field
from operator import add
from typing import ClassVar

from windrow import model as m
from windrow.errors import InputError
from windrow.telemetry.reports import now_micros

_MILLISECOND = 1_000
_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
START = 1_767_225_600 * _SECOND
"""2026-01-01 00:00:00 UTC."""


_LEAST = {
    "events": 0,
    "users": 1,
    "cards": 1,
    "partitions": 1,
    "duration": _MILLISECOND,
    "disorder": 0,
    "late_by": 0,
}
"""The minimum values of fields. Shares are from 0 to 1."""


@dataclass(frozen=True)
class _Spec:
    """The fields shared by all specs: `events` events in `partitions` partitions of each log; times are microseconds.

    Event times are spread evenly over `duration` from `start`. A record arrives in its log with a mean delay of
    `disorder` after its event. With `log_time`, the time of arrival is written into each record as ``_log_time``. Raise
    InputError for values out of range.
    """

    logs: ClassVar[tuple[str, ...]] = ("",)

    events: int = 1_000_000
    partitions: int = 4
    seed: int = 1
    start: int = START
    duration: int = 24 * _HOUR
    disorder: int = 4 * _SECOND
    log_time: bool = False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = max(_LEAST.get(name, 0), _MINUTE if name == "duration" and isinstance(self, FraudSpec) else 0)
            if name in _LEAST and value is not None and value < least:
                text = m.format_duration if name in ("duration", "disorder", "late_by") else str
                msg = f"{name} must be at least {text(least)}, not {text(value)}"
                raise InputError(msg)
            if name.endswith("_share") and not 0 <= value <= 1:
                msg = f"{name} must be from 0 to 1, not {value}"
                raise InputError(msg)


@dataclass(frozen=True)
class LogSpec(_Spec):
    """A log of purchases by `users` users, with event times in whole milliseconds.

    Delays are exponential; a `late_share` of the records arrive another 2 to 90 minutes later. A `malformed_share` of
    the records cannot be decoded for various reasons, a `duplicate_share` are written twice, and a `hot_key_share`
    belong to a single user. All records of a user are in one partition.
    """

    users: int = 10_000
    late_share: float = 0.003
    malformed_share: float = 0.001
    duplicate_share: float = 0.0
    hot_key_share: float = 0.0


@dataclass(frozen=True)
class NexmarkSpec(_Spec):
    """Logs of an online auction, with `events` events in total and event times in whole milliseconds.

    In every 50 events, one is a person, 3 are auctions and 46 are bids, and each of the three has a log of its own.
    Delays are uniform, so they are at most twice `disorder`.
    """

    logs: ClassVar[tuple[str, ...]] = ("persons", "auctions", "bids")

    def records(self, events: int) -> dict[str, int]:
        """Return how many of the first `events` events each log has."""
        rounds, rest = divmod(events, NEXMARK_ROUND)
        counts, first = {}, 0
        for log, share in zip(self.logs, NEXMARK_SHARES, strict=True):
            counts[log] = rounds * share + min(max(rest - first, 0), share)
            first += share
        return counts


@dataclass(frozen=True)
class FraudSpec(_Spec):
    """A log of purchases by card, some of them fraudulent.

    There are `cards` people, who buy where they live or where they travel. None stands for 100 people for each purchase
    per second, and at least 10,000. At a `fraud_share` of the purchases a case of fraud begins. The purchases that
    match the rule for its kind have labels, which are not part of the records. Delays are exponential; a `late_share`
    of the records arrive up to `late_by` later still, and a `duplicate_share` are written twice. All records of a card
    are in one partition, chosen by the CRC-32 of the card's name as in librdkafka's `consistent` partitioner.
    """

    cards: int | None = None
    late_share: float = 0.003
    late_by: int = 15 * _MINUTE
    duplicate_share: float = 0.0
    fraud_share: float = 0.001

    def cards_at(self, rate: float) -> int:
        """Return the number of cards for a rate in purchases per second; raise InputError if `cards` is too low."""
        if self.cards is None:
            return max(_CARDS, math.ceil(rate * _CARDS_OF_EACH))
        least = math.ceil(rate * _SECONDS_BETWEEN)
        if self.cards < least:
            msg = (
                f"cards must be at least {least:,} for {rate:,.6g} purchases per second, not {self.cards:,}: a card is "
                "used at most twice a minute on average"
            )
            raise InputError(msg)
        return self.cards


_CARDS = 10_000
_CARDS_OF_EACH = 100
_SECONDS_BETWEEN = 30

AnySpec = LogSpec | NexmarkSpec | FraudSpec

NEXMARK_SHARES = (1, 3, 46)
"""The number of persons, auctions and bids in a round of events, in this order."""

NEXMARK_ROUND = sum(NEXMARK_SHARES)


@dataclass(frozen=True)
class LogCounts:
    """The number of records written, and how many of them are late, malformed, duplicates, or labelled."""

    records: int = 0
    late: int = 0
    malformed: int = 0
    duplicates: int = 0
    labels: int = 0

    def __add__(self, other: LogCounts) -> LogCounts:
        return LogCounts(*map(add, astuple(self), astuple(other)))


Progress = Callable[[LogCounts], None] | None
"""A function that is called with the record counts after each portion."""


@dataclass(frozen=True)
class LivePace:
    """The pace of a live log: `rate` events per second, generated every `tick` seconds.

    The function `now` returns microseconds. `wait` waits for some seconds and returns True if generation should stop.
    """

    rate: float
    now: Callable[[], int] = now_micros
    wait: Callable[[float], bool] = field(default_factory=lambda: threading.Event().wait)
    tick: float = 0.1

    def portions(self, events: int) -> Iterator[tuple[int, int]]:
        """Yield (number of events due, time) until there are `events` events or `wait` returns True."""
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
