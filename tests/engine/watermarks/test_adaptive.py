"""A delay that follows the lateness seen, held to its definition record by record."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from itertools import pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE, main, record
from tests.engine.watermarks.clocked import Clocked
from tests.examples import examples

from windrow.engine.columns import MIN_TIME, Micros
from windrow.engine.messages import PackedTimes, pack_times, unpack_times
from windrow.engine.watermarks.adaptive import (
    LATENESS_BOUNDS,
    RENEWAL_OFFSETS,
    AdaptiveProgress,
    Lateness,
    PartitionSlice,
    advance_adaptive,
)
from windrow.model import Adaptive, EventTime

Log = list[tuple[int, int]]
"""Offsets and event times."""


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Records with some offsets left out, over a few blocks; most of them in order, some of them late."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    gap = draw(st.sampled_from([1, 1, 2, 40, 600]))
    log, offset = [], draw(st.integers(0, 300))
    for number in range(draw(st.integers(0, 700))):
        offset += 1 if chance.random() < 0.9 else chance.randint(1, gap)
        log.append((offset, 1000 * number - int(chance.paretovariate(0.6)) * chance.choice([0, 0, 0, 1, 500])))
    return log


@st.composite
def delays(draw: st.DrawFn) -> Adaptive:
    least = draw(st.integers(0, 5000))
    target = draw(st.sampled_from([0.07, 0.5, 0.9, 0.99, 0.999, 1.0]))
    return Adaptive(target, least, least + draw(st.integers(0, 200_000)))


def reference(adaptive: Adaptive, log: Log, following: int) -> tuple[list[int], int]:
    """The watermark at each record and at the offset after them, by the definition."""
    latenesses: list[int] = []
    delay, watermark, reached = adaptive.most, MIN_TIME, MIN_TIME
    found = {}
    times = dict(log)
    for offset in range(following + 1):
        if offset % RENEWAL_OFFSETS == 0 and latenesses:
            enough = Fraction(str(adaptive.target)) * len(latenesses)
            bound = next(
                int(bound) for bound in LATENESS_BOUNDS if sum(lateness <= bound for lateness in latenesses) >= enough
            )
            delay = min(max(bound, adaptive.least), adaptive.most)
        if reached != MIN_TIME:
            watermark = max(watermark, reached - delay)
        found[offset] = watermark
        if offset in times:
            latenesses.append(0 if reached == MIN_TIME else max(0, reached - times[offset]))
            reached = max(reached, times[offset])
    return [found[offset] for offset, _ in log], found[following]


def in_pieces(adaptive: Adaptive, log: Log, cuts: list[int]) -> tuple[list[int], int]:
    """The same by `follow`, in pieces that begin at some records; what is known goes through JSON between them."""
    known, watermark = Lateness.start(adaptive), MIN_TIME
    found: list[int] = []
    places = sorted({0, *(cut for cut in cuts if cut < len(log)), len(log)})
    for start, end in pairwise(places):
        following = log[end - 1][0] + 1
        known = Lateness.decode(json.loads(json.dumps(known.encode())))
        reached = taken(adaptive, known, watermark, log[start:end], following)
        known, watermark = reached.lateness, reached.watermark
        assert reached.offsets.tolist() == [offset for offset, _ in log[start:end]]
        found += reached.watermarks.tolist()
    return found, watermark


def times(offsets: Micros, moments: Micros) -> PackedTimes:
    return PackedTimes(offsets, moments, np.ones(len(moments), dtype=np.bool_))


def taken(adaptive: Adaptive, known: Lateness, watermark: int, records: Log, following: int) -> AdaptiveProgress:
    """Take some records, in two packets if they are many."""
    parts = [part for part in (records[:300], records[300:]) if part]
    packed = [pack_times(times(*np.array(part, dtype=np.int64).T)) for part in parts]
    return advance_adaptive(adaptive, (PartitionSlice(0, known, watermark, tuple(packed), following),))[0]


@examples(40)
@given(delays(), logs(), st.lists(st.integers(1, 900), max_size=30))
@example(Adaptive(0.07, 0, 10), [(number, -number) for number in range(600)], [255, 256, 257])
def test_every_cut_gives_the_definition(adaptive: Adaptive, log: Log, cuts: list[int]) -> None:
    if not log:
        return
    expected = reference(adaptive, log, log[-1][0] + 1)
    assert in_pieces(adaptive, log, cuts) == expected
    assert in_pieces(adaptive, log, list(range(240, 270))) == expected


def test_the_delay_is_the_least_bound_that_the_target_needs() -> None:
    adaptive = Adaptive(0.07, 0, 1_000_000)
    # 7 records that are not late at all, and then 93 that are late by a second
    records = [(offset, 1_000_000 if offset < 7 else 0) for offset in range(100)]
    known = taken(adaptive, Lateness.start(adaptive), MIN_TIME, records, 255)
    assert known.watermark == 0, "before the first renewal the delay is the longest"
    known = taken(adaptive, known.lateness, known.watermark, [], 256)
    assert known.watermark == 1_000_000, "7 of 100 are enough for 0.07, and they were not late"


def test_the_bounds_are_eight_to_a_doubling_without_rounding() -> None:
    assert LATENESS_BOUNDS[:18].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19]
    assert all(2**power in LATENESS_BOUNDS for power in range(60))
    large = LATENESS_BOUNDS[LATENESS_BOUNDS >= 2**30].tolist()
    assert all(low**8 <= 2 ** (240 + place) < (low + 1) ** 8 for place, low in enumerate(large))


@examples(8)
@given(delays(), st.integers(0, 2**32))
def test_key_groups_know_the_watermark_at_their_records_in_every_cut(adaptive: Adaptive, seed: int) -> None:
    chance = random.Random(seed)
    pipeline = main(time=EventTime("t", adaptive))
    feed: list[tuple[int, bytes]] = []
    log: dict[int, Log] = {0: [], 1: []}
    following = dict.fromkeys(log, 0)
    for number in range(chance.randint(300, 1200)):
        partition = chance.choice([0, 0, 1])
        time = 1000 * number - chance.choice([0, 0, 1, 500]) * chance.randint(0, 300)
        good = chance.random() < 0.9
        if good:
            log[partition].append((following[partition], time))
        user = f"u{chance.randint(0, 9)}"
        feed.append((partition, record(user, time / MINUTE) if good else b"x"))
        following[partition] += 1
    run = Clocked(pipeline, log)
    at = 0
    while at < len(feed):
        size = chance.choice([1, 10, 100, 1000])
        run.feed(feed[at : at + size])
        at += size
    for partition, records in log.items():
        expected, last = reference(adaptive, records, following[partition])
        assert [run.watermarks[partition, offset] for offset, _ in records] == expected
        assert run.clocks.watermarks[partition] == last


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-(2**50), 2**50)), min_size=1, max_size=50),
    st.sampled_from([1, 1000, 1_000_000]),
)
def test_packed_times_are_the_same_when_unpacked(records: Log, unit: int) -> None:
    gaps, moments = np.array(records, dtype=np.int64).T
    offsets = 7 + np.cumsum(gaps + 1)
    for contiguous in (offsets, np.arange(7, 7 + len(moments))):
        given = PackedTimes(contiguous, moments * unit, moments % 3 == 0)
        unpacked = unpack_times(pack_times(given))
        assert [column.tolist() for column in unpacked] == [column.tolist() for column in given]
