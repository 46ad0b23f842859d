"""Every sink hands its tables over to the run that resumes from their owner, and gives back the clock journal."""

from __future__ import annotations

import pickle
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.contracts.steps import DAY, FIELDS, RUN, change, pipeline, step, table
from tests.contracts.stores import AnyStore, SqliteStore, Store, brief, committed
from tests.short_forms import Pipeline

from windrow.connectors.memory import CollectSink
from windrow.connectors.sink import Follows, Run
from windrow.engine.schema import CLOCKS
from windrow.errors import SinkError
from windrow.model import (
    Aggregate,
    DataType,
    DecimalType,
    Decode,
    Field,
    LongType,
    Max,
    SqliteSink,
    Sum,
)

NEXT = Run(RUN.pipeline, "run-2")
CLOCK_ROWS: list[list[list[Any]]] = [
    [["spend", 1, 4, DAY, None, "idle"], ["spend", 0, 7, None, None, "idle"]],
    [],
    [["spend", 1, 4, DAY + timedelta(microseconds=1), DAY + timedelta(milliseconds=2), "active"]],
]
JOURNAL = table(CLOCKS, [CLOCK_ROWS[0][1], CLOCK_ROWS[0][0], *CLOCK_ROWS[2]])


def sums(model: Pipeline, *users: str) -> Any:  # noqa: ANN401 - a step
    """A step with a row for each user."""
    return step(model, [change("insert", 0, user, Decimal(1), 1) for user in users])


def test_a_run_that_follows_is_given_the_tables_and_goes_on_with_the_next_epoch(store: AnyStore) -> None:
    model = store.model()
    committed(store, model, sums(model, "A"), sums(model, "B"))
    sink = store.sink(model)
    assert sink.open(NEXT, Follows(RUN, 1)) == 1
    sink.commit(1, sums(model, "never"))
    sink.commit(2, sums(model, "C"))
    with pytest.raises(SinkError, match=r"received step 4 but expects step 3"):
        sink.commit(4, sums(model, "D"))
    sink.close()
    assert [user for _, user, *_ in brief(store.result(model))] == ["A", "B", "C"]
    assert store.epochs("run-2")[-2:] == [1, 2]
    # opened again by its new owner, whatever it once followed
    assert sink.open(NEXT, Follows(RUN, 1)) == 2
    assert sink.open(NEXT) == 2
    sink.close()
    with pytest.raises(SinkError, match=r"'spend' (was handed over to|holds the rows of) another run.*--checkpoint"):
        store.sink(model).open(RUN)
    # and the next can follow the follower
    assert sink.open(Run(RUN.pipeline, "run-3"), Follows(NEXT, 2)) == 2
    sink.close()


def typed(store: Store, amount: Field) -> Pipeline:
    """A pipeline over an amount of that type."""
    aggregates = (Aggregate("total", Sum("amount")), Aggregate("most", Max("amount")))
    return store.model(decode=Decode((*FIELDS[:2], amount)), aggregates=aggregates)


def test_columns_of_wider_types_are_had_by_what_the_refusal_says(store: Store) -> None:
    before, after = (
        typed(store, Field("amount", LongType())),
        typed(store, Field("amount", DecimalType(19, 0), optional=True)),
    )
    committed(store, before, step(before, [change("insert", 0, "A", Decimal(2**53 + 1), 2**53 + 1)]))
    sink = store.sink(after)
    with pytest.raises(
        SinkError, match=r"column 'total' of table 'spend' is NOT NULL, .* \(and \d+ more\):"
    ) as refusal:
        sink.open(NEXT, Follows(RUN, 0))
    for statement in str(refusal.value).partition("--fresh (")[2].removesuffix(")").split("; "):
        store.query(statement)
    sink.open(NEXT, Follows(RUN, 0))
    sink.commit(1, step(after, [change("insert", 0, "B", None, None)]))
    sink.close()
    found = [(row["user"], row["total"], row["most"]) for row in store.result(after)]
    assert found == [("A", 2**53 + 1, 2**53 + 1), ("B", None, None)]


def test_a_key_of_another_type_is_refused(store: Store) -> None:
    def keyed(type_: DataType) -> Pipeline:
        return store.model(decode=Decode((Field("user", type_), *FIELDS[1:])))

    committed(store, keyed(LongType()), step(keyed(LongType()), [change("insert", 0, 7, Decimal(1), 1)]))
    how = "$" if isinstance(store, SqliteStore) else r" \(ALTER TABLE .* TYPE (numeric|DECIMAL)"
    with pytest.raises(SinkError, match=r"column 'user' of table 'spend' is .*--fresh" + how):
        store.sink(keyed(DecimalType(19, 0))).open(NEXT, Follows(RUN, 0))


def test_the_run_that_is_followed_can_write_no_more(store: AnyStore) -> None:
    model = store.model()
    before, after = store.sink(model), store.sink(model)
    before.open(RUN)
    before.commit(0, sums(model, "A"))
    store.unlock(before)
    after.open(NEXT, Follows(RUN, 0))
    with pytest.raises(SinkError, match="taken over by another run"):
        before.commit(1, sums(model, "B"))
    after.close()
    before.close()
    assert [user for _, user, *_ in brief(store.result(model))] == ["A"]


@pytest.mark.parametrize("epoch", [0, 2])
def test_tables_at_another_epoch_are_refused(store: AnyStore, epoch: int) -> None:
    model = store.model()
    committed(store, model, sums(model, "A"), sums(model, "B"))
    with pytest.raises(SinkError, match=rf"'spend' is at epoch 1, but the savepoint is at epoch {epoch}"):
        store.sink(model).open(NEXT, Follows(RUN, epoch))
    committed(store, model, sums(model, "C"))
    assert store.epochs("run-1") == [0, 1, 2]


def test_tables_of_another_run_are_refused(store: AnyStore) -> None:
    model = store.model()
    committed(store, model, sums(model, "A"))
    with pytest.raises(SinkError, match=r"'spend' belongs to another run.*use the table"):
        store.sink(model).open(NEXT, Follows(Run(RUN.pipeline, "run-0"), 0))
    elsewhere = store.model(sink=store.settings("spend_too"))
    with pytest.raises(SinkError, match=r"'spend_too' does not exist.*use the table"):
        store.sink(elsewhere).open(NEXT, Follows(RUN, 0))
    assert store.owners() == {"spend": "run-1"}


def test_the_journal_comes_back_as_it_was_written(store: AnyStore) -> None:
    model = store.model()
    assert store.sink(model).journal().equals(CLOCKS.empty_table())
    committed(store, model, *(step(model, clocks=rows) for rows in CLOCK_ROWS))
    # by another process, which claims nothing
    reader = pickle.loads(pickle.dumps(store.sink(model)))  # noqa: S301 - our own
    assert reader.journal().equals(JOURNAL)
    assert store.epochs() == [0, 1, 2]


def test_the_journal_has_times_of_all_years(store: AnyStore) -> None:
    model = store.model()
    micros = pa.array([-62_135_596_920_000_000, 253_402_300_800_500_000, None], pa.int64()).cast(
        pa.timestamp("us", "UTC")
    )
    rows = table(CLOCKS, [["spend", n, 0, None, None, "idle"] for n in range(3)])
    rows = rows.set_column(3, rows.schema.field("clock"), micros)
    empty = step(model)
    committed(store, model, type(empty)(empty.changes, empty.late, empty.dead, rows))
    assert store.sink(model).journal().equals(rows)


def test_a_sink_without_a_database_keeps_to_it_too() -> None:
    model = pipeline(SqliteSink("unused.db", "spend"))
    collect = CollectSink()
    collect.open(RUN)
    for epoch, rows in enumerate(CLOCK_ROWS):
        collect.commit(epoch, step(model, clocks=rows))
    assert collect.journal().sort_by([("offset", "descending")]).slice(0, 1).equals(JOURNAL.slice(0, 1))
    assert collect.journal().num_rows == 3
    with pytest.raises(SinkError, match="another run"):
        collect.open(NEXT, Follows(RUN, 1))
    assert collect.open(NEXT, Follows(RUN, 2)) == 2
    with pytest.raises(SinkError, match="another run"):
        collect.open(RUN)
