"""Every function through a pipeline: decoded, cut into steps, kept, merged with late records, and finished."""

from __future__ import annotations

import datetime as dt
import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.aggregates.aggregated import CASES, INEXACT, PIPELINE, Rec, logs, plain_result
from tests.engine.outputs import play
from tests.engine.pipelines import MINUTE
from tests.examples import examples
from tests.graphs import as_graph
from tests.short_forms import Pipeline, operator_spec

from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.sink import Run
from windrow.engine.changelog import StepOutput
from windrow.expressions import computed
from windrow.model import (
    Aggregate,
    Avg,
    BooleanType,
    Calendar,
    Count,
    Derive,
    Emit,
    Field,
    Formula,
    Hopping,
    Session,
    SqliteSink,
    Sum,
    Tumbling,
    Window,
)

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
DOUBLES = {name for name, (case, _) in CASES.items() if case in INEXACT}
LINES = (b'{"user":"A","t":0,"amount":"1.50","wide":1,"n":2,"s":"a","b":true,"x":0.5}',)


def play_steps(pipeline: Pipeline, steps: list[list[Rec]]) -> list[dict[str, Any]]:
    """The changes of a log whose offsets count up within each partition."""
    outputs = play(pipeline, [[(record.partition, record.line()) for record in step] for step in steps], "fire")
    rows: list[dict[str, Any]] = StepOutput.concat(outputs).changes.to_pylist()
    return rows


def one(*aggregates: Aggregate, lines: tuple[bytes, ...] = LINES, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """The only row of a pipeline with these aggregates."""
    pipeline = replace(PIPELINE, aggregates=aggregates, **changes)
    *_, last = play(pipeline, [[(0, line) for line in lines]], "fire")
    (row,) = last.changes.to_pylist()
    return dict(row)


LARGE = tuple(
    b'{"user":"A","t":0,"amount":"1.50","wide":1,"n":2,"s":"a","b":true,"x":%s}' % x
    for x in (b"1e308", b"1e308", b"-1e308", b"-1e308")
)


@pytest.mark.parametrize("cut", [0, 2, 3])
def test_a_sum_of_doubles_that_are_too_large_is_infinite_and_goes_to_the_table(cut: int, tmp_path: Path) -> None:
    sums = (Aggregate("total", Sum("x")), Aggregate("mean", Avg("x")), Aggregate("half", Formula("total / 2")))
    pipeline = replace(PIPELINE, aggregates=sums, sink=SqliteSink(str(tmp_path / "large.db"), "large"))
    steps = [[(0, line) for line in lines] for lines in (LARGE[:cut], LARGE[cut:])]
    output = StepOutput.concat(play(pipeline, steps, "fire"))
    (row,) = output.changes.to_pylist()
    assert (row["total"], row["mean"], row["half"]) == (math.inf, math.inf, None)
    with closing(open_sinks(as_graph(pipeline))) as sink:
        sink.open(Run.new(pipeline.name))
        sink.commit(0, {"": output})


WINDOWS = (Tumbling(MINUTE), Hopping(3 * MINUTE, 2 * MINUTE), Session(MINUTE), Calendar(1, "day", "Asia/Tokyo"))
"""Windows that have all records of `logs` in them, which are within a few microseconds."""


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: type(window).__name__)
@given(records=logs(), data=st.data())
@examples(5)
def test_a_window_that_comes_in_steps_holds_what_plain_python_gives(
    window: Window, records: list[Rec], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(records)), max_size=3)))
    steps = [records[start:end] for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True)]
    row, *others = play_steps(replace(PIPELINE, window=window), steps)
    assert len(others) == isinstance(window, Hopping)
    counted: dict[int, int] = {}
    placed = []
    for record in records:
        offset = counted.get(record.partition, 0)
        counted[record.partition] = offset + 1
        placed.append(replace(record, offset=offset))
    for name in CASES:
        expected, value = plain_result(name, placed), row[name]
        if isinstance(value, dt.datetime):
            value = (value - EPOCH) // dt.timedelta(microseconds=1)
        if isinstance(expected, float):
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-9), name
        else:
            assert value == expected, name
        assert all(other[name] == row[name] for other in others)


def test_late_records_revise_every_function_one_by_one() -> None:
    first = [Rec(0, 0, 0, 1, 1, 1, "no", b=True, x=1.0), Rec(0, 1, 7 * 10**8, 1, 1, 1, "a", b=True, x=1.0)]
    late = [
        Rec(0, 2 + number, number, 5 - number, number, -number, "abc"[number], b=number == 2, x=number / 2)
        for number in range(3)
    ]
    rows = play_steps(replace(PIPELINE, emit=Emit(lateness=10**10)), [first, late])
    revisions = [row for row in rows if row["op"] == "update_after"]
    assert [row["revision"] for row in revisions] == [1, 2, 3]
    for number, row in enumerate(revisions, start=1):
        for name in CASES:
            expected, value = plain_result(name, [first[0], *late[:number]]), row[name]
            if isinstance(value, dt.datetime):
                value = (value - EPOCH) // dt.timedelta(microseconds=1)
            assert value == (pytest.approx(expected) if isinstance(expected, float) else expected), name


def test_results_of_nothing_are_null_and_counts_are_zero() -> None:
    row = one(*(Aggregate(name, case.function, "s = 'none'") for name, (case, where) in CASES.items() if where is None))
    for name, (case, where) in CASES.items():
        if where is None:
            assert row[name] == case.nothing, name


def test_a_formula_sees_results_as_they_leave_and_is_null_where_it_divides_by_zero() -> None:
    row = one(
        Aggregate("total", Sum("amount")),
        Aggregate("zero", Count(), "s = 'none'"),
        Aggregate("half", Formula("total / 2")),
        Aggregate("more", Formula("total + 1")),
        Aggregate("whole", Formula("events // nullif(zero, 0)")),
        Aggregate("share", Formula("total / zero")),
        Aggregate("events", Count()),
        Aggregate("text", Formula("CASE WHEN total > 1 THEN 'much' END")),
    )
    assert [str(row[name]) for name in ("half", "more", "whole", "share", "text")] == [
        "0.75",
        "2.50",
        "None",
        "None",
        "much",
    ]


def test_a_derived_field_is_a_key_and_an_argument() -> None:
    row = one(
        Aggregate("total", Sum("twice")),
        derive=(Derive("initial", "upper(s[1])"), Derive("twice", "2 * n")),
        key=("initial", "user"),
    )
    assert (row["initial"], row["user"], row["total"]) == ("A", "A", 4)


def test_equal_expressions_are_computed_once() -> None:
    twice = replace(PIPELINE, aggregates=(Aggregate("a", Sum("n + 1")), Aggregate("b", Sum("n + 1"))))
    assert [column.name for column in computed(operator_spec(twice))] == ["__e0"]
    *_, last = play(twice, [[(0, LINES[0])]], "fire")
    assert last.changes.select(["a", "b"]).to_pylist() == [{"a": 3, "b": 3}]


def test_a_record_whose_argument_fails_is_dead_and_moves_no_clock() -> None:
    bad = b'{"user":"A","t":9000000000,"amount":1,"wide":1,"n":0,"s":"a","b":true,"x":0.5}'
    pipeline = replace(PIPELINE, aggregates=(Aggregate("share", Sum("1 // n")),))
    first, second, end = play(pipeline, [[(0, LINES[0]), (0, bad)], [(0, LINES[0])]], "fire")
    assert first.changes.num_rows == 0
    (dead,) = first.dead.to_pylist()
    assert dead["raw"] == bad
    assert dead["reason"].startswith("expression: share: Division by zero")
    assert second.late.num_rows == 0
    assert [row["op"] for row in end.changes.to_pylist()] == ["insert"]


def test_true_is_a_value_and_in_double_quotes_a_field() -> None:
    decode = replace(PIPELINE.decode, fields=(*PIPELINE.decode.fields, Field("true", BooleanType())))
    lines = tuple(LINES[0].replace(b'"b":true', b'"b":true,"true":' + value) for value in (b"false", b"false", b"true"))
    conditions = {"value": "true", "no": "false", "field": '"true"', "both": 'true AND NOT "true"'}
    aggregates = [Aggregate(name, Count(), where) for name, where in conditions.items()]
    sums = [Aggregate(f"{name} sum", Sum("n"), where) for name, where in conditions.items()]
    row = one(*aggregates, *sums, lines=lines, decode=decode)
    assert [row[name] for name in conditions] == [3, 0, 1, 2]
    assert [row[f"{name} sum"] for name in conditions] == [6, None, 2, 4]
