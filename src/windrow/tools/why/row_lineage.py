"""The lineage of a row: the records behind it, through all upstream operators of a graph.

The log is replayed through the graph. The replay keeps the input and output of each upstream operator, for the keys
from which the row can come. Once the log is read, rows are traced back from the input of the row's operator to the
output of the operator before it, and so on to records. A row of a window is computed from rows with its key and in its
time, a row of a join from the rows in its identity, and a row of a table or a process function from all rows of its
key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
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
from windrow.tools.why.row_replay import STEP, RowHost
from windrow.tools.why.row_trace import Stage, Trace
from windrow.tools.why.target import RowTarget, TargetRow, has_values, time_fields

Values = Mapping[str, pa.Scalar]


class LineageHost(RowHost):
    """Runs a graph for a single row, and keeps the input and output of its operators until the row has been traced."""

    def __init__(self, *args: Any, folder: Path, **kwargs: Any) -> None:  # noqa: ANN401 - those of `RowHost`
        super().__init__(*args, **kwargs)
        start = self._target.operator
        self._filters = _filters(self._graph, start, self._row)
        self._trace = Trace(self._graph, start, folder)
        # tables that are only looked up in have no operator; the row's sink has an operator if it takes records
        self._needed = {*self._trace.stages, self._target.sink.name}
        self._names = {
            name: [*self._names_of(stage.node)] if stage.has_records or stage.has_near else []
            for name, stage in self._trace.stages.items()
        }

    def _filter_records(self, message: Records, to: str, records: pa.Table) -> Records | None:
        """Return the records for an operator whose keys can be behind the row."""
        values = self._filters.get(to)
        own = records.filter(pa.array(has_values(records, values))) if values else records
        stage = self._trace.stages.get(to)
        if stage is not None and stage.has_records:
            # now, as an operator may receive the records in a later step
            self._trace.keep_log_times(own, self._log_times_of(own))
        if not values:
            return message
        return replace(message, blob=pack(own)) if own.num_rows else None

    def _see(self, seen: NodeStep) -> None:
        """Keep the input, the verdicts and the output of an upstream operator."""
        self._check_stopped()
        stage = self._trace.stages.get(seen.node)
        if stage is None:
            return
        values = [column for names in self._names[seen.node] for column in names.values()]
        self._trace.keep_given(stage, self._input_rows(stage, seen.given), values)
        for judged in seen.judged:
            verdicts: dict[Verdict, Mask] = {"expired": judged.expired, "on_time": judged.on_time}
            verdicts["late"] = ~(judged.expired | judged.on_time)
            for verdict, mask in verdicts.items():
                if mask.any():
                    records = self._input_rows(stage, judged.records.filter(pa.array(mask)))
                    self._trace.keep_judged(stage, records, verdict, values)
        for number, rows in enumerate(seen.made.records):
            if rows.num_rows:
                is_window = REVISION in rows.column_names and isinstance(stage.node, m.KeyedNode)
                ids = partial(with_window_ids, stage.node.name, stage.key) if is_window else self._trace.with_ids
                self._trace.keep_made(stage, number, ids(rows), values)

    def _input_rows(self, stage: Stage, rows: pa.Table) -> pa.Table:
        """Return the rows of a stage's input that must be kept, with their identities."""
        if not rows.num_rows:
            return rows
        rows = self._trace.with_ids(rows)
        return self._of_row(rows) if stage.node is self._target.operator else rows

    def run(self, source: Source) -> None:
        """Read the log and find the records behind the row; raise StoppedError if it is stopped."""
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
        """Release the kept rows."""
        self._trace.close()

    def _of_row(self, rows: pa.Table) -> pa.Table:
        """Return the input rows of the row's own operator from which the row is computed."""
        target, row = self._target, self._row
        mask = np.ones(rows.num_rows, dtype=np.bool_)
        if target.spec.rows.kind != "records":
            mask &= has_values(rows, row.key)
        elif target.spec.rows.has_id:
            mask &= pc.equal(rows.column(ID), row.key["row"]).to_numpy()
        else:
            place = pa.table({name: pa.array([value.as_py()], value.type) for name, value in row.key.items()})
            number = with_numbers(self._graph, place)
            mask &= to_micros(rows.column(PARTITION)) == number.column("partition")[0].as_py()
            mask &= to_micros(rows.column(OFFSET)) == number.column("offset")[0].as_py()
        if target.window is not None and not isinstance(target.window, m.Global) and row.window is not None:
            mask &= self._is_in_window(rows)
            if END in rows.column_names and target.is_by_time:
                # a record that expired before it reached a window has no end but its time
                ends = rows.column(END).cast(pa.int64()).to_numpy()
                mask &= (ends == row.window[1]) | (ends == to_micros(rows.column(TIME)) + 1)
        return rows.filter(pa.array(mask))

    def _names_of(self, node: m.KeyedNode | m.SinkNode) -> Iterator[dict[str, str]]:
        """Yield, for each side of a node's input, the column of each field except the event time."""
        if isinstance(node, m.AnyJoinNode):
            sides = [side.names for side in join_sides(self._graph, node)]
        else:
            sides = [{field.name: field.name for field in stream_of(self._graph, node.inputs[0]).fields}]
        for stream, names in zip(node.inputs, sides, strict=False):
            times = time_fields(self._graph, stream)
            yield {name: column for name, column in names.items() if name not in times}


def _filters(  # noqa: C901, PLR0912 - a case for each kind of node
    graph: m.Graph, start: m.KeyedNode | m.SinkNode, row: TargetRow
) -> dict[str, Values]:
    """Map each operator to the key values that can be behind the row; other keys have no effect on it.

    A value that an operator computes, or that is not in its key, does not filter its input.
    """
    filters: dict[str, Values] = {}
    wanted: dict[str, list[Values]] = defaultdict(list)
    for node in reversed(graph.nodes):
        if node is start:
            values: Values = row.values if isinstance(node, m.SinkNode) else row.key
        elif any(output in wanted for output in m.outputs_of(node)):
            first, *others = (values for name in m.outputs_of(node) for values in wanted.get(name, ()))
            values = {k: v for k, v in first.items() if all(k in other and other[k].equals(v) for other in others)}
        else:
            continue
        match node:
            case m.SinkNode():
                fields = {field.name for field in stream_of(graph, node.input).fields}
                # the place of a record is no field
                wanted[node.input].append({k: v for k, v in values.items() if k in fields})
            case m.SelectNode():
                derived = {field.name for field in node.derive}
                for name in node.inputs:
                    wanted[name].append({k: v for k, v in values.items() if k not in derived})
            case m.FlatMapNode():
                fields = {field.name for field in stream_of(graph, node.input).fields} - {node.field}
                wanted[node.input].append({k: v for k, v in values.items() if k in fields})
            case m.SplitNode():
                wanted[node.input].append(values)
            case m.ChangesNode():
                fields = {field.name for field in stream_of(graph, node.input).fields}
                wanted[node.input].append({k: v for k, v in values.items() if k in fields})
            case m.SourceNode():
                pass
            case _:
                own = filters[node.name] = {k: v for k, v in values.items() if k in node.key}
                derived = {field.name for field in getattr(node, "derive", ())}
                sides = [{name: name for name in own if name not in derived}] * len(node.inputs)
                if isinstance(node, m.AnyJoinNode):
                    sides = [side.names for side in join_sides(graph, node)]
                for stream, names in zip(node.inputs, sides, strict=True):
                    wanted[stream].append({old: own[new] for old, new in names.items() if new in own})
    return filters


def replay_row(  # noqa: PLR0917 - of one caller
    graph: m.Graph,
    target: RowTarget,
    row: TargetRow,
    settings: BatchSettings,
    most: int,
    is_stopped: Callable[[], bool],
) -> RowHost:
    """Read the log through the operators behind a row and find its records; raise StoppedError if it is stopped."""
    source = open_sources(graph, settings.read_as)
    plan = batch_plan(graph, source, replace(settings, max_records=STEP))
    arguments: dict[str, Any] = {"target": target, "row": row, "most": most, "is_stopped": is_stopped}
    if target.is_direct:
        host = RowHost(graph, plan, settings, **arguments)
        host.run(source)
        return host
    with TemporaryDirectory(prefix="windrow-why-", ignore_cleanup_errors=True) as folder:
        lineage = LineageHost(graph, plan, settings, folder=Path(folder), **arguments)
        with closing(lineage):
            lineage.run(source)
        return lineage
