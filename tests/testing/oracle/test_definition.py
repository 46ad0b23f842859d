"""The oracle against answers that were worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from tests.short_forms import Pipeline, windowed

from windrow.model import (
    Aggregate,
    Avg,
    Count,
    DecimalType,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    KafkaSource,
    LogSource,
    LongType,
    Punctuated,
    SqliteSink,
    StringType,
    Sum,
    TimestampType,
    Tumbling,
)
from windrow.testing.oracle import Change, LogRecord, Missed, run

MINUTE = 60_000_000
SECOND = 1_000_000

PIPELINE = Pipeline(
    name="spend",
    source=LogSource("spend"),
    decode=Decode(
        (Field("user", StringType()), Field("t", TimestampType("micros")), Field("amount", DecimalType(12, 2)))
    ),
    time=EventTime("t", Delay(MINUTE)),
    key=("user",),
    window=Tumbling(5 * MINUTE),
    aggregates=(Aggregate("total", Sum("amount")), Aggregate("n", Count())),
    emit=Emit(lateness=10 * MINUTE),
    sink=SqliteSink("spend.db", "spend"),
)


def log(*partitions: list[str]) -> dict[int, list[LogRecord]]:
    return {
        partition: [LogRecord(offset, None, value.encode()) for offset, value in enumerate(values)]
        for partition, values in enumerate(partitions)
    }


def spent(user: str, minute: float, amount: str) -> str:
    return f'{{"user": "{user}", "t": {int(minute * MINUTE)}, "amount": {amount}}}'


def window(minute: int) -> tuple[int, int]:
    return minute * MINUTE, (minute + 5) * MINUTE


WORKED = [spent("A", 0, "5"), spent("B", 2, "3"), spent("A", 4, "2"), spent("B", 6, "1"), spent("A", 1, "1")]


def test_worked_example() -> None:
    answer = run(windowed(PIPELINE), log(WORKED))
    assert answer.table == {
        (*window(0), "A"): (8, 3, "late", 1),
        (*window(0), "B"): (3, 1, "on_time", 0),
        (*window(5), "B"): (1, 1, "on_time", 0),
    }
    assert answer.on_time == {(*window(0), "A"): (7, 2), (*window(0), "B"): (3, 1), (*window(5), "B"): (1, 1)}
    assert answer.changelog[*window(0), "A"] == [
        Change("insert", "on_time", 0, (Decimal(7), 2)),
        Change("update_before", "late", 0, (Decimal(7), 2)),
        Change("update_after", "late", 1, (Decimal(8), 3)),
    ]
    assert answer.late == set()
    assert answer.dead == {}


def test_held_at_the_end_only_passed_windows_are_there() -> None:
    held = replace(PIPELINE, emit=replace(PIPELINE.emit, at_end="hold"))
    assert run(windowed(held), log(WORKED)).table.keys() == {(*window(0), "A"), (*window(0), "B")}
    # a second partition without a good record holds everything back
    assert run(windowed(held), log(WORKED, ["no json"])).table == {}


def test_before_1970_windows_are_where_they_belong() -> None:
    answer = run(windowed(PIPELINE), log([spent("A", -0.5, "1"), spent("A", -5, "2"), spent("A", -5.5, "4")]))
    assert answer.table == {
        (*window(-5), "A"): (3, 2, "on_time", 0),
        (*window(-10), "A"): (4, 1, "late", 0),
    }


@pytest.mark.parametrize(
    ("micros", "verdict"),
    [
        (-1, "on_time"),
        (0, "late"),
        (10 * MINUTE - 1, "late"),
        (10 * MINUTE, "expired"),
    ],
)
def test_verdict_at_the_boundaries(micros: int, verdict: str) -> None:
    clock = 6 * MINUTE + micros
    answer = run(windowed(PIPELINE), log([spent("B", clock / MINUTE, "1"), spent("A", 0, "1")]))
    row = answer.table.get((*window(0), "A"))
    assert (row[2] if row else "expired") == verdict
    expected = {Missed(0, 1, *window(0), 600_000)} if verdict == "expired" else set()
    assert answer.late == expected


def test_lateness_in_milliseconds_is_rounded_down() -> None:
    pipeline = replace(PIPELINE, time=EventTime("t", Delay(0)), emit=Emit(lateness=0))
    records = [f'{{"user": "A", "t": {5 * MINUTE + 1999}, "amount": 1}}', spent("A", 0, "1")]
    assert run(windowed(pipeline), log(records)).late == {Missed(0, 1, *window(0), 1)}


def test_late_only_window_begins_with_an_insert() -> None:
    answer = run(windowed(PIPELINE), log([spent("B", 7, "1"), spent("A", 0, "1"), spent("A", 0, "2")]))
    assert answer.changelog[*window(0), "A"] == [
        Change("insert", "late", 0, (1, 1)),
        Change("update_before", "late", 0, (1, 1)),
        Change("update_after", "late", 1, (3, 2)),
    ]
    assert (*window(0), "A") not in answer.on_time


def test_each_partition_has_its_own_clock_and_late_records_come_in_log_order() -> None:
    ahead = [spent("A", 20, "1"), spent("A", 8, "2")]
    behind = [spent("A", 9, "4"), spent("A", 12, "8"), spent("A", 8, "16")]
    answer = run(windowed(PIPELINE), log(ahead, behind))
    assert [change.values for change in answer.changelog[*window(5), "A"] if change.op != "update_before"] == [
        (4, 1),
        (6, 2),
        (22, 3),
    ]


def test_punctuation_moves_the_watermark_for_the_records_after_it() -> None:
    pipeline = replace(
        PIPELINE,
        decode=Decode((*PIPELINE.decode.fields, Field("w", TimestampType("micros")))),
        time=EventTime("t", Punctuated("w")),
        emit=Emit(lateness=0),
    )
    marked = f'{{"user": "A", "t": 0, "amount": 1, "w": {5 * MINUTE}}}'
    records = [spent("A", 60, "1"), marked, spent("A", 1, "1"), f'{{"w": {1 * MINUTE}}}', spent("A", 1, "1")]
    answer = run(windowed(pipeline), log(records))
    assert answer.on_time == {(*window(60), "A"): (1, 1), (*window(0), "A"): (1, 1)}
    assert {missed.offset for missed in answer.late} == {2, 4}
    assert answer.dead == {}


def test_mark_with_time_and_key_is_data_and_needs_every_field() -> None:
    pipeline = replace(
        PIPELINE,
        decode=Decode((*PIPELINE.decode.fields, Field("w", TimestampType("micros")))),
        time=EventTime("t", Punctuated("w")),
    )
    records = [f'{{"user": "A", "t": 0, "w": {60 * MINUTE}}}', spent("A", 1, "1")]
    answer = run(windowed(pipeline), log(records))
    assert answer.dead == {(0, 0): "missing"}
    assert answer.table == {(*window(0), "A"): (1, 1, "on_time", 0)}


def test_future_guard_takes_the_time_of_the_log() -> None:
    guarded = replace(PIPELINE, time=replace(PIPELINE.time, future=10 * MINUTE))
    inside = ['{"user": "A", "t": 600001000, "amount": 1, "_log_time": 1}', spent("A", 60, "1")]
    assert run(windowed(guarded), log(inside)).dead == {}
    inside[0] = inside[0].replace("600001000", "600001001")
    assert run(windowed(guarded), log(inside)).dead == {(0, 0): "future"}
    bad = [inside[0].replace('"_log_time": 1', '"_log_time": "x"')]
    assert run(windowed(guarded), log(bad)).dead == {(0, 0): "wrong type"}

    broker = replace(guarded, source=KafkaSource("localhost:9092", "spend"))
    value = spent("A", 60, "1").encode()
    assert run(windowed(broker), {0: [LogRecord(7, 50 * MINUTE, value)]}).dead == {}
    assert run(windowed(broker), {0: [LogRecord(7, 50 * MINUTE - 1, value)]}).dead == {(0, 7): "future"}


def test_tombstone_is_malformed() -> None:
    assert run(windowed(PIPELINE), {0: [LogRecord(3, None, None)]}).dead == {(0, 3): "malformed"}


@pytest.mark.parametrize(("sign", "mean"), [(1, "0.007813"), (-1, "-0.007813"), (3, "0.023438"), (2, "0.015625")])
def test_mean_is_rounded_half_away_from_zero(sign: int, mean: str) -> None:
    pipeline = replace(
        PIPELINE,
        decode=Decode((*PIPELINE.decode.fields[:2], Field("amount", LongType()))),
        aggregates=(Aggregate("mean", Avg("amount")),),
    )
    records = [spent("A", 0, str(sign))] + [spent("A", 0, "0")] * 127
    assert run(windowed(pipeline), log(records)).on_time == {(*window(0), "A"): (Decimal(mean),)}
