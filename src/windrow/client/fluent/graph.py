"""Graphs in Python: named sources, streams and sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from windrow import model as m
from windrow.authoring.checks import require_valid
from windrow.authoring.short_form import NODE_NAMES
from windrow.client.arguments import Unfinished, checked
from windrow.client.fluent.streams import (
    Aggregated,
    Emitted,
    FieldType,
    GraphInput,
    Keyed,
    Processed,
    Timed,
    Ungrouped,
    decoded,
    derives,
    source_node,
)
from windrow.client.pipeline import Pipeline
from windrow.declare.arguments import Duration, duration_micros
from windrow.errors import PipelineError, did_you_mean


@checked
@dataclass(frozen=True)
class Selection(Ungrouped):
    """A selection of the records of streams, and of their fields."""

    node: m.SelectNode

    def derive(self, /, **expressions: str) -> Selection:
        """Add fields computed by SQL expressions over the stream's fields; call it before `select`."""
        if self.node.select is not None:
            msg = "call derive before select, which chooses the fields"
            raise PipelineError(msg)
        return Selection(replace(self.node, derive=(*self.node.derive, *derives(expressions))))

    def select(self, /, *names: str) -> Selection:
        """Keep only these fields."""
        return Selection(replace(self.node, select=names))

    def key_by(self, /, *names: str, **expressions: str) -> Keyed:
        """Set the fields that results are grouped by; see `Timed.key_by`.

        Raise PipelineError if the selection has a condition, a union or selected fields, and so is a stream of its own.
        """
        if self.node.where is not None or self.node.select is not None or len(self.node.inputs) > 1:
            msg = "a selection with where, select or a union is a stream of its own: name it with graph.stream first"
            raise PipelineError(msg)
        derived = (*self.node.derive, *derives(expressions))
        return Keyed(GraphInput(self.node.inputs[0], derived), (*names, *expressions))


@checked
@dataclass(frozen=True)
class Named(Ungrouped):
    """A source or stream of a graph; ``sizes["large"]`` is the output `large` of the stream `sizes`."""

    name: str
    outputs: tuple[str, ...]

    def __getitem__(self, output: str) -> Named:
        """Return an output by name: an output of a split, or the output `duplicates` of a deduplication."""
        name = f"{self.name}.{output}"
        if name not in self.outputs:
            known = [output.removeprefix(f"{self.name}.") for output in self.outputs if output != self.name]
            has, near = ", ".join(known) or "none", did_you_mean(output, known)
            msg = f"{self.name!r} has no output {output!r}; it has {has}{near}"
            raise PipelineError(msg)
        return Named(name, (name,))

    def where(self, condition: str) -> Selection:
        """Keep the records for which a condition in SQL is true."""
        return Selection(m.SelectNode("", (self.name,), where=condition))

    def derive(self, /, **expressions: str) -> Selection:
        """Add fields computed by SQL expressions over the stream's fields."""
        return Selection(m.SelectNode("", (self.name,), derive=derives(expressions)))

    def select(self, /, *names: str) -> Selection:
        """Keep only these fields."""
        return Selection(m.SelectNode("", (self.name,), select=names))

    def union(self, /, *others: Named, where: str | None = None) -> Selection:
        """Add the records of other streams with the same fields; keep those for which `where` is true."""
        return Selection(m.SelectNode("", (self.name, *(other.name for other in others)), where=where))

    def split(self, conditions: Mapping[str, str], *, other: str | None = None) -> m.SplitNode:
        """Send each record to the first output whose condition is true, else to `other`, if given."""
        return m.SplitNode("", self.name, derives(conditions), other)

    def flat_map(
        self, field: str, *, element: str | None = None, position: str | None = None, outer: bool = False
    ) -> m.FlatMapNode:
        """Emit a record for each element of an array, with its fields and the record's other fields.

        Args:
            field: the array.
            element: the field for an element that is no struct; by default, it has the name of the array.
            position: the field for the index of the element, from 0.
            outer: emit a record, with null in the fields of the element, if the array is empty or null.
        """
        return m.FlatMapNode("", self.name, field, element, position, outer)

    def changes(self, table: str, /, **fields: str | m.DataType | FieldType) -> m.ChangesNode:
        """Decode the changes of one table of a source that has those of several; see `Stream.decode` for the fields.

        The records also have the fields of the source.
        """
        return m.ChangesNode("", self.name, table, decoded(fields))

    def deduplicate(
        self, /, *by: str, within: Duration, scope: Literal["stream", "partition"] = "stream"
    ) -> m.DeduplicateNode:
        """Drop duplicates: records with the same fields `by` whose event times are less than `within` apart.

        They go to the output ``["duplicates"]``. With ``scope="partition"``, all duplicates of a record must be in the
        same partition, and no record waits for other partitions.
        """
        return m.DeduplicateNode("", self.name, by, duration_micros(within, "deduplicate.within"), scope)

    def sample(self, /, *by: str, every: int) -> m.SampleNode:
        """Keep every `every`-th record of each key, the fields `by`: the 10th, the 20th ... in watermark order."""
        return m.SampleNode("", self.name, by, every)

    def table(self, /, *key: str, deleted: str | None = None) -> m.TableNode:
        """Keep the last record of each key as a row of a table; remove it if `deleted` is true, in SQL."""
        return m.TableNode("", self.name, key, deleted)

    def lookup(
        self,
        table: Named,
        *,
        by: str | Sequence[str] | Mapping[str, str],
        as_of: Literal["event_time", "order"] = "event_time",
        revise: Duration | None = None,
        how: Literal["inner", "left"] = "inner",
        broadcast: bool = False,
    ) -> m.LookupNode:
        """Add the fields of a table's row to each record.

        Args:
            table: the table, a stream of this graph.
            by: the fields with the key of the table, which can have other names for them: ``{"currency": "code"}``.
            as_of: whether a record gets the row that was valid at its event time, or (`order`) the row that is current
                at its position in watermark order.
            revise: for `event_time`, how far the watermark can pass a record while a late row of the table still
                replaces the record's row; by default, the lateness of the table's source, or else of the record's.
            how: with `left`, a record without a row has null in the fields of the table; with `inner`, it is dropped.
            broadcast: keep the table in every key group, and spread the records over all. This helps if many records
                look up the same row of a small table. Results do not change.
        """
        pairs = _pairs(by)
        micros = None if revise is None else duration_micros(revise, "lookup.revise")
        return m.LookupNode(
            "", self.name, table.name, tuple(pairs), tuple(pairs.values()), how, as_of, micros, broadcast
        )

    def join(
        self,
        other: Named,
        *,
        by: str | Sequence[str] | Mapping[str, str],
        before: Duration | None = None,
        after: Duration | None = None,
        how: Literal["inner", "left", "right", "full"] = "inner",
    ) -> m.JoinNode | m.TableJoinNode:
        """Join records with those of another stream that are near them in event time, or join two tables.

        A pair has the fields of both; a field of the other stream that this one has too ends in `_right`.

        Args:
            other: the right stream or table.
            by: the fields that are equal in a pair, as for `lookup`.
            before: how much earlier than this record its partner can be; not for tables.
            after: the same for later partners.
            how: with `left`, `right` or `full`, records of that side (or of both) without a partner are emitted alone,
                with null in the fields of the other.
        """
        pairs = _pairs(by)
        spans = duration_micros(before or "0s", "join.before"), duration_micros(after or "0s", "join.after")
        if before is None and after is None:
            return m.TableJoinNode("", self.name, other.name, tuple(pairs), tuple(pairs.values()), how)
        return m.JoinNode("", self.name, other.name, tuple(pairs), tuple(pairs.values()), *spans, how)

    def key_by(self, /, *names: str, **expressions: str) -> Keyed:
        """Set the fields that results are grouped by; see `Timed.key_by`."""
        return Keyed(GraphInput(self.name, derives(expressions)), (*names, *expressions))


def _pairs(by: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Map each key field of the left side to the equal field of the right side."""
    names = [by] if isinstance(by, str) else by
    return dict(names) if isinstance(names, Mapping) else {name: name for name in names}


NodeStage = m.FilterNode | m.FlatMapNode | m.ChangesNode | m.TableNode | m.AnyJoinNode
GraphStage = Selection | NodeStage | Aggregated | Emitted | Processed


@checked
class GraphBuilder(Unfinished):
    """A graph to which sources, streams and sinks are added in order."""

    def __init__(self, name: str, key_groups: int, mode: m.RunMode, alerts: m.Alerts) -> None:
        self._name = name
        self._mode = mode
        self._alerts = alerts
        self._key_groups = key_groups
        self._nodes: list[m.Node] = []

    def source(self, name: str, records: Timed, *, lateness: Duration | None = None) -> Named:
        """Add a source: ``wr.log(...).decode(...).event_time(...)``.

        A record whose event time is at least `lateness` behind the watermark goes only to the late output.
        """
        micros = None if lateness is None else duration_micros(lateness, f"sources.{name}.lateness")
        return self._add(source_node(name, records, micros))

    def stream(self, name: str, made: GraphStage, *, salt: int = 1, at_end: Literal["fire", "hold"] = "fire") -> Named:
        """Add a stream that is computed from a source or another stream of this graph.

        `made` comes from a method of `Named` or `Selection`, or from `aggregate`, `emit` or `process`. `salt` is for
        windows, as in `Emitted.to`, and `at_end` for a process function, as in `Processed.to`.
        """
        return self._add(_node(name, made, salt, at_end))

    def sink(self, name: str, stream: Named, sink: m.Sink) -> None:
        """Write the rows of a stream to a sink."""
        self._nodes.append(m.SinkNode(name, stream.name, sink))

    def build(self) -> Pipeline:
        """Complete the graph, and return its pipeline; raise a PipelineError that lists all problems."""
        ordered = [
            node for kind in (m.SourceNode, m.StreamNode, m.SinkNode) for node in self._nodes if isinstance(node, kind)
        ]
        if not all(node.name for node in ordered):
            raise PipelineError(NODE_NAMES)
        graph = m.Graph(self._name, tuple(ordered), self._key_groups, self._mode, self._alerts)
        return Pipeline(require_valid(graph))

    def _add(self, node: m.SourceNode | m.StreamNode) -> Named:
        self._nodes.append(node)
        return Named(node.name, tuple(m.outputs_of(node)))


@checked
def graph(
    name: str,
    *,
    key_groups: int = m.DEFAULT_KEY_GROUPS,
    mode: m.RunMode = "micro-batch",
    alerts: m.Alerts = m.DEFAULT_ALERTS,
) -> GraphBuilder:
    """Begin a graph of named sources, streams and sinks; for `key_groups`, `mode` and `alerts`, see `Emitted.to`.

    `name` is the name of the pipeline, which identifies its checkpoint, and its rows in tables.
    """
    return GraphBuilder(name, key_groups, mode, alerts)


def _node(name: str, made: GraphStage, salt: int, at_end: Literal["fire", "hold"]) -> m.StreamNode:
    match made:
        case Selection(node):
            return replace(node, name=name)
        case Aggregated(of, node) | Emitted(of, node):
            given = _graph_input(name, of)
            return replace(node, name=name, input=given.input, derive=given.derived, salt=salt)
        case Processed(of, node):
            given = _graph_input(name, of)
            return replace(node, name=name, input=given.input, derive=given.derived, at_end=at_end)
        case _:
            return replace(made, name=name)


def _graph_input(name: str, of: Timed | GraphInput) -> GraphInput:
    if isinstance(of, GraphInput):
        return of
    msg = f"streams.{name}: its records are from no source of the graph: add them with graph.source, and begin there"
    raise PipelineError(msg)
