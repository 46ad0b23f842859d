"""A pipeline as plain values in the shape of its YAML, as YAML and as JSON; and the masking of secrets."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, TypeVar, assert_never

import yaml

from windrow.api.aggregate_text import aggregate_text
from windrow.api.python_code import code_name, refuse_code
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
    KeyedState,
    ListState,
    LogSource,
    MapState,
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
    ValueState,
    When,
    Window,
    format_duration,
)
from windrow.model.connectors import is_reference
from windrow.model.windows import format_calendar_size

Plain = dict[str, Any]
"""Mappings, lists, texts and numbers."""


def to_dict(pipeline: AnyPipeline) -> Plain:
    """Return the pipeline as mappings, lists, texts and numbers, in canonical order; secrets are ***.

    Python code in it (an aggregate or a trigger of a person's own) is told by its name, which no file reads back.
    """
    shown = mask_secrets(pipeline)
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


def process_plain(pipeline: ProcessPipeline) -> dict[str, Any]:
    """Return what a pipeline has in the place of a window and aggregates; functions are told by their names."""
    process = pipeline.process
    plain: dict[str, Any] = {
        "function": code_name(process.function),
        "state": {state.name: state_words(state) for state in process.state},
        "returns": {field.name: str(field.type) for field in process.returns},
        "order": process.order,
    }
    if process.ttl is not None:
        plain["ttl"] = format_duration(process.ttl)
    if process.on_timer is not None:
        plain["on_timer"] = code_name(process.on_timer)
    if process.on_processing_timer is not None:
        plain["on_processing_timer"] = code_name(process.on_processing_timer)
    return {"process": plain} | ({} if pipeline.at_end == ProcessPipeline.at_end else {"at_end": pipeline.at_end})


def state_words(state: KeyedState) -> str:
    """Return the kind and types of a state, such as ``map(string, long)``."""
    match state:
        case ValueState(_, type_):
            return f"value({type_})"
        case ListState(_, type_):
            return f"list({type_})"
        case MapState(_, key, type_):
            return f"map({key}, {type_})"
        case _:
            assert_never(state)


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


_WIDTH = 120


def to_yaml(pipeline: AnyPipeline) -> str:
    """Return the canonical YAML of a pipeline, one noun a line; it reads back as the same pipeline, but for ***.

    A section that is longer than a line has a line for each of its parts.

    Raise PipelineError if there is Python code in it.
    """
    refuse_code(pipeline, "YAML")
    root = _yaml_node(to_dict(pipeline))
    root.flow_style = False
    for key, section in root.value:
        if len(key.value) + len(": ") + len(_yaml_text(section)) > _WIDTH:
            section.flow_style = False
    return _yaml_text(root)


def _yaml_text(node: yaml.Node) -> str:
    text: str = yaml.serialize(node, Dumper=yaml.SafeDumper, width=float("inf"), allow_unicode=True)
    return text


def _yaml_node(value: Any) -> Any:  # noqa: ANN401 plain values to nodes, as PyYAML has them
    match value:
        case dict():
            pairs = [(_yaml_node(key), _yaml_node(item)) for key, item in value.items()]
            return yaml.MappingNode("tag:yaml.org,2002:map", pairs, flow_style=True)
        case list():
            return yaml.SequenceNode("tag:yaml.org,2002:seq", [_yaml_node(item) for item in value], flow_style=True)
        case bool():
            return yaml.ScalarNode("tag:yaml.org,2002:bool", str(value).lower())
        case int():
            return yaml.ScalarNode("tag:yaml.org,2002:int", str(value))
        case float():
            # YAML's floats have a point
            text = repr(value) if "." in repr(value) else repr(value).replace("e", ".0e")
            return yaml.ScalarNode("tag:yaml.org,2002:float", text)
        case _:
            # PyYAML's other styles lose some line ends, such as U+0085
            style = None if value.isprintable() else '"'
            return yaml.ScalarNode("tag:yaml.org,2002:str", value, style=style)


def to_json(pipeline: AnyPipeline) -> str:
    """Return the pipeline as indented JSON in the shape of its YAML; secrets are ***."""
    return json.dumps(to_dict(pipeline), indent=2, ensure_ascii=False) + "\n"


MASK = "***"
# up to the last @: a password with a slash, a question mark or an @ in it is masked whole
_USERINFO = re.compile(r"^([^:/?]+://[^:@/]*:)(.+)@", re.DOTALL)
_PARAMETER = re.compile(r"([?&](?:ssl)?password=)([^&]+)", re.IGNORECASE)
_SECRET_OPTION = re.compile(r"password|secret|jaas|token|credential|private|keystore\.key|pem$", re.IGNORECASE)

P = TypeVar("P", bound=AnyPipeline)


def mask_secrets(pipeline: P) -> P:
    """Return the pipeline with *** for the passwords in it."""
    return replace(pipeline, source=_mask_source(pipeline.source), sink=_mask_sink(pipeline.sink))


def mask_url(url: str) -> str:
    """Return a database URL with *** for the password, in the address or among the parameters.

    A reference (``${NAME}``) is no secret: it stays.
    """
    return _USERINFO.sub(lambda match: f"{_mask_match(match)}@", _PARAMETER.sub(_mask_match, url))


def _mask_match(match: re.Match[str]) -> str:
    return match[1] + (match[2] if is_reference(match[2]) else MASK)


def mask_option(name: str, value: str) -> str:
    """Return a consumer option's value, or *** if its name says that it is secret."""
    return MASK if _SECRET_OPTION.search(name) and not is_reference(value) else value


def _mask_source(source: LogSource | KafkaSource) -> LogSource | KafkaSource:
    match source:
        case LogSource():
            return source
        case KafkaSource():
            return replace(source, options=tuple((name, mask_option(name, value)) for name, value in source.options))
        case _:
            assert_never(source)


def _mask_sink(sink: SqliteSink | PostgresSink) -> SqliteSink | PostgresSink:
    match sink:
        case SqliteSink():
            return sink
        case PostgresSink():
            return replace(sink, url=mask_url(sink.url))
        case _:
            assert_never(sink)
