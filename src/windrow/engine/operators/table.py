"""Tables and lookups: the last record of each key as a changelog, and joins of records with the row of their key.

Both read their records in the merged order. A table keeps the last version of each key. A lookup keeps the versions
that records can still look up. As of event time, these are the last version before all records that can arrive, and all
later versions. (Snodgrass, "Developing Time-Oriented Database Applications in SQL", 1999, ch. 5, calls such a table a
valid-time state table.)

Rows of a file without a time column are timed by when they were read, which says when a row was seen, not when it
became valid. So in a table of such a file, the first version of a key is valid from the beginning (`FIRST_TIME`),
unless it removes the row. A version is the first if no version of its key is stored, because at least one version of
each key is always kept.

A run that resumes after the end of its input has read records before their turn, and may now read earlier records. A
version still counts by its position: a version that precedes the last version of its key does not change a table, and
the versions that are valid as of event time do not depend on where the input ended. So records and versions are kept
until the low watermark has passed their own watermark, because until then earlier records can still arrive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import duckdb_sql
from windrow.engine.changelog import source_numbers
from windrow.engine.columns import FIRST_TIME, MAX_TIME, Micros, are_before, concat, to_micros
from windrow.engine.duckdb_sql import identifier, literal
from windrow.engine.keys import key_numbers
from windrow.engine.merged_order import ID_ORDER, in_merged_order, is_later_sql, runs_of_equals
from windrow.engine.operators.base import Operator, OperatorOutput, OperatorStep
from windrow.engine.operators.route import id_sql, side_schema, stream_schema, with_ids
from windrow.engine.operators.settled import settle_ordered
from windrow.engine.schema import DELETED, DIFF, ID, OFFSET, PARTITION, PLACE, SIDE, TIME, WATERMARK, record_schema
from windrow.engine.state.migrate import RowsByKeyGroup, StoredState
from windrow.engine.state.runs import Compaction, Runs, migrate_runs
from windrow.engine.state.store import OperatorState, StoreKind
from windrow.engine.state.time_buffer import Mask
from windrow.engine.state.widening import StateChange
from windrow.engine.truncations import are_truncated, are_truncations, split_truncations, truncations_between
from windrow.expressions import join_sides, revise_of, spec_of, stream_of

_VERSIONS: Final = "versions"
_LEFT: Final = "left"
_NUMBER: Final = "__number"
"""The number of a record in its step, in the merged order; -1 for records before the step."""
_ROW: Final = "__row"
_READ: Final = "read"
"""The greatest watermark of the records so far."""


def build_table(graph: m.Graph, node: m.TableNode) -> Operator:
    """Return the operator for a table node."""
    return settle_ordered(graph, node, TableOperator(graph, node))


class TableOperator:
    """Keeps the last version of each key; a new version deletes the row of the previous version.

    For each row that a truncation removes, a version that removes it is added at the place of the truncation.
    """

    state: Final[Mapping[str, StoreKind]] = {_VERSIONS: "runs"}

    def __init__(self, graph: m.Graph, node: m.TableNode) -> None:
        spec = self._spec = spec_of(graph, node)
        self._duck = duckdb_sql.Connection()
        versions_read = stream_of(graph, m.versions_of(node.name))
        self._stored = stream_schema(versions_read, record_schema(spec))
        self._made = stream_schema(stream_of(graph, node.name), record_schema(spec))
        by = ", ".join(map(identifier, node.key))
        self._near = f"SELECT * FROM stored SEMI JOIN records USING ({by})"
        self._last = f"SELECT max({_NUMBER}) AS {_NUMBER} FROM versions GROUP BY {by}"
        self._later = f"""
            SELECT g.* FROM added g LEFT JOIN last s USING ({by})
            WHERE s.{OFFSET} IS NULL OR {is_later_sql("g", "s")} ORDER BY g.{_NUMBER}
        """
        # only the last version of a key at a position counts; without an ID there is only one
        last_at_place = f"""
            QUALIFY row_number() OVER (PARTITION BY {by}, {", ".join(PLACE)} ORDER BY {_NUMBER} DESC) = 1
        """
        place, following = ", ".join(PLACE), ", ".join(f"__next{name}" for name in PLACE)
        self._removed = f"""
            WITH v AS (
                SELECT *, {", ".join(f"lead({name}) OVER later AS __next{name}" for name in PLACE)}
                FROM versions WINDOW later AS (PARTITION BY {by} ORDER BY {place}, {_NUMBER})
            )
            SELECT v.* EXCLUDE ({following})
                REPLACE ({", ".join(f"t.{name} AS {name}" for name in (TIME, *PLACE, _NUMBER))}, true AS {DELETED})
            FROM v ASOF JOIN truncations t ON v.{PARTITION} = t.{PARTITION} AND v.{OFFSET} < t.{OFFSET}
            WHERE NOT v.{DELETED}
                AND (__next{OFFSET} IS NULL OR ({following}) > ({", ".join(f"t.{name}" for name in PLACE)}))
        """
        versions = f"versions AS (PARTITION BY {by} ORDER BY {_NUMBER})"
        # two tables can have rows from the same record
        own = {ID: f"{literal(node.name)} || '/' || {id_sql(graph, versions_read, 'c')}"}
        columns = {name: own.get(name, f"c.{identifier(name)}") for name in self._made.names}
        added = ", ".join([*(f"{sql} AS {identifier(name)}" for name, sql in (columns | {DIFF: "1"}).items()), _NUMBER])
        columns |= {name: f"c.__next{name}" for name in PLACE} | {DIFF: "-1"}
        removed = ", ".join(f"{sql} AS {identifier(name)}" for name, sql in columns.items())
        self._changes = f"""
            WITH c AS (
                SELECT *, lead({_NUMBER}) OVER versions AS __next,
                    {", ".join(f"lead({name}) OVER versions AS __next{name}" for name in PLACE)}
                FROM (SELECT * FROM rows {last_at_place if versions_read.has_id else ""}) WINDOW {versions}
            )
            SELECT * EXCLUDE ({_NUMBER}) FROM (
                SELECT {added} FROM c WHERE {_NUMBER} >= 0 AND NOT {DELETED}
                UNION ALL
                SELECT {removed}, __next AS {_NUMBER} FROM c WHERE __next IS NOT NULL AND NOT {DELETED}
            ) ORDER BY {_NUMBER}, {DIFF}
        """
        self._changes_in_key_order = f"{self._changes}, {by}"

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        runs = Runs.decode(_VERSIONS, (state.summary or {}).get(_VERSIONS))
        records, changes = step.records.select(self._stored.names), self._made.empty_table()
        if records.num_rows:
            added, truncations = split_truncations(_numbered(records))
            stored, known = split_truncations(_before(self._stored, runs, state))
            near = stored
            if not truncations.num_rows:
                near = duckdb_sql.query(self._duck, self._near, stored=stored, records=added).cast(added.schema)
            last, sql = self._last_versions(near), self._changes
            if truncations.num_rows or known.num_rows:
                tables = {"versions": [last, added], "truncations": [known, truncations]}
                joined = {name: pa.concat_tables(parts) for name, parts in tables.items()}
                # a version that removes the row, for each version that is the last of its key at a truncation
                removed = duckdb_sql.query(self._duck, self._removed, **joined).cast(added.schema)
                records = pa.concat_tables([added, removed, truncations]).drop_columns(_NUMBER)
                is_old = pa.array(to_micros(removed.column(_NUMBER)) < 0)
                last = self._last_versions(pa.concat_tables([last, removed.filter(is_old)]))
                added = pa.concat_tables([added, removed.filter(pc.invert(is_old))])
                sql = self._changes_in_key_order
            rows = pa.concat_tables([last, self._after(last, added)])
            changes = duckdb_sql.query(self._duck, sql, rows=rows).cast(self._made)
        runs.add(records, -MAX_TIME, state, self._compaction(step.time.low))
        state.summary = {_VERSIONS: runs.encode()}
        return OperatorOutput(records=(changes,))

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no type is widened
        """Migrate the last version of each key."""
        return migrate_runs(RowsByKeyGroup(self._spec, self._duck, {_VERSIONS: self._stored}), states)

    def _after(self, last: pa.Table, added: pa.Table) -> pa.Table:
        """Return the versions that do not precede the last version of their key.

        A version can only precede it if a run resumes after the end of its input, where records were read before their
        turn.
        """
        if not last.num_rows or not added.num_rows:
            return added
        latest, first = pc.max(last.column(WATERMARK)).as_py(), pc.min(added.column(WATERMARK)).as_py()
        if first > latest:
            return added
        return duckdb_sql.query(self._duck, self._later, last=last, added=added).cast(added.schema)

    def _compaction(self, low: int) -> Compaction:
        """Return the compaction that keeps the last version of each key.

        A version that removes a row is kept while another run of the state may contain the row, or while an earlier
        version can arrive. The latter also applies to truncations.
        """

        def can_be_preceded(rows: pa.Table) -> pa.Array:
            return pa.array(to_micros(rows.column(WATERMARK)) >= low)

        def compact(rows: pa.Table, is_all: bool) -> pa.Table:  # noqa: FBT001 - as `Compaction` has it
            versions, truncations = split_truncations(rows)
            last = self._last_versions(versions)
            if is_all:
                last = last.filter(pc.or_(pc.invert(last.column(DELETED)), can_be_preceded(last)))
            return concat(last, [last, truncations.filter(can_be_preceded(truncations))])

        return compact

    def _last_versions(self, versions: pa.Table) -> pa.Table:
        """Return the last version of each key in the merged order."""
        versions = in_merged_order(versions)
        keys = _numbered(versions.select(list(self._spec.key)))
        rows = duckdb_sql.query(self._duck, self._last, versions=keys).column(_NUMBER)
        return versions.take(rows.combine_chunks())


def build_lookup(graph: m.Graph, node: m.LookupNode) -> Operator:
    """Return the operator for a lookup node."""
    return settle_ordered(graph, node, LookupOperator(graph, node))


class LookupOperator:
    """Joins each record with the version of its key that is valid for the record.

    As of the order of records, this is the row in the table when the record is processed. As of event time, it is the
    version with the greatest event time that is not after the record's own event time. A version whose position is
    after the record's position counts only if its watermark is less than `revise` after the record's event time. Among
    versions with the same event time, the last by position counts.
    """

    state: Final[Mapping[str, StoreKind]] = {_VERSIONS: "runs", _LEFT: "runs"}

    def __init__(self, graph: m.Graph, node: m.LookupNode) -> None:
        spec = self._spec = spec_of(graph, node)
        self._node = node
        self._duck = duckdb_sql.Connection()
        self._graph = graph
        left, right = join_sides(graph, node)
        self._streams = left.stream, right.stream
        self._stored = [
            pa.schema([field for field in side_schema(side) if field.name != SIDE]) for side in (left, right)
        ]
        self._made = stream_schema(stream_of(graph, node.name), record_schema(spec))
        # the greatest distances of records and versions behind the watermark; None means unlimited
        self._files = sorted(_files_of(graph, node.table))
        self._bounds = left.stream.bound, None if self._files else right.stream.bound
        self._revise = revise_of(graph, node)
        self._is_revised = node.as_of == "event_time"
        self._sql = _LookupSql(graph, node, self._made)

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        summary = state.summary or {}
        runs, kept = (Runs.decode(kind, summary.get(kind)) for kind in (_VERSIONS, _LEFT))
        numbered = _numbered(step.records)
        sides = to_micros(numbered.column(SIDE))
        lefts, versions = (
            numbered.filter(pa.array(sides == number)).select([*stored.names, _NUMBER])
            for number, stored in enumerate(self._stored)
        )
        made = [self._made.empty_table()]
        if lefts.num_rows or versions.num_rows:
            stored = _before(self._stored[1], runs, state)
            if self._files and versions.num_rows:
                versions = self._from_the_beginning(versions, stored)
            before = lefts.slice(0, 0)
            if versions.num_rows and self._is_revised:
                least = int(to_micros(versions.column(TIME)).min())
                before = _before(self._stored[0], kept, state, least)
                # a truncation can change any row
                if are_truncations(versions) is None:
                    before = duckdb_sql.query(self._duck, self._sql.touched, lefts=before, versions=versions)
                    before = before.cast(lefts.schema)
            made.append(self._rows(lefts, before, versions, stored, numbered))
        low = step.time.low
        runs.add(versions.drop_columns(_NUMBER), -MAX_TIME, state, self._compaction(low))
        state.summary = {_VERSIONS: runs.encode()}
        if self._is_revised:
            read = max([summary.get(_READ, -MAX_TIME), *to_micros(lefts.column(WATERMARK))[-1:].tolist()])
            after = low - self._revise if low > read else self._horizon(low)
            kept.add(lefts.drop_columns(_NUMBER), max(-MAX_TIME, after), state)
            state.summary |= {_LEFT: kept.encode(), _READ: read}
        return OperatorOutput(records=(pa.concat_tables(made),))

    def _from_the_beginning(self, versions: pa.Table, stored: pa.Table) -> pa.Table:
        """Return the versions of a step, with `FIRST_TIME` as the time of the first version of each key in a file."""
        tables = {"versions": versions.select([*self._node.key, _NUMBER]), "stored": stored.select(self._node.key)}
        firsts = duckdb_sql.query(self._duck, self._sql.first, **tables).column(_NUMBER)
        is_first = np.isin(to_micros(versions.column(_NUMBER)), to_micros(firsts))
        is_first &= np.isin(source_numbers(self._graph, versions.column(PARTITION)), self._files)
        is_first &= ~versions.column(DELETED).to_numpy()
        times = np.where(is_first, FIRST_TIME, to_micros(versions.column(TIME)))
        return versions.set_column(versions.column_names.index(TIME), versions.schema.field(TIME), pa.array(times))

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no type is widened
        """Migrate the versions, and the records whose rows may still be replaced."""
        return migrate_runs(
            RowsByKeyGroup(self._spec, self._duck, dict(zip((_LEFT, _VERSIONS), self._stored, strict=True))),
            states,
            greatest=_READ,
        )

    def _rows(
        self, lefts: pa.Table, before: pa.Table, versions: pa.Table, stored: pa.Table, numbered: pa.Table
    ) -> pa.Table:
        """Return the rows of the step's records, and the changes that its versions make to rows of earlier records.

        Few rows change within a step. Usually the last version that a record can have is valid when the record is
        processed. Then no other version replaces it, and no earlier version has been in the record's row.
        """
        records = concat(lefts, [lefts, before])
        (versions, added), (stored, known) = split_truncations(versions), split_truncations(stored)
        truncations = pa.concat_tables([known, added])
        near, last = self._search(records, self._near(records, versions, stored))
        is_touched = np.arange(records.num_rows) >= lefts.num_rows
        found = np.flatnonzero(last >= 0)
        if self._is_revised:
            places = _places_of(records)[:, found], _places_of(near)[:, last[found]]
            is_touched[found] |= ~(_counts(*places, self._revise) & _has_come(*places))
        if truncations.num_rows:
            of_found = near.take(pa.array(last[found]))
            if self._is_revised:
                times = to_micros(records.column(TIME))[found]
                is_touched[found[truncations_between(of_found, truncations, times)[0]]] = True
            else:
                upto = records.select([_NUMBER]).take(pa.array(found))
                last[found[are_truncated(of_found, truncations, upto, _NUMBER)]] = -1
        rows = np.flatnonzero(~is_touched)
        moves = [_Moves(rows, to_micros(records.column(_NUMBER))[rows], last[rows], np.ones(len(rows), np.int64))]
        if is_touched.any():
            moves += self._moves(records, np.flatnonzero(is_touched), near, last, truncations, _moments(numbered))
        lefts, near = pa.concat_tables([move.table(records, numbered) for move in moves]), _numbered(near, _ROW)
        lefts, near = (with_ids(self._graph, *pair) for pair in zip(self._streams, (lefts, near), strict=True))
        return duckdb_sql.query(self._duck, self._sql.rows, lefts=lefts, near=near).cast(self._made)

    def _near(self, records: pa.Table, versions: pa.Table, stored: pa.Table) -> pa.Table:
        """Return all versions with the keys of the records; if there are few versions, return all of them."""
        if versions.num_rows + stored.num_rows <= records.num_rows:
            return concat(versions, [stored, versions])
        tables = {"records": records.select(self._node.key), "stored": stored, "versions": versions}
        return duckdb_sql.query(self._duck, self._sql.near, **tables).cast(versions.schema)

    def _search(self, records: pa.Table, versions: pa.Table) -> tuple[pa.Table, Micros]:
        """Return versions by key, and for each record the row of the last version that it can have, or -1.

        As of event time, the versions of a key are sorted by event time and position, and a record can have the
        versions up to its own event time. As of the order of records, versions are sorted by position, and a record has
        the last version that arrived before it. A version that arrives after another version with a later position is
        never the last, so the search treats the two as arriving together.
        """
        versions, count = in_merged_order(versions), records.num_rows
        keys = key_numbers(pa.concat_tables([table.select(self._node.key) for table in (records, versions)]))
        times = [to_micros(rows.column(TIME if self._is_revised else _NUMBER)) for rows in (records, versions)]
        moments = np.unique(times[1])
        # key number and, in the lower part, number of the last moment up to the time, combined in one number
        spots = keys * (len(moments) + 1) + np.searchsorted(moments, np.concatenate(times), side="right")
        order = np.argsort((spots if self._is_revised else keys)[count:], kind="stable")
        firsts = np.minimum.accumulate(spots[count:][order][::-1])[::-1]
        last = np.searchsorted(firsts, spots[:count], side="right") - 1
        is_there = last >= 0
        is_there[is_there] = keys[count:][order[last[is_there]]] == keys[:count][is_there]
        return versions.take(pa.array(order)), np.where(is_there, last, -1)

    def _moves(  # noqa: PLR0917 - the tables of `_rows`
        self,
        records: pa.Table,
        touched: Micros,
        versions: pa.Table,
        last: Micros,
        truncations: pa.Table,
        moments: Micros,
    ) -> list[_Moves]:
        """Return the changes of the touched records' rows; at each moment, the last candidate so far is valid.

        Candidates at the same position, such as a record and its own version, make a single change. A record from an
        earlier step already had a row. A candidate that a truncation has removed stands for no version.
        """
        pairs, candidates = self._candidates(records, touched, versions, last)
        numbers, others = (to_micros(table.column(_NUMBER)) for table in (records, versions))
        come = np.maximum(numbers[pairs], others[candidates])
        ends = self._ends(records, pairs, versions, candidates, truncations)
        has_end = ends < MAX_TIME
        rows = np.concatenate([touched, pairs, pairs[has_end]])
        at = np.concatenate([numbers[touched], come, np.maximum(come, ends)[has_end]])
        for numbered in (at, ends):
            is_here = (numbered >= 0) & (numbered < MAX_TIME)
            numbered[is_here] = moments[numbered[is_here]]
        best = np.concatenate([np.full(len(touched), -1), candidates, candidates[has_end]])
        order = np.lexsort([at, rows])
        rows, at, best = rows[order], at[order], best[order]
        # running maximum within each record: the base makes all values of the next record greater
        base = rows * (versions.num_rows + 1)
        held = np.maximum.accumulate(base + best + 1) - base - 1
        is_last = np.append((np.diff(rows) != 0) | (np.diff(at) != 0), True)
        rows, at, held = rows[is_last], at[is_last], held[is_last]
        is_removed = np.append(versions.column(DELETED).to_numpy(), True)
        numbers = pairs * (versions.num_rows + 1) + candidates
        in_order = np.argsort(numbers)
        # a row without a version (-1) is found nowhere, but is no version anyway
        of_pair = np.searchsorted(numbers[in_order], rows * (versions.num_rows + 1) + held)
        shown = np.where(is_removed[held] | (np.append(ends[in_order], MAX_TIME)[of_pair] <= at), -1, held)
        is_first = np.diff(rows, prepend=-1) != 0
        was = np.append(-1, shown[:-1])
        is_new = (at >= 0) & (is_first | (shown != was))
        is_old = is_new & ~is_first
        return [
            _Moves(rows[mask], at[mask], of[mask], np.full(np.count_nonzero(mask), diff))
            for mask, of, diff in ((is_new, shown, 1), (is_old, was, -1))
        ]

    def _candidates(self, records: pa.Table, rows: Micros, versions: pa.Table, last: Micros) -> tuple[Micros, Micros]:
        """Return pairs of a record and each version that it may have had, starting from its last version.

        Versions are sorted by key, event time and position. So of the versions that have arrived and count, a record
        has the one with the greatest row number. The first version found that counts and arrived no later than the
        record is the last candidate, because the record can never have an earlier one. Versions that do not count are
        left out.
        """
        is_first = np.diff(key_numbers(versions.select(self._node.key)), prepend=-1) != 0
        own, others = _places_of(records), _places_of(versions)
        rows = rows[last[rows] >= 0]
        at = last[rows]
        found, candidates = [rows[:0]], [at[:0]]
        while len(rows):
            places = own[:, rows], others[:, at]
            counts = _counts(*places, self._revise)
            found.append(rows[counts])
            candidates.append(at[counts])
            has_more = ~(is_first[at] | (counts & _has_come(*places)))
            rows, at = rows[has_more], at[has_more] - 1
        return np.concatenate(found), np.concatenate(candidates)

    def _ends(
        self, records: pa.Table, rows: Micros, versions: pa.Table, candidates: Micros, truncations: pa.Table
    ) -> Micros:
        """Return the number at which the first truncation removes each candidate from a record's row, or MAX_TIME."""
        ends = np.full(len(rows), MAX_TIME)
        if truncations.num_rows:
            times = to_micros(records.column(TIME))[rows]
            pairs, at = truncations_between(versions.take(pa.array(candidates)), truncations, times)
            places = _places_of(records)[:, rows[pairs]], _places_of(truncations)[:, at]
            counts = _counts(*places, self._revise)
            np.minimum.at(ends, pairs[counts], np.maximum(places[0][0], places[1][0])[counts])
        return ends

    def _horizon(self, low: int) -> int:
        """Return the event time up to which no record can arrive or have its row replaced any more."""
        bound = self._bounds[0]
        return -MAX_TIME if bound is None else max(-MAX_TIME, low - max(bound, self._revise))

    def _compaction(self, low: int) -> Compaction:
        """Return the compaction that drops versions that no record can look up any more."""
        horizon, late = self._horizon(low), self._bounds[1]
        removable = -MAX_TIME if late is None else max(-MAX_TIME, min(horizon, low - late))

        def compact(rows: pa.Table, is_all: bool) -> pa.Table:  # noqa: FBT001 - as `Compaction` has it
            limits = pa.table(
                {"__low": [low], "__horizon": [horizon], "__removable": [removable], "__is_all": [is_all]}
            )
            rows, truncations = split_truncations(rows)
            tables = {"truncations": truncations, "limits": limits}
            needed = duckdb_sql.query(self._duck, self._sql.needed, versions=rows, limits=limits).cast(rows.schema)
            if truncations.num_rows:
                needed = duckdb_sql.query(self._duck, self._sql.untruncated, versions=needed, **tables)
                others = duckdb_sql.query(self._duck, self._sql.needed_truncations, **tables)
                needed = pa.concat_tables([needed.cast(rows.schema), others.cast(rows.schema)])
            return needed

        return compact


@dataclass(frozen=True)
class _Moves:
    """Changes of rows, as arrays: the records, the row numbers of the causes, the versions, and the differences.

    A version of -1 means that the record has no version.
    """

    rows: Micros
    at: Micros
    versions: Micros
    diffs: Micros

    def table(self, records: pa.Table, numbered: pa.Table) -> pa.Table:
        """Return the records with the positions, version row numbers and differences of the changes as columns."""
        is_all = np.array_equal(self.rows, np.arange(records.num_rows))
        changed = records if is_all else records.take(pa.array(self.rows))
        places = numbered.select(PLACE).take(pa.array(self.at))
        for name in PLACE:
            changed = changed.append_column(f"__at{name}", places.column(name))
        versions = pa.array(self.versions, mask=self.versions < 0)
        return changed.append_column(_ROW, versions).append_column(DIFF, pa.array(self.diffs))


class _LookupSql:
    """Queries of a lookup over `lefts` (records), `versions` (of the step) and `stored` (earlier versions).

    - `near`: select the versions that have the key of a record. They get row numbers in order.
    - `rows`: create the changes from `near` and from records. Each record has the row number of its version, and the
      position and difference of the change. Both inputs have ids.
    - `first`: return the number of the first version of each key that is not in `stored`.
    - `touched`: select the records of earlier steps whose row a version of the step may change.
    - `needed`: select the versions that can still be looked up, given `limits`. Versions up to the event time
      `__horizon` whose watermark is below `__low` precede all records that can arrive, so only the last of them is kept
      for each key. If that version removes the row, it is dropped too, unless it is after `__removable`.
    - `needed_truncations`: select the `truncations` that can still remove versions, in the same way; the last of each
      partition is kept.
    - `untruncated`: select the versions that such a truncation does not remove for all records that can arrive.
    """

    def __init__(self, graph: m.Graph, node: m.LookupNode, made: pa.Schema) -> None:
        left, right = join_sides(graph, node)
        revise = revise_of(graph, node)
        keys = ", ".join(map(identifier, node.key))
        same = " AND ".join(f"l.{identifier(name)} = v.{identifier(name)}" for name in node.key)
        place = [*PLACE, *(ID_ORDER if right.stream.has_id else [])]
        columns = {name: f"CASE WHEN NOT v.{DELETED} THEN v.{identifier(name)} END" for name in right.names.values()}
        columns |= {name: f"l.{identifier(name)}" for name in left.names.values()} | {TIME: f"l.{TIME}"}
        columns[ID] = f"l.{ID}"
        if node.as_of == "event_time":
            columns[ID] += f" || '+' || CASE WHEN NOT v.{DELETED} THEN v.{ID} ELSE '' END"
        columns |= {name: f"l.__at{name}" for name in PLACE} | {DIFF: f"l.{DIFF}"}
        is_there = f"NOT v.{DELETED}" if node.how == "inner" else "true"
        self.first = f"SELECT min({_NUMBER}) AS {_NUMBER} FROM versions ANTI JOIN stored USING ({keys}) GROUP BY {keys}"
        self.near = f"SELECT * FROM (FROM stored UNION ALL FROM versions) SEMI JOIN records USING ({keys})"
        selected = ", ".join(f"{columns[name]} AS {identifier(name)}" for name in made.names)
        self.rows = f"SELECT {selected} FROM lefts l LEFT JOIN near v USING ({_ROW}) WHERE {is_there}"
        counts = f"(v.{WATERMARK} < l.{TIME} + {revise} OR {is_later_sql('l', 'v')})"
        self.touched = f"SELECT l.* FROM lefts l SEMI JOIN versions v ON {same} AND v.{TIME} <= l.{TIME} AND {counts}"
        order = ", ".join(f"{name} DESC" for name in ([*place] if node.as_of == "order" else [TIME, *place]))
        is_settled = f"{WATERMARK} < __low"
        is_past = "true" if node.as_of == "order" else f"({TIME} <= __horizon AND {is_settled})"
        is_removable = is_settled if node.as_of == "order" else f"{TIME} <= __removable"

        def needed(table: str, by: str, removes: str) -> str:
            return f"""
                SELECT {table}.* FROM {table}, limits WHERE true QUALIFY NOT ({is_past})
                    OR (row_number() OVER (PARTITION BY {by}, {is_past} ORDER BY {order}) = 1
                        AND NOT (__is_all AND {removes} AND {is_removable}))
            """

        self.needed, self.needed_truncations = (
            needed("versions", keys, DELETED),
            needed("truncations", PARTITION, "true"),
        )
        columns_in_order = [OFFSET] if node.as_of == "order" else [TIME, OFFSET]
        after, until = (", ".join(f"{table}.{name}" for name in columns_in_order) for table in "tv")
        self.untruncated = f"""
            WITH t AS (
                SELECT truncations.* FROM truncations, limits WHERE __is_all AND {is_past} AND {is_removable}
            )
            SELECT v.* FROM versions v ANTI JOIN t ON t.{PARTITION} = v.{PARTITION} AND ({after}) > ({until})
        """


def _files_of(graph: m.Graph, stream: str) -> set[int]:
    """Return the numbers of file sources that are timed by reading and whose records reach a stream unchanged."""
    node = graph.producer(stream)
    if isinstance(node, m.FilterNode):
        return _files_of(graph, node.input)
    match node:
        case m.SourceNode():
            return {number for number, source in enumerate(graph.sources) if source == node and source.is_by_reading}
        case m.JoinNode() | m.TableJoinNode() | m.ProcessNode() | m.WindowNode() | m.RulesNode() | m.SinkNode():
            return set()
        case m.ChangesNode():  # of no file
            return set()
        case m.LookupNode():
            return _files_of(graph, node.left)
        case m.SelectNode() | m.FlatMapNode() | m.TableNode():
            return set().union(*(_files_of(graph, name) for name in node.inputs))
        case _:
            assert_never(node)


def _numbered(rows: pa.Table, name: str = _NUMBER) -> pa.Table:
    return rows.append_column(name, pa.array(np.arange(rows.num_rows)))


def _moments(numbered: pa.Table) -> Micros:
    """Return, for each row number in a step, the last row number at the same position."""
    runs = runs_of_equals([to_micros(numbered.column(name)) for name in PLACE])
    moments: Micros = np.cumsum(np.bincount(runs))[runs] - 1
    return moments


def _places_of(rows: pa.Table) -> Micros:
    """Return an array whose rows are the numbers, event times, watermarks, partitions and offsets of the given rows."""
    return np.array([to_micros(rows.column(name)) for name in (_NUMBER, TIME, *PLACE)])


def _has_come(records: Micros, versions: Micros) -> Mask:
    """Return the mask of pairs (see `_places_of`) whose version arrived no later than the record."""
    mask: Mask = versions[0] <= records[0]
    return mask


def _counts(records: Micros, versions: Micros, revise: int) -> Mask:
    """Return the mask of pairs (see `_places_of`) whose version is in time or precedes the record by position."""
    (_, times, *own), (_, _, *others) = records, versions
    mask: Mask = (others[0] < times + revise) | are_before(others, own)
    return mask


def _before(stored: pa.Schema, runs: Runs, state: OperatorState, least: int = -MAX_TIME) -> pa.Table:
    """Return the stored rows of runs, all from before the step, with -1 as their number."""
    rows = runs.table(stored, state, least)
    return rows.append_column(_NUMBER, pa.array(np.full(rows.num_rows, -1)))
