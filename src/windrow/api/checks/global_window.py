"""The window of all time."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.model import Global, Pipeline


def global_window(pipeline: Pipeline) -> Iterator[Finding]:
    """It has no end that a watermark could pass: early panes are all it has, and nothing is late for it."""
    if not isinstance(pipeline.window, Global):
        return
    emit = pipeline.emit
    if emit.early is None:
        message = (
            "has no end, so without early panes nothing would be written before the end of the input; "
            "give emit.early, such as early: {count: 100}"
        )
        yield error("window.global", message)
    if emit.lateness:
        yield error("emit.lateness", "is for windows that end, and nothing is ever late for a global one; leave it out")
    if emit.late == "batch":
        yield error("emit.late", "is for windows that end, and nothing is ever late for a global one; leave it out")
