"""A pipeline as plain values, in the shape of its YAML."""

from __future__ import annotations

from typing import Any, assert_never

from windrow.api.printing.mask import masked
from windrow.api.printing.words import function_text
from windrow.model import (
    DEFAULT_KEY_GROUPS,
    Delay,
    Emit,
    EventTime,
    KafkaSource,
    LogSource,
    Pipeline,
    PostgresSink,
    Punctuated,
    Sink,
    Source,
    SqliteSink,
    Window,
    format_duration,
)

Plain = dict[str, Any]
"""Mappings, lists, texts and whole numbers."""


def to_dict(pipeline: Pipeline) -> Plain:
    """Return the pipeline as mappings, lists, texts and whole numbers, in canonical order; secrets are ***."""
    shown = masked(pipeline)
    plain: Plain = {
        "name": shown.name,
        "source": _source(shown.source),
        "decode": {field.name: str(field.type) for field in shown.decode.fields},
        "time": _time(shown.time),
        "key": list(shown.key),
        "window": _window(shown.window),
        "aggregate": {aggregate.name: function_text(aggregate.function) for aggregate in shown.aggregates},
        "emit": _emit(shown.emit),
        "sink": _sink(shown.sink),
    }
    if shown.key_groups != DEFAULT_KEY_GROUPS:
        plain["key_groups"] = shown.key_groups
    return plain


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
        case Punctuated(field):
            plain["punctuated"] = field
        case _:
            assert_never(time.watermark)
    if time.future is not None:
        plain["future"] = format_duration(time.future)
    return plain


def _window(window: Window) -> Plain:
    size = format_duration(window.size)
    if window.offset:
        return {"tumbling": {"size": size, "offset": format_duration(window.offset)}}
    return {"tumbling": size}


def _emit(emit: Emit) -> Plain:
    plain: Plain = {"lateness": format_duration(emit.lateness), "late": emit.late, "mode": emit.mode}
    if emit.at_end != Emit.at_end:
        plain["at_end"] = emit.at_end
    return plain


def _sink(sink: Sink) -> Plain:
    match sink:
        case SqliteSink(path, table, key, decimals):
            plain: Plain = {"path": path, "table": table}
            if key:
                plain["key"] = list(key)
            if decimals != SqliteSink.decimals:
                plain["decimals"] = decimals
            return {"sqlite": plain}
        case PostgresSink(url, table, key):
            return {"postgres": {"url": url, "table": table} | ({"key": list(key)} if key else {})}
        case _:
            assert_never(sink)
