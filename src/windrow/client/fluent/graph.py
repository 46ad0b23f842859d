"""Graphs in Python: named sources and streams, and the sinks that they are written to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from windrow import model as m
from windrow.authoring.aggregate_text import Measure
from windrow.authoring.checks import require_valid
from windrow.authoring.short_form import NODE_NAMES
from windrow.client.arguments import Unfinished, checked
from windrow.client.fluent.streams import Aggregated, Emitted, Given, Keyed, Processed, Timed, Windowed
from windrow.client.pipeline import Pipeline
from windrow.declare.arguments import Duration, duration_micros
from windrow.errors import PipelineError, did_you_mean


@checked
@dataclass(frozen=True)
class Selection(Unfinished):
    """Records of a stream, or of several: a condition, derived fields, and the fields that are kept."""

    node: m.SelectNode

    def derive(self, /, **expressions: str) -> Selection:
        """Add fields that SQL expressions over the stream's fields give.

        Raises:
            PipelineError: the fields that are kept have been named already.
        """
        if self.node.select is not None:
            msg = "derive comes before select, which says which fields are kept"
            raise PipelineError(msg)
        return Selection(replace(self.node, derive=(*self.node.derive, *_derived(expressions))))

    def select(self, /, *names: str) -> Selection:
        """Keep these fields only."""
        return Selection(replace(self.node, select=names))

    def key_by(self, /, *names: str, **expressions: str) -> Keyed:
        """Say for which fields results are kept, of a stream with derived fields; see `Timed.key_by`.

        Raises:
            PipelineError: there is a condition, a union or a choice of fields, which are a stream of their own.
        """
        if self.node.where is not None or self.node.select is not None or len(self.node.inputs) > 1:
            msg = "a selection with where, select or a union is a stream of its own: name it with graph.stream first"
            raise PipelineError(msg)
        derived = (*self.node.derive, *_derived(expressions))
        return Keyed(Given(self.node.inputs[0], derived), (*names, *expressions))

    def window(self, window: m.Window) -> Windowed:
        """Divide event time into windows of all records, without a key; see `Keyed.window`."""
        return self.key_by().window(window)

    def running(self, /, **results: Measure | str) -> Emitted:
        """Keep a result over all records so far, without a key; see `Keyed.running`."""
        return self.key_by().running(**results)


@checked
@dataclass(frozen=True)
class Named(Unfinished):
    """A source or stream of a graph; ``sizes["large"]`` is the output `large` of the stream `sizes`."""

    name: str
    outputs: tuple[str, ...]

    def __getitem__(self, output: str) -> Named:
        """Return an output: of a split by its name, of a deduplication `duplicates`."""
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
        """Add fields that SQL expressions over the stream's fields give."""
        return Selection(m.SelectNode("", (self.name,), derive=_derived(expressions)))

    def select(self, /, *names: str) -> Selection:
        """Keep these fields only."""
        return Selection(m.SelectNode("", (self.name,), select=names))

    def union(self, /, *others: Named, where: str | None = None) -> Selection:
        """Add the records of other streams, which have the same fields; keep those for which `where` is true."""
        return Selection(m.SelectNode("", (self.name, *(other.name for other in others)), where=where))

    def split(self, conditions: Mapping[str, str], *, other: str | None = None) -> m.SplitNode:
        """Divide the records: each is in the first output whose condition is true, else in `other`, if that is given.

        The outputs of the stream `sizes` are ``sizes["large"]`` and so on.
        """
        return m.SplitNode("", self.name, _derived(conditions), other)

    def flat_map(
        self, field: str, *, element: str | None = None, position: str | None = None, outer: bool = False
    ) -> m.FlatMapNode:
        """Give a record for each element of an array: with the other fields of its record, and those of the element.

        Args:
            field: the array.
            element: the name of the field with the element, where that is no struct; left out, that of the array.
            position: the name of a field for the number of the element, from 0.
            outer: whether a record whose array is empty or null gives one, with null in the fields of the element.
        """
        return m.FlatMapNode("", self.name, field, element, position, outer)

    def deduplicate(
        self, /, *by: str, within: Duration, scope: Literal["stream", "partition"] = "stream"
    ) -> m.DeduplicateNode:
        """Leave out copies: records with the same fields `by` whose event times are less than `within` apart.

        They are the output ``["duplicates"]``. With ``scope="partition"`` all copies of a record are in the same
        partition, and no record waits for other partitions.

        Raises:
            PipelineError: the duration is invalid.
        """
        return m.DeduplicateNode("", self.name, by, duration_micros(within, "deduplicate.within"), scope)

    def sample(self, /, *by: str, every: int) -> m.SampleNode:
        """Take each `every`-th record of those with the same fields `by`, in the order of watermarks.

        With ``every=10`` these are the 10th, the 20th and so on of each key.
        """
        return m.SampleNode("", self.name, by, every)

    def table(self, /, *key: str, deleted: str | None = None) -> m.TableNode:
        """Keep the last record of each key as a row of a table; it replaces the one before it.

        A record for which the SQL condition `deleted` is true removes the row.
        """
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
        """Give each record the fields of a table's row.

        Args:
            table: the table, a stream of this graph.
            by: the fields that hold the key of the table; where they have other names there, a mapping:
                ``{"currency": "code"}``.
            as_of: with `event_time` a record gets the row that held at its event time; with `order` the row that was
                there when it came, in the order of watermarks.
            revise: as of event time, how far the watermark can be past a record when a row that comes late still
                replaces the one that the record got; by default the lateness of the table's source, or else of the
                record's.
            how: with `left` a record for which there is no row has null in the fields of the table; with `inner` it is
                left out.
            broadcast: whether every key group has the whole table, and the records are spread over all key groups,
                whatever their key: for a small table, where many records look up one row. No result changes.

        Raises:
            PipelineError: the duration is invalid.
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
        """Pair these records with those of another stream that are near them in event time, or join two tables.

        A pair has the fields of both; one of the other stream that is here, too, ends in `_right`. Tables are joined
        without `before` and `after`.

        Args:
            other: the stream with the right records, or the right table.
            by: the fields that a pair has in common; where they have other names on the right, a mapping:
                ``{"order_id": "id"}``.
            before: how much earlier than this record its partner can be.
            after: how much later than this record its partner can be.
            how: with `left`, `right` or `full`, records of that side (or of both) that have no partner are there
                alone, with null in the fields of the other.

        Raises:
            PipelineError: a duration is invalid.
        """
        pairs = _pairs(by)
        spans = duration_micros(before or "0s", "join.before"), duration_micros(after or "0s", "join.after")
        if before is None and after is None:
            return m.TableJoinNode("", self.name, other.name, tuple(pairs), tuple(pairs.values()), how)
        return m.JoinNode("", self.name, other.name, tuple(pairs), tuple(pairs.values()), *spans, how)

    def key_by(self, /, *names: str, **expressions: str) -> Keyed:
        """Say for which fields results are kept; see `Timed.key_by`."""
        return Keyed(Given(self.name, _derived(expressions)), (*names, *expressions))

    def window(self, window: m.Window) -> Windowed:
        """Divide event time into windows of all records, without a key; see `Keyed.window`."""
        return self.key_by().window(window)

    def running(self, /, **results: Measure | str) -> Emitted:
        """Keep a result over all records so far, without a key; see `Keyed.running`."""
        return self.key_by().running(**results)


def _pairs(by: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the right side by those of the left one that equal them."""
    names = [by] if isinstance(by, str) else by
    return dict(names) if isinstance(names, Mapping) else {name: name for name in names}


Made = Selection | m.FilterNode | m.FlatMapNode | m.TableNode | m.AnyJoinNode | Aggregated | Emitted | Processed


@checked
class GraphBuilder(Unfinished):
    """Sources, streams and sinks under names, in the order in which they are added; `build` makes the graph."""

    def __init__(self, name: str, key_groups: int, mode: m.RunMode, alerts: m.Alerts) -> None:
        self._name = name
        self._mode = mode
        self._alerts = alerts
        self._key_groups = key_groups
        self._nodes: list[m.Node] = []

    def source(self, name: str, records: Timed, *, lateness: Duration | None = None) -> Named:
        """Add a source.

        Args:
            name: the name by which the graph knows it.
            records: records with an event time: ``wr.log(...).decode(...).event_time(...)``.
            lateness: a record whose event time is this far behind the watermark, or farther, is in no stream: it goes
                to the late output.

        Raises:
            PipelineError: the duration is invalid.
        """
        micros = None if lateness is None else duration_micros(lateness, f"sources.{name}.lateness")
        decoded = records.decoded
        return self._add(m.SourceNode(name, decoded.source, decoded.fields, records.time, decoded.derived, micros))

    def stream(self, name: str, made: Made, *, salt: int = 1, at_end: Literal["fire", "hold"] = "fire") -> Named:
        """Add a stream: what was made of a source or another stream of this graph.

        Args:
            name: the name by which the graph knows it.
            made: a selection, a split, a flat_map, a deduplication, a sample, a table, a lookup, a join, windows
                (``aggregate`` or ``emit``), or a process function.
            salt: of windows, over how many key groups each key's records are spread before they come together.
            at_end: of a process function, whether the end of a bounded input fires its timers.

        Raises:
            PipelineError: it is made of records that are no source of the graph.
        """
        return self._add(_node(name, made, salt, at_end))

    def sink(self, name: str, stream: Named, sink: m.Sink) -> None:
        """Write the rows of a stream to a sink, such as `windrow.sqlite` or `windrow.kafka_sink`."""
        self._nodes.append(m.SinkNode(name, stream.name, sink))

    def build(self) -> Pipeline:
        """Return the graph.

        Raises:
            PipelineError: the graph is invalid; the error has all its problems.
        """
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
    """Begin a graph of named sources, streams and sinks.

    Args:
        name: identifies the checkpoint, and the rows in the tables.
        key_groups: the upper bound of parallelism, which stays as it is for the pipeline's life.
        mode: how a live run takes records: in steps, or with ``"realtime"`` as they come, from Kafka to Kafka.
        alerts: which alerts a run raises, and where they are sent (`windrow.alerts`).
    """
    return GraphBuilder(name, key_groups, mode, alerts)


def _node(name: str, made: Made, salt: int, at_end: Literal["fire", "hold"]) -> m.StreamNode:
    match made:
        case Selection(node):
            return replace(node, name=name)
        case Aggregated():
            return _node(name, Emitted(made, m.Emit()), salt, at_end)
        case Emitted(aggregated, emit):
            keyed = aggregated.windowed.keyed
            given, window = _given(name, keyed.of), aggregated.windowed.cut
            return m.WindowNode(
                name, given.input, keyed.key, window, aggregated.aggregates, emit, salt, derive=given.derived
            )
        case Processed(of, key, process):
            given = _given(name, of)
            return m.ProcessNode(name, given.input, key, process, at_end, derive=given.derived)
        case _:
            return replace(made, name=name)


def _given(name: str, of: Timed | Given) -> Given:
    if isinstance(of, Given):
        return of
    msg = f"streams.{name}: its records are no source of the graph: name them with graph.source, and begin with that"
    raise PipelineError(msg)


def _derived(expressions: Mapping[str, str]) -> tuple[m.Derive, ...]:
    return tuple(m.Derive(name, sql) for name, sql in expressions.items())
