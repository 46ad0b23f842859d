"""Joins: pairs of records with the same key and nearby event times, and pairs of rows of two tables.

A pair has the position of the later of its two records, and therefore the greater watermark. So the pairs up to a
watermark are the same, whichever record was read first. A record is unmatched once the watermark proves that no partner
can be on time any more. If a partner arrives after that, the row of the unmatched record is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql
from windrow.engine.columns import MAX_TIME, Micros, are_before, to_micros
from windrow.engine.duckdb_sql import identifier
from windrow.engine.merged_order import is_later_sql, runs_of_equals
from windrow.engine.operators.base import Operator, OperatorOutput, OperatorStep, StepTime
from windrow.engine.operators.route import id_sql, side_schema, stream_schema
from windrow.engine.operators.settled import net_changes, settle_ordered
from windrow.engine.schema import DIFF, ID, LAST_PARTITION, OFFSET, PARTITION, PLACE, SIDE, TIME, record_schema
from windrow.engine.state.migrate import RowsByKeyGroup, StoredState
from windrow.engine.state.runs import Runs, migrate_runs
from windrow.engine.state.store import OperatorState, StoreKind
from windrow.engine.state.widening import StateChange
from windrow.expressions import JoinSpan, join_sides, join_spans, spec_of, stream_of

_KINDS: Final = ("left", "right")
_LAST: Final = "last"
"""The position of the last row of a table so far."""
_SIDES: Final = ("lefts", "rights")
_AT: Final = "__at"
_UNTIL: Final = "__until"
_BEFORE: Final = -1
"""The moment of all rows from before the step; the changes of the step have moments from 0."""
_IS_NEW: Final = "__is_new"
_ROW: Final = "__row"
_PARTNERS: Final = "__partners"


@dataclass
class _Rows:
    """The records of one side of a join: the records of the step, and the stored runs of earlier records."""

    new: pa.Table
    runs: Runs
    state: OperatorState

    def old(self, least: int, greatest: int) -> pa.Table:
        """Return at least the stored records in a range of event times; other stored records may be included."""
        return _marked(self.runs.table(self.new.schema, self.state, least, greatest), is_new=False)

    def all(self, least: int, greatest: int) -> pa.Table:
        """Return the records that `old` returns and the records of the step."""
        return pa.concat_tables([self.old(least, greatest), _marked(self.new, is_new=True)])


def build_join(graph: m.Graph, node: m.JoinNode | m.TableJoinNode) -> Operator:
    """Return the operator for a join node."""
    return settle_ordered(graph, node, JoinOperator(graph, node))


class JoinOperator:
    """Joins records by key within an interval of event time, or tables by key.

    Records are joined in the merged order, except by inner joins. Both sides are kept in runs; the records of a step
    are joined with stored records and with each other. For each record of an outer side, the operator keeps a note of
    the partners met so far for as long as it keeps the record, because a partner may be dropped earlier. The rows of a
    table are never dropped.
    """

    state: Final[Mapping[str, StoreKind]] = {
        f"{side}{rows}": "runs" for side in _KINDS for rows in ("", "_paired", "_fired")
    }

    def __init__(self, graph: m.Graph, node: m.JoinNode | m.TableJoinNode) -> None:
        spec = self._spec = spec_of(graph, node)
        self._made = stream_schema(stream_of(graph, node.name), record_schema(spec))
        self._sql = _JoinSql(graph, node, self._made)
        self._sides, self._spans = self._sql.sides, self._sql.spans
        self._is_ordered = graph.is_ordered(node)
        self._changing = [number for number, side in enumerate(self._sides) if side.stream.is_changelog]
        self._stored = [pa.schema([field for field in side_schema(side) if field.name != SIDE]) for side in self._sides]
        self._duck = duckdb_sql.Connection()
        empty = [_marked(stored.empty_table(), is_new=True) for stored in self._stored]
        if self._spans is None:
            empty = [_with_span(stored.empty_table(), *_moments(*empty)) for stored in self._stored]
        self._no_pairs = duckdb_sql.query(self._duck, self._sql.pairs, lefts=empty[0], rights=empty[1])
        fields = {field.name: field for stored in self._stored for field in stored}
        fields |= {_PARTNERS: pa.field(_PARTNERS, pa.int64())}
        self._paired = {
            number: pa.schema([fields[name] for name in sql.paired_columns]) for number, sql in self._sql.alone.items()
        }

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group: pair the records, find unmatched records, drop old records."""
        summary = state.summary or {}
        records, last = step.records, summary.get(_LAST)
        if self._is_ordered and records.num_rows:
            records, last = _move_after(records, last, self._changing)
        sides = to_micros(records.column(SIDE))
        left, right = (
            _Rows(
                records.filter(pa.array(sides == number)).select(stored.names),
                Runs.decode(kind, summary.get(kind)),
                state,
            )
            for number, (kind, stored) in enumerate(zip(_KINDS, self._stored, strict=True))
        )
        pairs = self._pairs_of_tables(left, right) if self._spans is None else self._pairs(left, right, self._spans)
        made = [self._made.empty_table(), pairs.select(self._made.names).cast(self._made)]
        if self._spans is None:
            made += self._without_partner(0, left, right, records)
            made += self._without_partner(1, right, left, records)
        state.summary = {} if last is None else {_LAST: last}
        for number, (kind, side, rows) in enumerate(zip(_KINDS, self._sides, (left, right), strict=True)):
            span = None if self._spans is None else self._spans[number]
            after = -MAX_TIME if span is None else max(-MAX_TIME, step.time.low - 1 - span.kept)
            if side.is_outer and span is not None:
                paired = Runs.decode(f"{kind}_paired", summary.get(f"{kind}_paired"))
                met = self._met(number, pairs)
                fired = Runs.decode(f"{kind}_fired", summary.get(f"{kind}_fired"))
                until = _settled_until(step.time, span.wait)
                made += self._alone(number, rows, met, (paired, fired), until)
                new_fired = new_paired = self._paired[number].empty_table()
                if step.time.end:
                    new_fired = self._fired(number, rows, fired, max(step.time.low - span.wait - 1, -MAX_TIME))
                if step.time.end or fired.kind in summary:
                    fired.add(new_fired, after, state)
                    state.summary[fired.kind] = fired.encode()
                if met.num_rows:
                    new_paired = duckdb_sql.query(self._duck, self._sql.alone[number].paired, met=met)
                paired.add(new_paired.cast(self._paired[number]), after, state)
                state.summary[paired.kind] = paired.encode()
            rows.runs.add(rows.new, after, state, self._compact if span is None else None)
            state.summary[kind] = rows.runs.encode()
        pairs = pa.concat_tables(made)
        if pairs.num_rows and self._changing:
            pairs = net_changes(self._duck, pairs)
        return OperatorOutput(records=(pairs,))

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no type is widened
        """Migrate the records of both sides."""
        kinds = dict(zip(_KINDS, self._stored, strict=True))
        kinds |= {f"{_KINDS[number]}_paired": paired for number, paired in self._paired.items()}
        return migrate_runs(RowsByKeyGroup(self._spec, self._duck, kinds), states, greatest=_LAST)

    def _compact(self, rows: pa.Table, is_all: bool) -> pa.Table:  # noqa: FBT001, ARG002 - as `Compaction` has it
        """Return the rows of a table without the rows that have been removed."""
        numbers, diffs = to_micros(_numbers(rows)), to_micros(rows.column(DIFF))
        last = np.zeros(rows.num_rows, dtype=np.int64)
        order = np.lexsort([to_micros(rows.column(name)) for name in reversed(PLACE)])
        last[numbers[order]] = order
        net = np.bincount(numbers, diffs, rows.num_rows).astype(np.int64)
        # a deletion stays if the insertion is in another run
        is_left = net != 0
        return _with_diffs(rows.take(pa.array(last[is_left])), net[is_left])

    def _pairs(self, left: _Rows, right: _Rows, spans: tuple[JoinSpan, JoinSpan]) -> pa.Table:
        """Return the pairs that contain a record of the step."""
        lefts, rights = (_marked(rows.new, is_new=True) for rows in (left, right))
        found = [self._no_pairs]
        if lefts.num_rows:
            others = pa.concat_tables([right.old(*_near(lefts, spans[0])), rights])
            if others.num_rows:
                found.append(duckdb_sql.query(self._duck, self._sql.pairs, lefts=lefts, rights=others))
        if rights.num_rows:
            others = left.old(*_near(rights, spans[1]))
            if others.num_rows:
                found.append(duckdb_sql.query(self._duck, self._sql.pairs, lefts=others, rights=rights))
        return pa.concat_tables(found)

    def _pairs_of_tables(self, left: _Rows, right: _Rows) -> pa.Table:
        """Return the changes of the pairs, joining each change with the rows of the other table at that moment.

        d(l x r) = dl x r + l x dr (Gupta, Mumick, "Maintenance of Materialized Views", 1995), where l is taken before
        and r after the changes at a position. Joining all changes with each other, as `_pairs` does, has the same
        result but takes quadratic time.
        """
        moments = _moments(left.new, right.new)
        changes = [_with_span(rows.new, at, at + 1) for rows, at in zip((left, right), moments, strict=True)]
        found = [self._no_pairs]
        for number, others in enumerate((right, left)):
            if changes[number].num_rows:
                old = others.runs.table(others.new.schema, others.state)
                before = np.full(old.num_rows, _BEFORE)
                events = pa.concat_tables([_with_span(old, before, before), changes[1 - number]])
                events = duckdb_sql.query(self._duck, self._sql.near, rows=events, changes=changes[number])
                tables = {_SIDES[number]: changes[number], _SIDES[1 - number]: _lifetimes(events)}
                found.append(duckdb_sql.query(self._duck, self._sql.pairs, **tables))
        return pa.concat_tables(found)

    def _met(self, number: int, pairs: pa.Table) -> pa.Table:
        """Return the partners that the records of one side met in this step."""
        met = self._sql.met[number]
        columns = [*self._spec.key, *(_of_side(number, name) for name in met)]
        return pairs.select(columns).rename_columns([*self._spec.key, *met])

    def _alone(
        self, number: int, own: _Rows, met: pa.Table, known: tuple[Runs, Runs], settled: tuple[int, int]
    ) -> Iterator[pa.Table]:
        """Yield the row changes for records that become unmatched, or that are no longer unmatched.

        `known` holds the records that met a partner before, and the records that an end of the input has settled.
        `settled` is the result of `_settled_until`.
        """
        side, sql = self._sides[number], self._sql.alone[number]
        before, until = settled
        least, greatest = before + 1, until
        for table in (met, own.new) if side.stream.is_changelog else (met,):
            if table.num_rows:
                first, last = _range(table)
                least, greatest = min(least, first), max(greatest, last)
        paired, fired = known[0], known[1].table(self._paired[number], own.state)
        last = max(until, _range(fired)[1]) if fired.num_rows else until
        rows = own.all(least, min(greatest, last))
        rows = duckdb_sql.query(self._duck, sql.versions, rows=rows, fired=fired, limits=pa.table({"until": [until]}))
        if not rows.num_rows:
            return
        tables = {
            "met": met,
            "paired": paired.table(self._paired[number], own.state, *_range(rows)),
            "fired": fired,
            "settled": pa.table({"before": pa.array([before], pa.int64())}),
        }
        candidates = duckdb_sql.query(self._duck, sql.candidates, rows=rows, **tables)
        if candidates.num_rows:
            yield duckdb_sql.query(self._duck, sql.changes, candidates=candidates, **tables).cast(self._made)

    def _fired(self, number: int, own: _Rows, fired: Runs, until: int) -> pa.Table:
        """Return the records that the end of the input settles before the watermark does."""
        rows = own.all(until + 1, MAX_TIME)
        rows = rows.filter(pa.array(to_micros(rows.column(TIME)) > until))
        known = fired.table(self._paired[number], own.state)
        made = duckdb_sql.query(self._duck, self._sql.alone[number].fired, rows=rows, fired=known)
        return made.cast(self._paired[number])

    def _without_partner(self, number: int, own: _Rows, others: _Rows, records: pa.Table) -> Iterator[pa.Table]:
        """Yield the row changes for rows of a table that become unmatched, or that are no longer unmatched."""
        if not self._sides[number].is_outer:
            return
        sql = self._sql.alone[number]
        everything = -MAX_TIME, MAX_TIME
        rows = duckdb_sql.query(self._duck, sql.concerned, rows=own.all(*everything), records=records)
        if rows.num_rows:
            candidates = rows.append_column(_ROW, _numbers(rows))
            # a row of a table is settled at once
            tables = {"candidates": candidates, "settled": pa.table({"before": pa.array([MAX_TIME], pa.int64())})}
            tables["fired"] = self._paired[number].empty_table()
            for name, partners in (("met", _marked(others.new, is_new=True)), ("paired", others.old(*everything))):
                tables[name] = duckdb_sql.query(self._duck, sql.partners, candidates=candidates, others=partners)
            yield duckdb_sql.query(self._duck, sql.changes, **tables).cast(self._made)


def _move_after(records: pa.Table, last: list[int] | None, changing: Sequence[int]) -> tuple[pa.Table, list[int]]:
    """Move changes that precede the position `last` in the merged order to it; also return the new last position.

    Such changes exist only after the end of the input. They must stay after the rows that they change, also within a
    step. Sides that are not `changing` have only insertions, which keep their positions.
    """
    places = [to_micros(records.column(name)) for name in PLACE]
    greatest = [int(column[-1]) for column in places]
    if last is None:
        return records, greatest
    if tuple(column[0] for column in places) < tuple(last):
        is_before = are_before(places, last) & np.isin(to_micros(records.column(SIDE)), changing)
        for name, column, limit in zip(PLACE, places, last, strict=True):
            at = records.column_names.index(name)
            field = records.schema.field(at)
            moved = pa.array(np.where(is_before, limit, column)).cast(field.type)
            records = records.set_column(at, field, moved)
    return records, max(greatest, last)


def _with_diffs(rows: pa.Table, diffs: Micros) -> pa.Table:
    place = rows.column_names.index(DIFF)
    return rows.set_column(place, rows.schema.field(place), pa.array(diffs))


def _moments(lefts: pa.Table, rights: pa.Table) -> tuple[Micros, Micros]:
    """Number the positions of a step's changes. At the same position, changes of the right table come first."""
    columns = [np.concatenate([to_micros(rows.column(name)) for rows in (lefts, rights)]) for name in PLACE]
    order, ranks = np.lexsort(columns[::-1]), np.empty(len(columns[0]), dtype=np.int64)
    ranks[order] = runs_of_equals([column[order] for column in columns])
    return 2 * ranks[: lefts.num_rows] + 1, 2 * ranks[lefts.num_rows :]


def _with_span(rows: pa.Table, at: Micros, until: Micros) -> pa.Table:
    return rows.append_column(_AT, pa.array(at)).append_column(_UNTIL, pa.array(until))


def _lifetimes(events: pa.Table) -> pa.Table:
    """Return the rows that result from changes, each valid from `_AT` until `_UNTIL`, with its count as `DIFF`."""
    numbers, moments, diffs = to_micros(_numbers(events)), to_micros(events.column(_AT)), to_micros(events.column(DIFF))
    order = np.lexsort([moments, numbers])
    numbers, moments, sums = numbers[order], moments[order], np.cumsum(diffs[order])
    is_first = np.diff(numbers, prepend=-1) != 0
    counts = sums - (sums - diffs[order])[is_first][np.cumsum(is_first) - 1]
    # the count of a row after a moment lasts until its next moment
    is_last = np.diff(moments, append=_BEFORE - 1) != 0
    is_last[:-1] |= is_first[1:]
    places = np.flatnonzero(is_last)
    until = np.full(len(places), MAX_TIME)
    has_next = numbers[places[1:]] == numbers[places[:-1]]
    until[:-1][has_next] = moments[places[1:]][has_next]
    is_there = counts[places] != 0
    places = places[is_there]
    rows = _with_diffs(events.take(pa.array(order[places])), counts[places])
    return rows.set_column(rows.column_names.index(_UNTIL), _UNTIL, pa.array(until[is_there]))


def _marked(rows: pa.Table, *, is_new: bool) -> pa.Table:
    return rows.append_column(_IS_NEW, pa.repeat(pa.scalar(is_new), rows.num_rows))


def _numbers(rows: pa.Table) -> pa.Array:
    """Return a number for each record; the insertion and the deletion of a row share one number."""
    if DIFF not in rows.column_names:
        return pa.array(np.arange(rows.num_rows))
    return rows.column(ID).combine_chunks().dictionary_encode().indices.cast(pa.int64())


def _settled_until(time: StepTime, wait: int) -> tuple[int, int]:
    """Return the event times, before and after the step, up to which no partner can be on time any more."""
    before = max(time.before - wait - 1, time.ended, -MAX_TIME)
    return before, MAX_TIME if time.end else max(time.low - wait - 1, before)


def _range(table: pa.Table) -> tuple[int, int]:
    times = to_micros(table.column(TIME))
    return int(times.min()), int(times.max())


def _near(table: pa.Table, span: JoinSpan) -> tuple[int, int]:
    """Return the range of event times that partners of the given records can have."""
    least, greatest = _range(table)
    return least - span.back, greatest + span.reach


class _JoinSql:
    """Queries of a join.

    `pairs` joins lefts and rights. Rows of tables are paired if both exist at the same moment. `near` selects, from the
    rows of one table, the rows with the keys of changes in the other table. `alone` maps the number of each outer side
    to its queries for unmatched records. `met` maps the number of each outer side to the columns of a pair that
    describe the side's record and its partner, as names with their SQL.
    """

    def __init__(self, graph: m.Graph, node: m.JoinNode | m.TableJoinNode, made: pa.Schema) -> None:
        self._graph = graph
        self.node = node
        self._made = made
        sides = self.sides = join_sides(graph, node)
        spans = self.spans = join_spans(graph, node) if isinstance(node, m.JoinNode) else None
        outer = [number for number, side in enumerate(sides) if side.is_outer]
        self.met = {number: self._met(number) for number in outer if spans is not None}
        self.alone = {number: _AloneSql(self, number) for number in outer}
        is_later = is_later_sql("l", "r")
        time = {"left": f"l.{TIME}", "right": f"r.{TIME}"}.get(node.how, f"greatest(l.{TIME}, r.{TIME})")
        own = {name: f"CASE WHEN {is_later} THEN l.{name} ELSE r.{name} END" for name in PLACE}
        own |= {TIME: time, ID: f"{self.id(0, 'l')} || '+' || {self.id(1, 'r')}"}
        changed = [f"{name}.{DIFF}" for name, side in zip("lr", sides, strict=True) if side.stream.is_changelog]
        own[DIFF] = " * ".join(changed) or "1"
        fields = {name: f"r.{identifier(name)}" for name in sides[1].names.values()}
        fields |= {name: f"l.{identifier(name)}" for name in sides[0].names.values()}
        keys = " AND ".join(f"l.{identifier(name)} = r.{identifier(name)}" for name in node.key)
        near = f"AND l.{_AT} < r.{_UNTIL} AND r.{_AT} < l.{_UNTIL}"
        if spans is not None:
            near = f"AND r.{TIME} BETWEEN l.{TIME} - {spans[0].back} AND l.{TIME} + {spans[0].reach}"
        met = [
            f"{sql} AS {_of_side(side, name)}" for side, columns in self.met.items() for name, sql in columns.items()
        ]
        self.pairs = f"""
            SELECT {", ".join([self.list(own | fields), *met])} FROM lefts l JOIN rights r ON {keys} {near}
        """
        self.near = f"SELECT * FROM rows SEMI JOIN changes USING ({', '.join(map(identifier, node.key))})"

    def list(self, columns: dict[str, str]) -> str:
        """Return the select list of the join's rows; columns that are not given are null."""
        return ", ".join(f"{columns.get(name, 'NULL')} AS {identifier(name)}" for name in self._made.names)

    def id(self, number: int, name: str) -> str:
        """Return the SQL of the `ID` of a record on one side of the join."""
        return id_sql(self._graph, self.sides[number].stream, name)

    def identity(self, number: int) -> tuple[str, ...]:
        """Return the columns that identify the records on one side of the join."""
        return (ID,) if self.sides[number].stream.has_id else (PARTITION, OFFSET)

    def _met(self, number: int) -> dict[str, str]:
        own, other = "lr"[number], "rl"[number]
        partners = f"{other}.{DIFF}" if self.sides[1 - number].stream.is_changelog else "1"
        return (
            {name: f"{own}.{name}" for name in (*self.identity(number), TIME)}
            | {_of_partner(name): f"{other}.{name}" for name in (*PLACE, _IS_NEW)}
            | {_PARTNERS: partners}
        )


class _AloneSql:
    """Queries for the unmatched records of an outer side.

    The input tables are `settled`, with the event time `before` up to which records were settled before the step;
    `met`, the partners that records met in the step; and `paired`, the number of partners that they met earlier. The
    queries are:

    - `versions`: number the rows of the side; the insertion and the deletion of a row share one number.
    - `concerned`: select the rows of a table that have the key of a record of the step.
    - `candidates`: select the rows of the side that may become unmatched, or may no longer be unmatched.
    - `partners`: create `met` or `paired` from candidates and the rows of the other table.
    - `changes`: turn candidates into changes.
    - `paired`: count the partners in `met`, with the columns `paired_columns`, to be stored.
    - `fired`: select the rows that the end of the input settles, except rows that it settled before.
    """

    def __init__(self, sql: _JoinSql, number: int) -> None:
        side, other = sql.sides[number], sql.sides[1 - number]
        identity, keys = sql.identity(number), sql.node.key
        ids = ", ".join(identity)
        by = ", ".join([*map(identifier, keys), *identity, TIME])
        # partners without deletions stay, so their records are never alone again
        settled = "" if other.stream.is_changelog else f"ANTI JOIN paired USING ({ids})"
        met = f"SELECT ({ids}) FROM met WHERE {_of_partner(_IS_NEW)}"
        touched = f"bool_or({_IS_NEW} OR ({ids}) IN ({met})) OVER (PARTITION BY {_ROW})"
        # a deleted session can be inserted again with the same id and other values
        fields = ", ".join([ID, TIME, *map(identifier, side.names.values())])
        version = f"dense_rank() OVER (ORDER BY {fields})" if side.stream.is_changelog else "row_number() OVER ()"
        is_settled = f"{TIME} <= (SELECT until FROM limits) OR ({ids}) IN (SELECT ({ids}) FROM fired)"
        self.versions = f"SELECT *, {version} AS {_ROW} FROM rows WHERE {is_settled}"
        self.candidates = f"""
            SELECT * FROM rows {settled} QUALIFY {TIME} > (SELECT before FROM settled) OR {touched}
        """
        by_key = ", ".join(map(identifier, keys))
        self.concerned = f"SELECT * FROM rows SEMI JOIN records USING ({by_key})"
        self.partners = f"""
            SELECT c.{ID}, {", ".join(f"o.{name} AS {_of_partner(name)}" for name in (*PLACE, _IS_NEW))},
                o.{DIFF} AS {_PARTNERS}
            FROM (SELECT DISTINCT {ID}, {by_key} FROM candidates) c JOIN others o USING ({by_key})
        """
        wait = 0 if sql.spans is None else sql.spans[number].wait
        diff = DIFF if side.stream.is_changelog else "1"
        place = ", ".join(PLACE)
        name = "lr"[number]
        own = {column: f"c.{column}" for column in (*PLACE, DIFF)}
        ids_made = (sql.id(0, name), "''") if number == 0 else ("''", sql.id(1, name))
        own |= {TIME: f"{name}.{TIME}", ID: f"{ids_made[0]} || '+' || {ids_made[1]}"}
        own |= {field: f"{name}.{identifier(field)}" for field in side.names.values()}
        self.changes = f"""
            WITH records AS (SELECT DISTINCT ON ({_ROW}) * FROM candidates),
            events AS (
                SELECT {_ROW}, {_IS_NEW}, {place}, {diff} AS there, 0 AS partners, 0 AS is_settled FROM candidates
                UNION ALL
                SELECT {_ROW}, {", ".join(map(_of_partner, (_IS_NEW, *PLACE)))}, 0, met.{_PARTNERS}, 0
                FROM records JOIN met USING ({ids})
                UNION ALL
                SELECT {_ROW}, false, {-MAX_TIME}, -1, -1, 0, paired.{_PARTNERS}, 0
                FROM records JOIN paired USING ({ids})
                UNION ALL
                SELECT {_ROW}, {TIME} > (SELECT before FROM settled) AND ({ids}) NOT IN (SELECT ({ids}) FROM fired),
                    {TIME} + {wait}, {LAST_PARTITION}, {MAX_TIME}, 0, 0, 1
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
            SELECT {sql.list(own)} FROM c JOIN records {name} USING ({_ROW}) WHERE c.{_IS_NEW} AND c.{DIFF} <> 0
        """
        self.paired_columns = (*keys, *identity, TIME, _PARTNERS)
        self.paired = f"SELECT {by}, sum({_PARTNERS})::BIGINT AS {_PARTNERS} FROM met GROUP BY {by}"
        self.fired = f"""
            SELECT DISTINCT {by}, 0 AS {_PARTNERS} FROM rows WHERE ({ids}) NOT IN (SELECT ({ids}) FROM fired)
        """


def _of_side(number: int, name: str) -> str:
    return f"__{number}{name}"


def _of_partner(name: str) -> str:
    return f"__partner{name}"
