"""Purchases by card, some of them fraudulent.

People buy where they live, mostly around a time of day of their own, in a few shops. Their amounts are log-normal, cut
off at two sigmas from the median. Some people are abroad or travel, as fast as an airliner, and buy nothing on the way.
So the rules below hardly ever match ordinary purchases. A case of fraud is of one of four kinds, and is generated so
that it matches the rule for its kind:

- ``impossible_travel``: within 20 minutes of a purchase, the card is used in a city that its holder cannot reach by
  then, as this takes more than 900 km/h beyond the first 100 km. The card is blocked, and its holder gets a new one.
- ``unusual_amount``: the amount is more than 4 standard deviations above the mean of the card's purchases in the last
  24 hours (at most the last 64 purchases, and at least 8).
- ``burst``: 7 to 10 purchases, seconds apart. Those with at least 5 purchases in the minute before them are labelled.
- ``blocked_merchant``: the merchant is on a list of blocked ones. Half of them are in a blocked country.

Purchases are generated in steps of event time. A person buys at most once in a step, so a step takes only a few
operations on columns. The later purchases of a case are held until their time. A record is released when all records
that arrive before it have been generated.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from itertools import count as count_up
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.tools.generate.columns import CHUNK, Longs, Portion, digits, hundredths, join, pad, raw_batch, record, text
from windrow.tools.generate.spec import FraudSpec, LivePace, LogCounts

Rows = npt.NDArray[np.void]
Doubles = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

KINDS = ("impossible_travel", "unusual_amount", "burst", "blocked_merchant")
_TRAVEL, _AMOUNT, _BURST, _MERCHANT = range(len(KINDS))
_ORDINARY = -1

_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_NEVER = -(1 << 62)
_ENDLESS = 1 << 62

_ROUNDS, _LAST_ROUNDS = 10, 2
"""Rounds in which the buyers of a step are chosen. In the last ones, the time of day does not matter."""
_FASTEST, _PLANE = 900, 700
"""Speeds in km/h: one that nobody exceeds, and the speed of travel, which takes an additional hour."""
_MANY = 5
"""Number of purchases in the minute before another purchase that make it part of a burst."""
_PAUSE = 15 * _SECOND
"""Shortest time between two uses of a card, so it is used at most four times a minute."""
_BEFORE = 8
"""Number of purchases within a day before an amount can be unusual."""
_SKEW = 2
"""How unevenly purchases are spread over people; with 1, everyone buys equally often."""
_STOLEN = (20 * _SECOND, 20 * _MINUTE)
"""Range of times from a purchase to the use of the card far away, uniform on a logarithmic scale."""
_SIGMAS = 2.0
"""Ordinary amounts are at most this many sigmas above the median."""
_AWAY_SHARE = 0.12
_AWAY, _HOME = 2 * _DAY, 14 * _DAY
"""Mean time spent away, and at home between two journeys."""
_TERMINALS = 0.12
"""Maximum distance of a terminal from the center of a city, in degrees."""
_SHOPS, _FAVOURITES = 200, 6
"""Number of shops in a city, and number of favourite shops of a person who lives there."""
_BLOCKED_SHOPS, _BLOCKED_COUNTRIES = 20, ("XA", "XB")
"""Half of the blocked merchants are in a blocked country. ISO 3166 reserves its code for private use."""

with Path(__file__).with_name("cities.csv").open(encoding="utf-8", newline="") as file:
    CITIES = list(csv.DictReader(file))
"""The cities where cards are used: name, country (ISO 3166), latitude and longitude (degrees north and east)."""
_COUNTRIES = sorted({city["country"] for city in CITIES})
_COUNTRY_OF = np.array([_COUNTRIES.index(city["country"]) for city in CITIES])
_LAT, _LON = (np.array([float(city[name]) for city in CITIES]) for name in ("lat", "lon"))
_COUNTRY_NAMES = pa.array([name.encode() for name in (*_COUNTRIES, *_BLOCKED_COUNTRIES)], pa.binary())
_BLOCKED = [b"web-%02d" % shop for shop in range(_BLOCKED_SHOPS)]
_MERCHANT_NAMES = pa.array(
    [*(b"%s-%03d" % (city["name"].encode(), shop) for city in CITIES for shop in range(_SHOPS)), *_BLOCKED], pa.binary()
)
BLOCKED_LIST = b"\n".join([b"value", *_BLOCKED, *(name.encode() for name in _BLOCKED_COUNTRIES), b""])
"""The content of a CSV file that lists the blocked merchants and countries."""

_ROW = np.dtype(
    [
        ("number", np.int64),
        ("time", np.int64),
        ("arrival", np.int64),
        ("card", np.int64),
        ("partition", np.int32),
        ("cents", np.int64),
        ("lat", np.float64),
        ("lon", np.float64),
        ("merchant", np.int32),
        ("country", np.int16),
        ("kind", np.int8),
        ("late", np.bool_),
        ("copy", np.bool_),
    ]
)
"""A purchase. Times are microseconds; `kind` is an index into `KINDS`, or `_ORDINARY`."""


def card_purchases(spec: FraudSpec, pace: LivePace | None) -> Iterator[Portion]:
    """Return an iterator over portions of the purchases in order of arrival: all at once, or at the given pace.

    Raise InputError if there are too few cards for the rate.
    """
    rate = spec.events / spec.duration * _SECOND if pace is None else pace.rate
    return _portions(spec, spec.cards_at(rate), pace)


def _portions(spec: FraudSpec, cards: int, pace: LivePace | None) -> Iterator[Portion]:
    run = (spec.start if pace is None else pace.now()) // _SECOND
    offsets = np.zeros(spec.partitions, dtype=np.int64)
    for rows in _arrivals(spec, cards, pace):
        for at in range(0, len(rows), CHUNK):
            some = rows[at : at + CHUNK]
            ids, names = text(join(b"%d-" % run, digits(some["number"]))), _names(some["card"])
            labels = (some["kind"] != _ORDINARY) & ~some["copy"]
            late, copies = int(some["late"].sum()), int(some["copy"].sum())
            counts = LogCounts(len(some), late, duplicates=copies, labels=int(labels.sum()))
            yield Portion((_batch(spec, some, ids, names, offsets),), counts, _label_lines(some, ids, names, labels))


def _arrivals(spec: FraudSpec, cards: int, pace: LivePace | None) -> Iterator[Rows]:
    """Yield purchases in order of arrival. In a live log, those still to arrive at the end arrive at once."""
    rng = np.random.default_rng(spec.seed)
    numbered = 0
    end = spec.start if pace is None else pace.now()
    people = _People(spec, cards, rng, end)
    under_way = np.empty(0, _ROW)
    ready: list[Rows] = []
    for count, begin, end in _steps(spec, people.most, pace):
        rows = people.advance(count, begin, end)[: spec.events - numbered]
        rows["number"] = np.arange(numbered, numbered + len(rows))
        numbered += len(rows)
        under_way = np.concatenate([under_way, _delay(spec, rng, rows)])
        arrived = under_way["arrival"] < end
        ready.append(_sort(under_way[arrived], "arrival"))
        under_way = under_way[~arrived]
        if numbered == spec.events:
            break
        if pace is not None or sum(map(len, ready)) >= CHUNK:
            yield _arrive_at(np.concatenate(ready), None if pace is None else end)
            ready = []
    yield _arrive_at(np.concatenate([*ready, _sort(under_way, "arrival")]), None if pace is None else end)


def _steps(spec: FraudSpec, most: int, pace: LivePace | None) -> Iterator[tuple[int, int, int]]:
    """Yield steps indefinitely, as (number of purchases due, begin, end); times are microseconds."""
    if pace is not None:
        for count, now in pace.portions(_ENDLESS):
            yield count, now - int(count / pace.rate * _SECOND), now
    elif spec.events:
        size = min(most, spec.events)
        for step in count_up():
            begin, end = (spec.start + at * size * spec.duration // spec.events for at in (step, step + 1))
            yield size, begin, end


def _delay(spec: FraudSpec, rng: np.random.Generator, rows: Rows) -> Rows:
    """Set the arrival times, and add duplicates."""
    count = len(rows)
    rows["late"] = rng.random(count) < spec.late_share
    later = rng.exponential(spec.disorder, count) + rows["late"] * rng.uniform(0, spec.late_by, count)
    rows["arrival"] = rows["time"] + later.astype(np.int64)
    copies = rows[rng.random(count) < spec.duplicate_share]
    copies["arrival"] += rng.exponential(max(spec.disorder, _SECOND), len(copies)).astype(np.int64)
    copies["copy"] = True
    return np.concatenate([rows, copies])


def _arrive_at(rows: Rows, arrival: int | None) -> Rows:
    """Set the arrival times of purchases, unless `arrival` is None."""
    if arrival is not None:
        rows["arrival"] = arrival
    return rows


def _sort(rows: Rows, by: str) -> Rows:
    return rows[np.argsort(rows[by], kind="stable")]


class _People:
    """People with one card each: where they are, when they can buy next, and their last purchases with this card.

    The maximum number of buyers in a step is `most`, low enough that enough other people can buy.
    """

    def __init__(self, spec: FraudSpec, cards: int, rng: np.random.Generator, begin: int) -> None:
        self.most = max(1, cards // 8)
        self._spec = spec
        self._rng = rng
        self._distance = _distances()
        self._card = np.arange(cards)
        self._partition = _partitions(self._card, spec.partitions)
        self._home = rng.integers(0, len(CITIES), cards)
        away = rng.random(cards) < _AWAY_SHARE
        self._place = np.where(away, rng.integers(0, len(CITIES), cards), self._home)
        self._leaves = begin + rng.exponential(np.where(away, _AWAY, _HOME)).astype(np.int64)
        self._hour = rng.normal(15, 4, cards)
        self._median = rng.lognormal(np.log(2500), 0.6, cards)
        self._sigma = rng.uniform(0.1, 0.3, cards)
        self._free = np.full(cards, _NEVER)
        # the last purchases with this card: their times (a ring); and when its next amount may be unusual
        self._times = np.full((cards, _BEFORE), _NEVER)
        self._next = np.zeros(cards, dtype=np.int64)
        self._unusual = np.full(cards, _NEVER)
        self._proposal = np.empty(cards, dtype=np.int64)
        self._owed = 0
        self._waiting = np.empty(0, _ROW)

    def advance(self, count: int, begin: int, end: int) -> Rows:
        """Return the purchases of the next step, `count` on average, in order of time."""
        self._owed += count
        due = int(np.count_nonzero(self._waiting["time"] < end))
        new = min(max(self._owed - due, 0), self.most)
        times = begin + ((np.arange(new) + self._rng.random(new)) / max(new, 1) * (end - begin)).astype(np.int64)
        people, times = self._buyers(times)
        rows = self._purchases(people, times, self._place[people])
        more = self._cases(rows, people)
        every = np.concatenate([self._waiting, rows, *more])
        now = every["time"] < end
        self._waiting = every[~now]
        self._owed -= int(now.sum())
        return _sort(every[now], "time")

    def _buyers(self, times: Longs) -> tuple[Longs, Longs]:
        """Return a different person for each time, and the times. Times for which no buyer is found are omitted."""
        found = np.full(len(times), -1)
        for attempt in range(_ROUNDS):
            wanted = np.flatnonzero(found < 0)
            if not len(wanted):
                break
            people = (len(self._card) * self._rng.random(len(wanted)) ** _SKEW).astype(np.int64)
            at = times[wanted]
            self._leave(people, at)
            self._proposal[people[::-1]] = wanted[::-1]
            can = (self._free[people] <= at) & (self._proposal[people] == wanted)
            if attempt < _ROUNDS - _LAST_ROUNDS:
                can &= self._rng.random(len(wanted)) < self._likely(people, at)
            found[wanted[can]] = people[can]
            self._free[people[can]] = _ENDLESS  # for this step
        some = found >= 0
        self._free[found[some]] = times[some] + _PAUSE
        return found[some], times[some]

    def _likely(self, people: Longs, at: Longs) -> Doubles:
        """Return the probability that people buy at a time.

        It depends on each person's preferred hour and on the solar time where they are.
        """
        hour = (at / _HOUR + _LON[self._place[people]] / 15) % 24
        away = (hour - self._hour[people] + 12) % 24 - 12
        return 0.03 + np.exp(-((away / 4) ** 2))

    def _leave(self, people: Longs, at: Longs) -> None:
        """Let people leave for another city, or for home, when due."""
        travels = np.flatnonzero((self._leaves[people] <= at) & (self._free[people] <= at))
        who, first = np.unique(people[travels], return_index=True)
        here, home = self._place[who], self._home[who]
        there = np.where(here == home, self._rng.integers(0, len(CITIES), len(who)), home)
        arrives = at[travels][first] + _HOUR + (self._distance[here, there] / _PLANE * _HOUR).astype(np.int64)
        stays = self._rng.exponential(np.where(there == home, _HOME, _AWAY)).astype(np.int64)
        self._place[who], self._free[who], self._leaves[who] = there, arrives, arrives + stays

    def _purchases(self, people: Longs, times: Longs, places: Longs) -> Rows:
        """Return ordinary purchases by people in the given cities."""
        rng, count = self._rng, len(people)
        rows = np.zeros(count, _ROW)
        rows["time"] = times
        rows["card"] = self._card[people]
        rows["partition"] = self._partition[people]
        sigmas = rng.normal(size=count)
        sigmas = np.where(np.abs(sigmas) > _SIGMAS, _SIGMAS**2 / sigmas, sigmas)
        rows["cents"] = np.maximum(self._median[people] * np.exp(self._sigma[people] * sigmas), 1)
        for name, middle in (("lat", _LAT), ("lon", _LON)):
            rows[name] = middle[places] + np.clip(rng.normal(0, _TERMINALS / 3, count), -_TERMINALS, _TERMINALS)
        favourite = (people * 7919 + (rng.random(count) ** 2 * _FAVOURITES).astype(np.int64) * 37) % _SHOPS
        shop = np.where(places == self._home[people], favourite, rng.integers(0, _SHOPS, count))
        rows["merchant"] = places * _SHOPS + shop
        rows["country"] = _COUNTRY_OF[places]
        rows["kind"] = _ORDINARY
        return rows

    def _cases(self, rows: Rows, people: Longs) -> list[Rows]:
        """Turn some purchases into cases of fraud, or into the first purchase of a case; return the later purchases."""
        rng = self._rng
        begins, kind = rng.random(len(rows)) < self._spec.fraud_share, rng.integers(0, len(KINDS), len(rows))
        times, ring, at = rows["time"], self._times[people], self._next[people]
        every = np.arange(len(rows))
        oldest, newest = ring[every, at], ring[every, at - 1]
        self._times[people, at] = times
        self._next[people] = (at + 1) % _BEFORE

        known = (oldest > times - _DAY + _HOUR) & (self._unusual[people] <= times)
        self._make_unusual(rows, people, np.flatnonzero(begins & (kind == _AMOUNT) & known))
        self._block(rows, np.flatnonzero(begins & (kind == _MERCHANT)))
        quiet = newest < times - _MINUTE - _PAUSE
        return [
            self._burst(rows, people, np.flatnonzero(begins & (kind == _BURST) & quiet)),
            self._steal(rows, people, np.flatnonzero(begins & (kind == _TRAVEL))),
        ]

    def _make_unusual(self, rows: Rows, people: Longs, some: Longs) -> None:
        """Set amounts to 4 to 12 times the largest ordinary amount of the card, L.

        For n >= 8 amounts between 0 and L, the mean plus 4 sample standard deviations is below 2.8 L.
        """
        largest = self._median[people[some]] * np.exp(self._sigma[people[some]] * _SIGMAS)
        rows["cents"][some] = largest * self._rng.uniform(4, 12, len(some)) + 1
        rows["kind"][some] = _AMOUNT
        self._unusual[people[some]] = rows["time"][some] + _DAY

    def _block(self, rows: Rows, some: Longs) -> None:
        shop = self._rng.integers(0, _BLOCKED_SHOPS, len(some))
        rows["merchant"][some] = len(CITIES) * _SHOPS + shop
        abroad = len(_COUNTRIES) + shop % len(_BLOCKED_COUNTRIES)
        rows["country"][some] = np.where(shop < _BLOCKED_SHOPS // 2, rows["country"][some], abroad)
        rows["kind"][some] = _MERCHANT

    def _burst(self, rows: Rows, people: Longs, some: Longs) -> Rows:
        """Return 6 to 9 further purchases after each of these."""
        more = self._rng.integers(6, 10, len(some))
        first = np.repeat(some, more)
        place = np.arange(len(first)) - np.repeat(np.cumsum(more) - more, more)
        apart = self._rng.integers(_SECOND, 6 * _SECOND, len(first))
        passed = np.cumsum(apart)
        passed -= np.repeat((passed - apart)[place == 0], more)
        who = people[first]
        burst = self._purchases(who, rows["time"][first] + passed, self._place[who])
        burst["kind"] = np.where(place >= _MANY - 1, _BURST, _ORDINARY)
        np.maximum.at(self._free, who, burst["time"] + _MINUTE + _PAUSE)
        return burst

    def _steal(self, rows: Rows, people: Longs, some: Longs) -> Rows:
        """Return a purchase far away after each of these, unless no city is far enough, and replace the cards."""
        low, high = map(math.log, _STOLEN)
        after = np.exp(self._rng.uniform(low, high, len(some))).astype(np.int64)
        candidates = self._rng.integers(0, len(CITIES), (len(some), 8))
        far = self._distance[self._place[people[some]][:, None], candidates] > (300 + _FASTEST * after / _HOUR)[:, None]
        found = far.any(axis=1)
        some, after = some[found], after[found]
        there = candidates[found, far[found].argmax(axis=1)]
        who = people[some]
        stolen = self._purchases(who, rows["time"][some] + after, there)
        stolen["kind"] = _TRAVEL
        self._card[who] += len(self._card)
        self._partition[who] = _partitions(self._card[who], self._spec.partitions)
        self._times[who] = _NEVER
        return stolen


def _names(cards: Longs) -> pa.Array:
    return join(b"c", pad(cards, 6))


def _partitions(cards: Longs, partitions: int) -> Longs:
    return np.array([crc32(name) % partitions for name in _names(cards).to_pylist()], dtype=np.int64)


def _distances() -> Doubles:
    """Return the distances between cities in km, on a sphere."""
    lat, lon = np.radians(_LAT), np.radians(_LON)
    half = np.sin((lat[:, None] - lat) / 2) ** 2
    half += np.cos(lat[:, None]) * np.cos(lat) * np.sin((lon[:, None] - lon) / 2) ** 2
    km: Doubles = 2 * 6371.0 * np.arcsin(np.sqrt(np.minimum(half, 1)))
    return km


def _batch(spec: FraudSpec, rows: Rows, ids: pa.Array, names: pa.Array, offsets: Longs) -> pa.RecordBatch:
    """Return purchases as records, and advance `offsets`, which holds the next offset of each partition."""
    fields = {
        "id": ids,
        "card": text(names),
        "t": digits(rows["time"]),
        "amount": hundredths(rows["cents"]),
        "lat": _degrees(rows["lat"]),
        "lon": _degrees(rows["lon"]),
        "merchant": text(_MERCHANT_NAMES.take(pa.array(rows["merchant"]))),
        "country": text(_COUNTRY_NAMES.take(pa.array(rows["country"]))),
    }
    if spec.log_time:
        fields["_log_time"] = digits(rows["arrival"])
    return raw_batch(rows["partition"], offsets, rows["arrival"], names, record(fields))


def _degrees(degrees: Doubles) -> pa.Array:
    """Format degrees with four decimal places, a resolution of about ten metres."""
    whole = np.round(np.abs(degrees) * 10_000).astype(np.int64)
    signs = pa.array([b"", b"-"], pa.binary()).take(pa.array((degrees < 0).astype(np.int8)))
    return join(signs, digits(whole // 10_000), b".", pad(whole % 10_000, 4))


def _label_lines(rows: Rows, ids: pa.Array, names: pa.Array, some: Mask) -> bytes:
    at = np.flatnonzero(some)
    fields = {
        "id": ids.take(pa.array(at)),
        "card": text(names.take(pa.array(at))),
        "kind": text(pa.array([KINDS[kind].encode() for kind in rows["kind"][at]], pa.binary())),
        "t": digits(rows["time"][at]),
    }
    return b"".join(line + b"\n" for line in record(fields).to_pylist())
