"""A watermark that waits for nothing."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, warning
from windrow.model import Delay, Global, Pipeline


def zero_delay(pipeline: Pipeline) -> Iterator[Finding]:
    """With a delay of 0 a record is late as soon as it is out of order across a window's end."""
    if pipeline.time.watermark == Delay(0) and not isinstance(pipeline.window, Global):
        message = "is 0s: a record out of order by a moment can be late; give how far out of order records come (10m)"
        yield warning("time.delay", message)
