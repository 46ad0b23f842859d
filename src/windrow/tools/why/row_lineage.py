"""The lineage of a row of a graph: the records behind it, through all operators on its way.

The log is replayed through the graph, and what each operator on the way is given and makes is kept, of its keys those
that the row's own can come from. Once the log is read, the rows are traced back: from those that the row's operator was
given to those that the operator before it made, and on to records. A row of a window is made of the rows of its key and
time, a row of a join of those that its identity names, a row of a table or a process function of all of its key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.open_sources import open_sources
from windrow.connectors.source import Source
from windrow.engine.changelog import with_numbers
from windrow.engine.columns import pack, to_micros
from windrow.engine.level import with_window_ids
from windrow.engine.messages import Records
from windrow.engine.operators.base import Mask
from windrow.engine.probe import NodeStep
from windrow.engine.schema import END, ID, OFFSET, PARTITION, REVISION, SIDE, TIME
from windrow.expressions import join_sides, stream_of
from windrow.runtime.batch.plan import BatchSettings, batch_plan
from windrow.telemetry.samples import Verdict
from windrow.tools.why.row_replay import (
    STEP,
    RowHost,
    RowTarget,
    TargetRow,
    has_values,
    time_fields,
)
from windrow.tools.why.row_trace import Stage, Trace

Values = Mapping[str, pa.Scalar]


class LineageHost(RowHost):
    """Runs a graph for one row, and keeps what its operators are given and make, until it is traced."""

    def __init__(self, *args: Any, folder: Path, **kwargs: Any) -> None:  # noqa: ANN401 - those of `RowHost`
        super().__init__(*args, **kwargs)
        start = self._target.operator
        self._filters = _filters(self._graph, start, self._row)
        self._trace = Trace(self._graph, start, folder)
        # tables that are only looked up in have no operator, and the row's sink has one if it takes records
        self._needed = {*self._trace.stages, self._target.sink.name}
        self._names = {
            name: [*self._names_of(stage.node)] if stage.has_records or stage.has_near else []
            for name, stage in self._trace.stages.items()
        }

    def _kept(self, message: Records, to: str, records: pa.Table) -> Records | None:
        """Return records for an operator: those of its keys that matter."""
        values = self._filters.get(to)
        own = records.filter(pa.array(has_values(records, values))) if values else records
        stage = self._trace.stages.get(to)
        if stage is not None and stage.has_records:
            # as they are read: an operator may be given them in a later step
            self._trace.keep_log_times(own, self._log_times_of(own))
        if not values:
            return message
        return replace(message, blob=pack(own)) if own.num_rows else None

    def _see(self, seen: NodeStep) -> None:
        """Keep what an operator on the way to the row is given, has judged and makes."""
        self._stop_if_asked()
        stage = self._trace.stages.get(seen.node)
        if stage is None:
            return
        values = [column for names in self._names[seen.node] for column in names.values()]
        self._trace.keep_given(stage, self._own(stage, seen.given), values)
        for judged in seen.judged:
            verdicts: dict[Verdict, Mask] = {"expired": judged.expired, "on_time": judged.on_time}
            verdicts["late"] = ~(judged.expired | judged.on_time)
            for verdict, mask in verdicts.items():
                if mask.any():
                    records = self._own(stage, judged.records.filter(pa.array(mask)))
                    self._trace.keep_judged(stage, records, verdict, values)
        for number, made in enumerate(seen.made.records):
            if made.num_rows:
                self._trace.keep_made(stage, number, self._made(stage, made), values)

    def _own(self, stage: Stage, rows: pa.Table) -> pa.Table:
        """Return the rows of a stage's input to keep, with identities."""
        if not rows.num_rows:
            return rows
        rows = self._trace.with_ids(rows)
        return self._of_row(rows) if stage.node is self._target.operator else rows

    def _made(self, stage: Stage, rows: pa.Table) -> pa.Table:
        """Return rows of a stage's stream to keep, with identities."""
        if REVISION in rows.column_names and isinstance(stage.node, m.KeyedNode):
            return with_window_ids(stage.node.name, stage.node.key, rows)
        return self._trace.with_ids(rows)

    def run(self, source: Source) -> None:
        """Read the log, and find the records behind the row; raise StoppedError if it is stopped."""
        super().run(source)
        self._trace.run(self._is_stopped)
        self.counts = self._trace.counts()
        for found in self._trace.listed(self._most):
            records, verdicts, names = found.records, found.verdicts, self._names[found.stage.node.name]
            sides = np.zeros(records.num_rows) if SIDE not in records.column_names else records.column(SIDE).to_numpy()
            for side, columns in enumerate(names):
                rows = np.flatnonzero(sides == side)
                of_side = records.take(pa.array(rows))
                self._list(of_side, [verdicts[row] for row in rows.tolist()], columns, is_of_row=found.is_of_row)

    def close(self) -> None:
        """Forget what was kept."""
        self._trace.close()

    def _of_row(self, rows: pa.Table) -> pa.Table:
        """Return the rows that the row itself is made of."""
        target, row = self._target, self._row
        mask = np.ones(rows.num_rows, dtype=np.bool_)
        made = target.spec.rows
        if made.kind != "records":
            mask &= has_values(rows, row.key)
        elif made.has_id:
            mask &= pc.equal(rows.column(ID), row.key["row"]).to_numpy()
        else:
            place = pa.table({name: pa.array([value.as_py()], value.type) for name, value in row.key.items()})
            number = with_numbers(self._graph, place)
            mask &= to_micros(rows.column(PARTITION)) == number.column("partition")[0].as_py()
            mask &= to_micros(rows.column(OFFSET)) == number.column("offset")[0].as_py()
        if target.window is not None and not isinstance(target.window, m.Global) and row.window is not None:
            times = to_micros(rows.column(TIME))
            mask &= (times >= row.window[0]) & (times < row.window[1])
            if END in rows.column_names and target.is_by_time:
                # None where it expired before it came to a window
                ends = rows.column(END).cast(pa.int64()).to_numpy()
                mask &= (ends == row.window[1]) | (ends == times + 1)
        return rows.filter(pa.array(mask))

    def _names_of(self, node: m.KeyedNode | m.SinkNode) -> Iterator[dict[str, str]]:
        """Yield by side of a node's input the columns of its fields, without the event time, which is shown as such."""
        given = [side.names for side in join_sides(self._graph, node)] if isinstance(node, m.AnyJoinNode) else []
        for number, name in enumerate(node.inputs if given else node.inputs[:1]):
            fields = stream_of(self._graph, name).fields
            names = given[number] if given else {field.name: field.name for field in fields}
            times = time_fields(self._graph, name)
            yield {name: column for name, column in names.items() if name not in times}


def _filters(  # noqa: C901, PLR0912 - a case for each kind of node
    graph: m.Graph, start: m.KeyedNode | m.SinkNode, row: TargetRow
) -> dict[str, Values]:
    """Return by operator the values of its key that matter: it keeps each key apart, so others need not be run.

    A value that an operator makes, or that is of no key of it, says nothing about what it is given.
    """
    filters: dict[str, Values] = {}
    asked: dict[str, list[Values]] = defaultdict(list)
    for node in reversed(graph.nodes):
        if node is start:
            values: Values = row.values if isinstance(node, m.SinkNode) else row.key
        elif any(output in asked for output in m.outputs_of(node)):
            values = _common([one for name in m.outputs_of(node) for one in asked.get(name, ())])
        else:
            continue
        match node:
            case m.SinkNode():
                fields = {field.name for field in stream_of(graph, node.input).fields}
                # the place of a record is no field
                asked[node.input].append({k: v for k, v in values.items() if k in fields})
            case m.SelectNode():
                derived = {one.name for one in node.derive}
                for name in node.inputs:
                    asked[name].append({k: v for k, v in values.items() if k not in derived})
            case m.FlatMapNode():
                fields = {field.name for field in stream_of(graph, node.input).fields} - {node.field}
                asked[node.input].append({k: v for k, v in values.items() if k in fields})
            case m.SplitNode():
                asked[node.input].append(values)
            case m.SourceNode():
                pass
            case _:
                own = filters[node.name] = {k: v for k, v in values.items() if k in node.key}
                derived = {one.name for one in getattr(node, "derive", ())}
                own_inputs = [{one: one for one in own if one not in derived}] * len(node.inputs)
                if isinstance(node, m.AnyJoinNode):
                    own_inputs = [
                        {new: old for old, new in side.names.items() if new in own} for side in join_sides(graph, node)
                    ]
                for name, names in zip(node.inputs, own_inputs, strict=True):
                    asked[name].append({old: own[new] for new, old in names.items()})
    return filters


def _common(several: Sequence[Values]) -> Values:
    """Return the values that all have."""
    first, *others = several
    return {k: v for k, v in first.items() if all(k in other and other[k].equals(v) for other in others)}


def replay_row(  # noqa: PLR0917 - of one caller
    graph: m.Graph,
    target: RowTarget,
    row: TargetRow,
    settings: BatchSettings,
    most: int,
    is_stopped: Callable[[], bool],
) -> RowHost:
    """Read the log through the operators of the row, and find its records; raise StoppedError if it is stopped."""
    source = open_sources(graph)
    plan = batch_plan(graph, source, replace(settings, max_records=STEP))
    if target.is_direct:
        host = RowHost(graph, plan, settings, target=target, row=row, most=most, is_stopped=is_stopped)
        host.run(source)
        return host
    with TemporaryDirectory(prefix="windrow-why-", ignore_cleanup_errors=True) as folder:
        lineage = LineageHost(
            graph, plan, settings, target=target, row=row, most=most, is_stopped=is_stopped, folder=Path(folder)
        )
        with closing(lineage):
            lineage.run(source)
        return lineage
