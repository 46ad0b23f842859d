"""Aggregates over all rows: accumulators give what the rows themselves do, in every cut of the log into steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from random import Random
from time import process_time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.graphs import graph_of
from tests.properties.aggregates import CONDITIONS
from tests.short_forms import Pipeline, operator_spec

import windrow as wr
from windrow.engine.columns import unpack
from windrow.engine.decode.evaluation import Evaluator
from windrow.engine.operators.base import Operator, OperatorOutput, OperatorStep, StepTime
from windrow.engine.operators.window.late import MAX_REVISIONS
from windrow.engine.operators.window.running import RunningAggregateOperator, RunningRowsOperator, open_running
from windrow.engine.schema import DIFF, OFFSET, PARTITION, TIME, WATERMARK, record_schema
from windrow.engine.state.store import MemoryState, OperatorState
from windrow.expressions import computed
from windrow.model import (
    Aggregate,
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    BoolAnd,
    BoolOr,
    BottomKBy,
    CollectList,
    CollectSet,
    Count,
    CountDistinct,
    Emit,
    First,
    Formula,
    Function,
    Last,
    Max,
    MaxBy,
    Min,
    MinBy,
    Quantile,
    Stddev,
    Sum,
    TopK,
    TopKBy,
    Variance,
)

BASE = replace(
    graph_of(
        wr.log("data/spend")
        .decode(user="string", t="timestamp_millis", n="long?", amount="decimal(12,2)", weight="double")
        .event_time("t", delay="1m")
        .key_by("user")
        .running(count=wr.count())
        .to(wr.sqlite("spend.db", table="spend")),
        Pipeline,
    ),
    emit=Emit(),
)
INVERTIBLE: list[Function] = [Count(), Sum("n"), Sum("amount"), Avg("n"), Avg("amount")]
MERGED: list[Function] = [
    *INVERTIBLE,
    *(kind("n") for kind in (CountDistinct, ApproxCountDistinct, Variance, Stddev)),
    *(kind(of) for kind in (Min, Max) for of in ("n", "amount", "weight", "user")),
    *(kind(of, by) for kind in (First, Last) for of in ("n", "weight") for by in ("time", "log")),
    *(kind("n", "amount") for kind in (MinBy, MaxBy)),
    *(kind("n", "amount", 2) for kind in (TopKBy, BottomKBy)),
    *(kind("n > 0") for kind in (BoolAnd, BoolOr)),
    *(kind("n", 0.5) for kind in (Quantile, ApproxQuantile)),
    *(CollectList("n", 3, by) for by in ("time", "log")),
    CollectSet("n", 2),
    TopK("n", 2),
]
KEPT: list[Function] = [Sum("weight"), Avg("weight"), Variance("weight"), Stddev("weight")]
"""Their results depend on what is merged: all rows are kept."""

Row = tuple[str, int, int | None, Decimal, float]
"""User, time, n, amount and weight."""
Cause = list[tuple[Row, int]]
"""The rows that one record adds (1) and takes back (-1)."""


def pipeline_of(functions: Sequence[Function], wheres: Sequence[str | None] = (), late: Any = "each") -> Pipeline:  # noqa: ANN401 - of each or batch
    held = [*wheres, *[None] * len(functions)]
    made = tuple(Aggregate(f"a{at}", one, where) for at, (one, where) in enumerate(zip(functions, held, strict=False)))
    return replace(BASE, aggregates=(*made, Aggregate("f", Formula("a0 IS NULL"))), emit=Emit(late=late))


def row(chance: Random, time: int) -> Row:
    n = chance.choice([None, *range(-3, 4)])
    return chance.choice("AB"), time, n, Decimal(chance.randint(-300, 300)) / 100, chance.randint(-8, 8) / 4


def causes_of(chance: Random, size: int, *, is_changelog: bool) -> list[Cause]:
    """Return causes, each with the rows that it adds and takes back of what is there."""
    live: list[Row] = []
    causes: list[Cause] = []
    for number in range(size):
        cause: Cause = []
        if is_changelog:
            for _ in range(min(chance.randint(0, 2), len(live))):
                cause.append((live.pop(chance.randrange(len(live))), -1))
        for each in range(chance.randint(0 if cause else 1, 2)):
            # an equal row can be there more than once, where order does not matter
            made = chance.choice(live) if live and chance.random() < 0.2 else row(chance, 10 * number + each)
            if not is_changelog:
                made = row(chance, (10 * number + each) * chance.choice([1, -1]))
            cause.append((made, 1))
            live.append(made)
        causes.append(cause)
    return causes


def table_of(pipeline: Pipeline, causes: Sequence[Cause], first: int, *, is_changelog: bool) -> pa.Table:
    rows = [
        {"user": user, "t": time, "n": n, "amount": amount, "weight": weight}
        | {PARTITION: 0, OFFSET: offset, TIME: time, WATERMARK: offset // 3, DIFF: diff}
        for offset, cause in enumerate(causes, first)
        for (user, time, n, amount, weight), diff in cause
    ]
    schema = record_schema(operator_spec(pipeline))
    fields = pa.schema([field for field in schema if not field.name.startswith("__e")]).append(
        pa.field(DIFF, pa.int64())
    )
    made = pa.Table.from_pylist(rows, fields)
    columns = computed(operator_spec(pipeline))
    values, _ = Evaluator(columns).compute(made)
    for one, array in zip(columns, values, strict=True):
        made = made.append_column(schema.field(one.name), array)
    return made.select([*schema.names, *([DIFF] if is_changelog else [])])


def run(operator: Operator, tables: Sequence[pa.Table]) -> tuple[list[OperatorOutput], MemoryState]:
    """Return what an operator gives for steps, and its state after them."""
    blobs = MemoryState()
    state = OperatorState("", blobs)
    time = StepTime(before=0, low=0, now=None, latest=None, reached=0)
    return [operator.process(OperatorStep(0, time, table), state) for table in tables], blobs


def told(outputs: Sequence[OperatorOutput]) -> tuple[list[Any], list[Any]]:
    """Return the changes by key, and what other nodes read of them."""

    def by_key(tables: list[pa.Table]) -> list[Any]:
        return sorted(pa.concat_tables(tables).to_pylist(), key=lambda one: one["user"])

    return by_key([one.changes for one in outputs]), by_key([one.records[0] for one in outputs])


@st.composite
def functions(draw: st.DrawFn, of: list[Function]) -> tuple[list[Function], list[str | None]]:
    drawn = draw(st.lists(st.sampled_from(of), min_size=1, max_size=3))
    conditions = [one for one in CONDITIONS if "weight" not in one]
    return drawn, draw(st.lists(st.none() | st.sampled_from(conditions), max_size=3))


@examples(20)
@given(data=st.data(), is_changelog=st.booleans(), size=st.integers(0, 40), seed=st.integers(0, 2**32))
def test_accumulators_give_what_all_rows_do(data: st.DataObject, *, is_changelog: bool, size: int, seed: int) -> None:
    given_ = data.draw(functions(INVERTIBLE if is_changelog else MERGED))
    pipeline = pipeline_of(*given_)
    causes = causes_of(Random(seed), size, is_changelog=is_changelog)
    ends = [0, *sorted(data.draw(st.lists(st.integers(0, size), max_size=4))), size]
    cut = [table_of(pipeline, causes[a:b], a, is_changelog=is_changelog) for a, b in pairwise(ends)]
    whole = [table_of(pipeline, causes, 0, is_changelog=is_changelog)]
    expected = told(run(RunningRowsOperator(operator_spec(pipeline), is_traced=True), whole)[0])
    operator = open_running(operator_spec(pipeline), is_changelog=is_changelog, is_traced=True)
    assert isinstance(operator, RunningAggregateOperator)
    for tables in (whole, cut):
        assert told(run(operator, tables)[0]) == expected


@pytest.mark.parametrize("of", [Sum("amount"), Max("n"), CountDistinct("n")], ids=lambda one: type(one).__name__)
def test_a_revision_a_step(of: Function) -> None:
    pipeline = pipeline_of([of], late="batch")
    causes = causes_of(Random(5), 20, is_changelog=False)
    tables = [table_of(pipeline, causes[at : at + 7], at, is_changelog=False) for at in range(0, 20, 7)]
    outputs = [
        told(run(operator, tables)[0])
        for operator in (
            open_running(operator_spec(pipeline), is_changelog=False, is_traced=True),
            RunningRowsOperator(operator_spec(pipeline), is_traced=True),
        )
    ]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("of", KEPT, ids=lambda one: type(one).__name__)
def test_what_depends_on_what_is_merged_is_made_of_all_rows(of: Function) -> None:
    for is_changelog in (False, True):
        assert isinstance(
            open_running(operator_spec(pipeline_of([Count(), of])), is_changelog=is_changelog), RunningRowsOperator
        )


@pytest.mark.parametrize("of", [one for one in MERGED if one not in INVERTIBLE], ids=str)
def test_what_cannot_be_taken_back_is_made_of_all_rows(of: Function) -> None:
    pipeline = pipeline_of([of])
    assert isinstance(open_running(operator_spec(pipeline), is_changelog=True), RunningRowsOperator)
    assert isinstance(open_running(operator_spec(pipeline), is_changelog=False), RunningAggregateOperator)


def hot(pipeline: Pipeline, size: int, *, is_changelog: bool, first: int = 0) -> pa.Table:
    """Return records of one key; those of a changelog take back what the one before has added."""
    rows: list[Row] = [("A", at, at % 7, Decimal(at % 5), 0.0) for at in range(first, first + size)]
    before = [[], *([(one, -1)] for one in rows)] if is_changelog else [[] for _ in rows]
    causes: list[Cause] = [[*old, (one, 1)] for old, one in zip(before, rows, strict=False)]
    return table_of(pipeline, causes, first, is_changelog=is_changelog)


@pytest.mark.parametrize("is_changelog", [False, True])
def test_a_key_with_all_the_records_costs_no_more_than_many(*, is_changelog: bool) -> None:
    more: list[Function] = [] if is_changelog else [Max("n"), Last("n"), TopK("n", 2)]
    pipeline = pipeline_of([Sum("n"), Avg("amount"), *more])
    operator = open_running(operator_spec(pipeline), is_changelog=is_changelog, is_traced=True)
    seconds = []
    for size in (500, 5_000, 20_000):  # the first is to warm up
        tables = [hot(pipeline, size, is_changelog=is_changelog)]
        began = process_time()
        (output,), _ = run(operator, tables)
        seconds.append(process_time() - began)
        assert output.changes.num_rows == 2 * size - 1
    # four times as much where the cost is that of the records, sixteen where it is that of their pairs
    assert seconds[2] < 9 * seconds[1]


@pytest.mark.parametrize("is_changelog", [False, True])
def test_the_state_is_a_row_a_key(*, is_changelog: bool) -> None:
    pipeline = pipeline_of([Sum("n"), Avg("amount")])
    operator = open_running(operator_spec(pipeline), is_changelog=is_changelog)
    tables = [hot(pipeline, 50, is_changelog=is_changelog, first=50 * at) for at in range(20)]
    if is_changelog:
        whole = hot(pipeline, 1000, is_changelog=True)
        tables = [whole.slice(at, 100) for at in range(0, whole.num_rows, 100)]
    _, state = run(operator, tables)
    assert sum(unpack(blob).num_rows for _, blob in state.items()) == 1


def test_what_one_record_makes_is_one_revision_however_many_records_there_are() -> None:
    pipeline = pipeline_of([CountDistinct("n"), CollectList("n", 3, "log")])
    rows: list[Row] = [("B" if at % 7 == 0 else "A", at, at, Decimal(0), 0.0) for at in range(3 * MAX_REVISIONS)]
    causes: list[Cause] = [[(one, 1) for one in rows[at : at + 3]] for at in range(0, len(rows), 3)]
    tables = [table_of(pipeline, causes, 0, is_changelog=False)]
    of_accumulators = told(run(open_running(operator_spec(pipeline), is_changelog=False, is_traced=True), tables)[0])
    assert of_accumulators == told(run(RunningRowsOperator(operator_spec(pipeline), is_traced=True), tables)[0])
