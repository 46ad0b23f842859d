"""The events of Nexmark, a benchmark of queries over an online auction: persons, auctions and bids.

In every 50 consecutive events, the first is a person, the next three are auctions, and the rest are bids. As in the
original generator, activity is skewed. Half of the bids are for one of the newest auctions. Three quarters of the bids
come from one bidder, and three quarters of the auctions from one seller; both change over time. All other auctions,
bidders and sellers are chosen among the newest. An auction stays open for as long as 100 further auctions take to
arrive on average, and at most twice as long.

Source: Tucker, Tufte, Papadimos and Maier, "NEXMark - a benchmark for queries over data streams", 2002.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.tools.generate.columns import Events, Longs, Portion, digits, join, pad, raw_batch, record, repeat, text
from windrow.tools.generate.spec import NEXMARK_ROUND, NEXMARK_SHARES, LivePace, LogCounts, NexmarkSpec

FIRST_ID = 1000
"""The first id of persons and of auctions."""

_PERSONS, _AUCTIONS, _BIDS = NEXMARK_SHARES
_HOT_STEP = 100
"""The hot auction changes after this many new auctions, the hot bidder and seller after this many new persons."""
_OPEN = 100
"""Average number of auctions that are open at a time."""
_ACTIVE = 1000
"""Bidders and sellers are chosen among this many of the newest persons."""
_OPEN_EVENTS = _OPEN * NEXMARK_ROUND / _AUCTIONS
_CATEGORIES = (10, 15)
_CHANNELS = 10_000
_EXTRA = {"persons": (80, 120), "auctions": (150, 250), "bids": (40, 80)}
"""The minimum and maximum length of the field `extra` in each log."""

_FIRST = b"Ada Alan Barbara Dennis Edgar Frances Grace Ken Leslie Margaret Niklaus Radia Tim".split()
_LAST = b"Allen Codd Dijkstra Hopper Kernighan Lamport Liskov Lovelace Perlman Ritchie Turing Wirth".split()
_PLACES = [
    (b"Phoenix", b"AZ"),
    (b"Tucson", b"AZ"),
    (b"Los Angeles", b"CA"),
    (b"Sacramento", b"CA"),
    (b"San Diego", b"CA"),
    (b"Boise", b"ID"),
    (b"Nampa", b"ID"),
    (b"Eugene", b"OR"),
    (b"Portland", b"OR"),
    (b"Seattle", b"WA"),
    (b"Spokane", b"WA"),
    (b"Casper", b"WY"),
    (b"Cheyenne", b"WY"),
]
_HOT_CHANNELS = [b"Google", b"Facebook", b"Baidu", b"Apple"]


@dataclass(frozen=True)
class _Events(Events):
    """Event numbers, starting at 0, with event times and arrival times in milliseconds."""

    number: Longs
    time: Longs
    arrival: Longs


def nexmark(spec: NexmarkSpec, pace: LivePace | None) -> Iterator[Portion]:
    """Yield portions of the events in order of arrival: all at once, or at the given pace.

    Person `n` is in partition `n` modulo the number of partitions, and so are auction `n` and bid `n`.
    """
    rng = np.random.default_rng(spec.seed)
    offsets = {log: np.zeros(spec.partitions, dtype=np.int64) for log in spec.logs}
    apart = spec.duration / max(spec.events, 1) if pace is None else 1_000_000 / pace.rate
    for events in _all_events(spec, rng, apart) if pace is None else _live_events(spec, rng, pace):
        for some in events.by_arrival():
            yield Portion(_batches(spec, rng, some, apart / 1000 * _OPEN_EVENTS, offsets), LogCounts(len(some.number)))


def _all_events(spec: NexmarkSpec, rng: np.random.Generator, apart: float) -> Iterator[_Events]:
    number = np.arange(spec.events)
    time = spec.start // 1000 + (number * (apart / 1000)).astype(np.int64)
    yield _Events(number, time, time + _delays(spec, rng, spec.events))


def _live_events(spec: NexmarkSpec, rng: np.random.Generator, pace: LivePace) -> Iterator[_Events]:
    sent = 0
    for count, now in pace.portions(spec.events):
        arrival = np.full(count, now // 1000)
        yield _Events(np.arange(sent, sent + count), arrival - _delays(spec, rng, count), arrival)
        sent += count


def _delays(spec: NexmarkSpec, rng: np.random.Generator, count: int) -> Longs:
    return rng.integers(0, 2 * spec.disorder // 1000, count, endpoint=True)


def _batches(
    spec: NexmarkSpec, rng: np.random.Generator, events: _Events, open_for: float, offsets: dict[str, Longs]
) -> tuple[pa.RecordBatch, ...]:
    """Return the records of events, one batch per log. Auctions are open for `open_for` milliseconds on average."""
    place = events.number % NEXMARK_ROUND
    kind = (place >= _PERSONS).astype(np.int64) + (place >= _PERSONS + _AUCTIONS)
    batches = []
    firsts = (0, _PERSONS, _PERSONS + _AUCTIONS)
    for number, (log, first, share) in enumerate(zip(spec.logs, firsts, NEXMARK_SHARES, strict=True)):
        some = events.take(np.flatnonzero(kind == number))
        index = some.number // NEXMARK_ROUND * share + some.number % NEXMARK_ROUND - first
        match log:
            case "persons":
                fields = _person(rng, some, index)
            case "auctions":
                fields = _auction(rng, some, index, open_for)
            case _:
                fields = _bid(rng, some)
        fields |= {"dateTime": text(_time(some.time)), "extra": text(_letters(rng, len(index), *_EXTRA[log]))}
        if spec.log_time:
            fields["_log_time"] = digits(some.arrival)
        keys = fields["auction" if log == "bids" else "id"]
        batches.append(raw_batch(index % spec.partitions, offsets[log], some.arrival * 1000, keys, record(fields)))
    return tuple(batches)


def _person(rng: np.random.Generator, events: _Events, index: Longs) -> dict[str, pa.Array]:
    count = len(events.number)
    place = rng.integers(0, len(_PLACES), count)
    card = [pad(rng.integers(0, 10_000, count), 4) for _ in range(4)]
    return {
        "id": digits(index + FIRST_ID),
        "name": text(join(_choice(rng, _FIRST, count), repeat(b" ", count), _choice(rng, _LAST, count))),
        "emailAddress": text(join(_letters(rng, count, 3, 8), b"@", _letters(rng, count, 3, 6), b".com")),
        "creditCard": text(join(card[0], b" ", card[1], b" ", card[2], b" ", card[3])),
        "city": text(pa.array([city for city, _ in _PLACES], pa.binary()).take(pa.array(place))),
        "state": text(pa.array([state for _, state in _PLACES], pa.binary()).take(pa.array(place))),
    }


def _auction(rng: np.random.Generator, events: _Events, index: Longs, open_for: float) -> dict[str, pa.Array]:
    count = len(events.number)
    initial = _price(rng, count)
    length = 1 + (rng.random(count) * 2 * open_for).astype(np.int64)
    return {
        "id": digits(index + FIRST_ID),
        "itemName": text(_letters(rng, count, 4, 20)),
        "description": text(_letters(rng, count, 10, 100)),
        "initialBid": digits(initial),
        "reserve": digits(initial + _price(rng, count)),
        "expires": text(_time(events.time + length)),
        "seller": digits(_someone(rng, events.number, hot_share=0.75, hot=0)),
        "category": digits(rng.integers(*_CATEGORIES, count)),
    }


def _bid(rng: np.random.Generator, events: _Events) -> dict[str, pa.Array]:
    count = len(events.number)
    # all auctions of the round are before its bids
    newest = (events.number // NEXMARK_ROUND + 1) * _AUCTIONS - 1
    auction = np.where(rng.random(count) < 0.5, newest // _HOT_STEP * _HOT_STEP, _newest(rng, newest, _OPEN))  # noqa: PLR2004 - half of the bids
    number = rng.integers(0, _CHANNELS, count)
    hot = rng.random(count) < 0.5  # noqa: PLR2004 - half of the channels
    known = number % len(_HOT_CHANNELS)
    names = pa.array([*_HOT_CHANNELS, *(b"channel-%d" % channel for channel in range(_CHANNELS))], pa.binary())
    # every tenth of the other channels has a url without its number
    unnamed = hot | (rng.random(count) < 0.1)  # noqa: PLR2004 - as above
    mark = pc.if_else(pa.array(unnamed), repeat(b"", count), join(b"&channel_id=", digits(number)))
    folders = [_letters(rng, count, 3, 5) for _ in range(3)]
    path = join(b"https://www.nexmark.com/", folders[0], b"/", folders[1], b"/", folders[2], b"/item.htm?query=1", mark)
    return {
        "auction": digits(auction + FIRST_ID),
        "bidder": digits(_someone(rng, events.number, hot_share=0.75, hot=1)),
        "price": digits(_price(rng, count)),
        "channel": text(names.take(pa.array(np.where(hot, known, number + len(_HOT_CHANNELS))))),
        "url": text(path),
    }


def _someone(rng: np.random.Generator, number: Longs, *, hot_share: float, hot: int) -> Longs:
    """Return the id of a person who is known at each event: the hot one, or one of the newest."""
    newest = number // NEXMARK_ROUND
    special = np.minimum(newest // _HOT_STEP * _HOT_STEP + hot, newest)
    return np.where(rng.random(len(number)) < hot_share, special, _newest(rng, newest, _ACTIVE)) + FIRST_ID


def _newest(rng: np.random.Generator, newest: Longs, among: int) -> Longs:
    """Return for each event a random one of the last `among` numbers up to `newest`."""
    return newest - rng.integers(0, np.minimum(newest + 1, among))


def _price(rng: np.random.Generator, count: int) -> Longs:
    """Return prices from 100 to 100,000,000 in which each number of digits is equally frequent."""
    return np.round(10 ** (rng.random(count) * 6 + 2)).astype(np.int64)


def _letters(rng: np.random.Generator, count: int, low: int, high: int) -> pa.Array:
    """Return random words of `low` to `high` letters."""
    ends = np.concatenate([[0], np.cumsum(rng.integers(low, high, count, endpoint=True))]).astype(np.int32)
    letters = rng.integers(ord("a"), ord("z") + 1, int(ends[-1]), dtype=np.uint8)
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(letters)])


def _choice(rng: np.random.Generator, words: list[bytes], count: int) -> pa.Array:
    return pa.array(words, pa.binary()).take(pa.array(rng.integers(0, len(words), count)))


def _time(millis: Longs) -> pa.Array:
    """Format times as ISO 8601 in UTC, without an offset."""
    times = pa.array(millis).cast(pa.timestamp("ms")).cast(pa.string())
    return pc.utf8_replace_slice(times, 10, 11, "T").cast(pa.binary())
