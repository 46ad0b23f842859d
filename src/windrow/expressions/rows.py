"""Rows of results: their columns and keys, as sinks write them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from windrow import model as m
from windrow.expressions.inputs import AnySpec, is_window_spec, key_of, nullable_fields, record_fields
from windrow.expressions.results import results
from windrow.expressions.streams import spec_of

RowKind = Literal["windows", "global", "process", "alerts", "table", "records"]


@dataclass(frozen=True)
class Rows:
    """The rows of a node: the fields of their key, and their values in column order; optional values can be null.

    Window and key identify a row of windows. They also identify a row of the `global` window or of a process function,
    whose window bounds are constant. A row of a table is identified by its key, and an alert by its id. A record is
    identified by its place in the log or, with `has_id`, by a text that names the records from which it was made.
    """

    kind: RowKind
    key: tuple[m.Field, ...]
    values: tuple[m.Field, ...]
    has_id: bool = False

    @property
    def has_panes(self) -> bool:
        """Whether rows have a pane and a revision, as all rows except records and rows of tables do."""
        return self.kind not in {"table", "records"}


@dataclass(frozen=True)
class SinkSpec:
    """A sink with the rows that it writes.

    The name of the pipeline is `pipeline`, and the stream with the rows is `stream`. If `discards` is true, each pane
    is a separate row.
    """

    pipeline: str
    sink: m.Sink
    stream: str
    rows: Rows
    discards: bool = False

    def into(self, table: str) -> SinkSpec:
        """Return the same sink with a different table in its database."""
        return replace(self, sink=self.sink.into(table))


def _alerts(key: tuple[m.Field, ...]) -> Rows:
    """Return the rows of alerts with a key.

    The subject of an alert is the id or the place of the record for which the rule is true.
    """
    rule, severity, rule_hash, subject, text, evidence = (
        m.Field(name, m.StringType()) for name in ("rule", "severity", "rule_hash", "subject", "text", "evidence")
    )
    time = m.Field("event_time", m.TimestampType("micros"))
    return Rows("alerts", key, (rule, severity, rule_hash, *key, subject, time, text, evidence))


def emitted_rows(spec: AnySpec) -> Rows:
    """Return the rows that an operator emits; raise PipelineError for an invalid expression."""
    key, node = key_of(spec), spec.node
    if is_window_spec(spec):
        values = tuple(m.Field(result.name, result.type, result.nullable) for result in results(spec))
        return Rows("global" if isinstance(spec.node.window, m.Global) else "windows", key, values)
    if isinstance(node, m.ProcessNode):
        return Rows("process", key, tuple(replace(field, optional=True) for field in node.process.returns))
    if isinstance(node, m.RulesNode):
        return _alerts(key)
    nullable = nullable_fields(spec)
    fields = {field.name: replace(field, optional=field.name in nullable) for field in record_fields(spec)}
    row_key = tuple(fields.pop(name) for name in spec.row_key)
    columns = tuple(replace(field, type=_type_in_row(field.type)) for field in fields.values())
    return Rows("table" if row_key else "records", row_key, columns, spec.has_id)


def _type_in_row(type_: m.DataType) -> m.DataType:
    """Return the type that a field of a record has in a table, where an array is JSON text."""
    if not isinstance(type_, m.ArrayType):
        return type_
    return m.StringType() if isinstance(type_.element, m.StructType) else m.JsonListType(type_.element)


def rows_of(graph: m.Graph, sink: m.SinkNode) -> Rows:
    """Return the rows that a sink receives; raise PipelineError for an invalid expression."""
    node = graph.producer(sink.input)
    return emitted_rows(spec_of(graph, node if isinstance(node, m.ResultNode) else sink))


def sink_spec(graph: m.Graph, sink: m.SinkNode) -> SinkSpec:
    """Return a sink with its rows; raise PipelineError for an invalid expression."""
    node = graph.producer(sink.input)
    discards = isinstance(node, m.WindowNode) and node.emit.mode == "discard"
    return SinkSpec(graph.name, sink.sink, sink.input or graph.name, rows_of(graph, sink), discards)


def sink_specs(graph: m.Graph) -> dict[str, SinkSpec]:
    """Map the name of each sink to the sink with its rows."""
    return {sink.name: sink_spec(graph, sink) for sink in graph.sinks}
