"""Logs made from a seed: what a case is fed, step by step.

A feed is made by arithmetic on `random.Random(text).random()` alone, which gives the same numbers everywhere. The
expected files hold a digest of it, so a changed generator is told from a changed answer.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Told:
    """A tick: it is `micros` of processing time (since the epoch, UTC)."""

    micros: int


@dataclass(frozen=True)
class Lost:
    """So many records of a partition are gone before they were read."""

    partition: int
    records: int


Step = Sequence[tuple[int, bytes]] | Told | Lost
"""Records as (partition, value), a tick, or a loss."""

Feed = Sequence[Step]


@dataclass(frozen=True)
class Log:
    """How a log is made: numbers of records, seconds, and shares of the records from 0 to 1.

    `pace` is the mean time between records; of a share `disorder` the event time is up to `behind` earlier, of
    `straggle` up to `astray`; of a share `snap` it is a multiple of 30 s, so that windows' borders are met. `silent`
    are partitions with the part of the log in which they say nothing, as [partition, from, to]; `pauses` are minutes in
    which none does, with a tick in each, as [record, minutes]. `joins` are partitions that the run does not know from
    the start. Of a share `ahead` the event time is hours ahead; `skew` gives each user a clock of their own, up to so
    many seconds wrong. After every `marks` records comes a mark in their partition. A share `bad` is replaced by what
    is no good record, a share `far` is at the ends of all time. `ticks` says at how many of the steps' ends processing
    time is told; `lose` after which steps records are gone, as [step, partition, records]. `text` are whole records,
    which come in partition 0 as a step of their own, before all others.
    """

    seed: str
    start: str = "2026-01-01T10:00:00"
    records: int = 200
    partitions: int = 2
    users: int = 4
    step: int = 20
    pace: float = 15
    disorder: float = 0.3
    behind: float = 240
    straggle: float = 0.06
    astray: float = 2400
    snap: float = 0.5
    bad: float = 0.0
    far: float = 0.0
    log_time: bool = False
    ahead: float = 0.0
    skew: float = 0.0
    marks: int = 0
    ticks: float = 0.0
    silent: tuple[tuple[int, float, float], ...] = ()
    pauses: tuple[tuple[int, int], ...] = ()
    joins: tuple[int, ...] = ()
    lose: tuple[tuple[int, int, int], ...] = ()
    text: tuple[str, ...] = ()

    @property
    def known(self) -> list[int]:
        """The partitions that the run knows from the start."""
        return [partition for partition in range(self.partitions) if partition not in self.joins]


def make(log: Log) -> list[Step]:
    """Return the feed of a log."""
    chance = random.Random(log.seed).random
    start = (datetime.fromisoformat(log.start).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    steps: list[Step] = [[(0, text.encode()) for text in log.text]] if log.text else []
    if log.ticks:
        steps.append(Told(start + 2 * HOUR))
    lose = {at: Lost(partition, records) for at, partition, records in log.lose}
    now, step = start, list[tuple[int, bytes]]()
    size = 1 + int(chance() * 2 * log.step)
    for number in range(log.records):
        now += int(chance() * 2 * log.pace * SECOND)
        partition = _partition(log, number / log.records, chance())
        step.append((partition, _record(log, number, now, chance)))
        if log.marks and number % log.marks == log.marks - 1:
            step.append((partition, json.dumps({"w": now - int(chance() * log.behind * SECOND)}).encode()))
        for _ in range(dict(log.pauses).get(number, 0)):
            steps += [step, Told(now + 2 * HOUR)] if step else [Told(now + 2 * HOUR)]
            now, step = now + MINUTE, []
        if len(step) >= size:
            steps.append(step)
            if len(steps) in lose:
                steps.append(lose[len(steps)])
            if chance() < log.ticks:
                steps.append(Told(now + 2 * HOUR))
            step, size = [], 1 + int(chance() * 2 * log.step)
    steps.append(step)
    return steps


def digest(feed: Feed) -> str:
    """Return a checksum of a feed."""
    return hashlib.sha256(repr(list(feed)).encode()).hexdigest()[:16]


def _partition(log: Log, at: float, chance: float) -> int:
    quiet = {partition for partition, begin, end in log.silent if begin <= at < end}
    # who joins has its first record in the second half
    quiet.update(log.joins if at < 0.5 else ())
    speaking = [partition for partition in range(log.partitions) if partition not in quiet]
    return speaking[int(chance * len(speaking))]


def _record(log: Log, number: int, now: int, chance: Any) -> bytes:  # noqa: ANN401
    dice = [chance() for _ in range(16)]
    if dice[0] < log.bad:
        return _BAD[int(dice[1] * len(_BAD))]
    time = now
    if dice[2] < log.disorder:
        time -= int(dice[3] * log.behind * SECOND)
    if dice[4] < log.straggle:
        time -= int(dice[5] * log.astray * SECOND)
    if dice[6] < log.snap:
        time -= time % (30 * SECOND)
    if dice[7] < log.far:
        time = (-62_135_596_800 * SECOND, 253_402_300_799 * SECOND + 999_999, -1, 0)[number % 4]
    if dice[7] > 1 - log.ahead:
        time += HOUR + int(dice[8] * 24) * HOUR
    user = int(dice[9] * dice[9] * log.users)
    wrong = (user - log.users // 2) * int(log.skew * SECOND)
    record: dict[str, Any] = {
        "user": f"u{user}",
        "t": time + wrong,
        "amount": int(dice[10] * 10_000) / 100,
        "n": int(dice[11] * 1000) - 300,
        "x": dice[12] * 100 - 20,
        "flag": dice[13] < 0.7,
        "url": ("/", "/a", "/a/ü", "/b?q=1", '/"quoted"', "/c")[int(dice[14] * 6)],
        "ms": (time + wrong) // 1000,
        "s": (time + wrong) // SECOND,
        "iso": (EPOCH + timedelta(microseconds=time)).astimezone(_ZONE).isoformat()
        if abs(time) < 1e16
        else "0001-01-01",
    }
    country: tuple[dict[str, Any], ...] = ({"country": "de"}, {"land": "fr"}, {"country": None}, {}, {"country": "at"})
    record |= country[int(dice[15] * len(country))]
    if log.skew:
        record["sent"] = now + wrong
    if log.log_time or log.skew:
        record["_log_time"] = now // 1000
    return json.dumps(record, ensure_ascii=False).encode()


_ZONE = timezone(timedelta(hours=2))
_GOOD: dict[str, Any] = {"user": "u0", "t": 1767261600000000, "amount": 1.5, "n": 1, "x": 1.0, "flag": True, "url": "/"}


def _edited() -> Iterator[bytes]:
    """Yield a good record with one thing wrong, for each field and each wrong value."""
    odd: tuple[Any, ...] = ("", "x", "1e3", " 7", -1, 1.25, 1e300, 10**25, True, [], {}, "2026-02-30", "\u0000", "é")
    for name in _GOOD:
        yield json.dumps({key: value for key, value in _GOOD.items() if key != name}).encode()
        for value in (None, *odd):
            yield json.dumps(_GOOD | {name: value}).encode()


_ODD = (
    b"",
    b" ",
    b"null",
    b"[1, 2]",
    b'"text"',
    b"17",
    b"{",
    b'{"user": "u0", }',
    b'{"user": "u0"} {}',
    b'{"user": "\xff"}',
    b'{"user": NaN}',
    b"\xef\xbb\xbf{}",
    b'{"user": "a", "user": "b", "t": 1767261600000000, "amount": 1, "n": 1, "x": 1, "flag": true, "url": "/"}',
    b'{"user": "\\ud800", "t": 1767261600000000, "amount": 1, "n": 1, "x": 1, "flag": true, "url": "/"}',
    b'{"user": "a", "t": 1767261600000000, "amount": 1.005, "n": 1.0, "x": "1.5", "flag": true, "url": "/"}',
    b'{"user": "a", "t": 1767261600000000, "amount": "1.50", "n": "7", "x": -0.0, "flag": true, "url": "/"}',
    b'{"user": "a", "t": 1767261600000000, "amount": 1, "n": 1, "x": 1, "flag": true, "url": "/", "_log_time": "x"}',
    (
        b'{"user": "a", "t": 1767261600000000, "amount": 1, "n": 1, "x": 1, "flag": true, "url": "/", "country": "de", '
        b'"land": "fr"}'
    ),
    b"[" * 3000 + b"]" * 3000,
    json.dumps(_GOOD | {"more": "x" * 300}).encode(),
)
_BAD = (*_ODD, *_edited())
