"""Joins: pairs of records of two streams with the same key that are near each other in event time.

A pair is as good as the later of its two records: it has the greater watermark, and its place. So the pairs up to a
watermark are the same, whichever record was read first. A record is alone once the watermark proves that no partner can
be on time any more; a partner that comes later takes that row back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from windrow.core import duckdb_sql, schema
from windrow.core.columns import MAX_TIME, to_micros, unpack
from windrow.core.duckdb_sql import identifier, literal
from windrow.core.operators.base import OperatorOutput, OperatorStep
from windrow.core.operators.route import side_schema
from windrow.core.schema import (
    DIFF,
    ID,
    LAST_PARTITION,
    OFFSET,
    PARTITION,
    SIDE,
    TIME,
    WATERMARK,
    record_schema,
)
from windrow.core.state.migrate import RowsByKeyGroup, StoredState
from windrow.core.state.runs import Runs
from windrow.core.state.store import MemoryState, OperatorState
from windrow.core.state.widening import StateChange
from windrow.core.watermarks.tracker import StepTime
from windrow.expressions import JoinSide, RecordStream, join_sides, stream_of
from windrow.model import MAX_PARTITIONS, Graph, JoinNode

_KINDS: Final = ("left", "right")
_IS_NEW: Final = "__is_new"
_ROW: Final = "__row"
_PLACE: Final = (WATERMARK, PARTITION, OFFSET)


@dataclass
class _Rows:
    """The records of a side: those of the step, and the runs of those before it."""

    new: pa.Table
    runs: Runs
    state: OperatorState

    def old(self, least: int, greatest: int) -> pa.Table:
        """Return the records before the step in a range of event times, and perhaps others."""
        return pa.concat_tables([self.new.slice(0, 0), *self.runs.read(self.state, least, greatest)])

    def all(self, least: int, greatest: int) -> pa.Table:
        """Return these and those of the step, marked."""
        old = self.old(least, greatest)
        tables = [
            table.append_column(_IS_NEW, pa.repeat(pa.scalar(is_new), table.num_rows))
            for table, is_new in ((old, False), (self.new, True))
        ]
        return pa.concat_tables(tables)


class JoinOperator:
    """Joins records by key within an interval of event time; with an outer side it takes them in the merged order.

    Both sides are kept in runs: the records of a step meet those before it, and each other.
    """

    def __init__(self, graph: Graph, node: JoinNode, view: RecordStream) -> None:
        self._view = view
        self._sides = join_sides(graph, node)
        self._stored = [side_schema(side).remove(len(side_schema(side)) - 1) for side in self._sides]
        self._duck = duckdb_sql.connect()
        self._no_changes = schema.changes(view).empty_table()
        made = stream_of(graph, node.name)
        self._made = record_schema(view).append(pa.field(ID, pa.string()))
        if made.is_changelog:
            self._made = self._made.append(pa.field(DIFF, pa.int64()))
        self._sql = _JoinSql(graph, node, self._sides, self._made)

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group: pair the records of the step, find who is alone, drop what is past."""
        summary = state.summary or {}
        sides = to_micros(step.records.column(SIDE))
        left, right = (
            _Rows(
                step.records.filter(pa.array(sides == number)).select(stored.names),
                Runs.decode(kind, summary.get(kind)),
                state,
            )
            for number, (kind, stored) in enumerate(zip(_KINDS, self._stored, strict=True))
        )
        made = [self._made.empty_table(), *self._pairs(left, right)]
        for number, (own, other) in enumerate(((left, right), (right, left))):
            if self._sides[number].is_outer:
                made += self._alone(number, own, other, step.time)
        for side, rows in zip(self._sides, (left, right), strict=True):
            rows.runs.add(rows.new, max(-MAX_TIME, step.time.low - 1 - side.kept), state)
        state.summary = {kind: rows.runs.encode() for kind, rows in zip(_KINDS, (left, right), strict=True)}
        return OperatorOutput(changes=self._no_changes, records=(pa.concat_tables(made),))

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no type is widened
        """Migrate the records of both sides."""
        groups = RowsByKeyGroup(self._view, self._duck)
        for _, state in states:
            for (kind, _), blob in state.items():
                groups.add((kind, 0), unpack(blob))
        made: list[StoredState] = []
        for tables in groups.tables():
            runs, store = {kind: Runs(kind) for kind in _KINDS}, MemoryState()
            for (kind, _), table in tables.items():
                runs[kind].add(table, -MAX_TIME, store)
            made.append(({kind: one.encode() for kind, one in runs.items()}, store))
        return made

    def _pairs(self, left: _Rows, right: _Rows) -> Iterator[pa.Table]:
        """Yield the pairs of the step's records with all others."""
        near, far = self._sides
        if left.new.num_rows:
            least, greatest = _range(left.new)
            others = pa.concat_tables([right.old(least - near.back, greatest + near.reach), right.new])
            if others.num_rows:
                yield self._query(self._sql.pairs, lefts=left.new, rights=others)
        if right.new.num_rows:
            least, greatest = _range(right.new)
            others = left.old(least - far.back, greatest + far.reach)
            if others.num_rows:
                yield self._query(self._sql.pairs, lefts=others, rights=right.new)

    def _alone(self, number: int, own: _Rows, other: _Rows, time: StepTime) -> Iterator[pa.Table]:
        """Yield the rows of records that are alone now, or are so no longer.

        No partner of a record up to the event time `until` can be on time any more; before the step, up to `before`.
        """
        side, sql = self._sides[number], self._sql.alone[number]
        wait = side.reach + self._sides[1 - number].stream.hold + 1
        before = max(time.before - wait, time.ended, -MAX_TIME)
        until = MAX_TIME if time.end else max(time.low - wait, before)
        least, greatest = before + 1, until
        for table, back, reach in ((other.new, side.reach, side.back), (own.new, 0, 0)):
            if table.num_rows and (table is not own.new or side.stream.is_changelog):
                first, last = _range(table)
                least, greatest = min(least, first - back), max(greatest, last + reach)
        rows = own.all(least, min(greatest, until))
        times = to_micros(rows.column(TIME))
        rows = rows.filter(pa.array(times <= until))
        if not rows.num_rows:
            return
        first, last = _range(rows)
        rows = rows.append_column(_ROW, _numbers(rows))
        others = other.all(first - side.back, last + side.reach)
        settled = pa.table({"before": pa.array([before], pa.int64())})
        candidates = duckdb_sql.query(self._duck, sql.candidates, rows=rows, others=others, settled=settled)
        if candidates.num_rows:
            yield self._query(sql.changes, candidates=candidates, others=others, settled=settled)

    def _query(self, sql: str, **tables: pa.Table) -> pa.Table:
        return duckdb_sql.query(self._duck, sql, **tables).cast(self._made)


def _numbers(rows: pa.Table) -> pa.Array:
    """Return a number for each record; what adds and takes back one row of a join has the same."""
    if DIFF not in rows.column_names:
        return pa.array(np.arange(rows.num_rows))
    return rows.column(ID).combine_chunks().dictionary_encode().indices.cast(pa.int64())


def _range(table: pa.Table) -> tuple[int, int]:
    times = to_micros(table.column(TIME))
    return int(times.min()), int(times.max())


@dataclass(frozen=True)
class _AloneSql:
    """Queries for the records of a side without a partner; `settled` has the event time `before`.

    `candidates`: rows of the side and others -> the rows whose being alone may change, with a number a record.
    `changes`: candidates and others -> what changes.
    """

    candidates: str
    changes: str


class _JoinSql:
    """Queries of a join. `pairs`: lefts and rights -> pairs; `alone`: by the number of the side."""

    def __init__(self, graph: Graph, node: JoinNode, sides: tuple[JoinSide, JoinSide], made: pa.Schema) -> None:
        self._graph = graph
        self._node = node
        self._sides = sides
        self._made = made
        self._keys = " AND ".join(f"l.{identifier(name)} = r.{identifier(name)}" for name in node.key)
        is_later = f"(l.{WATERMARK}, l.{PARTITION}, l.{OFFSET}) > (r.{WATERMARK}, r.{PARTITION}, r.{OFFSET})"
        time = {"left": f"l.{TIME}", "right": f"r.{TIME}"}.get(node.how, f"greatest(l.{TIME}, r.{TIME})")
        own = {name: f"CASE WHEN {is_later} THEN l.{name} ELSE r.{name} END" for name in _PLACE}
        own |= {TIME: time, ID: f"{self._id(0, 'l')} || '+' || {self._id(1, 'r')}"}
        own[DIFF] = (
            " * ".join(f"{name}.{DIFF}" for name, side in zip("lr", sides, strict=True) if _is_changed(side)) or "1"
        )
        fields = {name: f"r.{identifier(name)}" for name in sides[1].names.values()}
        fields |= {name: f"l.{identifier(name)}" for name in sides[0].names.values()}
        self.pairs = f"SELECT {self._list(own | fields)} FROM lefts l JOIN rights r ON {self._keys} AND {self._near(0)}"
        self.alone = (self._alone(0), self._alone(1))

    def _list(self, columns: dict[str, str]) -> str:
        return ", ".join(f"{columns.get(name, 'NULL')} AS {identifier(name)}" for name in self._made.names)

    def _near(self, number: int) -> str:
        """Return that the record r of the other side is near the record l of this one."""
        side = self._sides[number]
        return f"r.{TIME} BETWEEN l.{TIME} - {side.back} AND l.{TIME} + {side.reach}"

    def _id(self, number: int, name: str) -> str:
        """Return what the record of a side is made of."""
        if self._sides[number].stream.is_joined:
            return f"{name}.{ID}"
        if len(self._graph.sources) == 1:
            label, partition = literal(self._graph.sources[0].source.label), f"{name}.{PARTITION}"
        else:
            labels = ", ".join(literal(source.source.label) for source in self._graph.sources)
            label = f"([{labels}])[{name}.{PARTITION} // {MAX_PARTITIONS} + 1]"
            partition = f"({name}.{PARTITION} % {MAX_PARTITIONS})"
        return f"{label} || '/' || {partition} || '/' || {name}.{OFFSET}"

    def _alone(self, number: int) -> _AloneSql:
        side, other = self._sides[number], self._sides[1 - number]
        match_ = f"{self._keys} AND {self._near(number)}"
        # the partner of a record that can only be added stays: that record is alone no more
        settled = "" if _is_changed(other) else f"ANTI JOIN (SELECT * FROM others WHERE NOT {_IS_NEW}) r ON {match_}"
        touched = f"bool_or({_IS_NEW} OR {_ROW} IN (SELECT {_ROW} FROM met)) OVER (PARTITION BY {_ROW})"
        candidates = f"""
            WITH open AS (SELECT l.* FROM rows l {settled}),
            met AS (SELECT l.{_ROW} FROM open l SEMI JOIN (SELECT * FROM others WHERE {_IS_NEW}) r ON {match_})
            SELECT * FROM open QUALIFY {TIME} > (SELECT before FROM settled) OR {touched}
        """
        diff = DIFF if _is_changed(side) else "1"
        others_diff = f"r.{DIFF}" if _is_changed(other) else "1"
        place = ", ".join(_PLACE)
        of_r = ", ".join(f"r.{name}" for name in _PLACE)
        wait = side.reach + other.stream.hold
        own = {name: f"c.{name}" for name in (*_PLACE, DIFF)}
        ids = (self._id(0, "l"), "''") if number == 0 else ("''", self._id(1, "l"))
        own |= {TIME: f"l.{TIME}", ID: f"{ids[0]} || '+' || {ids[1]}"}
        own |= {name: f"l.{identifier(name)}" for name in side.names.values()}
        changes = f"""
            WITH records AS (SELECT DISTINCT ON ({_ROW}) * FROM candidates),
            events AS (
                SELECT {_ROW}, {_IS_NEW}, {place}, {diff} AS there, 0 AS partners, 0 AS is_settled FROM candidates
                UNION ALL
                SELECT l.{_ROW}, r.{_IS_NEW}, {of_r}, 0, {others_diff}, 0 FROM records l JOIN others r ON {match_}
                UNION ALL
                SELECT {_ROW}, {TIME} > (SELECT before FROM settled), {TIME} + {wait}, {LAST_PARTITION}, {MAX_TIME},
                    0, 0, 1
                FROM records
            ), counted AS (
                SELECT {_ROW}, {_IS_NEW}, {place}, sum(sum(there)) OVER moments AS there,
                    sum(sum(partners)) OVER moments AS partners, sum(sum(is_settled)) OVER moments AS is_settled
                FROM events GROUP BY {_ROW}, {_IS_NEW}, {place}
                WINDOW moments AS (PARTITION BY {_ROW} ORDER BY {_IS_NEW}, {place})
            ), valued AS (
                SELECT *, CASE WHEN partners = 0 AND is_settled > 0 THEN there ELSE 0 END AS alone FROM counted
            ), c AS (
                SELECT *, alone - lag(alone, 1, 0) OVER (PARTITION BY {_ROW} ORDER BY {_IS_NEW}, {place}) AS {DIFF}
                FROM valued
            )
            SELECT {self._list(own)} FROM c JOIN records l USING ({_ROW}) WHERE c.{_IS_NEW} AND c.{DIFF} <> 0
        """
        return _AloneSql(candidates, changes)


def _is_changed(side: JoinSide) -> bool:
    return side.stream.is_changelog
