"""Idle partitions: who is left out of the low watermark, and where it comes back."""

from __future__ import annotations

import pytest
from tests.engine.pipelines import MAIN, MINUTE, main, record
from tests.engine.watermarks.clocked import Clocked
from tests.short_forms import Pipeline

from windrow.engine.columns import MIN_TIME
from windrow.model import Decode, Delay, EventTime, Field, Punctuated, TimestampType

SECOND = 1_000_000
NOON = 12 * 60 * MINUTE
"""Of processing time."""


def idling(all_idle: str = "hold") -> Pipeline:
    """A delay of a minute of event time; idle after ten seconds of processing time."""
    return main(time=EventTime("t", Delay(1 * MINUTE), idle=10 * SECOND, all_idle=all_idle))  # type: ignore[arg-type]


def at(minute: float, partition: int = 0) -> tuple[int, bytes]:
    return partition, record("A", minute)


def test_without_ticks_nobody_is_idle() -> None:
    run = Clocked(idling(), [0, 1])
    run.feed([at(30)])
    assert run.feed([at(60)]).time([0]).low == MIN_TIME


def test_a_silent_partition_is_left_out_after_so_much_processing_time() -> None:
    run = Clocked(idling(), [0, 1])
    run.feed([at(30, 0), at(20, 1)], tick=NOON)
    assert run.feed([at(40, 0)], tick=NOON + 10 * SECOND - 1).time([0]).low == 19 * MINUTE
    assert run.clocks.idle == set()
    assert run.feed([at(50, 0)], tick=NOON + 10 * SECOND).time([0]).low == 49 * MINUTE
    assert run.clocks.idle == {1}
    assert run.journal_rows == [(1, 1, "idle")]
    # there is nothing new to say of it
    assert run.feed([at(51, 0)], tick=NOON + 11 * SECOND).time([0]).low == 50 * MINUTE
    assert run.journal_rows == [(1, 1, "idle")]


def test_a_partition_that_never_had_a_record_is_silent_since_the_first_tick() -> None:
    run = Clocked(idling(), [0, 1])
    run.feed([at(30)])
    run.tick(NOON)
    run.feed([at(31)], tick=NOON + 9 * SECOND)
    assert run.clocks.low() == MIN_TIME
    assert run.feed([at(32)], tick=NOON + 10 * SECOND).time([0]).low == 31 * MINUTE
    (row,) = run.journal[-1].to_pylist()
    assert (row["partition"], row["offset"], row["clock"], row["reason"]) == (1, 0, None, "idle")
    assert row["low_watermark"].timestamp() == 31 * 60


def test_records_before_the_first_tick_are_as_of_then() -> None:
    run = Clocked(idling(), [0, 1])
    run.feed([at(30, 0), at(20, 1)])
    run.tick(NOON)
    run.feed([at(40, 0)])
    run.tick(NOON + 9 * SECOND)
    assert run.clocks.idle == set()
    run.feed([at(41, 0)])
    run.tick(NOON + 10 * SECOND)
    assert run.clocks.idle == {1}


def test_who_comes_back_goes_on_from_the_low_watermark_of_the_step_before() -> None:
    run = Clocked(idling(), [0, 1])
    run.feed([at(30, 0), at(20, 1)], tick=NOON)
    run.feed([at(50, 0)], tick=NOON + 10 * SECOND)
    run.feed([at(60, 0), at(21, 1), at(22, 1), at(58, 1)], tick=NOON + 11 * SECOND)
    assert [run.watermarks[1, offset] for offset in (1, 2, 3)] == [49 * MINUTE] * 3
    assert run.clocks.watermarks == {0: 59 * MINUTE, 1: 57 * MINUTE}
    assert run.clocks.low() == 57 * MINUTE
    assert run.journal_rows == [(1, 1, "idle"), (1, 1, "active")]
    row = run.journal[-1].to_pylist()[0]
    assert (row["clock"].timestamp(), row["low_watermark"].timestamp()) == (50 * 60, 49 * 60)


def test_a_partition_ahead_of_the_others_keeps_its_watermark() -> None:
    run = Clocked(idling(), [0, 1])
    run.feed([at(30, 0), at(80, 1)], tick=NOON)
    run.feed([at(50, 0)], tick=NOON + 10 * SECOND)
    assert run.clocks.idle == {1}
    run.feed([at(40, 1)], tick=NOON + 11 * SECOND)
    assert run.watermarks[1, 1] == 79 * MINUTE
    row = run.journal[-1].to_pylist()[0]
    assert (row["clock"].timestamp(), row["low_watermark"].timestamp()) == (80 * 60, 49 * 60)


def test_a_dead_letter_is_a_sign_of_life() -> None:
    run = Clocked(idling(), [0, 1])
    run.feed([at(30, 0), at(20, 1)], tick=NOON)
    run.feed([at(50, 0), (1, b"x")], tick=NOON + 10 * SECOND)
    assert run.clocks.idle == set()
    run.feed([at(50, 0)], tick=NOON + 20 * SECOND)
    assert run.clocks.idle == {1}
    run.feed([(1, b"x")])
    assert run.clocks.idle == set()
    assert run.clocks.watermarks[1] == 49 * MINUTE


@pytest.mark.parametrize("all_idle", ["hold", "advance"])
def test_when_all_are_silent_time_stands_still_or_goes_on(all_idle: str) -> None:
    run = Clocked(idling(all_idle), [0, 1])
    run.feed([at(30, 0), at(20, 1)], tick=NOON)
    run.feed([at(50, 0)], tick=NOON + 5 * SECOND)
    run.tick(NOON + 10 * SECOND)
    assert (run.clocks.idle, run.clocks.low()) == ({1}, 49 * MINUTE)
    run.tick(NOON + 15 * SECOND)
    assert run.clocks.idle == ({1} if all_idle == "hold" else {0, 1})
    assert run.clocks.low() == 49 * MINUTE
    run.tick(NOON + 25 * SECOND)
    gone = 0 if all_idle == "hold" else 10 * SECOND
    assert run.clocks.low() == 49 * MINUTE + gone
    run.feed([at(50.5, 0)])
    assert run.watermarks[0, 2] == 49 * MINUTE + gone
    assert run.clocks.low() == max(49 * MINUTE + gone, int(49.5 * MINUTE))
    # and again
    run.tick(NOON + 40 * SECOND)
    low = run.clocks.low()
    assert run.tick(NOON + 50 * SECOND).time([0]).low == low + gone


def test_a_clock_on_the_wall_that_goes_back_says_nothing_new() -> None:
    run = Clocked(idling(), [0])
    run.tick(NOON)
    step = run.tick(NOON - 1)
    assert (step.time([0]).now, step.time([0]).latest) == (NOON, NOON)
    step = run.feed([at(1)])
    assert (step.time([0]).now, step.time([0]).latest) == (None, NOON)


def test_how_far_event_time_has_come() -> None:
    run = Clocked(MAIN, [0, 1])
    assert run.feed([at(30, 0), at(20, 1), at(7, 0)]).time([0]).reached == 30 * MINUTE
    assert Clocked(MAIN, []).feed([]).time([0]).reached == MIN_TIME
    # the watermark of a source that carries its own says nothing of it
    decode = Decode((*MAIN.decode.fields, Field("mark", TimestampType("micros"))))
    punctuated = main(decode=decode, time=EventTime("t", Punctuated("mark")))
    assert Clocked(punctuated, [0]).feed([(0, b'{"mark": 60000000}'), at(30)]).time([0]).reached == 30 * MINUTE
