"""Stages of a pipeline, from a stream of bytes to a sink. Every step returns a new value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypedDict, overload

from windrow import model as m
from windrow.authoring.aggregate_text import Measure, parse_aggregate
from windrow.authoring.checks import require_valid
from windrow.authoring.short_form import SOURCE, short_graph
from windrow.client.arguments import Unfinished, checked
from windrow.client.fluent.process import StateType, declared_columns, declared_states
from windrow.client.fluent.rules import named_lists
from windrow.client.pipeline import Pipeline
from windrow.declare.arguments import Duration, duration_micros
from windrow.errors import PipelineError, call_all


@checked
@dataclass(frozen=True)
class Stream(Unfinished):
    """Records as bytes."""

    source: m.Source

    def decode(self, /, **fields: str | m.DataType | FieldType) -> DecodedStream:
        """Say which fields a record, a JSON object, must have, with their types: ``amount="decimal(12,2)"``.

        One that a record may lack has a question mark, ``country="string?"``; an array is ``items="array<string>"`` or
        ``"array<struct<sku string, qty long>>"``. For other names, and fields in nested objects, see `windrow.field`.
        """
        given = ((name, one if isinstance(one, FieldType) else FieldType(one)) for name, one in fields.items())
        return DecodedStream(self.source, m.Decode(call_all(partial(one.named, name) for name, one in given)))


@checked
@dataclass(frozen=True)
class DecodedStream(Unfinished):
    """Records with fields."""

    source: m.Source
    fields: m.Decode
    derived: tuple[m.Derive, ...] = ()

    def derive(self, /, **expressions: str) -> DecodedStream:
        """Add fields that SQL expressions over the decoded ones give: ``domain="split_part(url, '/', 3)"``."""
        return replace(self, derived=self.derived + _derived(expressions))

    @overload
    def event_time(
        self,
        field: str,
        *,
        delay: Duration | m.Adaptive | m.DelayByPartition,
        future: Duration | None = None,
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
        sent: str | None = None,
        idle: Duration | None = None,
        all_idle: Literal["hold", "advance"] = "hold",
    ) -> Timed:
        """Set the field that holds event time, and what advances the watermark.

        Args:
            field: a field of a timestamp type.
            delay: how far out of order records come; the watermark is that far behind the greatest event time. Or
                `windrow.adaptive`, which takes it from the records themselves; or `windrow.delay_by_partition`.
            punctuated: in place of `delay`, the field by which records carry the watermark.
            future: a record whose event time is further than this ahead of its log timestamp is a dead letter.
            sent: the field that holds the device's own time of sending, by which its event times are corrected.
            idle: a partition without a record for this processing time no longer holds the others back.
            all_idle: when all partitions are idle, watermarks stop, or advance with processing time.

        Raises:
            PipelineError: neither or both of `delay` and `punctuated` are given, or a duration is invalid.
        """
        lengths = {"time.future": future, "time.idle": idle}
        given = {
            where: partial(duration_micros, length, where) for where, length in lengths.items() if length is not None
        }
        watermark = partial(_watermark, delay, punctuated)
        reads: list[Callable[[], object]] = [watermark, *given.values()]
        call_all(reads)
        micros = {where: read() for where, read in given.items()}
        time = m.EventTime(field, watermark(), micros.get("time.future"), sent, micros.get("time.idle"), all_idle)
        return Timed(self, time)


@checked
@dataclass(frozen=True)
class Timed(Unfinished):
    """Records with an event time."""

    decoded: DecodedStream
    time: m.EventTime

    def key_by(self, /, *names: str, **expressions: str) -> Keyed:
        """Say for which fields results are kept; expressions add fields: ``domain="split_part(url, '/', 3)"``."""
        return Keyed(replace(self, decoded=self.decoded.derive(**expressions)), (*names, *expressions))

    def window(self, window: m.Window) -> Windowed:
        """Divide event time into windows of all records, without a key; see `Keyed.window`."""
        return self.key_by().window(window)

    def running(self, /, **results: Measure | str) -> Emitted:
        """Keep a result over all records so far, without a key; see `Keyed.running`."""
        return self.key_by().running(**results)


@dataclass(frozen=True)
class Given:
    """Records of a source or stream of a graph, by its name, with derived fields."""

    input: str
    derived: tuple[m.Derive, ...] = ()


@checked
@dataclass(frozen=True)
class Keyed(Unfinished):
    """Records with a key."""

    of: Timed | Given
    key: tuple[str, ...]

    def window(self, window: m.Window) -> Windowed:
        """Divide event time into windows: `windrow.tumbling`, `hopping`, `cumulate`, `session` or `global_window`."""
        return Windowed(self, window)

    def running(self, /, **results: Measure | str) -> Emitted:
        """Keep a result for each key over all its records so far, and update it with each record.

        Short for one window of all time with a pane for each record:
        ``.window(wr.global_window()).aggregate(...).emit(early=wr.every_count(1))``.
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
        """Call a Python function for each record, with state for its key, for what windows cannot express.

        Args:
            function: called as ``function(ctx, record)``: the record's fields by name, and in `ctx` the key, its state,
                times and timers, and ``ctx.emit(...)``, which writes the key's row.
            state: what is kept for each key: `windrow.value_state`, `list_state` or `map_state`, by name.
            returns: the columns of the row, with their types.
            ttl: how long in event time an entry of state is kept after it is written, and a key after its last call.
            order: a key's records come as they stand in the log, or in order of event time, once the watermark has
                passed them (records that come too late for that go to the late output).
            on_timer: called as ``on_timer(ctx, timer)`` when the watermark reaches a time that ``ctx.timer`` set.
            on_processing_timer: the same for ``ctx.processing_timer``.

        Raises:
            PipelineError: a type or a duration is invalid.
        """
        process = m.Process(
            function=function,
            state=declared_states(state or {}),
            returns=declared_columns(returns),
            ttl=None if ttl is None else duration_micros(ttl, "process.ttl"),
            order=order,
            on_timer=on_timer,
            on_processing_timer=on_processing_timer,
        )
        return Processed(self.of, self.key, process)

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
        """Raise alerts for records by rules over each record and the recent ones of its key.

        Args:
            rules: `windrow.rule`, each with a name of its own.
            recent: the records that rules see (`windrow.recent`).
            unique: the field that tells a record from all others of its key; one that repeats it changes nothing.
            lists: `windrow.list_file` or `windrow.list_topic` by the name that rules have for it:
                ``when="merchant in blocked"``.
            lateness: how far behind the watermark a record can come and still be judged.
            revise: a record that comes behind others of its key has these judged again.

        Raises:
            PipelineError: a duration is invalid.
        """
        micros = duration_micros(lateness, "emit.lateness")
        return Ruled(self.of, self.key, m.RuleSet(rules, recent, unique, named_lists(lists or {}), micros, revise))


@checked
@dataclass(frozen=True)
class Windowed(Unfinished):
    """Records of a key in a window."""

    keyed: Keyed
    cut: m.Window

    def aggregate(self, /, **results: Measure | str) -> Aggregated:
        """Name the results: ``total=wr.sum("amount"), events=wr.count(), mean="total / events"``.

        A text is what it is in YAML: a formula over the other results, or an aggregate.

        Raises:
            PipelineError: a text is an invalid call of an aggregate.
        """
        return Aggregated(self, call_all(partial(_aggregate, name, measure) for name, measure in results.items()))


@checked
@dataclass(frozen=True)
class Aggregated(Unfinished):
    """Results of a key in a window."""

    windowed: Windowed
    aggregates: tuple[m.Aggregate, ...]

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
            lateness: for how long after its end (by the watermark) late records revise a window.
            late: one revision for each late record, one a step (batch), or one for so many of them
                (`windrow.every_count`).
            mode: a revision takes the old row back and gives the new one (retract), gives the new one alone
                (accumulate), or holds only what is new (discard).
            at_end: at the end of a bounded input, windows that are still open fire, or stay open.
            early: when a window's result is written before that: `windrow.every`, `every_event_time`, `every_count` and
                others.

        Raises:
            PipelineError: a duration is invalid, or `late` is another trigger than `every_count`.
        """
        if isinstance(late, m.Trigger) and not isinstance(late, m.Records):
            msg = f"emit.late: {late!r} does not apply to late records; use 'each', 'batch' or wr.every_count(10)"
            raise PipelineError(msg)
        return Emitted(self, m.Emit(duration_micros(lateness, "emit.lateness"), late, mode, at_end, early))

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
        """Write to a sink, and leave `emit` at its defaults; see `Emitted.to`."""
        return Emitted(self, m.Emit()).to(sink, name=name, key_groups=key_groups, salt=salt, mode=mode, alerts=alerts)


@checked
@dataclass(frozen=True)
class Emitted(Unfinished):
    """Changes of results."""

    aggregated: Aggregated
    how: m.Emit

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
        """Write to a sink, and so complete the pipeline.

        Args:
            sink: such as `windrow.sqlite` or `windrow.kafka_sink`.
            name: the pipeline's name; left out, the table's.
            key_groups: the upper bound of parallelism, which stays as it is for the pipeline's life.
            salt: over how many key groups each key's records are spread before they come together.
            mode: how a live run takes records: in steps, or with ``"realtime"`` as they come, from Kafka to Kafka.
            alerts: which alerts a run raises, and where they are sent (`windrow.alerts`).

        Raises:
            PipelineError: the pipeline is invalid; the error has all its problems.
        """
        windowed = self.aggregated.windowed
        keyed = windowed.keyed
        node = m.WindowNode("", SOURCE, keyed.key, windowed.cut, self.aggregated.aggregates, self.how, salt)
        return _complete(node, ends_of(keyed.of, sink, name), key_groups, mode, alerts)


@checked
@dataclass(frozen=True)
class Processed(Unfinished):
    """Rows that a function emits for each key."""

    of: Timed | Given
    key: tuple[str, ...]
    process: m.Process

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
        """Write to a sink, and so complete the pipeline.

        Args:
            sink: such as `windrow.sqlite` or `windrow.kafka_sink`.
            name: the pipeline's name; left out, the table's.
            key_groups: the upper bound of parallelism, which stays as it is for the pipeline's life.
            at_end: at the end of a bounded input, pending timers and held records fire, or are kept.
            mode: how a live run takes records: in steps, or with ``"realtime"`` as they come, from Kafka to Kafka.
            alerts: which alerts a run raises, and where they are sent (`windrow.alerts`).

        Raises:
            PipelineError: the pipeline is invalid; the error has all its problems.
        """
        node = m.ProcessNode("", SOURCE, self.key, self.process, at_end)
        return _complete(node, ends_of(self.of, sink, name), key_groups, mode, alerts)


@checked
@dataclass(frozen=True)
class Ruled(Unfinished):
    """Alerts."""

    of: Timed | Given
    key: tuple[str, ...]
    rules: m.RuleSet

    def to(
        self,
        sink: m.Sink,
        *,
        name: str | None = None,
        key_groups: int = m.DEFAULT_KEY_GROUPS,
        mode: m.RunMode = "micro-batch",
        alerts: m.Alerts = m.DEFAULT_ALERTS,
    ) -> Pipeline:
        """Write to a sink, and so complete the pipeline.

        Args:
            sink: such as `windrow.sqlite` or `windrow.kafka_sink`.
            name: the pipeline's name; left out, the table's.
            key_groups: the upper bound of parallelism, which stays as it is for the pipeline's life.
            mode: how a live run takes records: in steps, or with ``"realtime"`` as they come, from Kafka to Kafka.
            alerts: which alerts a run raises, and where they are sent (`windrow.alerts`).

        Raises:
            PipelineError: the pipeline is invalid; the error has all its problems.
        """
        node = m.RulesNode("", SOURCE, self.key, self.rules)
        return _complete(node, ends_of(self.of, sink, name), key_groups, mode, alerts)


def _complete(node: m.ResultNode, ends: Ends, key_groups: int, mode: m.RunMode, alerts: m.Alerts) -> Pipeline:
    graph = short_graph(node, **ends, key_groups=key_groups, mode=mode, alerts=alerts)
    return Pipeline(require_valid(graph))


class Ends(TypedDict):
    """What every pipeline has: a name, the records that it begins with, and where its rows go."""

    name: str
    source: m.Source
    decode: m.Decode
    derive: tuple[m.Derive, ...]
    time: m.EventTime
    sink: m.Sink


def ends_of(of: Timed | Given, sink: m.Sink, name: str | None) -> Ends:
    """Return the ends of a pipeline of its own; raise PipelineError for a stream of a graph."""
    if not isinstance(of, Timed):
        stream = f"{of.input!r} is a stream of a graph"
        msg = f"{stream}: add what is made of it with graph.stream, and its sink with graph.sink"
        raise PipelineError(msg)
    return Ends(
        name=sink.table if name is None else name,
        source=of.decoded.source,
        decode=of.decoded.fields,
        derive=of.decoded.derived,
        time=of.time,
        sink=sink,
    )


def _derived(expressions: Mapping[str, str]) -> tuple[m.Derive, ...]:
    return tuple(m.Derive(name, sql) for name, sql in expressions.items())


def _watermark(delay: Duration | m.Adaptive | m.DelayByPartition | None, punctuated: str | None) -> m.Watermark:
    if punctuated is not None and delay is None:
        return m.Punctuated(punctuated)
    if delay is not None and punctuated is None:
        return (
            delay
            if isinstance(delay, m.Adaptive | m.DelayByPartition)
            else m.Delay(duration_micros(delay, "time.delay"))
        )
    msg = "time: give either delay (how far out of order records come) or punctuated"
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
    """A field without its name."""

    type: str | m.DataType
    alias: tuple[str, ...] = ()
    tombstones: bool = False
    path: tuple[str, ...] = ()

    def named(self, name: str) -> m.Field:
        """Return the field with a name; raise PipelineError if its type is invalid."""
        if not isinstance(self.type, str):
            return m.Field(name, self.type, alias=self.alias, tombstones=self.tombstones, path=self.path)
        try:
            type_, optional = m.parse_field_type(self.type)
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
        type_: the type, with a question mark if a record may lack the field.
        alias: other names that records may have it under.
        tombstones: a record that has a key but no value is read with its key in this field.
        path: in place of its name, the names that lead to it in nested objects: ``wr.field("string", path="user.id")``.
    """
    if isinstance(alias, str):
        msg = f"alias must be a list of names: [{alias!r}]"
        raise PipelineError(msg)
    return FieldType(type_, tuple(alias), tombstones, () if path is None else tuple(path.split(".")))
