"""A process in words and as plain values."""

from __future__ import annotations

from typing import Any, assert_never

from windrow.api.code_name import code_name
from windrow.model import KeyedState, ListState, MapState, ProcessPipeline, ValueState, format_duration


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
        lines.append("state and row of a key are kept for ever")
    else:
        lines.append(f"an entry is gone {format_duration(process.ttl)} after it is written, a key after its last call")
    if process.on_timer is not None:
        lines.append(f"timers of event time call {code_name(process.on_timer)}")
    if process.on_processing_timer is not None:
        lines.append(f"timers of processing time call {code_name(process.on_processing_timer)}")
    returns = ", ".join(f"{field.name} {field.type}" for field in process.returns)
    end = "fire" if pipeline.at_end == "fire" else "stay set"
    return "\n".join([*lines, f"it emits {returns}", f"timers {end} at the end of a bounded input"])
