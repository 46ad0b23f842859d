"""Stages of a pipeline, from a stream of bytes to a sink. Each method returns a new stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, overload

from windrow import model as m
from windrow.authoring.aggregate_text import Measure, parse_aggregate
from windrow.authoring.checks import require_valid
from windrow.authoring.short_form import SOURCE
from windrow.client.arguments import Unfinished, checked
from windrow.client.fluent.process import StateType, column_declarations, state_declarations
from windrow.client.pipeline import Pipeline
from windrow.declare.arguments import Duration, duration_micros
from windrow.errors import PipelineError, call_all


@checked
@dataclass(frozen=True)
class Stream(Unfinished):
    """Records of a source as bytes, before their fields are declared."""

    source: m.Source

    def decode(self, /, **fields: str | m.DataType | FieldType) -> DecodedStream:
        """Declare the fields of a record, with their types: ``amount="decimal(12,2)"``.

        The type of a field that a record can lack has a question mark, ``"string?"``. Arrays are ``"array<string>"`` or
        ``"array<struct<sku string, qty long>>"``. For other names, and fields in nested objects, see `windrow.field`.
        """
        return DecodedStream(self.source, decoded(fields))


def decoded(fields: Mapping[str, str | m.DataType | FieldType]) -> m.Decode:
    """Return the fields with these types; raise a PipelineError that lists all problems."""
    types = {name: type_ if isinstance(type_, FieldType) else FieldType(type_) for name, type_ in fields.items()}
    return m.Decode(call_all(partial(of.field, name) for name, of in types.items()))


@checked
@dataclass(frozen=True)
class DecodedStream(Unfinished):
    """Records with fields, before their event time is set."""

    source: m.Source
    fields: m.Decode
    derived: tuple[m.Derive, ...] = ()

    def derive(self, /, **expressions: str) -> DecodedStream:
        """Add fields computed by SQL expressions over the decoded fields: ``domain="split_part(url, '/', 3)"``."""
        return replace(self, derived=self.derived + derives(expressions))

    @overload
    def event_time(
        self,
        field: str,
        *,
        delay: Duration | m.Adaptive | m.DelayByPartition,
        future: Duration | None = None,
        jump: Duration | None = None,
        sent: str | None = None,
        idle: Duration | None = None,
        all_idle: Literal["hold", "advance"] = "hold",
    ) -> Timed: ...

    @overload
    def event_time(
        self,
        field: str,
        *,
        punctuated: str,
        future: Duration | None = None,
        sent: str | None = None,
        idle: Duration | None = None,
        all_idle: Literal["hold", "advance"] = "hold",
    ) -> Timed: ...

    def event_time(
        self,
        field: str,
        *,
        delay: Duration | m.Adaptive | m.DelayByPartition | None = None,
        punctuated: str | None = None,
        future: Duration | None = None,
        jump: Duration | None = None,
        sent: str | None = None,
        idle: Duration | None = None,
        all_idle: Literal["hold", "advance"] = "hold",
    ) -> Timed:
        """Set the field that holds event time, and what advances the watermark.

        Args:
            field: a field of a timestamp type.
            delay: how far the watermark is behind the greatest event time, a duration; or `windrow.adaptive` or
                `windrow.delay_by_partition`.
            punctuated: instead of `delay`, the field in which records carry the watermark.
            future: a record whose event time is further than this ahead of its log timestamp is a dead letter.
            jump: a record whose event time is further than this ahead of its partition's clock does not advance the
                clock, unless five records in a row are. With `future`, for records without a log timestamp.
            sent: the field with the time at which a device sent the record, by its clock; it corrects event times.
            idle: a partition that has no records for this long, in processing time, no longer holds back the watermark.
            all_idle: whether watermarks stop, or advance with processing time, when all partitions are idle.

        Raises:
            PipelineError: neither or both of `delay` and `punctuated` are given.
        """
        reads: list[Callable[[], Any]] = [
            partial(_watermark, delay, punctuated),
            partial(_optional_micros, future, "time.future"),
            partial(_optional_micros, idle, "time.idle"),
            partial(_optional_micros, jump, "time.jump"),
        ]
        watermark, ahead, quiet, leap = call_all(reads)
        return Timed(self, m.EventTime(field, watermark, ahead, sent, quiet, all_idle, leap))


@checked
class Ungrouped(Unfinished):
    """Records without a key; they can be given a key, or aggregated without one."""

    def key_by(self, /, *names: str, **expressions: str) -> Keyed:
        """Set the fields that results are grouped by."""
        raise NotImplementedError

    def window(self, window: m.Window) -> Windowed:
        """Divide event time into windows without a key; see `Keyed.window`."""
        return self.key_by().window(window)

    def running(self, /, **results: Measure | str) -> Emitted:
        """Keep a result without a key; see `Keyed.running`."""
        return self.key_by().running(**results)


@checked
@dataclass(frozen=True)
class Timed(Ungrouped):
    """Records with an event time."""

    decoded: DecodedStream
    time: m.EventTime

    def key_by(self, /, *names: str, **expressions: str) -> Keyed:
        """Set the fields that results are grouped by; expressions add fields: ``domain="split_part(url, '/', 3)"``."""
        return Keyed(replace(self, decoded=self.decoded.derive(**expressions)), (*names, *expressions))


@dataclass(frozen=True)
class GraphInput:
    """The records of a source or stream of a graph, which is identified by its name, with derived fields."""

    input: str
    derived: tuple[m.Derive, ...] = ()


@checked
@dataclass(frozen=True)
class Keyed(Unfinished):
    """Records grouped by key."""

    of: Timed | GraphInput
    key: tuple[str, ...]

    def window(self, window: m.Window) -> Windowed:
        """Divide event time into windows: `windrow.tumbling`, `hopping`, `cumulate`, `session` or `global_window`."""
        return Windowed(self, window)

    def running(self, /, **results: Measure | str) -> Emitted:
        """Keep a result for each key over all its records so far, updated with each record.

        It is short for ``.window(wr.global_window()).aggregate(...).emit(early=wr.every_count(1))``.
        """
        return self.window(m.Global()).aggregate(**results).emit(early=m.Records(1))

    def process(
        self,
        function: m.ProcessFunction,
        *,
        state: Mapping[str, StateType] | None = None,
        returns: Mapping[str, str | m.DataType],
        ttl: Duration | None = None,
        order: Literal["log", "event_time"] = "log",
        on_timer: m.ProcessFunction | None = None,
        on_processing_timer: m.ProcessFunction | None = None,
    ) -> Processed:
        """Call a Python function for each record, with state for its key.

        Args:
            function: called as ``function(ctx, record)``, with a `windrow.Context` and the fields of the record by
                name.
            state: the state of each key by name: `windrow.value_state`, `list_state` or `map_state`.
            returns: the columns of the row, with their types.
            ttl: how long in event time an entry of state is kept after its last write, and a key after its last call.
            order: whether a key's records are processed in the order of the log, or of event time once the watermark
                has passed them (later records go to the late output).
            on_timer: called as ``on_timer(ctx, timer)`` when the watermark reaches a time that ``ctx.timer`` set.
            on_processing_timer: the same for ``ctx.processing_timer``, in processing time.
        """
        process = m.Process(
            function=function,
            state=state_declarations(state or {}),
            returns=column_declarations(returns),
            ttl=None if ttl is None else duration_micros(ttl, "process.ttl"),
            order=order,
            on_timer=on_timer,
            on_processing_timer=on_processing_timer,
        )
        return Processed(self.of, m.ProcessNode("", SOURCE, self.key, process))

    def rules(
        self,
        /,
        *rules: m.Rule,
        recent: m.Recent,
        unique: str | None = None,
        lists: Mapping[str, m.RuleList] | None = None,
        lateness: Duration = "0s",
        revise: bool = True,
    ) -> Ruled:
        """Raise alerts by rules over each record and the recent records of its key.

        Args:
            rules: `windrow.rule`, each with a different name.
            recent: the earlier records that rules see (`windrow.recent`).
            unique: the field that identifies a record of a key; a repetition is ignored, or a dead letter if its
                content differs.
            lists: maps a name that rules use, as in ``when="merchant in blocked"``, to `windrow.list_file` or
                `windrow.list_topic`.
            lateness: how far behind the watermark a record can be and still be judged.
            revise: whether a late record causes later records of its key to be judged again.
        """
        micros = duration_micros(lateness, "emit.lateness")
        named = tuple(replace(rule_list, name=name) for name, rule_list in (lists or {}).items())
        rule_set = m.RuleSet(rules, recent, unique, named, micros, revise)
        return Ruled(self.of, m.RulesNode("", SOURCE, self.key, rule_set))


@checked
@dataclass(frozen=True)
class Windowed(Unfinished):
    """Records grouped by key and window."""

    keyed: Keyed
    cut: m.Window

    def aggregate(self, /, **results: Measure | str) -> Aggregated:
        """Name the results: ``total=wr.sum("amount"), events=wr.count(), mean="total / events"``.

        Text is a formula over the other results, or an aggregate, as in YAML.
        """
        aggregates = call_all(partial(_aggregate, name, measure) for name, measure in results.items())
        return Aggregated(self.keyed.of, m.WindowNode("", SOURCE, self.keyed.key, self.cut, aggregates, m.Emit()))


@checked
@dataclass(frozen=True)
class Aggregated(Unfinished):
    """The results for each key and window."""

    of: Timed | GraphInput
    node: m.WindowNode

    def emit(
        self,
        *,
        lateness: Duration = "0s",
        late: m.Late = "each",
        mode: m.Mode = "retract",
        at_end: Literal["fire", "hold"] = "fire",
        early: m.Trigger | None = None,
    ) -> Emitted:
        """Set when results are written, and how late records revise them.

        Args:
            lateness: how long after its end late records can revise a window, by the watermark.
            late: whether there is a revision for each late record, for each step (batch), or for a number of late
                records (`windrow.every_count`, and no other trigger).
            mode: whether a revision retracts the old row and adds the new one, only adds the new one (accumulate), or
                has only the records since the last pane (discard).
            at_end: whether windows that are still open at the end of a bounded input fire.
            early: a trigger that writes a window's result before its end, such as `windrow.every`.
        """
        if isinstance(late, m.Trigger) and not isinstance(late, m.Records):
            msg = f"emit.late: {late!r} does not apply to late records; use 'each', 'batch' or wr.every_count(10)"
            raise PipelineError(msg)
        emit = m.Emit(duration_micros(lateness, "emit.lateness"), late, mode, at_end, early)
        return Emitted(self.of, replace(self.node, emit=emit))

    def to(
        self,
        sink: m.Sink,
        *,
        name: str | None = None,
        key_groups: int = m.DEFAULT_KEY_GROUPS,
        salt: int = 1,
        mode: m.RunMode = "micro-batch",
        alerts: m.Alerts = m.DEFAULT_ALERTS,
    ) -> Pipeline:
        """Write to a sink, with the defaults of `emit`; see `Emitted.to`."""
        return self.emit().to(sink, name=name, key_groups=key_groups, salt=salt, mode=mode, alerts=alerts)


@checked
@dataclass(frozen=True)
class Emitted(Unfinished):
    """Results with the times at which they are written and revised."""

    of: Timed | GraphInput
    node: m.WindowNode

    def to(
        self,
        sink: m.Sink,
        *,
        name: str | None = None,
        key_groups: int = m.DEFAULT_KEY_GROUPS,
        salt: int = 1,
        mode: m.RunMode = "micro-batch",
        alerts: m.Alerts = m.DEFAULT_ALERTS,
    ) -> Pipeline:
        """Write to a sink, which completes the pipeline; raise a PipelineError that lists all problems.

        Args:
            sink: such as `windrow.sqlite`.
            name: the pipeline's name; by default, the table's.
            key_groups: the maximum parallelism. To change it, resume from a savepoint.
            salt: the number of key groups over which each key's records are spread before they are combined.
            mode: whether a live run reads records in steps, or with ``"realtime"`` as they arrive (Kafka to Kafka).
            alerts: the limits of alerts, and where they are sent (`windrow.alerts`).
        """
        node = replace(self.node, salt=salt)
        return _complete(node, self.of, sink, name, key_groups=key_groups, mode=mode, alerts=alerts)


@checked
@dataclass(frozen=True)
class Processed(Unfinished):
    """Rows that a function emits for each key."""

    of: Timed | GraphInput
    node: m.ProcessNode

    def to(
        self,
        sink: m.Sink,
        *,
        name: str | None = None,
        key_groups: int = m.DEFAULT_KEY_GROUPS,
        at_end: Literal["fire", "hold"] = "fire",
        mode: m.RunMode = "micro-batch",
        alerts: m.Alerts = m.DEFAULT_ALERTS,
    ) -> Pipeline:
        """Write to a sink; see `Emitted.to`.

        Instead of `salt`, it has `at_end`, ``"fire"`` by default, or ``"hold"``: whether pending timers and waiting
        records fire at the end of a bounded input, or are kept.
        """
        node = replace(self.node, at_end=at_end)
        return _complete(node, self.of, sink, name, key_groups=key_groups, mode=mode, alerts=alerts)


@checked
@dataclass(frozen=True)
class Ruled(Unfinished):
    """The alerts that rules raise."""

    of: Timed | GraphInput
    node: m.RulesNode

    def to(
        self,
        sink: m.Sink,
        *,
        name: str | None = None,
        key_groups: int = m.DEFAULT_KEY_GROUPS,
        mode: m.RunMode = "micro-batch",
        alerts: m.Alerts = m.DEFAULT_ALERTS,
    ) -> Pipeline:
        """Write to a sink; see `Emitted.to`, whose `salt` it does not have."""
        return _complete(self.node, self.of, sink, name, key_groups=key_groups, mode=mode, alerts=alerts)


def _complete(
    node: m.ResultNode,
    of: Timed | GraphInput,
    sink: m.Sink,
    name: str | None,
    *,
    key_groups: int,
    mode: m.RunMode,
    alerts: m.Alerts,
) -> Pipeline:
    """Return a pipeline with one node between its source and its sink; raise PipelineError for a stream of a graph."""
    if not isinstance(of, Timed):
        msg = f"{of.input!r} is a stream of a graph: add the result with graph.stream, and its sink with graph.sink"
        raise PipelineError(msg)
    nodes = (source_node(SOURCE, of), node, m.SinkNode("", "", sink))
    graph = m.Graph(sink.table if name is None else name, nodes, key_groups, mode, alerts)
    return Pipeline(require_valid(graph))


def source_node(name: str, records: Timed, lateness: int | None = None) -> m.SourceNode:
    """Make the graph node for a source and its records."""
    decoded = records.decoded
    return m.SourceNode(name, decoded.source, decoded.fields, records.time, decoded.derived, lateness)


def derives(expressions: Mapping[str, str]) -> tuple[m.Derive, ...]:
    """Return derived fields, given their names and expressions."""
    return tuple(m.Derive(name, sql) for name, sql in expressions.items())


def _optional_micros(length: Duration | None, where: str) -> int | None:
    return None if length is None else duration_micros(length, where)


def _watermark(delay: Duration | m.Adaptive | m.DelayByPartition | None, punctuated: str | None) -> m.Watermark:
    if punctuated is not None and delay is None:
        return m.Punctuated(punctuated)
    if delay is not None and punctuated is None:
        if isinstance(delay, m.Adaptive | m.DelayByPartition):
            return delay
        return m.Delay(duration_micros(delay, "time.delay"))
    msg = "time: give either delay (how far out of order records can be) or punctuated"
    raise PipelineError(msg)


def _aggregate(name: str, measure: Measure | str) -> m.Aggregate:
    if not isinstance(measure, str):
        return m.Aggregate(name, measure.function, measure.where)
    try:
        read = parse_aggregate(measure)
    except PipelineError as exc:
        msg = f"aggregate.{name}: {exc.message}"
        raise PipelineError(msg) from exc
    return m.Aggregate(name, read.function, read.where)


@dataclass(frozen=True)
class FieldType:
    """The type and options of a field, which gets its name from `decode`."""

    type: str | m.DataType
    alias: tuple[str, ...] = ()
    tombstones: bool = False
    path: tuple[str, ...] = ()

    def field(self, name: str) -> m.Field:
        """Return the field with this name; raise PipelineError if its type is invalid."""
        try:
            type_, optional = m.parse_field_type(self.type) if isinstance(self.type, str) else (self.type, False)
        except PipelineError as exc:
            msg = f"decode.{name}: {exc.message}"
            raise PipelineError(msg) from exc
        return m.Field(name, type_, optional, self.alias, self.tombstones, self.path)


@checked
def field(
    type_: str | m.DataType, *, alias: Sequence[str] = (), tombstones: bool = False, path: str | None = None
) -> FieldType:
    """Declare a field with more than its type: ``amount=wr.field("decimal(12,2)", alias=["amt"])``.

    Args:
        type_: as for `decode`.
        alias: other names under which records may have the field.
        tombstones: whether the field is a column of the key, with which a record without a value is read.
        path: its path in nested objects, such as ``"user.id"``; by default, its name.
    """
    if isinstance(alias, str):
        msg = f"alias must be a list of names: [{alias!r}]"
        raise PipelineError(msg)
    return FieldType(type_, tuple(alias), tombstones, () if path is None else tuple(path.split(".")))
