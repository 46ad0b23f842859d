"""The functions of a process."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.api.checks.plain_functions import not_plain
from windrow.model import ProcessPipeline


def process_code(pipeline: ProcessPipeline) -> Iterator[Finding]:
    """Functions can be called and do all in the call, there are columns to emit, and the order is a known one."""
    process = pipeline.process
    functions = {
        "function": process.function,
        "on_timer": process.on_timer,
        "on_processing_timer": process.on_processing_timer,
    }
    for name, function in functions.items():
        if function is not None and not callable(function):
            yield error(f"process.{name}", f"is {function!r}, which is no function; give one of two arguments")
        elif why := not_plain(function):
            yield error(f"process.{name}", f"{why}; a row is written by ctx.emit(...)")
    if not process.returns:
        yield error("process.returns", "names no column; name what the function emits, such as {'visits': 'long'}")
    if process.order not in ("log", "event_time"):
        yield error("process.order", f"must be 'log' or 'event_time', not {process.order!r}")
    if pipeline.at_end not in ("fire", "hold"):
        yield error("at_end", f"must be 'fire' or 'hold', not {pipeline.at_end!r}")
