"""Sections of a pipeline file, each read into its part of the model.

`Sections` are those that say what a pipeline means, apart from where it reads and writes: a story of a transcript has
them too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import yaml

from windrow.api.aggregate_text import parse_aggregate
from windrow.api.yaml.node import ReadResult, YamlMapping, YamlNode, read_one_of, read_texts
from windrow.errors import PipelineError
from windrow.model import (
    Adaptive,
    Aggregate,
    AllOf,
    AnyOf,
    Calendar,
    CalendarUnit,
    DataType,
    Decode,
    Delay,
    Derive,
    Emit,
    EventTime,
    Every,
    Field,
    Global,
    Hopping,
    KafkaSource,
    LogSource,
    Mode,
    PostgresSink,
    Punctuated,
    Records,
    Repeat,
    Session,
    Sink,
    Source,
    SqliteSink,
    Trigger,
    Tumbling,
    Watermark,
    Window,
    parse_field_type,
)
from windrow.model.windows import parse_calendar_size

SECTION_KEYS = ("derive", "time", "key", "window", "aggregate", "emit", "salt")


@dataclass(frozen=True)
class Sections:
    """What a story's `pipeline` holds; whether its fields exist and fit is for `validate` to say."""

    time: EventTime
    key: tuple[str, ...]
    window: Window
    aggregates: tuple[Aggregate, ...]
    emit: Emit
    derive: tuple[Derive, ...] = ()
    salt: int = 1


@dataclass(frozen=True)
class SectionsRead:
    """The sections while other keys of the same mapping are still being read."""

    derive: ReadResult[tuple[Derive, ...]]
    time: ReadResult[EventTime]
    key: ReadResult[Key]
    window: ReadResult[Window]
    aggregates: ReadResult[tuple[Aggregate, ...]]
    emit: ReadResult[Emit]
    salt: ReadResult[int]

    @property
    def value(self) -> Sections:
        """What they hold, once the mapping they stand in is checked."""
        return Sections(
            time=self.time.value,
            key=self.key.value.names,
            window=self.window.value,
            aggregates=self.aggregates.value,
            emit=self.emit.value,
            derive=self.derive.value + self.key.value.derive,
            salt=self.salt.value,
        )


def read_sections(node: yaml.Node, file: str) -> Sections:
    """Read a mapping of `time`, `key`, `window`, `aggregate` and perhaps `derive`, `emit` and `salt`.

    Raise PipelineError, with file:line, for whatever is wrong with it (all of it at once).
    """
    fields = YamlMapping(YamlNode(node, file), SECTION_KEYS)
    read = section_fields(fields)
    fields.check()
    return read.value


def section_fields(fields: YamlMapping) -> SectionsRead:
    """Read the sections of a mapping that may have other keys too."""
    return SectionsRead(
        derive=fields.optional("derive", read_derive, ()),
        time=fields.required("time", read_time),
        key=fields.required("key", read_key),
        window=fields.required("window", read_window),
        aggregates=fields.required("aggregate", read_aggregates),
        emit=fields.optional("emit", read_emit, Emit()),
        salt=fields.optional("salt", YamlNode.number, 1),
    )


_START: tuple[Literal["earliest", "latest"], ...] = ("earliest", "latest")


def read_source(spot: YamlNode) -> Source:
    """Read ``{log: {path: ...}}`` or ``{kafka: {servers: ..., topic: ..., start: ..., options: {...}}}``."""
    return read_one_of(spot, "source", _SOURCES)


def _log(spot: YamlNode) -> LogSource:
    fields = YamlMapping(spot, ("path",))
    path = fields.required("path", YamlNode.text)
    fields.check()
    return LogSource(path.value)


def _kafka(spot: YamlNode) -> KafkaSource:
    fields = YamlMapping(spot, ("servers", "topic", "start", "options"))
    servers = fields.required("servers", YamlNode.text)
    topic = fields.required("topic", YamlNode.text)
    start = fields.optional("start", lambda entry: entry.choice(_START), KafkaSource.start)
    options = fields.optional("options", _kafka_options, ())
    fields.check()
    return KafkaSource(servers.value, topic.value, start.value, options.value)


def _kafka_options(spot: YamlNode) -> tuple[tuple[str, str], ...]:
    fields = YamlMapping(spot)
    options = [(name, fields.attempt(YamlNode.text, entry)) for name, entry in fields]
    fields.check()
    return tuple((name, option.value) for name, option in options)


_SOURCES: dict[str, Callable[[YamlNode], Source]] = {"log": _log, "kafka": _kafka}


_CUT_TYPE = re.compile(r"decimal\s*\(\s*\d+\s*")
_REST_OF_TYPE = re.compile(r"\s*\d+\s*\)\??")


def read_decode(spot: YamlNode) -> Decode:
    """Read ``{user: string, country: "string?", amount: {type: "decimal(12,2)", alias: [amt]}}``."""
    fields = YamlMapping(spot)
    read = []
    cut = False
    for name, entry in fields:
        if cut and _REST_OF_TYPE.fullmatch(name):
            continue  # reported already, with the first half
        cut = bool(entry.is_scalar and _CUT_TYPE.fullmatch(entry.node.value))
        read.append(fields.attempt(partial(_read_field, name), entry))
    fields.check()
    return Decode(tuple(field.value for field in read))


def _read_field(name: str, spot: YamlNode) -> Field:
    if not spot.is_mapping:
        return Field(name, *spot.parsed(_parse_whole_type))
    fields = YamlMapping(spot, ("type", "alias"))
    type_ = fields.required("type", lambda one: one.parsed(_parse_whole_type), 'such as type: "decimal(12,2)"')
    alias = fields.optional("alias", lambda one: one.each(YamlNode.text), ())
    fields.check()
    return Field(name, *type_.value, alias.value)


def _parse_whole_type(text: str) -> tuple[DataType, bool]:
    if _CUT_TYPE.fullmatch(text):
        msg = 'a comma ends a value within {...}; put the type in quotes: "decimal(12,2)"'
        raise PipelineError(msg)
    return parse_field_type(text)


def read_derive(spot: YamlNode) -> tuple[Derive, ...]:
    """Read ``{domain: "split_part(url, '/', 3)"}``."""
    return tuple(Derive(name, sql) for name, sql in read_texts(spot, str.strip))


_ALL_IDLE: tuple[Literal["hold", "advance"], ...] = ("hold", "advance")


def read_time(spot: YamlNode) -> EventTime:
    """Read ``{field: t, delay: 10m, future: 1h}``; `punctuated` in place of `delay`, `sent`, `idle` and `all_idle`."""
    fields = YamlMapping(spot, ("field", "delay", "punctuated", "future", "sent", "idle", "all_idle"))
    field = fields.required("field", YamlNode.text)
    watermark = _watermark(fields)
    future = fields.optional("future", YamlNode.duration, None)
    sent = fields.optional("sent", YamlNode.text, None)
    idle = fields.optional("idle", YamlNode.duration, None)
    all_idle = fields.optional("all_idle", lambda entry: entry.choice(_ALL_IDLE), EventTime.all_idle)
    fields.check()
    return EventTime(field.value, watermark.value, future.value, sent.value, idle.value, all_idle.value)


def _watermark(fields: YamlMapping) -> ReadResult[Watermark]:
    if "punctuated" not in fields:
        return fields.required("delay", _delay, "(how far out of order records come), or 'punctuated'")
    if "delay" in fields:
        spot = fields.spot
        msg = f"{spot.called} has both 'delay' and 'punctuated'; a punctuated source carries its watermark itself"
        fields.problem(spot.error(msg))
    return fields.required("punctuated", lambda entry: Punctuated(entry.text()))


def _delay(spot: YamlNode) -> Delay | Adaptive:
    """Read ``10m`` or ``{adaptive: {target: 0.999, min: 10s, max: 10m}}``."""
    return Delay(spot.duration()) if spot.is_scalar else read_one_of(spot, "delay", {"adaptive": _adaptive})


def _adaptive(spot: YamlNode) -> Adaptive:
    fields = YamlMapping(spot, ("target", "min", "max"))
    target = fields.required("target", YamlNode.fraction)
    least = fields.required("min", YamlNode.duration)
    most = fields.required("max", YamlNode.duration)
    fields.check()
    return Adaptive(target.value, least.value, most.value)


T = TypeVar("T")


@dataclass(frozen=True)
class Key:
    """The fields of the key, and those of them that are derived right there."""

    names: tuple[str, ...]
    derive: tuple[Derive, ...] = ()


def read_key(spot: YamlNode) -> Key:
    """Read ``[user, {domain: "split_part(url, '/', 3)"}]``, or ``user`` for a single one."""
    parts = each_item(spot, _read_key_part)
    names = tuple(one if isinstance(one, str) else one.name for part in parts for one in part)
    return Key(names, tuple(one for part in parts for one in part if isinstance(one, Derive)))


def _read_key_part(spot: YamlNode) -> tuple[str | Derive, ...]:
    if not spot.is_mapping:
        return (spot.text(),)
    derived = read_derive(spot)
    if not derived:
        msg = f"{spot.called} is empty; name a field, or give one with its expression"
        raise spot.error(msg)
    return derived


def read_names(spot: YamlNode) -> tuple[str, ...]:
    """Read ``[a, b]``, or ``a`` for a single one."""
    return each_item(spot, YamlNode.text)


def each_item(spot: YamlNode, read: Callable[[YamlNode], T]) -> tuple[T, ...]:
    """Read each item of a list of names, or the one name that stands in its place; all their problems are reported."""
    if not spot.is_list:
        if not spot.is_scalar:
            raise spot.wrong_kind(expected="a name or a list of names")
        return (read(spot),)
    return spot.each(read)


def read_window(spot: YamlNode) -> Window:
    """Read ``{tumbling: 5m}``, ``{hopping: {size: 1h, slide: 1m}}``, ``{session: 30m}`` or ``{global: {}}``."""
    return read_one_of(spot, "kind of window", _WINDOWS)


def _tumbling(spot: YamlNode) -> Tumbling | Calendar:
    if spot.is_scalar:
        size = _window_size(spot)
        return Tumbling(size) if isinstance(size, int) else Calendar(*size)
    fields = YamlMapping(spot, ("size", "zone", "offset"))
    read: ReadResult[int | tuple[int, CalendarUnit]] = fields.required("size", _window_size)
    offset = fields.optional("offset", YamlNode.duration, 0)
    zone = fields.optional("zone", YamlNode.text, None)
    if "zone" in fields and isinstance(read.result, int):
        msg = (
            f"{spot.called} has a zone, but its size has the same length in every zone; "
            "leave the zone out, or give a number of days, weeks or months, such as 1 day"
        )
        fields.problem(spot.error(msg))
    fields.check()
    size = read.value
    if isinstance(size, int):
        return Tumbling(size, offset.value)
    return Calendar(*size, zone=zone.value or Calendar.zone, offset=offset.value)


def _window_size(spot: YamlNode) -> int | tuple[int, CalendarUnit]:
    """Read a duration, or so many days, weeks or months."""
    calendar = parse_calendar_size(spot.text())
    if calendar:
        return calendar
    try:
        return spot.duration()
    except PipelineError as exc:
        msg = f"{exc.message}; or a number of days, weeks or months, such as 1 day"
        raise spot.error(msg) from exc


def _hopping(spot: YamlNode) -> Hopping:
    fields = YamlMapping(spot, ("size", "slide", "offset"))
    size = fields.required("size", YamlNode.duration)
    slide = fields.required("slide", YamlNode.duration)
    offset = fields.optional("offset", YamlNode.duration, 0)
    fields.check()
    return Hopping(size.value, slide.value, offset.value)


def _session(spot: YamlNode) -> Session:
    return Session(spot.duration())


def _global(spot: YamlNode) -> Global:
    YamlMapping(spot, ()).check()
    return Global()


_WINDOWS: dict[str, Callable[[YamlNode], Window]] = {
    "tumbling": _tumbling,
    "hopping": _hopping,
    "session": _session,
    "global": _global,
}


_DEEPEST_TRIGGER = 20


def read_trigger(spot: YamlNode, above: tuple[yaml.Node, ...] = ()) -> Trigger:
    """Read ``{every: 30s}``, ``{count: 100}``, ``{any_of: [...]}``, ``{all_of: [...]}`` or ``{repeat: {...}}``.

    `above` are the triggers that it is a part of: by a YAML alias, it can be one of them.
    """
    if any(spot.node is node for node in above) or len(above) > _DEEPEST_TRIGGER:
        msg = f"{spot.called} is nested too deeply"
        raise spot.error(msg)
    inner = partial(read_trigger, above=(*above, spot.node))
    kinds: dict[str, Callable[[YamlNode], Trigger]] = {
        "every": lambda entry: Every(entry.duration()),
        "count": lambda entry: Records(entry.number()),
        "any_of": lambda entry: AnyOf(entry.each(inner)),
        "all_of": lambda entry: AllOf(entry.each(inner)),
        "repeat": partial(_repeat, inner=inner),
    }
    return read_one_of(spot, "trigger", kinds)


def _repeat(spot: YamlNode, inner: Callable[[YamlNode], Trigger]) -> Repeat:
    fields = YamlMapping(spot, ("trigger", "times"))
    trigger = fields.required("trigger", inner)
    times = fields.required("times", YamlNode.number)
    fields.check()
    return Repeat(trigger.value, times.value)


def read_aggregates(spot: YamlNode) -> tuple[Aggregate, ...]:
    """Read ``{total: sum(amount), buys: "count() where kind = 'buy'", mean: total / events}``."""
    return tuple(
        Aggregate(name, measure.function, measure.where) for name, measure in read_texts(spot, parse_aggregate)
    )


_LATE: tuple[Literal["each", "batch"], ...] = ("each", "batch")
_MODE: tuple[Mode, ...] = ("retract", "accumulate", "discard")
_AT_END: tuple[Literal["fire", "hold"], ...] = ("fire", "hold")


def read_emit(spot: YamlNode) -> Emit:
    """Read ``{lateness: 1h, late: each, mode: retract, at_end: fire, early: {every: 30s}}``; each has a default."""
    fields = YamlMapping(spot, ("lateness", "late", "mode", "at_end", "early"))
    default = Emit()
    lateness = fields.optional("lateness", YamlNode.duration, default.lateness)
    late = fields.optional("late", lambda entry: entry.choice(_LATE), default.late)
    mode = fields.optional("mode", lambda entry: entry.choice(_MODE), default.mode)
    at_end = fields.optional("at_end", lambda entry: entry.choice(_AT_END), default.at_end)
    early = fields.optional("early", read_trigger, default.early)
    fields.check()
    return Emit(lateness.value, late.value, mode.value, at_end.value, early.value)


_DECIMALS: tuple[Literal["numeric", "text"], ...] = ("numeric", "text")


def read_sink(spot: YamlNode) -> Sink:
    """Read ``{sqlite: {path, table, key, decimals, changelog}}`` or ``{postgres: {url, table, key, changelog}}``."""
    return read_one_of(spot, "sink", _SINKS)


def _sqlite(spot: YamlNode) -> SqliteSink:
    fields = YamlMapping(spot, ("path", "table", "key", "decimals", "changelog"))
    path = fields.required("path", YamlNode.text)
    table = fields.required("table", YamlNode.text)
    key = fields.optional("key", read_names, ())
    decimals = fields.optional("decimals", lambda entry: entry.choice(_DECIMALS), SqliteSink.decimals)
    changelog = fields.optional("changelog", _flag, SqliteSink.changelog)
    fields.check()
    return SqliteSink(path.value, table.value, key.value, decimals.value, changelog.value)


def _postgres(spot: YamlNode) -> PostgresSink:
    fields = YamlMapping(spot, ("url", "table", "key", "changelog"))
    url = fields.required("url", YamlNode.text)
    table = fields.required("table", YamlNode.text)
    key = fields.optional("key", read_names, ())
    changelog = fields.optional("changelog", _flag, PostgresSink.changelog)
    fields.check()
    return PostgresSink(url.value, table.value, key.value, changelog.value)


def _flag(spot: YamlNode) -> bool:
    return spot.choice(("true", "false")) == "true"


_SINKS: dict[str, Callable[[YamlNode], Sink]] = {"sqlite": _sqlite, "postgres": _postgres}
