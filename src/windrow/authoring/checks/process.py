"""Checks of a process function: its code, its state, and its time to live."""

from __future__ import annotations

from collections.abc import Iterator

from windrow import model as m
from windrow.declare.findings import Finding, error, too_long, warning
from windrow.declare.python_code import why_not_callable
from windrow.expressions import ProcessSpec


def process_code(spec: ProcessSpec) -> Iterator[Finding]:
    """Functions can be called and do all in the call, and there are columns to emit."""
    process = spec.node.process
    functions = {
        "function": process.function,
        "on_timer": process.on_timer,
        "on_processing_timer": process.on_processing_timer,
    }
    for name, function in functions.items():
        if function is not None and not callable(function):
            yield error(
                f"process.{name}", f"is {function!r}, which is not a function; give a function of two arguments"
            )
        elif why := why_not_callable(function):
            yield error(f"process.{name}", f"{why}; a row is written by ctx.emit(...)")
    if not process.returns:
        yield error("process.returns", "is empty; name the columns that the function emits, such as {'visits': 'long'}")


def process_state(spec: ProcessSpec) -> Iterator[Finding]:
    """Each state has a name that Python can write, and a map's keys are equal if and only if their text is."""
    for state in spec.node.process.state:
        where = f"process.state.{state.name}"
        if not state.name.isidentifier() or state.name.startswith("__"):
            yield error(where, f"{state.name!r} must be a Python name, as functions use it as ctx.state.NAME")
        if isinstance(state, m.MapState) and isinstance(state.key, m.DoubleType):
            yield error(where, "has doubles as keys, and equal doubles can differ in text; use a decimal or a long")


def process_ttl(spec: ProcessSpec) -> Iterator[Finding]:
    """It is some time; without one, each key is kept for ever."""
    ttl = spec.node.process.ttl
    if ttl is None:
        message = "has no `ttl`, so the row and state of each key are kept forever; give one if keys come and go (30d)"
        yield warning("process", message)
    elif ttl <= 0:
        yield error("process.ttl", "must be longer than 0")
    else:
        yield from too_long("process.ttl", ttl)
