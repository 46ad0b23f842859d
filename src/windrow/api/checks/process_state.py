"""The state of a process."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.model import DoubleType, MapState, ProcessPipeline


def process_state(pipeline: ProcessPipeline) -> Iterator[Finding]:
    """Each state has a name that Python can write, and a map's keys are equal if and only if their text is."""
    for state in pipeline.process.state:
        where = f"process.state.{state.name}"
        if not state.name.isidentifier() or state.name.startswith("__"):
            yield error(where, f"{state.name!r} must be a Python name, as it is used as ctx.state.NAME")
        if isinstance(state, MapState) and isinstance(state.key, DoubleType):
            yield error(where, "has doubles as keys, and equal doubles can differ in text; use a decimal or a long")
