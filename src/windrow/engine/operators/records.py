"""Operators that emit records or the rows of a table: deduplication, and the sink of a stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.changelog import json_value
from windrow.engine.columns import MAX_TIME, to_micros
from windrow.engine.duckdb_sql import identifier
from windrow.engine.keys import key_numbers
from windrow.engine.merged_order import ID_ORDER, in_merged_order, runs_of_equals, tied_rows
from windrow.engine.operators.base import Operator, OperatorOutput, OperatorStep
from windrow.engine.operators.settled import settle_ordered
from windrow.engine.schema import DIFF, ID, OFFSET, PARTITION, PLACE, TIME, record_schema
from windrow.engine.state.migrate import RowsByKeyGroup, StoredState
from windrow.engine.state.runs import Runs, migrate_runs
from windrow.engine.state.store import MemoryState, OperatorState, StoreKind
from windrow.engine.state.widening import StateChange
from windrow.expressions import AnySpec, OperatorSpec, emitted_rows, spec_of, stream_of

_KIND: Final = "keys"
_NUMBER: Final = "__number"
_OPERATION: Final = "__op"


def build_deduplicate(graph: m.Graph, node: m.DeduplicateNode) -> Operator:
    """Return the operator for a deduplication node."""
    return settle_ordered(graph, node, DeduplicateOperator(spec_of(graph, node), stream_of(graph, node.input).bound))


class DeduplicateOperator:
    """Accepts the first record of each key within a span of event time; the other records are duplicates.

    Only records whose key occurs twice, in the step or in the state, are examined one by one. `lateness` is the
    greatest distance of a record behind the watermark in microseconds, or None if it is unlimited. An accepted key is
    forgotten when no record within the span can arrive any more.
    """

    state: Final[Mapping[str, StoreKind]] = {_KIND: "runs"}

    def __init__(self, spec: OperatorSpec[m.DeduplicateNode], lateness: int | None) -> None:
        node = self._node = spec.node
        self._spec = spec
        self._lateness = lateness
        self._duck = duckdb_sql.Connection()
        self._records = record_schema(spec)
        self._stored = pa.schema([*(self._records.field(name) for name in node.key), self._records.field(TIME)])
        # not floats: DuckDB takes 0.0 and -0.0 for equal, and Arrow does not
        self._prefilter = [name for name in node.key if not pa.types.is_floating(self._records.field(name).type)]
        by = ", ".join(map(identifier, node.key))
        self._near = f"SELECT {by}, {TIME} FROM stored SEMI JOIN records USING ({by})"
        self._contested = f"""
            SELECT {_NUMBER} FROM records WHERE ({by}) IN (SELECT ({by}) FROM records GROUP BY {by} HAVING count(*) > 1)
                OR ({by}) IN (SELECT ({by}) FROM near)
            ORDER BY {_NUMBER}
        """

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        runs = Runs.decode(_KIND, state.summary)
        records, is_duplicate = in_merged_order(step.records), np.zeros(step.records.num_rows, dtype=np.bool_)
        if records.num_rows:
            times, within = to_micros(records.column(TIME)), self._node.within
            keys = records.select(self._stored.names).append_column(_NUMBER, pa.array(np.arange(records.num_rows)))
            near = runs.table(self._stored, state, int(times.min()) - within, int(times.max()) + within)
            # takes a tenth of the time of the join, and mostly leaves no rows
            for name in self._prefilter:
                near = near.filter(pc.is_in(near.column(name), keys.column(name)))
            if near.num_rows:
                near = duckdb_sql.query(self._duck, self._near, records=keys, stored=near)
            # most steps have no copies, so the query that finds them is rarely needed
            if near.num_rows or len(np.unique(key_numbers(keys.select(list(self._node.key))))) < records.num_rows:
                contested = duckdb_sql.query(self._duck, self._contested, records=keys, near=near)
                rows = contested.column(_NUMBER).to_numpy()
                is_duplicate[rows] = self._duplicates(keys.take(pa.array(rows)), near)
        accepted = records.filter(pa.array(~is_duplicate))
        span = None if self._lateness is None else self._node.within + self._lateness
        after = -MAX_TIME if span is None else max(-MAX_TIME, step.time.low - span)
        runs.add(accepted.select(self._stored.names), after, state)
        state.summary = runs.encode()
        return OperatorOutput(
            records=(accepted, records.filter(pa.array(is_duplicate))),
            duplicates=int(np.count_nonzero(is_duplicate)),
        )

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no type is widened
        """Migrate the stored keys to their new key groups."""
        groups = RowsByKeyGroup(self._spec, self._duck)
        migrated = migrate_runs(groups, [({_KIND: summary}, state) for summary, state in states])
        return [(summary[_KIND], state) for summary, state in migrated]

    def _duplicates(self, contested: pa.Table, near: pa.Table) -> list[bool]:
        """Return, for each record, whether it duplicates an earlier record of the step or a stored one."""
        accepted: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        for *key, time in zip(*(column.to_pylist() for column in near.columns), strict=True):
            accepted[tuple(key)].append(time)
        found = []
        columns = (contested.column(name).to_pylist() for name in self._stored.names)
        for *key, time in zip(*columns, strict=True):
            times = accepted[tuple(key)]
            is_duplicate = any(abs(time - other) < self._node.within for other in times)
            found.append(is_duplicate)
            if not is_duplicate:
                times.append(time)
        return found


def build_rows(graph: m.Graph, node: m.SinkNode) -> Operator:
    """Return the operator for a sink node."""
    return RowsOperator(spec_of(graph, node))


class RowsOperator:
    """Writes each record of a stream as a row of a table; a changelog also deletes rows. It has no state.

    Arrays become JSON text. If a row is deleted and a row with the same key is inserted at the same position, this is
    an update.
    """

    state: Final[Mapping[str, StoreKind]] = {}

    def __init__(self, spec: AnySpec) -> None:
        self._changes = schema.changes(emitted_rows(spec))
        self._key_groups = spec.key_groups
        self._duck = duckdb_sql.Connection()
        places = {"source": pa.scalar(spec.source.label), "partition": PARTITION, "offset": OFFSET, "row": ID}
        key = [field.name for field in schema.row_key(emitted_rows(spec))]
        # a constant, or the name of the record's column
        self._columns: dict[str, pa.Scalar | str] = {
            "op": pa.scalar("insert"),
            "pane": pa.scalar("on_time"),
            "revision": pa.scalar(0),
        }
        self._columns |= {name: name for name in self._changes.names[len(self._columns) :]}
        self._columns |= {} if spec.row_key else {name: places[name] for name in key}
        own = [column for name in key if isinstance(column := self._columns[name], str)]
        by = ", ".join(sql for name in own for sql in (ID_ORDER if name == ID else [identifier(name)]))
        self._ranks = f"SELECT {_NUMBER}, dense_rank() OVER (ORDER BY {by}) AS __rank FROM changes"
        self._texts = {
            field.name: _array_text(identifier(field.name), field.type)
            for field in spec.decode.fields
            if isinstance(field.type, m.ArrayType) and field.name in self._changes.names
        }

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        state.summary = {}
        records, columns = self._with_texts(step.records), self._columns
        if DIFF in records.column_names:
            records, columns = self._with_operations(records), columns | {"op": _OPERATION}
        arrays = [
            records.column(column) if isinstance(column, str) else pa.repeat(column, records.num_rows)
            for column in columns.values()
        ]
        changes = pa.Table.from_arrays(arrays, list(columns)).cast(self._changes)
        return OperatorOutput(changes=changes)

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - there is none
        """Return an empty state for each key group."""
        return [({}, MemoryState()) for _ in range(self._key_groups)]

    def _with_texts(self, records: pa.Table) -> pa.Table:
        """Replace the arrays of records by JSON text."""
        if not self._texts:
            return records
        names = list(self._texts)
        sql = f"SELECT {', '.join(f'{text} AS {identifier(name)}' for name, text in self._texts.items())} FROM records"
        texts = duckdb_sql.query(self._duck, sql, records=records.select(names))
        for name in names:
            at = records.schema.get_field_index(name)
            records = records.set_column(at, name, texts.column(name))
        return records

    def _with_operations(self, changes: pa.Table) -> pa.Table:
        """Sort changes by position and add the operation of each; changes at the same position are sorted by key."""
        columns = [to_micros(changes.column(name)) for name in PLACE]
        order, ranks = np.lexsort(columns[::-1]), np.zeros(changes.num_rows, dtype=np.int64)
        if len(rows := tied_rows(columns, order)):
            shared = changes.take(pa.array(rows)).append_column(_NUMBER, pa.array(rows))
            found = duckdb_sql.query(self._duck, self._ranks, changes=shared)
            ranks[found.column(_NUMBER).to_numpy()] = found.column("__rank").to_numpy()
        diffs = to_micros(changes.column(DIFF))
        order = np.lexsort([diffs, ranks, *columns[::-1]])
        is_added = (diffs > 0)[order]
        runs = runs_of_equals([column[order] for column in (*columns, ranks)])
        is_update = (np.bincount(runs, is_added) > 0) & (np.bincount(runs, ~is_added) > 0)
        names = 2 * is_update[runs] + is_added
        operations = pa.array(["delete", "insert", "update_before", "update_after"]).take(pa.array(names))
        return changes.take(pa.array(order)).append_column(_OPERATION, operations)


def _array_text(value: str, type_: m.DataType) -> str:
    """Return the SQL of an array as JSON text."""
    return f"CASE WHEN {value} IS NOT NULL THEN to_json({json_value(value, type_)})::VARCHAR END"
