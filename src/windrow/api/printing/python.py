"""A pipeline as the fluent Python source that makes it."""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from typing import assert_never

from windrow.api.aggregate_text import call_of
from windrow.api.printing.plain import mask_secrets
from windrow.api.python_code import code_name, refuse_code
from windrow.model import (
    DEFAULT_KEY_GROUPS,
    Adaptive,
    Aggregate,
    AllOf,
    AnyOf,
    AnyPipeline,
    Calendar,
    Custom,
    Delay,
    Emit,
    EventTime,
    Every,
    Field,
    Formula,
    Global,
    Hopping,
    KafkaSource,
    LogSource,
    Pipeline,
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
    When,
    Window,
    format_duration,
)
from windrow.model.windows import format_calendar_size

_WIDTH = 110


def to_python(pipeline: AnyPipeline) -> str:
    """Return a Python expression (``wr`` is windrow) that makes the pipeline; secrets are ***.

    Raise PipelineError if there is Python code in it: of that, only the name is known.
    """
    shown = mask_secrets(refuse_code(pipeline, "a print-out"))
    steps = [
        _source(shown.source),
        _call("decode", ((field.name, _field(field)) for field in shown.decode.fields)),
        _call("derive", ((derived.name, repr(derived.sql)) for derived in shown.derive)) if shown.derive else "",
        _time(shown.time),
        f".key_by({', '.join(map(repr, shown.key))})",
        f".window({_window(shown.window)})",
        _call("aggregate", ((aggregate.name, _result(aggregate)) for aggregate in shown.aggregates)),
        _emit(shown.emit),
        _to(shown),
    ]
    return "(\n" + "".join(f"    {step}\n" for step in steps if step) + ")\n"


def to_python_file(pipeline: AnyPipeline) -> str:
    """Return a Python file with the pipeline in it, as `pipeline`; secrets are ***."""
    return f"import windrow as wr\n\npipeline = {to_python(pipeline)}"


def _field(field: Field) -> str:
    plain = repr(field.type_text)
    return f"wr.field({plain}, alias={list(field.alias)!r})" if field.alias else plain


def _call(step: str, values: Iterable[tuple[str, str]]) -> str:
    """Write a step with keyword arguments, each in a line of its own if they are longer than one.

    Names that are no Python names, or that Python would normalise, go in by ``**``.
    """
    pairs = list(values)
    if all(name.isascii() and name.isidentifier() and not keyword.iskeyword(name) for name, _ in pairs):
        begin, parts, end = f".{step}(", [f"{name}={value}" for name, value in pairs], ")"
    else:
        begin, parts, end = f".{step}(**{{", [f"{name!r}: {value}" for name, value in pairs], "})"
    line = f"{begin}{', '.join(parts)}{end}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([begin, *(f"        {part}," for part in parts), f"    {end}"])


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
    match time.watermark:
        case Delay(micros):
            mark = f"delay={_length(micros)}"
        case Adaptive(target, least, most):
            mark = f"delay=wr.adaptive({target!r}, min={_length(least)}, max={_length(most)})"
        case Punctuated(field):
            mark = f"punctuated={field!r}"
        case _:
            assert_never(time.watermark)
    given = [repr(time.field), mark]
    if time.future is not None:
        given.append(f"future={_length(time.future)}")
    if time.sent is not None:
        given.append(f"sent={time.sent!r}")
    if time.idle is not None:
        given.append(f"idle={_length(time.idle)}")
    if time.all_idle != EventTime.all_idle:
        given.append(f"all_idle={time.all_idle!r}")
    return f".event_time({', '.join(given)})"


def _window(window: Window) -> str:
    match window:
        case Tumbling(size, offset):
            return f"wr.tumbling({_length(size)}{_offset(offset)})"
        case Calendar(_, _, zone, offset):
            where = "" if zone == Calendar.zone else f", zone={zone!r}"
            return f"wr.tumbling({format_calendar_size(window)!r}{where}{_offset(offset)})"
        case Hopping(size, slide, offset):
            return f"wr.hopping({_length(size)}, slide={_length(slide)}{_offset(offset)})"
        case Session(gap):
            return f"wr.session({_length(gap)})"
        case Global():
            return "wr.global_window()"
        case _:
            assert_never(window)


def _offset(micros: int) -> str:
    return f", offset={_length(micros)}" if micros else ""


def _result(aggregate: Aggregate) -> str:
    arguments: tuple[object, ...]
    match aggregate.function:
        case Formula(sql):
            name, arguments = "formula", (sql,)
        case Custom():
            msg = "refuse_code must be called first: Python code cannot be printed"
            raise TypeError(msg)
        case function:
            name, arguments = call_of(function)
    where = [] if aggregate.where is None else [f"where={aggregate.where!r}"]
    return f"wr.{name}({', '.join([*map(repr, arguments), *where])})"


def _emit(emit: Emit) -> str:
    early = "" if emit.early is None else f", early={_trigger(emit.early)}"
    at_end = "" if emit.at_end == Emit.at_end else f", at_end={emit.at_end!r}"
    return f".emit(late={emit.late!r}, mode={emit.mode!r}, lateness={_length(emit.lateness)}{early}{at_end})"


def _trigger(trigger: Trigger) -> str:
    match trigger:
        case Every(micros):
            return f"wr.every({_length(micros)})"
        case Records(number):
            return f"wr.every_count({number})"
        case AnyOf(parts):
            return f"wr.any_of({', '.join(map(_trigger, parts))})"
        case AllOf(parts):
            return f"wr.all_of({', '.join(map(_trigger, parts))})"
        case Repeat(part, times):
            return f"wr.repeat({_trigger(part)}, times={times})"
        case When(predicate):
            return f"wr.when({code_name(predicate)})"
        case _:
            assert_never(trigger)


def _to(pipeline: Pipeline) -> str:
    groups = "" if pipeline.key_groups == DEFAULT_KEY_GROUPS else f", key_groups={pipeline.key_groups}"
    salt = "" if pipeline.salt == 1 else f", salt={pipeline.salt}"
    return f".to({_sink(pipeline.sink)}, name={pipeline.name!r}{groups}{salt})"


def _sink(sink: Sink) -> str:
    key = f", key={list(sink.key)!r}" if sink.key else ""
    changelog = "" if sink.changelog else ", changelog=False"
    match sink:
        case SqliteSink(path, table, _, decimals):
            kept = "" if decimals == SqliteSink.decimals else f", decimals={decimals!r}"
            return f"wr.sqlite({path!r}, table={table!r}{key}{kept}{changelog})"
        case PostgresSink(url, table):
            return f"wr.postgres({url!r}, table={table!r}{key}{changelog})"
        case _:
            assert_never(sink)


def _length(micros: int) -> str:
    return repr(format_duration(micros))
