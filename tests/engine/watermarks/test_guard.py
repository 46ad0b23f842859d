"""A guarded clock, held to its definition record by record: wrong clocks, real gaps, and every cut."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE, main, raw, record
from tests.engine.watermarks.clocked import Clocked
from tests.examples import examples
from tests.graphs import as_graph

from windrow.engine.columns import MIN_TIME, to_micros, unpack
from windrow.engine.messages import EventTimes, Records, unpack_times
from windrow.engine.operators.ingest import Ingest
from windrow.engine.schema import OFFSET, WATERMARK
from windrow.engine.watermarks.clocks import PartitionClocks
from windrow.model import Adaptive, Delay, DelayByPartition, EventTime, Watermark
from windrow.testing.oracle.clock import BEFORE_ALL, Clock

DAY = 1440
DELAYS: list[Watermark] = [
    Delay(0),
    Delay(5 * MINUTE),
    DelayByPartition(MINUTE, ((1, 90 * MINUTE),)),
    Adaptive(0.8, MINUTE, 300 * MINUTE),
]
Log = dict[int, list[int | None]]
"""The event times of each partition in minutes; None is no record."""


def times(chance: random.Random, count: int) -> list[int | None]:
    """Draw times in disorder, with wrong clocks and real gaps."""
    now, found = 0, list[int | None]()
    while len(found) < count:
        kind = chance.choices(["on", "gap", "wrong", "wrong, then a gap", "garbage"], [90, 3, 8, 3, 4])[0]
        now += chance.choice([0, 1, 2, 30])
        if kind.startswith("wrong"):
            numbers = range(chance.choice([1, 1, 2, 4, 5, 6, 9]))
            found += [now + chance.choice([-400, 2, 365, 366]) * DAY for _ in numbers]
        if kind.endswith("gap"):
            now += chance.choice([2, 3, 30]) * DAY
        found.append(None if kind == "garbage" else now - chance.choice([0, 0, 1, 50]))
    return found[:count]


def value(time: int | None, user: str = "u1") -> bytes:
    return b"x" if time is None else record(user, time)


def fed(time: EventTime, log: Log, chance: random.Random) -> tuple[Clocked, int]:
    """Feed the records in random cuts; also return the number of leaps."""
    run, leaps = Clocked(main(time=time), log), 0
    rest = {partition: list(values) for partition, values in log.items()}
    while any(rest.values()):
        step = []
        for partition, values in rest.items():
            size = chance.choice([0, 1, 2, 7, 20, 300])
            step += [(partition, value(time, f"u{chance.randrange(9)}")) for time in values[:size]]
            del values[:size]
        leaps += sum(run.feed(step).leaps.values()) if step else 0
    return run, leaps


def known(run: Clocked, partition: int) -> list[float]:
    found = [at for (of, _), at in sorted(run.watermarks.items()) if of == partition]
    return [BEFORE_ALL if at == MIN_TIME else at for at in found]


def expected(clock: Clock, values: list[int | None]) -> tuple[list[float], float]:
    """The watermark at each record by the definition, and that after them."""
    found = []
    for offset, time in enumerate(values):
        clock.at(offset)
        if time is not None:
            found.append(clock.at(offset, time * MINUTE))
            clock.data(offset, time * MINUTE)
    return found, clock.at(len(values))


@examples(40)
@given(st.sampled_from(DELAYS), st.sampled_from([0, 60, DAY, 3 * DAY]), st.integers(0, 2**32))
def test_every_cut_gives_the_definition(delay: Watermark, jump: int, seed: int) -> None:
    chance = random.Random(seed)
    log: Log = {partition: times(chance, chance.choice([3, 12, 60, 150])) for partition in (0, 1)}
    time = EventTime("t", delay, jump=jump * MINUTE)
    run, leaps = fed(time, log, chance)
    for partition, values in log.items():
        each, last = expected(Clock(delay, (), partition, time.jump), values)
        assert known(run, partition) == each
        assert each == sorted(each)
        assert run.clocks.watermarks[partition] == (MIN_TIME if last == BEFORE_ALL else last)
    again, leaps_again = fed(time, log, chance)
    assert leaps_again == leaps
    assert again.clocks == run.clocks


@examples(20)
@given(st.sampled_from(DELAYS), st.integers(0, 2**32))
def test_a_log_without_leaps_has_the_watermarks_of_an_unguarded_clock(delay: Watermark, seed: int) -> None:
    chance = random.Random(seed)
    log: Log = {0: [number * 20 - chance.choice([0, 1, 900]) for number in range(chance.choice([1, 2, 9, 100]))]}
    plain, _ = fed(EventTime("t", delay), log, chance)
    guarded, leaps = fed(EventTime("t", delay, jump=DAY * MINUTE), log, chance)
    assert guarded.watermarks == plain.watermarks
    assert leaps == 0


@pytest.mark.parametrize(
    ("log", "before", "leaps"),
    [
        # one wrong clock, and two in a row
        ([0, 1, 600, 2, 600, 601, 3, 4], [None, 0, 1, 1, 2, 2, 2, 3], 3),
        # the fifth of a gap moves the clock to the least of the five, for the records after it
        ([0, 1, 604, 602, 600, 603, 601, 600], [None, 0, 1, 1, 1, 1, 1, 600], 5),
        # any other record counts from the beginning
        ([0, 1, 600, 600, 600, 600, 2, 600, 3], [None, 0, 1, 1, 1, 1, 1, 2, 2], 5),
        # the first clock is wrong: it waits until two records agree, and is a leap then
        ([600, 0, 1, 2], [None, None, 0, 1], 1),
        # the first clock is far behind
        ([-900, 0, 1, -900, 2], [None, None, 0, 1, 1], 0),
        # no two agree: the fifth sets the clock, and four of them are ahead of it
        ([400, 200, 0, 600, 800, 1], [None, None, None, None, None, 0], 4),
    ],
)
def test_the_clock_that_each_record_sees(log: list[int | None], before: list[int | None], leaps: int) -> None:
    run, found = fed(EventTime("t", Delay(0), jump=60 * MINUTE), {0: log}, random.Random(1))
    assert known(run, 0) == [BEFORE_ALL if at is None else at * MINUTE for at in before]
    assert found == leaps


def test_a_record_with_a_log_timestamp_is_checked_by_future_alone() -> None:
    pipeline = main(time=EventTime("t", Delay(0), jump=60 * MINUTE, future=60 * MINUTE), key_groups=1)

    def at(time: int, log_time: int | None) -> bytes:
        fields = json.loads(record("u1", time))
        return json.dumps(fields if log_time is None else fields | {"_log_time": log_time * 60_000}).encode()

    for cut in (1, 2, 9):
        run = Clocked(pipeline, [0])
        log = [at(0, 0), at(1, None), at(500, None), at(600, 590), at(599, None), at(700, 600)]
        steps = [run.feed([(0, each) for each in log[first : first + cut]]) for first in range(0, len(log), cut)]
        # the last one is a dead letter
        assert known(run, 0) == [BEFORE_ALL, 0, MINUTE, MINUTE, 600 * MINUTE]
        assert run.clocks.watermarks == {0: 600 * MINUTE}
        assert sum(sum(step.leaps.values()) for step in steps) == 1


@examples(30)
@given(st.sampled_from(DELAYS), st.sampled_from([60, DAY]), st.integers(0, 2**32))
def test_records_with_and_without_log_timestamps_have_the_watermarks_of_the_definition(
    delay: Watermark, jump: int, seed: int
) -> None:
    chance = random.Random(seed)
    settings = EventTime("t", delay, jump=jump * MINUTE, future=0)
    log = [(time, chance.random() < 0.5) for time in times(chance, chance.choice([2, 4, 12, 60])) if time is not None]
    each, clock = [], Clock(delay, (), 0, settings.jump)
    for offset, (time, is_checked) in enumerate(log):
        clock.at(offset)
        each.append(clock.at(offset, time * MINUTE))
        clock.data(offset, time * MINUTE, is_checked=is_checked)
    for sizes in ([len(log)], [1], [1, 2, 7, 20]):
        run, rest = Clocked(main(time=settings), [0]), list(log)
        while rest:
            size = chance.choice(sizes)
            run.feed([(0, checked(time) if is_checked else value(time)) for time, is_checked in rest[:size]])
            del rest[:size]
        assert known(run, 0) == each


def checked(time: int) -> bytes:
    return json.dumps(json.loads(record("u1", time)) | {"_log_time": time * 60_000}).encode()


@pytest.mark.parametrize("log", [[130, 100], [180, 100, 130], [40, 100, 170]])
def test_a_checked_record_agrees_with_one_that_waits_for_the_first_clock(log: list[int]) -> None:
    settings = EventTime("t", Delay(0), jump=60 * MINUTE, future=0)
    each, last = expected_of_checked(log, settings)
    for cut in (1, 3):
        run = Clocked(main(time=settings, key_groups=1), [0])
        values = [value(log[0]), *(checked(time) for time in log[1:])]
        for first in range(0, len(log), cut):
            run.feed([(0, record_value) for record_value in values[first : first + cut]])
        assert known(run, 0) == each
        assert run.clocks.watermarks == {0: last}


def expected_of_checked(log: list[int], settings: EventTime) -> tuple[list[float], float]:
    clock, each = Clock(settings.watermark, (), 0, settings.jump), []
    for offset, time in enumerate(log):
        each.append(clock.at(offset, time * MINUTE))
        clock.data(offset, time * MINUTE, is_checked=offset > 0)
    return each, clock.at(len(log))


def test_key_groups_receive_few_times_of_a_log_without_leaps() -> None:
    pipeline = main(time=EventTime("t", Delay(0), jump=DAY * MINUTE), key_groups=1)
    values = [value(number - number % 7) for number in range(5000)]
    values[4000] = value(9 * DAY)
    packets = list(Ingest(as_graph(pipeline)).run(raw(0, 0, *values).to_batches()))
    sent = [unpack_times(packet.message.blob) for packet in packets if isinstance(packet.message, EventTimes)]
    # the first records of the step, the leap, and the greatest time of each stretch between them
    assert [times.offsets.tolist() for times in sent] == [[*range(10), 4000, 4001]]
    assert sent[0].times.tolist()[-3:] == [3997 * MINUTE, 9 * DAY * MINUTE, 4998 * MINUTE]


def test_watermarks_of_a_whole_log_are_final_in_the_ingest() -> None:
    chance = random.Random(3)
    log = times(chance, 700)
    time = EventTime("t", Delay(5 * MINUTE), jump=DAY * MINUTE)
    graph = as_graph(main(time=time, key_groups=1))
    table = raw(0, 0, *map(value, log))
    batches = [batch for at in range(0, 700, 90) for batch in table.slice(at, 90).to_batches()]
    packets = Ingest(graph, is_whole=True).run(batches)
    found = {
        offset: at
        for packet in packets
        if isinstance(packet.message, Records)
        for records in [unpack(packet.message.blob)]
        for offset, at in zip(*(to_micros(records.column(name)).tolist() for name in (OFFSET, WATERMARK)), strict=True)
    }
    each, _ = expected(Clock(time.watermark, (), 0, time.jump), log)
    assert [BEFORE_ALL if found[offset] == MIN_TIME else found[offset] for offset in sorted(found)] == each


def test_a_guard_that_is_added_or_removed_begins_anew() -> None:
    plain, guarded = EventTime("t", Delay(0)), EventTime("t", Delay(0), jump=60 * MINUTE)
    clocks = PartitionClocks.start([0])
    found, offset = [], 0
    for time, values in ((plain, [0, 5]), (guarded, [900, 6, 7, 900]), (plain, [8, 9]), (guarded, [900, 10, 11])):
        run = Clocked(main(time=time), [0])
        state = json.dumps(clocks.encode())
        # clocks of an unguarded pipeline are those of older versions
        assert ("guarded" in state) == (time is plain and offset > 2)
        run.resume(state, {0: offset})
        run.feed([(0, value(value_)) for value_ in values])
        found += known(run, 0)
        clocks, offset = run.clocks, offset + len(values)
    each = [None, 0, 5, 5, 6, 7, 7, 8, 9, 9, 10]
    assert found == [BEFORE_ALL if at is None else at * MINUTE for at in each]
