"""How long a process keeps its state."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.durations import too_long
from windrow.api.checks.finding import Finding, error, warning
from windrow.model import ProcessPipeline


def process_ttl(pipeline: ProcessPipeline) -> Iterator[Finding]:
    """It is some time; without one, each key is kept for ever."""
    ttl = pipeline.process.ttl
    if ttl is None:
        message = "has no `ttl`, so the row and state of each key are kept for ever; give one if keys come and go (30d)"
        yield warning("process", message)
    elif ttl <= 0:
        yield error("process.ttl", "must be longer than nothing")
    else:
        yield from too_long("process.ttl", ttl)
