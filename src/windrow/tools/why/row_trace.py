"""The trace of a row: the rows of upstream operators' inputs and outputs from which it was computed.

These rows are kept in tables of a separate DuckDB database, which spills to a temporary folder above `MEMORY`. Once the
log is read, the trace follows the operators upstream from the row. Each takes a few equality joins, none of them
quadratic in the number of rows of a key. The operator with the number N has these tables:

- `given_N`: its input;
- `judged_N`: the rows that it judged, one row per window, with the verdict;
- `made_N_K`: the rows of its output stream K;
- `wanted_N`: the rows of its output that are behind the row.

The table `found` has the records behind the row, each once: the number of the part of the trace that found it, the row
number (`__row`, which numbers all rows in the order in which they were kept), the partition and offset, and the
verdict. Tables have the columns of `windrow.engine.schema`. Each row has an identity (`__id`), which defaults to its
place in the log.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine.changelog import source_places
from windrow.engine.duckdb_sql import identifier, literal
from windrow.engine.schema import DELETED, DIFF, END, ID, OFFSET, PARTITION, SIDE, TIME, WATERMARK
from windrow.errors import RunError, StoppedError
from windrow.expressions import duckdb_message
from windrow.tools.why.row_replay import APART, BEYOND, IN_TIME, LOG_TIME

MEMORY: Final = "256MB"
"""Memory limit of the rows of a trace; DuckDB spills the rest to a temporary folder."""
_POLL: Final = 0.2
"""Seconds between two checks whether the trace is stopped."""
_NEAR: Final = 3
"""Listed records of a join that were too far away to be partners."""
_ROW: Final = "__row"
_VERDICT: Final = "__verdict"
_PLACE: Final = f"{PARTITION}, {OFFSET}"


@dataclass(frozen=True)
class _Way:
    """How the identity of a row changes on its way to a downstream node: a prefix is added, and numbers are appended.

    Unions prefix the name of a branch if several branches can have the same row. Each flat map appends a number.
    """

    prefix: str = ""
    numbers: int = 0


@dataclass(frozen=True)
class Stage:
    """An upstream operator; `has_records` is True if it reads records of a source.

    `above` lists the operators whose streams it reads, each with the number of the stream and the ways the rows take.
    """

    number: int
    node: m.KeyedNode | m.SinkNode
    above: tuple[tuple[m.KeyedNode, int, frozenset[_Way]], ...]
    has_records: bool

    @property
    def has_near(self) -> bool:
        """Whether the operator is a join of records, which may be too far apart to be partners."""
        nodes = [node for node, _, _ in self.above]
        return isinstance(self.node, m.JoinNode) and all(isinstance(node, m.DeduplicateNode) for node in nodes)

    @property
    def key(self) -> tuple[str, ...]:
        """The fields of the operator's key."""
        return () if isinstance(self.node, m.SinkNode) else tuple(self.node.key)


@dataclass(frozen=True)
class Found:
    """Records of an operator's input that are behind the row, with `LOG_TIME` and the columns that were kept.

    `is_of_row` is True if the row's own operator has judged them.
    """

    stage: Stage
    records: pa.Table
    verdicts: list[str]
    is_of_row: bool


class Trace:
    """Keeps the rows of operators upstream of `start`, and finds the records from which the row was computed.

    The input kept for `start` has only rows of the row itself. `folder` holds rows that do not fit in memory.
    """

    def __init__(self, graph: m.Graph, start: m.KeyedNode | m.SinkNode, folder: Path) -> None:
        self._graph = graph
        self.stages: dict[str, Stage] = {}
        waiting: list[m.KeyedNode | m.SinkNode] = [start]
        while waiting:
            node = waiting.pop()
            if node.name not in self.stages:
                above, has_records = _above(graph, node)
                self.stages[node.name] = Stage(len(self.stages), node, above, has_records)
                waiting += [other for other, _, _ in above]
        self._first = self.stages[start.name]
        self._columns: dict[str, list[str]] = {}
        self._rows = 0
        self._parts: list[tuple[Stage, str, bool]] = []
        settings: dict[str, str | bool | int | float | list[str]] = {
            "threads": 1, "memory_limit": MEMORY, "temp_directory": str(folder), "preserve_insertion_order": False,
            "autoinstall_known_extensions": False, "autoload_known_extensions": False,
        }  # fmt: skip
        self._duck = duckdb.connect(config=settings)
        self._run("SET TimeZone = 'UTC'")
        found = f"part INTEGER, {_ROW} BIGINT, {PARTITION} INTEGER, {OFFSET} BIGINT, {_VERDICT} VARCHAR"
        self._run(f"CREATE TABLE found ({found})")
        self._run(f"CREATE TABLE near ({_ROW} BIGINT, {APART} BIGINT, {BEYOND} BIGINT)")

    def close(self) -> None:
        """Release all rows."""
        self._duck.close()

    def with_ids(self, rows: pa.Table) -> pa.Table:
        """Return rows with their identities; a row without one gets its place in the log."""
        labels, partitions = source_places(self._graph, rows.column(PARTITION))
        numbers = [column.cast(pa.string()) for column in (partitions, rows.column(OFFSET))]
        plain = pc.binary_join_element_wise(labels, *numbers, "/")
        if ID not in rows.column_names:
            return rows.append_column(ID, plain)
        return rows.set_column(rows.column_names.index(ID), ID, pc.coalesce(rows.column(ID), plain))

    def keep_given(self, stage: Stage, rows: pa.Table, values: Sequence[str]) -> None:
        """Keep rows of an operator's input with their identities and, for records, the columns `values`."""
        self._keep(f"given_{stage.number}", rows, [*stage.key, DIFF, SIDE, DELETED, *values])

    def keep_log_times(self, records: pa.Table, log_times: pa.Array) -> None:
        """Keep the log timestamps of those records that have one."""
        known = log_times.is_valid()
        if known.true_count:
            rows = records.select([PARTITION, OFFSET]).append_column(LOG_TIME, log_times).filter(known)
            self._add("log_times", rows.column_names, "new", new=rows)

    def keep_judged(
        self, stage: Stage, rows: pa.Table, verdict: Literal["on_time", "late", "expired"], values: Sequence[str]
    ) -> None:
        """Keep rows that an operator judged, with the verdict.

        Values are kept for expired rows only, because the other rows are also in the operator's input.
        """
        rows = rows.append_column(_VERDICT, pa.repeat(pa.scalar(verdict), rows.num_rows))
        own = values if verdict == "expired" else []
        self._keep(f"judged_{stage.number}", rows, [*stage.key, END, SIDE, _VERDICT, *own])

    def keep_made(self, stage: Stage, number: int, rows: pa.Table, values: Sequence[str]) -> None:
        """Keep rows of an operator's output stream."""
        is_copy = number == 1 and isinstance(stage.node, m.DeduplicateNode)
        self._keep(f"made_{stage.number}_{number}", rows, [*stage.key, *m.WINDOW_BOUNDS, *(values if is_copy else [])])

    def _keep(self, table: str, rows: pa.Table, names: Sequence[str]) -> None:
        if not rows.num_rows:
            return
        wanted = {PARTITION, OFFSET, TIME, WATERMARK, ID, *names}
        rows = rows.select([column_name for column_name in rows.column_names if column_name in wanted])
        rows = rows.append_column(_ROW, pa.array(np.arange(self._rows, self._rows + rows.num_rows)))
        self._rows += rows.num_rows
        self._add(table, rows.column_names, "new", new=rows)

    def _add(self, table: str, columns: Sequence[str], rows: str, **given: pa.Table) -> None:
        """Add rows to a table, adding columns that it lacks."""
        known = self._columns.get(table)
        if known is None:
            self._run(f"CREATE TABLE {table} AS FROM {rows}", **given)
        elif set(columns) <= set(known):
            self._run(f"INSERT INTO {table} BY NAME FROM {rows}", **given)
        else:
            self._run(f"CREATE TABLE wider AS FROM {table} UNION ALL BY NAME FROM {rows}", **given)
            self._run(f"DROP TABLE {table}; ALTER TABLE wider RENAME TO {table}")
        self._columns[table] = list(dict.fromkeys([*(known or ()), *columns]))

    def run(self, is_stopped: Callable[[], bool]) -> None:
        """Find the records behind the row.

        Raise StoppedError soon after `is_stopped` returns True, and RunError if there is not enough room for the rows.
        """
        with _interrupting(self._duck, is_stopped):
            for node in reversed(self._graph.nodes):
                stage = self.stages.get(node.name)
                if stage is not None and (stage is self._first or f"wanted_{stage.number}" in self._columns):
                    self._trace(stage)

    def counts(self) -> Counter[tuple[int, str]]:
        """Return the number of records for each pair of source number and verdict."""
        sql = f"SELECT {self._source} AS source, {_VERDICT}, count(*) FROM found GROUP BY ALL ORDER BY ALL"
        rows = zip(*(column.to_pylist() for column in self._run(sql).columns), strict=True)
        return Counter({(source, verdict): number for source, verdict, number in rows})

    def listed(self, most: int) -> Iterator[Found]:
        """Yield the first records of each source: up to `most` that are in time, and as many others."""
        kind = f"{self._source}, {_VERDICT} IN ({', '.join(map(literal, IN_TIME))})"
        ranks = f"row_number() OVER (PARTITION BY {kind} ORDER BY part, {_ROW})"
        self._table("listed", f"SELECT part, {_ROW}, {_VERDICT} FROM found QUALIFY {ranks} <= {most}")
        if "log_times" not in self._columns:
            self._add("log_times", [], f"(SELECT 0 AS {PARTITION}, 0 AS {OFFSET}, NULL::BIGINT AS {LOG_TIME} LIMIT 0)")
        times = f"(SELECT {_PLACE}, any_value({LOG_TIME}) AS {LOG_TIME} FROM log_times GROUP BY ALL)"
        for number, (stage, table, is_of_row) in enumerate(self._parts):
            has_verdict = _VERDICT in self._columns[table]
            source = table if has_verdict else f"(SELECT *, NULL AS {_VERDICT} FROM {table})"
            sql = (
                f"SELECT r.* EXCLUDE ({_VERDICT}), l.{_VERDICT}, {LOG_TIME}, {APART}, {BEYOND} "
                f"FROM {source} r JOIN listed l USING ({_ROW}) LEFT JOIN {times} USING ({_PLACE}) "
                f"LEFT JOIN near USING ({_ROW}) WHERE l.part = {number} ORDER BY {_ROW}"
            )
            rows = self._run(sql)
            if rows.num_rows:
                verdicts = rows.column(_VERDICT).to_pylist()
                yield Found(stage, rows.drop_columns(_VERDICT), verdicts, is_of_row)

    @property
    def _source(self) -> str:
        return f"least({PARTITION} // {m.MAX_PARTITIONS}, {len(self._graph.sources) - 1})"

    def _trace(self, stage: Stage) -> None:
        """Find which rows in the input and the verdicts of an operator are behind the row."""
        n, is_first = stage.number, stage is self._first
        self._select("given", stage)
        self._select("judged", stage)
        # a record that is in some of its windows has not expired
        self._table(
            "expired",
            f"FROM (FROM judged WHERE {_VERDICT} = 'expired') ANTI JOIN "
            f"(FROM judged WHERE {_VERDICT} <> 'expired') USING ({ID})",
        )
        self._table("given", f"FROM given ANTI JOIN expired USING ({ID})")
        if DIFF in self._columns.get(f"given_{n}", ()):
            self._table("given", _NET)
        if stage.has_near:
            self._find_near(stage)
        for above, number, ways in stage.above:
            self._link(self.stages[above.name], number, ways)
        if not stage.has_records:
            return
        judged = f"judged_{n}" if f"judged_{n}" in self._columns else "judged"
        of_late, of_any = f"FROM judged WHERE {_VERDICT} = 'late'", f"FROM {judged} WHERE {_VERDICT} <> 'expired'"
        is_table = isinstance(stage.node, m.TableNode) and DELETED in self._columns.get(f"given_{n}", ())
        truncation = f"WHEN {DELETED} IS NULL THEN 'truncation'" if is_table else ""
        verdict = (
            f"CASE WHEN {ID} IN (SELECT {ID} {of_late}) THEN 'late' "
            f"WHEN {ID} IN (SELECT {ID} {of_any}) THEN 'on_time' {truncation} ELSE 'taken' END"
        )
        self._find(f"given_{n}", stage, "given", verdict, is_of_row=is_first)
        if isinstance(stage.node, m.DeduplicateNode) and f"made_{n}_1" in self._columns:
            self._table("copies", _copies(stage.node, f"made_{n}_1"))
            self._find(f"made_{n}_1", stage, "copies", "'duplicate'", is_of_row=False)
        self._find(f"judged_{n}", stage, "expired", "'expired'", is_of_row=is_first)

    def _find_near(self, stage: Stage) -> None:
        """If the rows of a join have no partners, find the nearest records that were too far away."""
        node, n = stage.node, stage.number
        sides = self._run(f"SELECT DISTINCT {SIDE} FROM given").column(0).to_pylist() if stage.key else []
        if not isinstance(node, m.JoinNode) or len(sides) != 1 or SIDE not in self._columns.get(f"given_{n}", ()):
            return
        left, right = ("g", "o") if sides[0] == 1 else ("o", "g")
        same = " AND ".join(f"g.{identifier(name)} = o.{identifier(name)}" for name in stage.key)
        apart = f"{right}.{TIME} - {left}.{TIME}"
        beyond = f"greatest({apart} - {node.after}, -{node.before} - ({apart}))"
        far = f"g.{TIME} - o.{TIME}"
        self._table(
            "nearest",
            f"SELECT g.{_ROW}, any_value(g.{PARTITION}) AS {PARTITION}, any_value(g.{OFFSET}) AS {OFFSET}, "
            f"any_value(g.{ID}) AS {ID}, arg_min({far}, {beyond}) AS {APART}, min({beyond}) AS {BEYOND} "
            f"FROM given_{n} g JOIN given o ON {same} WHERE g.{SIDE} <> o.{SIDE} AND {beyond} > 0 "
            f"GROUP BY g.{_ROW} ORDER BY {BEYOND}, {_ROW} LIMIT {_NEAR}",
        )
        self._run(f"INSERT INTO near SELECT {_ROW}, {APART}, {BEYOND} FROM nearest")
        self._find(f"given_{n}", stage, "nearest", "'outside'", is_of_row=False)

    def _select(self, kind: Literal["given", "judged"], stage: Stage) -> None:
        """Create the table `kind` with the rows of an operator, without values, that are behind its wanted rows."""
        table, is_judged = f"{kind}_{stage.number}", kind == "judged"
        known = self._columns.get(table, [])
        names = [PARTITION, OFFSET, TIME, WATERMARK, ID, _ROW, *stage.key, DIFF, SIDE, END, DELETED, _VERDICT]
        names = [name for name in dict.fromkeys(names) if name in known]
        if not names:
            types = f"NULL::INTEGER AS {PARTITION}, 0 AS {OFFSET}, 0 AS {TIME}, '' AS {ID}, 0 AS {_ROW}"
            keys = "".join(f", NULL AS {identifier(name)}" for name in stage.key)
            self._table(kind, f"SELECT {types}, '' AS {_VERDICT}{keys} WHERE false")
            return
        columns = ", ".join(f"g.{identifier(name)}" for name in names)
        behind = (
            "" if stage is self._first else f"WHERE {_ROW} IN ({_behind(stage, table, known, is_judged=is_judged)})"
        )
        self._table(kind, f"SELECT {columns} FROM {table} g {behind}")

    def _link(self, above: Stage, number: int, ways: frozenset[_Way]) -> None:
        """Move the rows of `given` that come from an upstream stream to the wanted rows of that operator."""
        made = f"made_{above.number}_{number}"
        if made not in self._columns:
            return
        place = f"{_PLACE}, {TIME}"
        own = " UNION ALL ".join(f"SELECT {_ROW} AS mine, {place}, {_own_id(way)} AS {ID} FROM given" for way in ways)
        theirs = f"(SELECT {_ROW} AS theirs, {place}, {ID} FROM {made})"
        self._table("linked", f"SELECT mine, theirs FROM ({own}) JOIN {theirs} USING ({place}, {ID})")
        names = [name for name in (*above.key, *m.WINDOW_BOUNDS, ID, WATERMARK) if name in self._columns[made]]
        columns = ", ".join(map(identifier, names))
        rows = f"(SELECT {columns} FROM {made} WHERE {_ROW} IN (SELECT theirs FROM linked))"
        self._add(f"wanted_{above.number}", names, rows)
        self._table("given", f"FROM given WHERE {_ROW} NOT IN (SELECT mine FROM linked)")

    def _find(self, table: str, stage: Stage, rows: str, verdict: str, *, is_of_row: bool) -> None:
        """Add records to `found`, each once."""
        self._run(
            f"INSERT INTO found SELECT {len(self._parts)}, {_ROW}, {_PLACE}, {verdict} "
            f"FROM {rows} ANTI JOIN found USING ({_PLACE}) "
            f"QUALIFY row_number() OVER (PARTITION BY {_PLACE} ORDER BY {_ROW}) = 1"
        )
        if table in self._columns:
            self._parts.append((stage, table, is_of_row))

    def _table(self, name: str, sql: str) -> None:
        """Create or replace a table; the query may read the table that it replaces."""
        self._run(f"CREATE TABLE made AS {sql}")
        self._run(f"DROP TABLE IF EXISTS {name}; ALTER TABLE made RENAME TO {name}")

    def _run(self, sql: str, **tables: pa.Table) -> pa.Table:
        """Run SQL over the tables and the given Arrow tables.

        Raise StoppedError if it is interrupted, and RunError if DuckDB fails.
        """
        try:
            for name, table in tables.items():
                self._duck.register(name, table)
            done: pa.Table = self._duck.execute(sql).to_arrow_table()
            for name in tables:
                self._duck.unregister(name)
        except duckdb.InterruptException as exc:
            raise StoppedError from exc
        except duckdb.Error as exc:
            msg = (
                f"the records behind the row cannot be kept: {duckdb_message(exc)}; set TMPDIR to a folder with more "
                "room"
            )
            raise RunError(msg) from exc
        return done


_NET: Final = f"""
    WITH net AS (SELECT *, sum(coalesce({DIFF}, 1)) OVER (PARTITION BY {ID}) > 0 AS __is_there FROM given)
    SELECT * EXCLUDE (__is_there) FROM net WHERE __is_there OR NOT (SELECT bool_or(__is_there) FROM net)
"""
"""The rows of a changelog that were not retracted, or all rows if each was: the row was computed from them once.

Where a join reads records on a side, they have no difference.
"""


def _own_id(way: _Way) -> str:
    """Return SQL for the identity that rows had at the start of the way, null for rows that did not take the way."""
    behind = ID if not way.prefix else f"substr({ID}, {len(way.prefix) + 1})"
    own = f"regexp_replace({behind}, '(#[0-9]*){{{way.numbers}}}$', '')" if way.numbers else behind
    return f"CASE WHEN starts_with({ID}, {literal(way.prefix)}) THEN {own} END" if way.prefix else own


def _behind(  # noqa: PLR0911 - a case for each kind of node
    stage: Stage, table: str, known: Sequence[str], *, is_judged: bool
) -> str:
    """Return SQL for the row numbers of the rows from which the wanted rows were computed.

    With `is_judged`, include rows from which they would have been computed, because an expired record has no partner.
    """
    node, wanted = stage.node, f"wanted_{stage.number}"
    same = [f"g.{identifier(name)} = w.{identifier(name)}" for name in stage.key]
    keys = "".join(f"{identifier(name)}, " for name in stage.key)

    def semi(of: str, *terms: str) -> str:
        return f"SELECT g.{_ROW} FROM {table} g SEMI JOIN {of} w ON {' AND '.join([*same, *terms]) or 'true'}"

    match node:
        case m.WindowNode(window=m.Global()):
            return semi(wanted)
        case m.WindowNode():
            # a time is in one of the windows that start up to it if it is before the last of their ends
            order = f"PARTITION BY {keys.removesuffix(', ')} ORDER BY" if keys else "ORDER BY"
            reach = (
                f"(SELECT DISTINCT {keys}epoch_us(window_start) AS __since, "
                f"max(epoch_us(window_end)) OVER ({order} window_start) AS __until FROM {wanted})"
            )
            at = " AND ".join([*same, f"g.{TIME} >= w.__since"])
            within = f"SELECT g.{_ROW} FROM {table} g ASOF JOIN {reach} w ON {at} WHERE g.{TIME} < w.__until"
            if not is_judged or END not in known:
                return within
            own = semi(
                f"(SELECT DISTINCT {keys}epoch_us(window_start) AS __since, epoch_us(window_end) AS __until "
                f"FROM {wanted})",
                f"g.{END} = w.__until",
                f"g.{TIME} >= w.__since",
                f"g.{TIME} < w.__until",
            )
            # a record that expired before it reached a window has no end but its time
            return f"{own} UNION ALL {within} AND g.{END} = g.{TIME} + 1"
        case m.LookupNode(as_of="order") if not is_judged:
            last = f"(SELECT {keys}max({WATERMARK}) AS __last FROM {wanted} GROUP BY ALL)"
            versions = semi(last, f"g.{WATERMARK} <= w.__last", f"g.{SIDE} = 1")
            return f"{semi(wanted, f'g.{ID} = w.{ID}', f'g.{SIDE} = 0')} UNION ALL {versions}"
        case m.JoinNode() | m.TableJoinNode() | m.LookupNode() if not is_judged:
            return semi(_sides(wanted, keys), f"g.{SIDE} = w.{SIDE}", f"g.{ID} = w.{ID}")
        case _ if isinstance(node, m.FilterNode) and not is_judged:
            return f"SELECT g.{_ROW} FROM {table} g SEMI JOIN {wanted} w ON g.{ID} = w.{ID}"
        case _:
            return semi(wanted)


def _sides(wanted: str, keys: str) -> str:
    """Return SQL for a table (key, side, identity) of the rows from which the rows of a join can have been computed.

    The identity of a joined row is that of the left row, a plus sign, and that of the right row. Each of these can
    contain a plus sign itself. If an identity is split at every plus sign, both halves are identities of rows only at
    the join's own.
    """
    return f"""(
        WITH texts AS (SELECT DISTINCT {keys}string_split({ID}, '+') AS __parts FROM {wanted}),
        places AS (SELECT {keys}__parts, unnest(range(1, len(__parts))) AS __place FROM texts)
        SELECT {keys}0 AS {SIDE}, array_to_string(__parts[:__place], '+') AS {ID} FROM places
        UNION ALL SELECT {keys}1 AS {SIDE}, array_to_string(__parts[__place + 1:], '+') AS {ID} FROM places
    )"""


def _copies(node: m.DeduplicateNode, duplicates: str) -> str:
    """Return SQL for the duplicates of accepted records.

    A duplicate has an accepted record near it: the nearest before it or the nearest after it.
    """
    same = "".join(f"d.{identifier(name)} = g.{identifier(name)} AND " for name in node.key)
    near = " UNION ALL ".join(
        f"SELECT d.{_ROW} FROM {duplicates} d ASOF JOIN given g ON {same}d.{TIME} {way} g.{TIME} "
        f"WHERE abs(d.{TIME} - g.{TIME}) < {node.within}"
        for way in (">=", "<=")
    )
    return f"FROM {duplicates} WHERE {_ROW} IN ({near})"


def _above(
    graph: m.Graph, node: m.KeyedNode | m.SinkNode
) -> tuple[tuple[tuple[m.KeyedNode, int, frozenset[_Way]], ...], bool]:
    """Return the operators whose rows a node reads, with stream numbers and ways, and whether it reads records."""
    found: dict[str, tuple[m.KeyedNode, int]] = {}
    ways: dict[str, set[_Way]] = {}
    waiting, has_records = [(name, _Way()) for name in node.inputs], False
    while waiting:
        stream, way = waiting.pop()
        before = graph.producer(stream)
        if isinstance(before, m.KeyedNode) and stream in m.operator_outputs(before):
            found[stream] = before, m.operator_outputs(before).index(stream)
            ways.setdefault(stream, set()).add(way)
        elif isinstance(before, m.SourceNode):
            has_records = True
        elif isinstance(before, m.SelectNode) and m.is_by_branch(graph, before):
            waiting += [(name, _Way(f"{way.prefix}{name}/", way.numbers)) for name in before.inputs]
        else:
            numbers = way.numbers + isinstance(before, m.FlatMapNode)
            waiting += [(name, _Way(way.prefix, numbers)) for name in before.inputs]
    return tuple((*above, frozenset(ways[stream])) for stream, above in found.items()), has_records


@contextmanager
def _interrupting(duck: duckdb.DuckDBPyConnection, is_stopped: Callable[[], bool]) -> Iterator[None]:
    """Interrupt the queries of the block once `is_stopped` returns True."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_POLL):
            if is_stopped():
                duck.interrupt()

    watching = threading.Thread(target=watch, name="windrow-why")
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()
