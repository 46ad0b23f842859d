"""A pipeline in words."""

from __future__ import annotations

from typing import assert_never

from windrow.api.printing.mask import masked
from windrow.api.printing.words import function_text
from windrow.model import (
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


def to_text(pipeline: Pipeline) -> str:
    """Return what the pipeline does: the data's way, noun by noun, and what each means; secrets are ***."""
    shown = masked(pipeline)
    table = shown.sink.table
    nouns = {
        "source": _source(shown.source),
        "decode": f"{_fields(shown)}\na record that does not fit goes to {table}_dead",
        "time": _time(shown.time, table),
        "key": f"{', '.join(shown.key)}, in {shown.key_groups} key groups",
        "window": _window(shown.window),
        "aggregate": ", ".join(f"{item.name} = {function_text(item.function)}" for item in shown.aggregates),
        "emit": _emit(shown.time, shown.emit, table),
        "sink": _sink(shown.sink),
    }
    lines = [shown.name, *(line for noun, meaning in nouns.items() for line in _lines(noun, meaning))]
    return "\n".join(lines) + "\n"


def _lines(noun: str, meaning: str) -> list[str]:
    """Put each clause of a meaning on its own line, the noun before the first."""
    clauses = meaning.split("\n")
    return [f"  {word:<10} {clause}" for word, clause in zip([noun, *[""] * len(clauses)], clauses, strict=False)]


def _source(source: Source) -> str:
    match source:
        case LogSource(path):
            return f"the embedded log {path}, each partition in offset order"
        case KafkaSource(servers, topic, start, options):
            more = "".join(f", {name}={value}" for name, value in options)
            return f"the Kafka topic {topic} at {servers} from the {start} offset, each partition in offset order{more}"
        case _:
            assert_never(source)


def _fields(pipeline: Pipeline) -> str:
    return "JSON with " + ", ".join(f"{field.name} {field.type}" for field in pipeline.decode.fields)


def _time(time: EventTime, table: str) -> str:
    match time.watermark:
        case Delay(micros):
            mark = f"a partition's watermark is {format_duration(micros)} behind the greatest event time read from it"
        case Punctuated(field):
            mark = f"a record with {field} sets its partition's watermark to it"
        case _:
            assert_never(time.watermark)
    guard = ""
    if time.future is not None:
        ahead = format_duration(time.future)
        guard = f"\na record more than {ahead} ahead of its log timestamp goes to {table}_dead and moves no watermark"
    return f"{time.field}\n{mark}{guard}"


def _window(window: Window) -> str:
    offset = f", shifted by {format_duration(window.offset)}" if window.offset else ""
    return f"tumbling, {format_duration(window.size)} long{offset}"


def _emit(time: EventTime, emit: Emit, table: str) -> str:
    match time.watermark:
        case Delay(micros):
            when = f"every partition has read {format_duration(micros)} past its end"
        case Punctuated():
            when = "every partition's watermark has reached its end"
        case _:
            assert_never(time.watermark)
    if emit.lateness:
        each = "one revision for each" if emit.late == "each" else "one revision a step"
        late = f"late records revise it for {format_duration(emit.lateness)} ({each})\nafter that: {table}_late"
    else:
        late = f"late records change nothing: {table}_late"
    end = "fire at the end of a bounded input" if emit.at_end == "fire" else "stay open at the end of a bounded input"
    return f"a window fires when {when}\n{late}\nopen windows {end}"


def _sink(sink: Sink) -> str:
    key = f", one row for each {', '.join(sink.key)}" if sink.key else ""
    beside = f"beside it {sink.table}_changes, _late, _dead, _clocks"
    match sink:
        case SqliteSink(path, table, _, decimals):
            kept = "" if decimals == "numeric" else ", decimals as text"
            return f"table {table} in the SQLite file {path}{key}{kept}\n{beside}"
        case PostgresSink(url, table):
            return f"table {table} in PostgreSQL {url}{key}\n{beside}"
        case _:
            assert_never(sink)
