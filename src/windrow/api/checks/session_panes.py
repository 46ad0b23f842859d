"""Which panes sessions can have."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.early_parts import each_part
from windrow.api.checks.finding import Finding, error
from windrow.model import Every, Pipeline, Session


def session_panes(pipeline: Pipeline) -> Iterator[Finding]:
    """Sessions merge, so early panes are by processing time alone, and no pane holds only what is new."""
    if not isinstance(pipeline.window, Session):
        return
    emit = pipeline.emit
    if not all(isinstance(part, Every) for part in each_part(emit.early)):
        message = "sessions begin to count anew whenever two of them merge; give early: {every: 30s} alone"
        yield error("emit.early", message)
    if emit.mode == "discard":
        message = "discard does not go with sessions: when two merge, what earlier panes held moves; use retract"
        yield error("emit.mode", message)
