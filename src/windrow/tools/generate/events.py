"""Generated events in order of arrival, and the bytes of their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.tools.generate.columns import Events, Longs, Portion, digits, hundredths, join, raw_batch, repeat
from windrow.tools.generate.fraud import card_purchases
from windrow.tools.generate.nexmark import nexmark
from windrow.tools.generate.spec import AnySpec, FraudSpec, LivePace, LogCounts, LogSpec, NexmarkSpec

Mask = npt.NDArray[np.bool_]

_MINUTE = 60_000_000
_LATE_FROM, _LATE_TO = 2 * _MINUTE, 90 * _MINUTE
_RESENT_AFTER = 1_000_000
"""Mean time in microseconds after which a record is written again, if there is no disorder."""


@dataclass(frozen=True)
class Purchases(Events):
    """Columns of purchases. `time` and `arrival` are in milliseconds.

    `kind` is 0 for a good record, or the number of a kind of malformed record in `KINDS`, starting at 1.
    """

    user: Longs
    time: Longs
    arrival: Longs
    cents: Longs
    kind: Longs
    late: Mask
    duplicate: Mask

    @property
    def counts(self) -> LogCounts:
        """The number of records, and of late, malformed and duplicate ones."""
        return LogCounts(
            len(self.user), int(self.late.sum()), int(np.count_nonzero(self.kind)), int(self.duplicate.sum())
        )


def generate(spec: LogSpec) -> Iterator[pa.RecordBatch]:
    """Yield the log in order of arrival, in batches of `windrow.engine.schema.RAW` that span all partitions.

    In each partition offsets start at 0. `log_time` is the time of arrival, in whole milliseconds.
    """
    return (portion.batches[0] for portion in _purchases(spec, None))


def portions(spec: AnySpec, pace: LivePace | None) -> Iterator[Portion]:
    """Return an iterator over portions of the events in order of arrival.

    Raise InputError if the spec cannot be generated at this pace.
    """
    match spec:
        case LogSpec():
            return _purchases(spec, pace)
        case NexmarkSpec():
            return nexmark(spec, pace)
        case FraudSpec():
            return card_purchases(spec, pace)
        case _:
            assert_never(spec)


def _purchases(spec: LogSpec, pace: LivePace | None) -> Iterator[Portion]:
    """Yield the purchases with the spec's event times at once, or live ones at the given pace."""
    rng = np.random.default_rng(spec.seed)
    offsets = np.zeros(spec.partitions, dtype=np.int64)
    if pace is None:
        time = spec.start // 1000 + rng.integers(0, spec.duration // 1000, spec.events)
        batches = iter([_events(spec, rng, time, arrival=None)])
    else:
        arrivals = (np.full(count, now // 1000) for count, now in pace.portions(spec.events))
        batches = (_events(spec, rng, arrival, arrival=arrival) for arrival in arrivals)
    for events in batches:
        for some in events.by_arrival():
            yield Portion((_batch(spec, some, offsets),), some.counts)


def _events(spec: LogSpec, rng: np.random.Generator, time: Longs, arrival: Longs | None) -> Purchases:
    """Return an event for each time. If `arrival` is given, event times are moved back so that events arrive then."""
    count = len(time)
    user = rng.integers(0, spec.users, count)
    user[rng.random(count) < spec.hot_key_share] = 0
    late = rng.random(count) < spec.late_share
    micros = rng.exponential(spec.disorder, count) + late * rng.uniform(_LATE_FROM, _LATE_TO, count)
    delay = micros.astype(np.int64) // 1000
    malformed = rng.random(count) < spec.malformed_share
    events = Purchases(
        user=user,
        time=time if arrival is None else time - delay,
        arrival=time + delay if arrival is None else arrival,
        cents=np.clip(rng.lognormal(7.0, 1.0, count), 1, 99_999_999).astype(np.int64),
        kind=np.where(malformed, rng.integers(1, len(KINDS) + 1, count), 0),
        late=late,
        duplicate=np.zeros(count, dtype=bool),
    )
    again = np.flatnonzero(rng.random(count) < spec.duplicate_share)
    if not len(again):
        return events
    copies = events.take(again)
    if arrival is None:
        copies.arrival[:] += rng.exponential(max(spec.disorder, _RESENT_AFTER), len(again)).astype(np.int64) // 1000
    copies.duplicate[:] = True
    columns = {name: np.concatenate([getattr(events, name), getattr(copies, name)]) for name in vars(events)}
    return Purchases(**columns)


def _batch(spec: LogSpec, events: Purchases, offsets: Longs) -> pa.RecordBatch:
    """Return events as records, and advance `offsets`, which holds the next offset of each partition."""
    users = key_bytes(spec.users).take(pa.array(events.user))
    values = render(users, events.time, events.cents, events.kind, events.arrival if spec.log_time else None)
    return raw_batch(events.user % spec.partitions, offsets, events.arrival * 1000, users, values)


_CUT = 30
"""Length of a truncated record in bytes, shorter than any complete record."""


@dataclass(frozen=True)
class Parts:
    """The parts of records as binary columns. `log_time` is a complete JSON member, or empty."""

    user: pa.Array
    time: pa.Array
    amount: pa.Array
    log_time: pa.Array

    def take(self, rows: Longs) -> Parts:
        """Return the parts in the given rows."""
        return Parts(**{name: column.take(pa.array(rows)) for name, column in vars(self).items()})

    def record(self, user: object = None, time: object = None, amount: object = None) -> pa.Array:
        """Return records; `user`, `time` and `amount` replace the JSON of a part."""
        users = (b'"', self.user, b'"') if user is None else (user,)
        times = self.time if time is None else time
        amounts = self.amount if amount is None else amount
        pieces = (b'{"user_id": ', *users, b', "event_time": ', times, b', "amount": ', amounts, self.log_time, b"}")
        return join(*pieces)


KINDS: dict[str, Callable[[Parts], pa.Array]] = {
    "not JSON": lambda parts: join(b"user ", parts.user, b" spent ", parts.amount),
    "truncated": lambda parts: pc.binary_slice(parts.record(), 0, _CUT),
    "not UTF-8": lambda parts: parts.record(user=b'"\xff\xfe"'),
    "not an object": lambda parts: join(b'["', parts.user, b'", ', parts.time, b", ", parts.amount, b"]"),
    "missing field": lambda parts: join(b'{"user_id": "', parts.user, b'", "event_time": ', parts.time, b"}"),
    "null": lambda parts: parts.record(user=b"null"),
    "wrong type": lambda parts: parts.record(amount=b'"twelve"'),
    "too many digits": lambda parts: parts.record(amount=join(parts.amount, b"5")),
    "amount out of range": lambda parts: parts.record(amount=join(b"9999999999", parts.amount)),
    "time out of range": lambda parts: parts.record(time=join(parts.time, b"00000")),
}
"""The kinds of malformed records, which cannot be decoded as {user_id: string, event_time: timestamp_millis, amount:
decimal(12,2)}."""


@lru_cache(maxsize=8)
def key_bytes(users: int) -> pa.Array:
    """Return the names of all users: u00000, u00001, ..."""
    return pa.array([b"u%05d" % user for user in range(users)], pa.binary())


def render(users: pa.Array, time: Longs, cents: Longs, kind: Longs, log_time: Longs | None) -> pa.Array:
    """Return purchases as records. Times are milliseconds.

    `kind` is 0 for a good record, or the number of a kind of malformed record in `KINDS`, starting at 1.
    """
    parts = Parts(
        user=users,
        time=digits(time),
        amount=hundredths(cents),
        log_time=repeat(b"", len(time)) if log_time is None else join(b', "_log_time": ', digits(log_time)),
    )
    good = parts.record()
    if not kind.any():
        return good
    arrays, at = [good], np.arange(len(kind))
    below = len(kind)
    for number, write in enumerate(KINDS.values(), start=1):
        rows = np.flatnonzero(kind == number)
        arrays.append(write(parts.take(rows)))
        at[rows] = below + np.arange(len(rows))
        below += len(rows)
    return pa.concat_arrays(arrays).take(pa.array(at))
