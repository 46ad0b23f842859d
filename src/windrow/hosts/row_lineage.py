"""The lineage of a row of a graph: the records behind it, through all operators on its way.

The log is replayed through the graph, and what each operator on the way is given and makes is kept, of its keys those
that the row's own can come from. Once the log is read, the rows are traced back: from those that the row's operator was
given to those that the operator before it made, and on to records. A row of a window is made of the rows of its key and
time, a row of a join of those that its identity names, a row of a table or a process function of all of its key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import duckdb_sql
from windrow.core.changelog import source_places, with_numbers
from windrow.core.columns import pack, to_micros
from windrow.core.duckdb_sql import identifier
from windrow.core.level import Observed, with_window_ids
from windrow.core.messages import Records
from windrow.core.schema import DIFF, END, ID, OFFSET, PARTITION, REVISION, SIDE, TIME, WATERMARK
from windrow.expressions import RecordStream, join_sides, stream_of
from windrow.hosts.batch.plan import BatchSettings, batch_plan
from windrow.hosts.row_replay import STEP, RowHost, RowTarget, StoppedError, TargetRow, has_values, run_steps
from windrow.model import (
    AnyJoinNode,
    DeduplicateNode,
    FlatMapNode,
    Global,
    Graph,
    JoinNode,
    KeyedNode,
    LookupNode,
    Runnable,
    SelectNode,
    SinkNode,
    SourceNode,
    SplitNode,
    TableJoinNode,
    WindowNode,
    made_by,
    outputs_of,
)
from windrow.sources import open_sources

_ROW: Final = "__row"
_NOTHING: Final = pa.table(
    {name: pa.array([], pa.int64()) for name in (PARTITION, OFFSET, TIME, WATERMARK)} | {ID: pa.array([], pa.string())}
)
Values = Mapping[str, pa.Scalar]


@dataclass
class _Stage:
    """An operator on the way to the row, and what it was given, left out and made."""

    node: KeyedNode | SinkNode
    above: list[tuple[KeyedNode, int]]
    has_records: bool
    given: list[pa.Table] = field(default_factory=list)
    expired: list[pa.Table] = field(default_factory=list)
    late: list[pa.Table] = field(default_factory=list)
    on_time: list[pa.Table] = field(default_factory=list)
    made: defaultdict[int, list[pa.Table]] = field(default_factory=lambda: defaultdict(list))
    wanted: list[pa.Table] = field(default_factory=list)


class LineageHost(RowHost):
    """Runs a graph for one row, and traces it back to records once the log is read."""

    _log_times_per_row = 1_000

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - those of `RowHost`
        super().__init__(*args, **kwargs)
        graph = self._graph
        start = self._target.operator
        self._filters = _filters(graph, start, self._row)
        self._stages: dict[str, _Stage] = {}
        waiting: list[KeyedNode | SinkNode] = [start]
        while waiting:
            node = waiting.pop()
            if node.name not in self._stages:
                above, has_records = _above(graph, node)
                self._stages[node.name] = _Stage(node, above, has_records)
                waiting += [one for one, _ in above]
        # tables that are only looked up in have no operator, and the row's sink has one if it takes records
        self._needed = {*self._stages, self._target.sink.name}
        self._places: set[tuple[int, int]] = set()
        self._duck = duckdb_sql.connect()

    def _kept(self, message: Records, to: str, records: pa.Table) -> Records | None:
        """Return records for an operator: those of its keys that matter."""
        values = self._filters.get(to)
        if not values:
            return message
        own = records.filter(pa.array(has_values(records, values)))
        return replace(message, blob=pack(own)) if own.num_rows else None

    def _see(self, seen: Observed) -> None:
        stage = self._stages.get(seen.node)
        if stage is None:
            return
        if seen.given.num_rows:
            stage.given.append(seen.given)
            if stage.has_records:
                self._note_log_times(seen.given)
        for judged in seen.judged:
            for into, mask in (
                (stage.expired, judged.expired),
                (stage.on_time, judged.on_time),
                (stage.late, ~(judged.expired | judged.on_time)),
            ):
                if mask.any():
                    records = judged.records.filter(pa.array(mask))
                    into.append(records)
                    if into is stage.expired:
                        self._note_log_times(records)
        for number, made in enumerate(seen.records):
            if made.num_rows:
                stage.made[number].append(self._with_ids(stage.node, made))

    def _with_ids(self, node: KeyedNode | SinkNode, made: pa.Table) -> pa.Table:
        if REVISION in made.column_names and isinstance(node, KeyedNode):
            return with_window_ids(node.name, node.key, made)
        return made

    def trace(self, is_stopped: Callable[[], bool]) -> None:
        """Find the records behind the row; raise StoppedError between operators if it is stopped."""
        graph = self._graph
        first = self._stages[self._target.operator.name]
        for node in reversed(graph.nodes):
            stage = self._stages.get(node.name)
            if stage is None:
                continue
            if is_stopped():
                raise StoppedError
            given, expired = self._joined(stage.given), self._joined(stage.expired)
            late, on_time = self._joined(stage.late), self._joined(stage.on_time)
            if stage is first:
                given, expired, late, on_time = map(self._of_row, (given, expired, late, on_time))
            elif stage.wanted:
                wanted = self._joined(stage.wanted)
                given = self._behind(stage, given, wanted)
                expired, late, on_time = (
                    self._behind(stage, one, wanted, is_judged=True) for one in (expired, late, on_time)
                )
            else:
                continue
            # of several windows of a record, one that it is in counts
            expired = _without(_without(expired, late), on_time)
            given = _net(_without(given, expired))
            for above, number in stage.above:
                made = self._joined(self._stages[above.name].made[number])
                mine, theirs = self._linked(given, made)
                self._stages[above.name].wanted.append(made.take(pa.array(theirs, pa.int64())))
                given = given.take(pa.array(np.setdiff1d(np.arange(given.num_rows), mine), pa.int64()))
            if stage.has_records:
                judged = self._joined([*stage.late, *stage.on_time])
                self._list(stage, given, _verdicts(given, late, judged), is_of_row=stage is first)
                if isinstance(stage.node, DeduplicateNode):
                    copies = self._copies(stage.node, given, self._joined(stage.made[1]))
                    self._list(stage, copies, ["duplicate"] * copies.num_rows, is_of_row=False)
                self._list(stage, expired, ["expired"] * expired.num_rows, is_of_row=stage is first)

    def _joined(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return tables as one, with the identity of each row."""
        graph = self._graph
        if not tables:
            return _NOTHING
        rows = pa.concat_tables(tables, promote_options="default")
        labels, partitions = source_places(graph, rows.column(PARTITION))
        numbers = [one.cast(pa.string()) for one in (partitions, rows.column(OFFSET))]
        plain = pc.binary_join_element_wise(labels, *numbers, "/")
        if ID not in rows.column_names:
            return rows.append_column(ID, plain)
        return rows.set_column(rows.column_names.index(ID), ID, pc.coalesce(rows.column(ID), plain))

    def _of_row(self, rows: pa.Table) -> pa.Table:
        """Return the rows that the row itself is made of."""
        if not rows.num_rows:
            return rows
        target, row = self._target, self._row
        mask = np.ones(rows.num_rows, dtype=np.bool_)
        view = target.view
        if not isinstance(view, RecordStream) or view.row_key:
            mask &= has_values(rows, row.key)
        elif view.has_id:
            mask &= pc.equal(rows.column(ID), row.key["row"]).to_numpy()
        else:
            place = pa.table({name: pa.array([value.as_py()], value.type) for name, value in row.key.items()})
            number = with_numbers(self._graph, place)
            mask &= to_micros(rows.column(PARTITION)) == number.column("partition")[0].as_py()
            mask &= to_micros(rows.column(OFFSET)) == number.column("offset")[0].as_py()
        if target.window is not None and not isinstance(target.window, Global) and row.window is not None:
            times = to_micros(rows.column(TIME))
            mask &= (times >= row.window[0]) & (times < row.window[1])
            if END in rows.column_names and target.is_by_time:
                # None where it expired before it came to a window
                ends = rows.column(END).cast(pa.int64()).to_numpy()
                mask &= (ends == row.window[1]) | (ends == times + 1)
        return rows.filter(pa.array(mask))

    def _behind(self, stage: _Stage, rows: pa.Table, made: pa.Table, *, is_judged: bool = False) -> pa.Table:
        """Return the rows that an operator made others of; of those that expired, the ones that it would have."""
        node = stage.node
        if not rows.num_rows or not made.num_rows or isinstance(node, SinkNode):
            return rows.slice(0, 0)
        same = [f"g.{identifier(name)} = m.{identifier(name)}" for name in node.key]
        within = [f"g.{TIME} >= epoch_us(m.window_start)", f"g.{TIME} < epoch_us(m.window_end)"]
        named = f"contains('+' || m.{ID} || '+', '+' || g.{ID} || '+')"
        names = list(node.key)
        match node:
            case WindowNode(window=Global()):
                terms = same
            case WindowNode():
                terms, names = [*same, *within], [*names, "window_start", "window_end"]
                if is_judged and END in rows.column_names:
                    terms.append(f"(g.{END} = epoch_us(m.window_end) OR g.{END} = g.{TIME} + 1)")
            case JoinNode() | TableJoinNode() | LookupNode() if not is_judged:
                of_side = named
                if isinstance(node, LookupNode) and node.as_of == "order":
                    of_side = f"CASE WHEN g.{SIDE} = 0 THEN g.{ID} = m.{ID} ELSE g.{WATERMARK} <= m.{WATERMARK} END"
                terms, names = [*same, of_side], [*names, ID, WATERMARK]
            case DeduplicateNode() if not is_judged:
                terms, names = [f"g.{ID} = m.{ID}"], [ID]
            case _:
                terms = same
        mine = rows.select([one for one in rows.column_names if one in {*node.key, TIME, ID, WATERMARK, SIDE, END}])
        mine = mine.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        sql = f"SELECT DISTINCT g.{_ROW} FROM g JOIN m ON {' AND '.join(terms) or 'true'} ORDER BY 1"
        found = duckdb_sql.query(self._duck, sql, g=mine, m=made.select(names or [ID]))
        return rows.take(found.column(_ROW).cast(pa.int64()))

    def _linked(self, given: pa.Table, made: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of rows of a stream, and those of the rows that the operator before made them of."""
        if not given.num_rows or not made.num_rows:
            return np.array([], dtype=np.int64), np.array([], dtype=np.int64)
        names = [PARTITION, OFFSET, TIME, ID]
        mine, theirs = (
            one.select(names).append_column(_ROW, pa.array(np.arange(one.num_rows))) for one in (given, made)
        )
        sql = (
            f"SELECT g.{_ROW} AS mine, m.{_ROW} AS theirs FROM g JOIN m USING ({PARTITION}, {OFFSET}, {TIME}) "
            f"WHERE contains(g.{ID}, m.{ID})"
        )
        found = duckdb_sql.query(self._duck, sql, g=mine, m=theirs)
        return np.unique(to_micros(found.column("mine"))), np.unique(to_micros(found.column("theirs")))

    def _copies(self, node: DeduplicateNode, given: pa.Table, duplicates: pa.Table) -> pa.Table:
        """Return the duplicates of records that were accepted."""
        if not given.num_rows or not duplicates.num_rows:
            return duplicates.slice(0, 0)
        by = ", ".join(map(identifier, node.key))
        sql = (
            f"SELECT DISTINCT d.{_ROW} FROM d JOIN g USING ({by}) "
            f"WHERE abs(d.{TIME} - g.{TIME}) < {node.within} ORDER BY 1"
        )
        names = [*node.key, *([] if TIME in node.key else [TIME])]
        mine = duplicates.select(names).append_column(_ROW, pa.array(np.arange(duplicates.num_rows)))
        found = duckdb_sql.query(self._duck, sql, d=mine, g=given.select(names))
        return duplicates.take(found.column(_ROW).cast(pa.int64()))

    def _list(self, stage: _Stage, records: pa.Table, verdicts: Sequence[str], *, is_of_row: bool) -> None:
        """Count records, and list them, each once."""
        places = zip(*(to_micros(records.column(name)).tolist() for name in (PARTITION, OFFSET)), strict=True)
        new = []
        for number, place in enumerate(places):
            if place not in self._places:
                self._places.add(place)
                new.append(number)
        records = records.take(pa.array(new, pa.int64()))
        chosen = [verdicts[number] for number in new]
        sides = records.column(SIDE).to_numpy() if SIDE in records.column_names else np.zeros(len(new))
        for side, names in enumerate(self._names(stage.node)):
            rows = np.flatnonzero(sides == side)
            columns = {name: column for name, column in names.items() if column in records.column_names}
            judged = [chosen[row] for row in rows.tolist()]
            self._add(records.take(pa.array(rows)), judged, columns, is_of_row=is_of_row)

    def _names(self, node: KeyedNode | SinkNode) -> Iterator[dict[str, str]]:
        """Yield by side of a node's input the columns of its fields."""
        if isinstance(node, AnyJoinNode):
            yield from (side.names for side in join_sides(self._graph, node))
        else:
            yield {one.name: one.name for one in stream_of(self._graph, node.inputs[0]).fields}


def _verdicts(given: pa.Table, late: pa.Table, judged: pa.Table) -> list[str]:
    """Return the verdicts on records: late if they were so for one of the windows behind the row."""
    of_late, of_any = ({*one.column(ID).to_pylist()} for one in (late, judged))
    return ["late" if one in of_late else "on_time" if one in of_any else "taken" for one in given[ID].to_pylist()]


def _net(rows: pa.Table) -> pa.Table:
    """Return the rows of a changelog that were not taken back, or all if each was: what the row was once made of."""
    if DIFF not in rows.column_names or not rows.num_rows:
        return rows
    ids = rows.column(ID).combine_chunks().dictionary_encode().indices.to_numpy()
    # where a join takes records on one side, they have none
    diffs = rows.column(DIFF).fill_null(1).to_numpy()
    is_there = np.bincount(ids, diffs)[ids] > 0
    return rows.filter(pa.array(is_there)) if is_there.any() else rows


def _without(rows: pa.Table, others: pa.Table) -> pa.Table:
    """Return rows without those that are among others."""
    if not rows.num_rows or not others.num_rows:
        return rows
    return rows.filter(pc.invert(pc.is_in(rows.column(ID), others.column(ID).combine_chunks())))


def _above(graph: Graph, node: KeyedNode | SinkNode) -> tuple[list[tuple[KeyedNode, int]], bool]:
    """Return the operators whose rows a node takes, with the numbers of their streams, and whether it takes records."""
    found: dict[str, tuple[KeyedNode, int]] = {}
    waiting, has_records = list(node.inputs), False
    while waiting:
        stream = waiting.pop()
        before = graph.producer(stream)
        if isinstance(before, KeyedNode) and stream in made_by(before):
            found[stream] = before, made_by(before).index(stream)
        elif isinstance(before, SourceNode):
            has_records = True
        else:
            waiting += before.inputs
    return list(found.values()), has_records


def _filters(  # noqa: C901, PLR0912 - a case for each kind of node
    graph: Graph, start: KeyedNode | SinkNode, row: TargetRow
) -> dict[str, Values]:
    """Return by operator the values of its key that matter: it keeps each key apart, so others need not be run.

    A value that an operator makes, or that is of no key of it, says nothing about what it is given.
    """
    filters: dict[str, Values] = {}
    asked: dict[str, list[Values]] = defaultdict(list)
    for node in reversed(graph.nodes):
        if node is start:
            values: Values = row.values if isinstance(node, SinkNode) else row.key
        elif any(one in asked for one in outputs_of(node)):
            values = _common([one for name in outputs_of(node) for one in asked.get(name, ())])
        else:
            continue
        match node:
            case SinkNode():
                fields = {one.name for one in stream_of(graph, node.input).fields}
                # the place of a record is no field
                asked[node.input].append({k: v for k, v in values.items() if k in fields})
            case SelectNode():
                derived = {one.name for one in node.derive}
                for name in node.inputs:
                    asked[name].append({k: v for k, v in values.items() if k not in derived})
            case FlatMapNode():
                fields = {one.name for one in stream_of(graph, node.input).fields} - {node.field}
                asked[node.input].append({k: v for k, v in values.items() if k in fields})
            case SplitNode():
                asked[node.input].append(values)
            case SourceNode():
                pass
            case _:
                own = filters[node.name] = {k: v for k, v in values.items() if k in node.key}
                derived = {one.name for one in getattr(node, "derive", ())}
                own_inputs = [{one: one for one in own if one not in derived}] * len(node.inputs)
                if isinstance(node, AnyJoinNode):
                    own_inputs = [
                        {new: old for old, new in side.names.items() if new in own} for side in join_sides(graph, node)
                    ]
                for name, names in zip(node.inputs, own_inputs, strict=True):
                    asked[name].append({old: own[new] for new, old in names.items()})
    return filters


def _common(several: Sequence[Values]) -> Values:
    """Return the values that all have."""
    first, *others = several
    return {k: v for k, v in first.items() if all(k in one and one[k].equals(v) for one in others)}


def replay_row(  # noqa: PLR0917 - of one caller
    pipeline: Runnable,
    target: RowTarget,
    row: TargetRow,
    settings: BatchSettings,
    most: int,
    is_stopped: Callable[[], bool],
) -> RowHost:
    """Read the log through the operators of the row, and find its records; raise StoppedError if it is stopped."""
    source = open_sources(pipeline)
    plan = batch_plan(pipeline, source, replace(settings, max_records=STEP))
    kind = RowHost if target.is_direct else LineageHost
    host = kind(pipeline, plan.partitions, settings, target=target, row=row, most=most)
    run_steps(host, source, plan, settings, is_stopped)
    if isinstance(host, LineageHost):
        host.trace(is_stopped)
    return host
