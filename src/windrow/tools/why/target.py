"""The row to explain: the node that computes the rows of its sink, and its key and window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.database import Condition
from windrow.connectors.tables import Table, layout, plain_values, utc_text
from windrow.engine import schema
from windrow.engine.columns import to_micros
from windrow.engine.operators.base import Mask
from windrow.engine.truncations import are_truncations
from windrow.errors import InputError
from windrow.expressions import SinkSpec, sink_spec, spec_of, stream_of
from windrow.expressions.inputs import arguments, computed_arguments

_PASSED: Final = m.SourceNode | m.SelectNode | m.FilterNode | m.FlatMapNode | m.ChangesNode
"""Nodes whose output is still made of records of a log."""


@dataclass(frozen=True)
class RowTarget:
    """The node that produces the rows of a sink; `above` are the deduplications and samples upstream of it.

    `is_direct` is True if the node reads records of a log, and so judges each of them.
    """

    graph: m.Graph
    sink: m.SinkNode
    node: m.Node
    spec: SinkSpec
    above: tuple[str, ...]
    is_direct: bool

    @staticmethod
    def of(graph: m.Graph, name: str) -> RowTarget:
        """Return the target of a sink; raise InputError if its rows cannot be explained."""
        sink = next(sink for sink in graph.sinks if sink.name == name)
        node = graph.producer(sink.input)
        if isinstance(node, m.RulesNode):
            table = sink.sink.table
            msg = f"rows of {table!r} cannot be explained: they are alerts, which carry their evidence in a column"
            raise InputError(msg)
        is_direct = isinstance(node, m.WindowNode) or (isinstance(node, m.TableNode) and sink.input == node.name)
        above: dict[str, None] = {}
        waiting = list(node.inputs)
        while waiting:
            before = graph.producer(waiting.pop())
            is_direct = is_direct and isinstance(before, _PASSED)
            if isinstance(before, m.FilterNode) and isinstance(before, m.KeyedNode):
                above[before.name] = None
            waiting += before.inputs
        return RowTarget(graph, sink, node, sink_spec(graph, sink), tuple(above), is_direct)

    @property
    def operator(self) -> m.KeyedNode | m.SinkNode:
        """The node whose operator computes the rows."""
        return self.node if isinstance(self.node, m.ResultNode) else self.sink

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row together with its window: its key, or the place of a record."""
        return tuple(field.name for field in schema.row_key(self.spec.rows) if field.name not in m.WINDOW_BOUNDS)

    @property
    def has_window(self) -> bool:
        """Whether the window is part of a row's identity."""
        return m.WINDOW_BOUNDS[0] in self.identity

    @property
    def table(self) -> Table:
        """The result table."""
        return layout(self.spec).result

    @property
    def window(self) -> m.Tumbling | m.Hopping | m.Cumulate | m.Calendar | m.Session | m.Global | None:
        """The kind of window, or None for a table by key."""
        return self.node.window if isinstance(self.node, m.WindowNode) else None

    @property
    def is_by_time(self) -> bool:
        """Whether a record's event time alone determines its windows."""
        return not isinstance(self.window, m.Session | m.Global | None)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        names = tuple(field.name for field in schema.row_key(self.spec.rows))
        return (*names, "revision") if self.spec.discards else names

    @property
    def values(self) -> dict[str, str]:
        """Map the names of a row's inputs to the columns of its records."""
        if not isinstance(self.node, m.WindowNode):
            fields = stream_of(self.graph, self.node.inputs[0]).fields
            hidden = {*self.key, *time_fields(self.graph, self.node.inputs[0])}
            return {field.name: field.name for field in fields if field.name not in hidden}
        spec = spec_of(self.graph, self.node)
        texts = {argument.name: argument.expression.text for argument in computed_arguments(spec)}
        columns = dict.fromkeys(argument.column for inputs in arguments(spec) for argument in inputs)
        return {texts.get(column, column): column for column in columns}


@dataclass(frozen=True)
class TargetRow:
    """The row to explain: its key as Arrow scalars, its window, and the `existing` row of the table as plain JSON.

    `values` has those columns of the row that are known and not null.
    """

    key: Mapping[str, pa.Scalar]
    window: tuple[int, int] | None
    revision: int | None
    existing: dict[str, Any] | None
    values: Mapping[str, pa.Scalar]

    @property
    def plain_key(self) -> dict[str, Any]:
        """The key as plain JSON."""
        return {name: plain_values(pa.array([value.as_py()], value.type))[0] for name, value in self.key.items()}

    @property
    def conditions(self) -> list[Condition]:
        """Conditions that select the key in a table."""
        return [
            Condition(name, "=", value.value if pa.types.is_timestamp(value.type) else value.as_py())
            for name, value in self.key.items()
        ]

    def changes(self, changes: pa.Table, *, is_session: bool) -> pa.Table:
        """Return the changes of the row; for a session also those of sessions that overlap it."""
        changes = changes.filter(pa.array(has_values(changes, self.key)))
        if self.window is None:
            return changes
        starts, ends = (to_micros(changes.column(name)) for name in m.WINDOW_BOUNDS)
        start, end = self.window
        is_own = (starts < end) & (ends > start) if is_session else (starts == start) & (ends == end)
        return changes.filter(pa.array(is_own))


def has_values(records: pa.Table, values: Mapping[str, pa.Scalar]) -> Mask:
    """Return a mask of the records that have the given values, and of truncations, which concern all values."""
    mask = np.ones(records.num_rows, dtype=np.bool_)
    for name, value in values.items():
        mask &= pc.equal(records.column(name), value).fill_null(False).to_numpy()  # noqa: FBT003 - Arrow's
    truncated = are_truncations(records)
    if truncated is not None:
        mask |= truncated.to_numpy()
    return mask


def time_fields(graph: m.Graph, stream: str) -> frozenset[str]:
    """Return the fields that hold the event time in all sources of a stream of records."""
    node = graph.producer(stream)
    if isinstance(node, m.SourceNode):
        return frozenset() if node.time.sent is not None else frozenset({node.time.field})
    return frozenset.intersection(*(time_fields(graph, name) for name in node.inputs))


def iso_time(micros: int | None) -> str | None:
    """Format a time in microseconds as ISO 8601, or return None."""
    if micros is None:
        return None
    (text,) = utc_text(pa.array([micros], pa.int64()).cast(schema.MICROS)).to_pylist()
    return f"{text.replace(' ', 'T')}Z"
