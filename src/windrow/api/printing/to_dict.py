"""A pipeline as plain values, in the shape of its YAML."""

from __future__ import annotations

from typing import Any, assert_never

from windrow.api.aggregate_text import aggregate_text
from windrow.api.calendar_size import format_calendar_size
from windrow.api.code_name import code_name
from windrow.api.printing.mask import masked
from windrow.api.printing.process_words import process_plain
from windrow.model import (
    DEFAULT_KEY_GROUPS,
    Adaptive,
    AllOf,
    AnyOf,
    AnyPipeline,
    Calendar,
    Delay,
    Emit,
    EventTime,
    Every,
    Field,
    Global,
    Hopping,
    KafkaSource,
    LogSource,
    Pipeline,
    PostgresSink,
    ProcessPipeline,
    Punctuated,
    Records,
    Repeat,
    Session,
    Sink,
    Source,
    SqliteSink,
    Trigger,
    Tumbling,
    When,
    Window,
    format_duration,
)

Plain = dict[str, Any]
"""Mappings, lists, texts and numbers."""


def to_dict(pipeline: AnyPipeline) -> Plain:
    """Return the pipeline as mappings, lists, texts and numbers, in canonical order; secrets are ***.

    Python code in it (an aggregate or a trigger of a person's own) is told by its name, which no file reads back.
    """
    shown = masked(pipeline)
    plain: Plain = {
        "name": shown.name,
        "source": _source(shown.source),
        "decode": {field.name: _field(field) for field in shown.decode.fields},
    }
    if shown.derive:
        plain["derive"] = {derived.name: derived.sql for derived in shown.derive}
    plain |= {"time": _time(shown.time), "key": list(shown.key)}
    plain |= process_plain(shown) if isinstance(shown, ProcessPipeline) else _windowed(shown)
    plain["sink"] = _sink(shown.sink)
    if shown.key_groups != DEFAULT_KEY_GROUPS:
        plain["key_groups"] = shown.key_groups
    if isinstance(shown, Pipeline) and shown.salt != 1:
        plain["salt"] = shown.salt
    return plain


def _field(field: Field) -> str | Plain:
    return {"type": field.type_text, "alias": list(field.alias)} if field.alias else field.type_text


def _windowed(shown: Pipeline) -> Plain:
    return {
        "window": _window(shown.window),
        "aggregate": {aggregate.name: aggregate_text(aggregate) for aggregate in shown.aggregates},
        "emit": _emit(shown.emit),
    }


def _source(source: Source) -> Plain:
    match source:
        case LogSource(path):
            return {"log": {"path": path}}
        case KafkaSource(servers, topic, start, options):
            plain: Plain = {"servers": servers, "topic": topic, "start": start}
            if options:
                plain["options"] = dict(options)
            return {"kafka": plain}
        case _:
            assert_never(source)


def _time(time: EventTime) -> Plain:
    plain: Plain = {"field": time.field}
    match time.watermark:
        case Delay(micros):
            plain["delay"] = format_duration(micros)
        case Adaptive(target, least, most):
            bounds = {"min": format_duration(least), "max": format_duration(most)}
            plain["delay"] = {"adaptive": {"target": target} | bounds}
        case Punctuated(field):
            plain["punctuated"] = field
        case _:
            assert_never(time.watermark)
    if time.future is not None:
        plain["future"] = format_duration(time.future)
    if time.sent is not None:
        plain["sent"] = time.sent
    if time.idle is not None:
        plain["idle"] = format_duration(time.idle)
    if time.all_idle != EventTime.all_idle:
        plain["all_idle"] = time.all_idle
    return plain


def _window(window: Window) -> Plain:
    match window:
        case Tumbling(size, offset):
            whole: Plain = {"size": format_duration(size)} | _offset(offset)
            return {"tumbling": whole if offset else whole["size"]}
        case Calendar(_, _, zone, offset):
            whole = {"size": format_calendar_size(window)}
            if zone != Calendar.zone:
                whole["zone"] = zone
            whole |= _offset(offset)
            return {"tumbling": whole if len(whole) > 1 else whole["size"]}
        case Hopping(size, slide, offset):
            return {"hopping": {"size": format_duration(size), "slide": format_duration(slide)} | _offset(offset)}
        case Session(gap):
            return {"session": format_duration(gap)}
        case Global():
            return {"global": {}}
        case _:
            assert_never(window)


def _offset(micros: int) -> Plain:
    return {"offset": format_duration(micros)} if micros else {}


def _emit(emit: Emit) -> Plain:
    plain: Plain = {"lateness": format_duration(emit.lateness), "late": emit.late, "mode": emit.mode}
    if emit.at_end != Emit.at_end:
        plain["at_end"] = emit.at_end
    if emit.early is not None:
        plain["early"] = _trigger(emit.early)
    return plain


def _trigger(trigger: Trigger) -> Plain:
    match trigger:
        case Every(micros):
            return {"every": format_duration(micros)}
        case Records(number):
            return {"count": number}
        case AnyOf(parts):
            return {"any_of": [_trigger(part) for part in parts]}
        case AllOf(parts):
            return {"all_of": [_trigger(part) for part in parts]}
        case Repeat(part, times):
            return {"repeat": {"trigger": _trigger(part), "times": times}}
        case When(predicate):
            return {"when": code_name(predicate)}
        case _:
            assert_never(trigger)


def _sink(sink: Sink) -> Plain:
    key: Plain = {"key": list(sink.key)} if sink.key else {}
    changelog: Plain = {} if sink.changelog else {"changelog": False}
    match sink:
        case SqliteSink(path, table, _, decimals):
            kept = {} if decimals == SqliteSink.decimals else {"decimals": decimals}
            return {"sqlite": {"path": path, "table": table} | key | kept | changelog}
        case PostgresSink(url, table):
            return {"postgres": {"url": url, "table": table} | key | changelog}
        case _:
            assert_never(sink)
