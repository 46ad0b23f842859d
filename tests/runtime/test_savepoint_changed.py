"""A changed pipeline resumes from a savepoint into the tables of the old one, altered as the refusals say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from tests.contracts.stores import Store
from tests.graphs import as_graph
from tests.runtime.answers import assert_same
from tests.runtime.conftest import MakeStore
from tests.runtime.runs import Runner
from tests.runtime.spend import Files, event, events, spend
from tests.short_forms import Pipeline

from windrow.connectors.open_sinks import open_sinks
from windrow.errors import SinkError
from windrow.model import (
    Aggregate,
    CountDistinct,
    DecimalType,
    Decode,
    Field,
    Last,
    LongType,
    Max,
    Quantile,
    Sum,
)
from windrow.runtime.settings import SparkOptions
from windrow.runtime.stream.take_savepoint import take_savepoint

pytestmark = pytest.mark.usefixtures("spark")

EVENTS = events(300, malformed_share=0)
HALF = 180


def half(files: Files, store: Store, runner: Runner, edit: Callable[[Pipeline], Pipeline]) -> Pipeline:
    """A pipeline that was run over the first half of its log."""
    pipeline = edit(replace(spend(files.source, store.settings(), at_end="hold"), key_groups=2))
    files.append(EVENTS[:HALF])
    runner.bounded(pipeline)
    return pipeline


def goes_on(store: Store, runner: Runner, before: Pipeline, after: Pipeline) -> str:
    """Run a pipeline on from a savepoint of another one; return what the tables lack, which are altered."""
    sink = open_sinks(as_graph(before))
    folder = take_savepoint(as_graph(before), sink, runner.checkpoint, None, SparkOptions("local[*]"))
    sink.close()
    other = Runner(runner.checkpoint.with_name("other"))
    with pytest.raises(SinkError) as refusal:
        other.bounded(after, savepoint=folder)
    what, _, statements = str(refusal.value).removesuffix(")").partition("--fresh (")
    for statement in statements.split("; "):
        store.query(statement)
    other.bounded(after, savepoint=folder)
    return what


def typed(pipeline: Pipeline, *fields: Field) -> Pipeline:
    return replace(pipeline, decode=Decode((*pipeline.decode.fields[:2], *fields)))


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def test_a_field_of_a_wider_type_that_may_be_lacking(
    kind: str, files: Files, make_store: MakeStore, runner: Runner
) -> None:
    store = make_store(kind)
    before = half(files, store, runner, lambda plain: plain)
    after = typed(before, Field("amount", DecimalType(14, 2), optional=True))
    files.append(EVENTS[HALF:])
    day = 24 * 60
    files.append([(0, event(day, "new", "123456789012.34")), (0, b'{"user_id": "none", "event_time": 1767312000000}')])
    after = replace(after, emit=replace(after.emit, at_end="fire"))
    refusal = goes_on(store, runner, before, after)
    assert refusal.startswith(
        "column 'total' of table 'spend' is NOT NULL, but the pipeline can write null there (and 7 "
    )
    answer = assert_same(store, after)
    values = {key[2]: row for key, row in answer.table.items()}
    assert values["new"][0] == Decimal("123456789012.34")
    assert values["none"][0] is None


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_whole_number_that_becomes_a_decimal(kind: str, files: Files, make_store: MakeStore, runner: Runner) -> None:
    def cents(plain: Pipeline) -> Pipeline:
        aggregates = (
            Aggregate("total", Sum("event_time_ms")),
            Aggregate("most", Max("event_time_ms")),
            Aggregate("last", Last("event_time_ms", "log")),
            Aggregate("median", Quantile("event_time_ms", 0.5)),
            Aggregate("different", CountDistinct("event_time_ms")),
        )
        return replace(typed(plain, whole(LongType())), aggregates=aggregates)

    def whole(type_: LongType | DecimalType) -> Field:
        return Field("event_time_ms", type_, alias=("event_time",))

    store = make_store(kind)
    before = half(files, store, runner, cents)
    files.append(EVENTS[HALF:])
    after = replace(typed(before, whole(DecimalType(22, 3))), emit=replace(before.emit, at_end="fire"))
    is_not = "INTEGER, not NUMERIC" if kind == "sqlite" else "bigint, not numeric(22,3)"
    assert goes_on(store, runner, before, after).startswith(f"column 'most' of table 'spend' is {is_not} (and 5 more)")
    assert_same(store, after)


def goes_on_with(files: Files, store: Store, runner: Runner, last: Aggregate, *, kept: int | None = None) -> str:
    """Go on with the aggregates, or the first of them, and one more; return what the tables lack for that one."""
    before = half(files, store, runner, lambda plain: plain)
    files.append(EVENTS[HALF:])
    stay = replace(before, aggregates=before.aggregates[:kept], emit=replace(before.emit, at_end="fire"))
    lacking = goes_on(store, runner, before, replace(stay, aggregates=(*stay.aggregates, last)))
    assert_same(store, stay)
    return lacking


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_aggregate_that_comes_and_one_that_goes(
    kind: str, files: Files, make_store: MakeStore, runner: Runner
) -> None:
    store = make_store(kind)
    lacking = goes_on_with(files, store, runner, Aggregate("different", CountDistinct("amount")), kept=-1)
    type_ = "INTEGER" if kind == "sqlite" else "bigint"
    assert lacking.startswith(f"table 'spend' has no column 'different' ({type_}) (and 3 more)")
    # a window whose records all came after the savepoint has them all in it
    assert store.query("SELECT count(*) FROM spend WHERE different > 0 AND different <= events") != [(0,)]
    assert store.query("SELECT count(*) FROM spend WHERE different > events") == [(0,)]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_aggregate_that_is_null_where_it_came_too_late(
    kind: str, files: Files, make_store: MakeStore, runner: Runner
) -> None:
    store = make_store(kind)
    lacking = goes_on_with(files, store, runner, Aggregate("largest", Max("amount")))
    type_ = "NUMERIC" if kind == "sqlite" else "numeric(12,2)"
    assert lacking.startswith(f"table 'spend' has no column 'largest' ({type_})")
    assert store.query("SELECT count(*) FROM spend WHERE largest IS NULL") != [(0,)]
    assert store.query("SELECT count(*) FROM spend WHERE largest IS NOT NULL") != [(0,)]
