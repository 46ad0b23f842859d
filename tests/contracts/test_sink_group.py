"""Several result tables of one run: in one database they share a transaction, in several each has a fence."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from tests.contracts.steps import RUN, change, step
from tests.contracts.stores import TableStore, brief
from tests.short_forms import Pipeline

from windrow.connectors.memory import CollectSink
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.sink import Follows, Run, SinkGroup
from windrow.engine.changelog import StepOutput
from windrow.errors import SinkError
from windrow.model import Graph, SinkNode, SourceNode, WindowNode


@pytest.fixture
def models(store: TableStore) -> tuple[Pipeline, Pipeline]:
    """The same pipeline into two tables, the second without a changelog."""
    other = store.settings(table="other")
    return store.model(), store.model(sink=replace(other, changelog=False))


def rows(*models: Pipeline, user: str = "A", minute: int = 0) -> list[StepOutput]:
    return [
        step(model, [change("insert", minute, user, Decimal(number), number)]) for number, model in enumerate(models, 1)
    ]


def test_a_step_is_in_all_tables_with_one_epoch(store: TableStore, models: tuple[Pipeline, Pipeline]) -> None:
    sink = store.sink(*models)
    assert sink.open(RUN) is None
    sink.commit(0, *rows(*models))
    sink.commit(0, *rows(*models, user="again"))
    sink.commit(1, *rows(*models, minute=5))
    sink.close()
    assert store.epochs() == [0, 1]
    for number, model in enumerate(models, 1):
        assert brief(store.result(model)) == [(minute, "A", Decimal(number), number, "on_time", 0) for minute in (0, 5)]
    assert (len(store.changes(models[0])), len(store.changes(models[1]))) == (2, 0)
    assert sink.open(RUN) == 1
    sink.close()


def test_a_step_that_fails_in_one_table_is_in_none(store: TableStore, models: tuple[Pipeline, Pipeline]) -> None:
    sink = store.sink(*models)
    sink.open(RUN)
    first, second = rows(*models)
    with pytest.raises(KeyError, match="total"):
        sink.commit(0, first, replace(second, changes=second.changes.drop_columns("total")))
    sink.close()
    assert store.epochs() == []
    assert [store.result(model) for model in models] == [[], []]
    again = store.sink(*models)
    assert again.open(RUN) is None
    again.commit(0, first, second)
    again.close()
    assert [len(store.result(model)) for model in models] == [1, 1]


def test_no_table_is_touched_if_one_is_another_runs(store: TableStore, models: tuple[Pipeline, Pipeline]) -> None:
    other = store.sink(models[1])
    other.open(Run("other", "1"))
    other.commit(0, *rows(models[1]))
    other.close()
    sink = store.sink(*models)
    with pytest.raises(SinkError, match="table 'other' belongs to pipeline 'other'"):
        sink.open(RUN)
    with pytest.raises(SinkError, match="table 'other' belongs to pipeline 'other'"):
        sink.clear()
    sink.close()
    assert len(store.result(models[1])) == 1
    own = store.sink(models[0])
    assert own.open(RUN) is None
    own.close()


def test_all_tables_are_handed_over_and_cleared(store: TableStore, models: tuple[Pipeline, Pipeline]) -> None:
    sink = store.sink(*models)
    sink.open(RUN)
    sink.commit(0, *rows(*models))
    sink.close()
    heir = Run(RUN.pipeline, "run-2")
    sink = store.sink(*models)
    assert sink.open(heir, Follows(RUN, 0)) == 0
    sink.commit(1, *rows(*models, minute=5))
    sink.close()
    with pytest.raises(SinkError, match="handed over to another run"):
        store.sink(*models).open(RUN)
    assert [len(store.result(model)) for model in models] == [2, 2]
    sink = store.sink(*models)
    sink.clear()
    assert sink.open(Run(RUN.pipeline, "run-3")) is None
    sink.close()
    assert [store.result(model) for model in models] == [[], []]


def test_databases_have_a_fence_each(store: TableStore, models: tuple[Pipeline, Pipeline]) -> None:
    first, second = rows(*models)
    memory = CollectSink()
    group = SinkGroup((["a"], store.sink(models[0])), (["b"], memory))
    assert group.open(RUN) is None
    # the run dies between the two
    alone = store.sink(models[0])
    group.close()
    alone.open(RUN)
    alone.commit(0, first)
    alone.close()
    group = SinkGroup((["a"], store.sink(models[0])), (["b"], memory))
    assert group.open(RUN) is None
    assert not group.is_even
    group.commit(0, {"b": second, "a": replace(first, changes=first.changes.slice(0, 0))})
    group.commit(1, {"a": first, "b": second})
    assert group.open(RUN) == 1
    assert group.is_even
    group.close()
    assert len(store.result(models[0])) == 1
    assert sorted(memory.steps) == [0, 1]


def test_the_tables_of_a_graph_in_one_database_are_one_sink(
    store: TableStore, models: tuple[Pipeline, Pipeline]
) -> None:
    plain, other = models
    node = WindowNode("users", "log", plain.key, plain.window, plain.aggregates, plain.emit)
    source = SourceNode("log", plain.source, plain.decode, plain.time)
    sinks = SinkNode("a", "users", plain.sink), SinkNode("b", "users", other.sink)
    group = open_sinks(Graph(RUN.pipeline, (source, node, *sinks)))
    assert group.open(RUN) is None
    group.commit(0, dict(zip("ab", rows(*models), strict=True)))
    group.close()
    assert store.epochs() == [0]
    assert [len(store.result(model)) for model in models] == [1, 1]
