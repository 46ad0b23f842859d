"""The sections `window`, `aggregate` and `emit`, which define results and when they are emitted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from windrow import model as m
from windrow.authoring.aggregate_text import aggregate_text, call_of, parse_aggregate
from windrow.declare.python_code import code_name
from windrow.declare.spec import (
    CODE,
    DURATION,
    NUMBER,
    TEXT_SCHEMA,
    Deferred,
    Each,
    Key,
    Kind,
    OneOf,
    Scalar,
    Schema,
    Section,
    Spec,
    Wrapped,
    call_by_names,
    choice,
    mapping_schema,
)
from windrow.declare.yaml_node import YamlNode, read_texts
from windrow.errors import PipelineError
from windrow.model.windows import (
    CALENDAR_SIZE_PATTERN,
    CalendarUnit,
    format_calendar_size,
    parse_calendar_size,
    parse_day,
)

WindowSize = int | tuple[int, CalendarUnit]


def _read_size(node: YamlNode) -> WindowSize:
    """Read a duration, or a calendar length such as ``1 day``: a number of hours, days, weeks or months."""
    calendar = parse_calendar_size(node.text())
    if calendar:
        return calendar
    try:
        return node.duration()
    except PipelineError as exc:
        msg = f"{exc.message}; or a number of hours, days, weeks or months, such as 1 day"
        raise node.error(msg) from exc


_SIZE_SCHEMA: Schema = {
    "type": "string",
    "pattern": rf"^({m.DURATION_PATTERN}|\s*{CALENDAR_SIZE_PATTERN}\s*)$",
    "examples": ["5m", "1h", "1 day", "1 month"],
}


def _size_text(size: WindowSize) -> str:
    return m.format_duration(size) if isinstance(size, int) else format_calendar_size(*size)


def _tumbling(size: WindowSize, zone: str | None, offset: int, origin: date | None) -> m.Tumbling | m.Calendar:
    if isinstance(size, int):
        return m.Tumbling(size, offset)
    return m.Calendar(*size, zone=zone or m.Calendar.zone, offset=offset, origin=origin)


def _tumbling_parts(window: m.Tumbling | m.Calendar) -> Mapping[str, Any]:
    if isinstance(window, m.Tumbling):
        return {"size": window.size, "zone": None, "offset": window.offset, "origin": None}
    zone = None if window.zone == m.Calendar.zone else window.zone
    return {"size": (window.count, window.unit), "zone": zone, "offset": window.offset, "origin": window.origin}


def _tumbling_conflict(given: Mapping[str, object]) -> str | None:
    if isinstance(given.get("size"), int):
        if "zone" in given:
            return (
                "has a zone, but its size has the same length in every zone; "
                "remove the zone, or give a number of hours, days, weeks or months, such as 1 day"
            )
        if "origin" in given:
            return "has an origin, which only a number of hours, days, weeks or months has; give an offset"
    return None


def _tumbling_words(window: m.Tumbling | m.Calendar) -> str:
    size = _size_text(_tumbling_parts(window)["size"])
    zone = f" in {window.zone}" if isinstance(window, m.Calendar) else ""
    origin = f", counted from {window.origin}" if isinstance(window, m.Calendar) and window.origin else ""
    return f"tumbling, {size} long{zone}{origin}{_shift_words(window.offset)}"


def _shift_words(offset: int) -> str:
    return f", shifted by {m.format_duration(offset)}" if offset else ""


_OFFSET = "windows start at the epoch plus a multiple of the {0} plus this offset, which must be shorter than the {0}."
_TUMBLING = Section(
    "wr.tumbling",
    _tumbling,
    (
        Key(
            "size",
            Scalar("duration or days", _read_size, _size_text, _SIZE_SCHEMA),
            "the length of a window. Lengths of the calendar are a number, a space and `hour`, `day`, `week` or "
            "`month` (or their plural): `6 hours`, `1 day`, `2 weeks`. A day may have 23 or 25 hours (`1d` is 24 "
            "hours). They are counted from 1970-01-01, weeks from Monday 1969-12-29.",
            required=True,
            positional=True,
            note="required in the mapping form",
        ),
        Key(
            "zone",
            Scalar("name of a time zone", YamlNode.text),
            "the time zone of calendar windows, such as `Europe/Berlin`.",
            note=f"default `{m.Calendar.zone}`",
        ),
        Key(
            "offset",
            DURATION,
            f"{_OFFSET.format('size')} In a time zone it is local time: with `6h`, days start at 6 in the morning.",
            default=0,
        ),
        Key(
            "origin",
            Scalar("day", lambda node: node.parsed(parse_day), str, {"type": "string", "format": "date"}),
            "a day from which calendar windows are counted: with `2026-04-15` and `3 months` they start on the 15th "
            "of January, April, July and October. For months, one of the first 28 days.",
        ),
    ),
    parts=_tumbling_parts,
    conflict=_tumbling_conflict,
    short=True,
    called="duration, days or mapping",
)
_HOPPING = Section(
    "wr.hopping",
    m.Hopping,
    (
        Key("size", DURATION, "the length of a window.", required=True, positional=True),
        Key(
            "slide",
            DURATION,
            "the distance between the starts of two windows. A record may be in at most 10,000 windows. `check` warns"
            " if the slide is longer than the size, as some records are then in no window.",
            required=True,
        ),
        Key("offset", DURATION, _OFFSET.format("slide"), default=0),
    ),
)
_CUMULATE = Section(
    "wr.cumulate",
    m.Cumulate,
    (
        Key("size", DURATION, "the length of the longest window.", required=True, positional=True),
        Key(
            "step",
            DURATION,
            "how much longer each window is than the previous one. The size is a multiple, at most 10,000 times as "
            "long.",
            required=True,
            positional=True,
        ),
        Key("offset", DURATION, _OFFSET.format("size"), default=0),
    ),
)


def _read_gap(node: YamlNode) -> int | str:
    """Read a duration; any other text is an expression."""
    try:
        return node.duration()
    except PipelineError:
        return node.text()


def _session(gap: int | str, most: int | None) -> m.Session:
    return m.Session(gap) if isinstance(gap, int) else m.Session(most or 0, gap)


def _session_parts(window: m.Session) -> Mapping[str, Any]:
    return {"gap": window.gap, "max": None} if window.by is None else {"gap": window.by, "max": window.gap or None}


def _session_conflict(given: Mapping[str, object]) -> str | None:
    if isinstance(given.get("gap"), int) and "max" in given:
        return "has a max, but the same gap for all records; remove the max, or give an SQL expression as the gap"
    return None


def _session_words(window: m.Session) -> str:
    if window.by is None:
        return f"sessions of records less than {m.format_duration(window.gap)} apart"
    most = m.format_duration(window.gap)
    return f"sessions of records less than the gap of the earlier record apart, {window.by} seconds, at most {most}"


_SESSION = Section(
    "wr.session",
    _session,
    (
        Key(
            "gap",
            Scalar(
                "duration or expression", _read_gap, lambda gap: gap if isinstance(gap, str) else m.format_duration(gap)
            ),
            "a duration such as `30m`, or an [expression](../concepts/expressions.md) for each record's own gap in "
            "seconds.",
            required=True,
            positional=True,
            note="required in the mapping form",
        ),
        Key(
            "max",
            DURATION,
            "the longest gap that an expression may give; required for an expression. A record whose gap is longer, "
            "null, or not longer than 0 is a dead letter.",
            field="most",
        ),
    ),
    parts=_session_parts,
    conflict=_session_conflict,
    short=True,
    called="duration or mapping",
)
WINDOW: OneOf[m.Window] = OneOf(
    "kind of window",
    {
        "tumbling": Kind(
            (m.Tumbling, m.Calendar),
            _TUMBLING,
            _tumbling_words,
            "consecutive windows of the same size that do not overlap: `5m`.",
        ),
        "hopping": Kind(
            (m.Hopping,),
            _HOPPING,
            lambda window: (
                f"hopping, {m.format_duration(window.size)} long, one every {m.format_duration(window.slide)}"
                f"{_shift_words(window.offset)}"
            ),
            "overlapping windows of the same size.",
        ),
        "cumulate": Kind(
            (m.Cumulate,),
            _CUMULATE,
            lambda window: (
                f"cumulate, {m.format_duration(window.size)} at most, growing by {m.format_duration(window.step)}"
                f"{_shift_words(window.offset)}"
            ),
            "growing windows: all windows of one `size` start together, each a `step` longer than the previous one. "
            "`{size: 1d, step: 1h}` adds up a day by the hour.",
        ),
        "session": Kind(
            (m.Session,),
            _SESSION,
            _session_words,
            "records of a key that are less than the gap apart are in one window, which ends one gap after the last "
            "record.",
        ),
        "global": Kind(
            (m.Global,),
            Section("wr.global_window", m.Global, ()),
            lambda _: "one window for all time",
            "one window for all time, `{}`. It requires `emit.early`, and no record is late. Over rows that change, "
            "or if other streams read it, each change revises the results, without `early`.",
        ),
    },
)


class _Aggregates(Spec[tuple[m.Aggregate, ...]]):
    """The section `aggregate`, such as ``{total: sum(amount), buys: "count() where kind = 'buy'"}``."""

    called = "mapping of names to functions"

    def read(self, node: YamlNode) -> tuple[m.Aggregate, ...]:
        return tuple(
            m.Aggregate(name, measure.function, measure.where) for name, measure in read_texts(node, parse_aggregate)
        )

    def plain(self, value: tuple[m.Aggregate, ...]) -> dict[str, str]:
        return {aggregate.name: aggregate_text(aggregate) for aggregate in value}

    def python(self, value: tuple[m.Aggregate, ...]) -> str:
        return call_by_names(".aggregate", [(aggregate.name, _python_aggregate(aggregate)) for aggregate in value])

    def schema(self) -> Schema:
        return mapping_schema(TEXT_SCHEMA)


def _python_aggregate(aggregate: m.Aggregate) -> str:
    given: tuple[object, ...]
    match aggregate.function:
        case m.Formula(sql):
            name, given = "formula", (sql,)
        case m.Custom():
            msg = "refuse_code must be called first: Python code cannot be printed"
            raise TypeError(msg)
        case function:
            name, given = call_of(function)
    where = [] if aggregate.where is None else [f"where={aggregate.where!r}"]
    return f"wr.{name}({', '.join([*map(repr, given), *where])})"


AGGREGATE = _Aggregates()


_NESTED: Deferred[m.Trigger] = Deferred("mapping", lambda: TRIGGER, "trigger")
_TRIGGERS: Each[m.Trigger] = Each("list of triggers", _NESTED)

TRIGGER: OneOf[m.Trigger] = OneOf(
    "trigger",
    {
        "every": Kind(
            (m.Every,),
            Wrapped("wr.every", m.Every, "micros", DURATION),
            lambda trigger: f"{m.format_duration(trigger.micros)} of processing time after a record",
            "fires after this much processing time. A replay does not repeat these panes.",
        ),
        "event_time": Kind(
            (m.EveryEventTime,),
            Wrapped("wr.every_event_time", m.EveryEventTime, "micros", DURATION),
            lambda trigger: f"whenever the watermark has advanced by {m.format_duration(trigger.micros)} in the window",
            "fires when the watermark has advanced by this much since the window's start. A replay repeats these "
            "panes. Cannot be combined with other triggers.",
        ),
        "count": Kind(
            (m.Records,),
            Wrapped("wr.every_count", m.Records, "number", NUMBER),
            lambda trigger: "after every record" if trigger.number == 1 else f"after every {trigger.number} records",
            "fires after this number of records, 1 or more.",
        ),
        "any_of": Kind(
            (m.AnyOf,),
            Wrapped("wr.any_of", m.AnyOf, "triggers", _TRIGGERS),
            lambda trigger: f"({' or '.join(map(TRIGGER.words, trigger.triggers))})",
            "fires when one of these triggers does; two or more.",
        ),
        "all_of": Kind(
            (m.AllOf,),
            Wrapped("wr.all_of", m.AllOf, "triggers", _TRIGGERS),
            lambda trigger: f"({' and '.join(map(TRIGGER.words, trigger.triggers))})",
            "fires when each of these triggers has fired; two or more.",
        ),
        "repeat": Kind(
            (m.Repeat,),
            Section(
                "wr.repeat",
                m.Repeat,
                (
                    Key("trigger", _NESTED, "the other trigger.", required=True, positional=True),
                    Key("times", NUMBER, "the maximum number of panes, 1 or more.", required=True),
                ),
            ),
            lambda trigger: (
                f"{TRIGGER.words(trigger.trigger)}, at most {trigger.times} time{'' if trigger.times == 1 else 's'}"
            ),
            "fires as another trigger does, at most `times` times.",
        ),
        "when": Kind(
            (m.When,),
            Wrapped("wr.when", m.When, "predicate", CODE),
            lambda trigger: f"when {code_name(trigger.predicate)} returns True",
            "",
            python_only=True,
        ),
    },
)

LATE: OneOf[m.Late] = OneOf(
    "kind of late panes",
    {
        "count": Kind(
            (m.Records,),
            Wrapped("wr.every_count", m.Records, "number", NUMBER),
            lambda late: f"one revision for every {late.number} of a key",
            "one revision for every N late records of a window and key, in log order, and one for the rest when the "
            "window is dropped or the input ends. Not for sessions.",
            note="in place of a word",
        )
    },
    scalar=Kind(
        (str,),
        choice("each", "batch"),
        lambda late: "one revision for each" if late == "each" else "one revision per step",
        "",
    ),
)

EMIT = Section(
    ".emit",
    m.Emit,
    (
        Key(
            "lateness",
            DURATION,
            "how long after a window's end, by the watermark, late records revise it. Later records are expired and "
            "go to the [late output](tables.md#t_late).",
            default=m.Emit.lateness,
            shown=True,
        ),
        Key(
            "late",
            LATE,
            "one revision for each late record, one per step, or one for every N of a window and key.",
            default=m.Emit.late,
            shown=True,
        ),
        Key(
            "mode",
            choice("retract", "accumulate", "discard"),
            "with `retract`, a revision retracts the old row and emits the new one, in the "
            "[changelog](tables.md#t_changes). With `accumulate` it emits the new row only. With `discard` a pane has"
            " only the records since the previous pane and is a row of its own: the primary key of the result table "
            "then includes `revision`.",
            default=m.Emit.mode,
            shown=True,
        ),
        Key(
            "at_end",
            choice("fire", "hold"),
            "whether open windows fire at the end of a bounded run, or stay open.",
            default=m.Emit.at_end,
        ),
        Key(
            "early",
            TRIGGER,
            "a trigger for panes before the watermark has passed a window's end, of one of the kinds below. It is "
            "evaluated per window and key over the on-time records; each pane resets it.",
        ),
    ),
)
