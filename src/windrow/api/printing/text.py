"""A pipeline in words: what it does, in the order of the data flow."""

from __future__ import annotations

from typing import assert_never

from windrow.api.aggregate_text import aggregate_text
from windrow.api.printing.plain import mask_secrets, state_words
from windrow.api.python_code import code_name
from windrow.model import (
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
from windrow.model.windows import format_calendar_size


def to_text(pipeline: AnyPipeline) -> str:
    """Return what the pipeline does: the data's way, noun by noun, and what each means; secrets are ***."""
    shown = mask_secrets(pipeline)
    table = shown.sink.table
    nouns = {
        "source": _source(shown.source),
        "decode": f"{_fields(shown)}\na record that does not fit goes to {table}_dead",
        "derive": "\n".join(f"{derived.name} = {derived.sql}" for derived in shown.derive),
        "time": _time(shown.time, table),
        "key": _key(shown),
    }
    if isinstance(shown, ProcessPipeline):
        nouns["process"] = process_words(shown)
    else:
        nouns["window"] = window_words(shown.window)
        nouns["aggregate"] = ", ".join(f"{item.name} = {aggregate_text(item)}" for item in shown.aggregates)
        nouns["emit"] = _emit(shown, table)
    nouns["sink"] = _sink(shown.sink)
    lines = [shown.name, *(line for noun, meaning in nouns.items() if meaning for line in _lines(noun, meaning))]
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


def _field(field: Field) -> str:
    also = f" (or {', '.join(field.alias)})" if field.alias else ""
    return f"{field.name} {field.type_text}{also}"


def _fields(pipeline: AnyPipeline) -> str:
    return "JSON with " + ", ".join(map(_field, pipeline.decode.fields))


def _time(time: EventTime, table: str) -> str:
    match time.watermark:
        case Delay(micros):
            mark = f"a partition's watermark is {format_duration(micros)} behind the greatest event time read from it"
        case Adaptive(target, least, most):
            mark = (
                f"a partition's watermark is {format_duration(least)} to {format_duration(most)} behind the greatest "
                f"event time read from it,\nas much as leaves {target * 100:g} % of its records so far on time"
            )
        case Punctuated(field):
            mark = f"a record with {field} sets its partition's watermark to it"
        case _:
            assert_never(time.watermark)
    lines = [time.field, mark]
    if time.sent is not None:
        lines.append(f"a device's clock is corrected by the log timestamp less {time.sent}")
    if time.future is not None:
        ahead = format_duration(time.future)
        lines.append(
            f"a record more than {ahead} ahead of its log timestamp goes to {table}_dead and moves no watermark"
        )
    if time.idle is not None:
        then = "watermarks stop" if time.all_idle == "hold" else "watermarks advance with processing time"
        lines.append(
            f"a partition without records for {format_duration(time.idle)} holds no other back; if all are idle, {then}"
        )
    return "\n".join(lines)


def _key(pipeline: AnyPipeline) -> str:
    salt = f", each spread over {pipeline.salt} of them" if isinstance(pipeline, Pipeline) and pipeline.salt > 1 else ""
    return f"{', '.join(pipeline.key)}, in {pipeline.key_groups} key groups{salt}"


def _emit(pipeline: Pipeline, table: str) -> str:
    emit, lines = pipeline.emit, []
    if emit.early is not None:
        lines.append(f"an early pane is written {trigger_words(emit.early)}")
    if not isinstance(pipeline.window, Global):
        lines.append(f"a window fires when {_passed(pipeline.time)}")
        lines += _late(emit, table)
    lines += _mode(emit, pipeline.sink)
    end = "fire at the end of a bounded input" if emit.at_end == "fire" else "stay open at the end of a bounded input"
    return "\n".join([*lines, f"open windows {end}"])


def _passed(time: EventTime) -> str:
    match time.watermark:
        case Delay(micros):
            return f"every partition has read {format_duration(micros)} past its end"
        case Adaptive() | Punctuated():
            return "every partition's watermark has reached its end"
        case _:
            assert_never(time.watermark)


def _late(emit: Emit, table: str) -> list[str]:
    if not emit.lateness:
        return [f"late records change nothing: {table}_late"]
    each = "one revision for each" if emit.late == "each" else "one revision a step"
    return [f"late records revise it for {format_duration(emit.lateness)} ({each})", f"after that: {table}_late"]


def _mode(emit: Emit, sink: Sink) -> list[str]:
    match emit.mode:
        case "retract":
            return []
        case "accumulate":
            untold = f", which {sink.table}_changes does not take back" if sink.changelog else ""
            return [f"a revision replaces the row before{untold}"]
        case "discard":
            return ["a pane holds only what is new since the one before, as a row of its own"]
        case _:
            assert_never(emit.mode)


def _sink(sink: Sink) -> str:
    key = f", one row for each {', '.join(sink.key)}" if sink.key else ""
    companions = ["late", "dead", "clocks"] if not sink.changelog else ["changes", "late", "dead", "clocks"]
    beside = f"beside it {sink.table}_{', _'.join(companions)}"
    match sink:
        case SqliteSink(path, table, _, decimals):
            kept = "" if decimals == "numeric" else ", decimals as text"
            return f"table {table} in the SQLite file {path}{key}{kept}\n{beside}"
        case PostgresSink(url, table):
            return f"table {table} in PostgreSQL {url}{key}\n{beside}"
        case _:
            assert_never(sink)


def window_words(window: Window) -> str:
    """Say how event time is cut."""
    match window:
        case Tumbling(size, offset):
            return f"tumbling, {format_duration(size)} long{_shifted(offset)}"
        case Calendar(_, _, zone, offset):
            return f"tumbling, {format_calendar_size(window)} long in {zone}{_shifted(offset)}"
        case Hopping(size, slide, offset):
            return f"hopping, {format_duration(size)} long, one every {format_duration(slide)}{_shifted(offset)}"
        case Session(gap):
            return f"sessions of records less than {format_duration(gap)} apart"
        case Global():
            return "one window of all time"
        case _:
            assert_never(window)


def trigger_words(trigger: Trigger) -> str:
    """Say when an early pane is written."""
    match trigger:
        case Every(micros):
            return f"{format_duration(micros)} of processing time after a record"
        case Records(number):
            return "after every record" if number == 1 else f"after every {number} records"
        case AnyOf(parts):
            return f"({' or '.join(trigger_words(part) for part in parts)})"
        case AllOf(parts):
            return f"({' and '.join(trigger_words(part) for part in parts)})"
        case Repeat(part, times):
            return f"{trigger_words(part)}, at most {times} time{'' if times == 1 else 's'}"
        case When(predicate):
            return f"when {code_name(predicate)} says so"
        case _:
            assert_never(trigger)


def _shifted(offset: int) -> str:
    return f", shifted by {format_duration(offset)}" if offset else ""


def process_words(pipeline: ProcessPipeline) -> str:
    """Return what a process does, a clause a line."""
    process, table = pipeline.process, pipeline.sink.table
    lines = [f"the Python function {code_name(process.function)} for each record"]
    if process.order == "log":
        lines.append("a key's records come in the order of the log")
    else:
        lines.append("records come in order of event time, when the watermark has passed them")
        lines.append(f"a record that comes later than that: {table}_late")
    lines += [f"it keeps {state.name}, {state_words(state)}, for each key" for state in process.state]
    if process.ttl is None:
        lines.append("state and row of a key are kept forever")
    else:
        lines.append(f"an entry is gone {format_duration(process.ttl)} after it is written, a key after its last call")
    if process.on_timer is not None:
        lines.append(f"timers of event time call {code_name(process.on_timer)}")
    if process.on_processing_timer is not None:
        lines.append(f"timers of processing time call {code_name(process.on_processing_timer)}")
    returns = ", ".join(f"{field.name} {field.type}" for field in process.returns)
    end = "fire" if pipeline.at_end == "fire" else "stay set"
    return "\n".join([*lines, f"it emits {returns}", f"timers {end} at the end of a bounded input"])
