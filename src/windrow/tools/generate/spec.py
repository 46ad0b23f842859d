"""The specification of a generated log, its counts, and the pace of a live one."""

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
"""The least values of fields; shares are from 0 to 1."""


@dataclass(frozen=True)
class _Spec:
    """The common part of all specs: `events` events in `partitions` partitions of each log; times in microseconds.

    Event times are spread evenly over `duration` from `start`. A record arrives in its log a delay of mean `disorder`
    after its event. `log_time` writes the time of arrival into each record, as ``_log_time``. Raises InputError for
    values out of range.
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
    """A log of purchases of `users` users, with event times in whole milliseconds.

    Delays are exponential; `late_share` of the records arrive 2 to 90 minutes later still. Of the records
    `malformed_share` are unusable in some way, `duplicate_share` come a second time, and `hot_key_share` are of one
    user. A user's records are all in one partition.
    """

    users: int = 10_000
    late_share: float = 0.003
    malformed_share: float = 0.001
    duplicate_share: float = 0.0
    hot_key_share: float = 0.0


@dataclass(frozen=True)
class NexmarkSpec(_Spec):
    """Logs of an online auction, with `events` in all and event times in whole milliseconds.

    Of 50 events one is a person, 3 are auctions and 46 are bids, each kind in a log of its own. Delays are uniform, so
    at most twice `disorder`.
    """

    logs: ClassVar[tuple[str, ...]] = ("persons", "auctions", "bids")

    def records(self, events: int) -> dict[str, int]:
        """Return how many of the first `events` events are in each log."""
        rounds, rest = divmod(events, NEXMARK_ROUND)
        counts, first = {}, 0
        for log, share in zip(self.logs, NEXMARK_SHARES, strict=True):
            counts[log] = rounds * share + min(max(rest - first, 0), share)
            first += share
        return counts


@dataclass(frozen=True)
class FraudSpec(_Spec):
    """A log of purchases by cards, some of them fraud.

    `cards` people buy where they live, or where they travel to; None is a hundred for each purchase a second, and at
    least 10,000. At `fraud_share` of the purchases a case of fraud begins; the purchases at which the rule for its kind
    holds have labels, which are no part of the records. Delays are exponential; `late_share` of the records arrive up
    to `late_by` later still, and `duplicate_share` come a second time. A card's records are all in one partition, that
    of the CRC-32 of its name, as librdkafka's `consistent` partitioner chooses it.
    """

    cards: int | None = None
    late_share: float = 0.003
    late_by: int = 15 * _MINUTE
    duplicate_share: float = 0.0
    fraud_share: float = 0.001

    def cards_at(self, rate: float) -> int:
        """Return the number of cards for a rate of purchases a second; raise InputError if `cards` are too few."""
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
"""The numbers of persons, auctions and bids in a round of events, in this order."""

NEXMARK_ROUND = sum(NEXMARK_SHARES)


@dataclass(frozen=True)
class LogCounts:
    """The numbers of records written; `late`, `malformed`, `duplicates` and those with `labels` are among `records`."""

    records: int = 0
    late: int = 0
    malformed: int = 0
    duplicates: int = 0
    labels: int = 0

    def __add__(self, other: LogCounts) -> LogCounts:
        return LogCounts(*map(add, astuple(self), astuple(other)))


Progress = Callable[[LogCounts], None] | None
"""Called with the numbers of records after each portion."""


@dataclass(frozen=True)
class LivePace:
    """`rate` events a second, generated every `tick` seconds.

    `now` returns microseconds, and `wait` waits some seconds and returns whether to stop.
    """

    rate: float
    now: Callable[[], int] = now_micros
    wait: Callable[[float], bool] = field(default_factory=lambda: threading.Event().wait)
    tick: float = 0.1

    def portions(self, events: int) -> Iterator[tuple[int, int]]:
        """Yield (the number of events that are due, the time), up to `events` in all or until `wait` says to stop."""
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
