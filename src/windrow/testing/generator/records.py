"""The bytes of a record, good or malformed; columns at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Longs = npt.NDArray[np.int64]

_CUT = 30
"""A truncated record has so many bytes: less than any whole one."""


@dataclass(frozen=True)
class Parts:
    """What records are put together from: binary columns. `log_time` is a whole member, or empty."""

    user: pa.Array
    time: pa.Array
    amount: pa.Array
    log_time: pa.Array

    def take(self, rows: Longs) -> Parts:
        """Return some of the rows."""
        at = pa.array(rows)
        return Parts(self.user.take(at), self.time.take(at), self.amount.take(at), self.log_time.take(at))

    def record(self, user: object = None, time: object = None, amount: object = None) -> pa.Array:
        """Write records, with other JSON in place of a part."""
        users = (b'"', self.user, b'"') if user is None else (user,)
        times = self.time if time is None else time
        amounts = self.amount if amount is None else amount
        pieces = (b'{"user_id": ', *users, b', "event_time": ', times, b', "amount": ', amounts, self.log_time, b"}")
        return _join(*pieces)


KINDS: dict[str, Callable[[Parts], pa.Array]] = {
    "not JSON": lambda parts: _join(b"user ", parts.user, b" spent ", parts.amount),
    "truncated": lambda parts: pc.binary_slice(parts.record(), 0, _CUT),
    "not UTF-8": lambda parts: parts.record(user=b'"\xff\xfe"'),
    "not an object": lambda parts: _join(b'["', parts.user, b'", ', parts.time, b", ", parts.amount, b"]"),
    "missing field": lambda parts: _join(b'{"user_id": "', parts.user, b'", "event_time": ', parts.time, b"}"),
    "null": lambda parts: parts.record(user=b"null"),
    "wrong type": lambda parts: parts.record(amount=b'"twelve"'),
    "too many digits": lambda parts: parts.record(amount=_join(parts.amount, b"5")),
    "amount out of range": lambda parts: parts.record(amount=_join(b"9999999999", parts.amount)),
    "time out of range": lambda parts: parts.record(time=_join(parts.time, b"00000")),
}
"""The kinds of malformed records: none is good as {user_id: string, event_time: timestamp_millis, amount:
decimal(12,2)}."""


@lru_cache(maxsize=8)
def key_bytes(users: int) -> pa.Array:
    """Return the names of all users: u00000, u00001, ..."""
    return pa.array([b"u%05d" % user for user in range(users)], pa.binary())


def render(users: pa.Array, time: Longs, cents: Longs, kind: Longs, log_time: Longs | None) -> pa.Array:
    """Write records; times in milliseconds, `kind` 0 for a good one or the number of one of `KINDS`, from 1."""
    parts = Parts(
        user=users,
        time=_digits(time),
        amount=_join(_digits(cents // 100), b".", _CENTS.take(pa.array(cents % 100))),
        log_time=_repeat(b"", len(time)) if log_time is None else _join(b', "_log_time": ', _digits(log_time)),
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


_CENTS = pa.array([b"%02d" % cents for cents in range(100)], pa.binary())


def _digits(numbers: Longs) -> pa.Array:
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def _repeat(value: bytes, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.binary()), count)


def _join(*parts: object) -> pa.Array:
    """Put binary columns and constants together, row by row."""
    columns = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.binary()))
