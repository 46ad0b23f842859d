"""Late records that nothing waits for."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, warning
from windrow.model import Global, Pipeline


def no_lateness(pipeline: Pipeline) -> Iterator[Finding]:
    """Without lateness every late record goes to the late output and changes no result."""
    if pipeline.emit.lateness == 0 and not isinstance(pipeline.window, Global):
        late = f"{pipeline.sink.table}_late"
        message = f"is 0s: every late record goes to {late} and revises nothing; give the time in which it should (1h)"
        yield warning("emit.lateness", message)
