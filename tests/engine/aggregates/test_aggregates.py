"""Aggregates by themselves: however records are cut and merged, the result is one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.aggregates.aggregated import CASES, INEXACT, PIPELINE, Rec, logs, plain_result
from tests.examples import examples
from tests.graphs import sink_spec_of
from tests.short_forms import operator_spec

from windrow.engine import duckdb_sql, schema
from windrow.engine.aggregates.catalogue import compile_aggregates
from windrow.engine.columns import rescale, unscale
from windrow.engine.duckdb_sql import identifier, query
from windrow.engine.schema import OFFSET, PARTITION, TIME, WATERMARK, record_schema
from windrow.expressions import computed

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
DOUBLES = {name for name, (case, _) in CASES.items() if case in INEXACT}


class Engine:
    """What operators do with folds, in the smallest form."""

    def __init__(self) -> None:
        self.duck = duckdb_sql.Connection()
        made = compile_aggregates(operator_spec(PIPELINE))
        state = [accumulator for fold in made for accumulator in fold.accumulators]
        self.columns = ", ".join(identifier(one.column) for one in state)
        self.begin = ", ".join(f"{one.begin} AS {identifier(one.column)}" for one in state)
        self.merge = ", ".join(f"{one.merge_sql()} AS {identifier(one.column)}" for one in state)
        self.running = ", ".join(f"{one.merge_sql(' OVER history')} AS {identifier(one.column)}" for one in state)
        self.values = ", ".join(f"{fold.finish} AS {identifier(fold.name)}" for fold in made)
        self.extra = ", ".join(
            f"{one.expression.sql} AS {identifier(one.name)}" for one in computed(operator_spec(PIPELINE))
        )

    def records(self, records: list[Rec], pieces: list[int]) -> pa.Table:
        fields = {name: [record.values()[name] for record in records] for name in records[0].values()}
        own = {
            PARTITION: [record.partition for record in records],
            OFFSET: [record.offset for record in records],
            TIME: [record.time for record in records],
            WATERMARK: [0] * len(records),
        }
        schema = record_schema(operator_spec(PIPELINE))
        known = [field for field in schema if not field.name.startswith("__e")]
        table = pa.table([pa.array((own | fields)[field.name], field.type) for field in known], pa.schema(known))
        table = query(self.duck, f"SELECT *, {self.extra} FROM fields", fields=table).select(schema.names)
        return unscale(table.cast(schema)).append_column("piece", pa.array(pieces))

    def begun(self, records: list[Rec], pieces: list[int]) -> pa.Table:
        """One state a piece, in their order."""
        sql = f"SELECT piece, {self.begin} FROM records GROUP BY piece ORDER BY piece"
        return query(self.duck, sql, records=self.records(records, pieces))

    def merged(self, states: pa.Table) -> pa.Table:
        return query(self.duck, f"SELECT min(piece) AS piece, {self.merge} FROM states", states=states)

    def history(self, states: pa.Table) -> pa.Table:
        sql = f"""
            SELECT piece, {self.running} FROM states
            WINDOW history AS (ORDER BY piece ROWS UNBOUNDED PRECEDING) ORDER BY piece
        """
        return query(self.duck, sql, states=states)

    def finish(self, states: pa.Table) -> list[dict[str, Any]]:
        sql = f"""
            SELECT 'insert' AS op, 'on_time' AS pane, 0::INTEGER AS revision, 0::BIGINT AS window_start,
                0::BIGINT AS window_end, 'A' AS "user", {self.values}
            FROM states
        """
        found = query(self.duck, sql, states=states)
        rows: list[dict[str, Any]] = rescale(found, schema.changes(sink_spec_of(PIPELINE).rows)).to_pylist()
        return rows


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    opened = Engine()
    yield opened
    opened.duck.cursor.close()


def same(row: dict[str, Any], records: list[Rec]) -> None:
    """Hold a row to plain Python."""
    for name in CASES:
        expected = plain_result(name, records)
        given = row[name]
        if isinstance(given, dt.datetime):
            given = (given - EPOCH) // dt.timedelta(microseconds=1)
        if name in DOUBLES and expected is not None:
            assert given == pytest.approx(expected, rel=1e-9, abs=1e-9), name
        elif isinstance(expected, float):
            assert given == pytest.approx(expected, rel=1e-15), name
        else:
            assert given == expected, name


def exact(row: dict[str, Any]) -> dict[str, str]:
    """The results that must be the same to the last bit, with their digits."""
    return {name: repr(value) for name, value in row.items() if name not in DOUBLES}


@given(records=logs(), data=st.data())
@examples(8)
def test_any_cut_and_any_merge_tree_gives_what_plain_python_gives(
    engine: Engine, records: list[Rec], data: st.DataObject
) -> None:
    whole = engine.finish(engine.begun(records, [0] * len(records)))[0]
    same(whole, records)
    pieces = data.draw(st.lists(st.integers(0, 4), min_size=len(records), max_size=len(records)))
    states = engine.begun(records, pieces)
    waiting = [states.slice(row, 1) for row in range(states.num_rows)]
    while len(waiting) > 1:
        some = data.draw(st.sets(st.integers(0, len(waiting) - 1), min_size=2, max_size=3))
        together = pa.concat_tables([waiting[place] for place in data.draw(st.permutations(sorted(some)))])
        waiting = [one for place, one in enumerate(waiting) if place not in some] + [engine.merged(together)]
    (row,) = engine.finish(waiting[0])
    assert exact(row) == exact(whole)
    same(row, records)


@given(records=logs(), data=st.data())
@examples(5)
def test_running_merges_give_every_state_on_the_way(engine: Engine, records: list[Rec], data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.integers(0, 4), min_size=len(records), max_size=len(records)))
    history = engine.finish(engine.history(engine.begun(records, pieces)))
    for row, last in zip(history, sorted(set(pieces)), strict=True):
        some = [record for record, piece in zip(records, pieces, strict=True) if piece <= last]
        same(row, some)
        assert exact(row) == exact(engine.finish(engine.begun(some, [0] * len(some)))[0])
