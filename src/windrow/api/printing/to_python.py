"""A pipeline as the fluent source text that makes it."""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from typing import assert_never

from windrow.api.printing.mask import masked
from windrow.api.printing.words import function_name
from windrow.model import (
    DEFAULT_KEY_GROUPS,
    Count,
    Delay,
    Emit,
    EventTime,
    Function,
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


def to_python(pipeline: Pipeline) -> str:
    """Return a Python expression (``wr`` is windrow) that makes the pipeline; secrets are ***."""
    shown = masked(pipeline)
    steps = [
        _source(shown.source),
        f".decode({_named((field.name, repr(str(field.type))) for field in shown.decode.fields)})",
        _time(shown.time),
        f".key_by({', '.join(map(repr, shown.key))})",
        f".window({_window(shown.window)})",
        f".aggregate({_named((aggregate.name, _function(aggregate.function)) for aggregate in shown.aggregates)})",
        _emit(shown.emit),
        _to(shown),
    ]
    return "(\n" + "".join(f"    {step}\n" for step in steps) + ")\n"


def to_python_file(pipeline: Pipeline) -> str:
    """Return a Python file with the pipeline in it, as `pipeline`; secrets are ***."""
    return f"import windrow as wr\n\npipeline = {to_python(pipeline)}"


def _named(values: Iterable[tuple[str, str]]) -> str:
    """Write keyword arguments; names that are no Python names, or that Python would normalise, go in by ``**``."""
    pairs = list(values)
    if all(name.isascii() and name.isidentifier() and not keyword.iskeyword(name) for name, _ in pairs):
        return ", ".join(f"{name}={value}" for name, value in pairs)
    return "**{" + ", ".join(f"{name!r}: {value}" for name, value in pairs) + "}"


def _source(source: Source) -> str:
    match source:
        case LogSource(path):
            return f"wr.log({path!r})"
        case KafkaSource(servers, topic, start, options):
            more = f", options={dict(options)!r}" if options else ""
            return f"wr.kafka({topic!r}, servers={servers!r}, start={start!r}{more})"
        case _:
            assert_never(source)


def _time(time: EventTime) -> str:
    guard = "" if time.future is None else f", future={_length(time.future)}"
    match time.watermark:
        case Delay(micros):
            return f".event_time({time.field!r}, delay={_length(micros)}{guard})"
        case Punctuated(field):
            return f".event_time({time.field!r}, punctuated={field!r}{guard})"
        case _:
            assert_never(time.watermark)


def _window(window: Window) -> str:
    offset = f", offset={_length(window.offset)}" if window.offset else ""
    return f"wr.tumbling({_length(window.size)}{offset})"


def _function(function: Function) -> str:
    return f"wr.{function_name(function)}({'' if isinstance(function, Count) else repr(function.of)})"


def _emit(emit: Emit) -> str:
    at_end = "" if emit.at_end == Emit.at_end else f", at_end={emit.at_end!r}"
    return f".emit(late={emit.late!r}, mode={emit.mode!r}, lateness={_length(emit.lateness)}{at_end})"


def _to(pipeline: Pipeline) -> str:
    groups = "" if pipeline.key_groups == DEFAULT_KEY_GROUPS else f", key_groups={pipeline.key_groups}"
    return f".to({_sink(pipeline.sink)}, name={pipeline.name!r}{groups})"


def _sink(sink: Sink) -> str:
    key = f", key={list(sink.key)!r}" if sink.key else ""
    match sink:
        case SqliteSink(path, table, _, decimals):
            kept = "" if decimals == SqliteSink.decimals else f", decimals={decimals!r}"
            return f"wr.sqlite({path!r}, table={table!r}{key}{kept})"
        case PostgresSink(url, table):
            return f"wr.postgres({url!r}, table={table!r}{key})"
        case _:
            assert_never(sink)


def _length(micros: int) -> str:
    return repr(format_duration(micros))
