"""A delay that follows the lateness seen."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.durations import too_long
from windrow.api.checks.finding import Finding, error
from windrow.model import Adaptive, AnyPipeline, format_duration


def adaptive_delay(pipeline: AnyPipeline) -> Iterator[Finding]:
    """The target is a fraction of the records, and the bounds are in order."""
    mark = pipeline.time.watermark
    if not isinstance(mark, Adaptive):
        return
    where = "time.delay.adaptive"
    if not 0 < mark.target <= 1:
        message = f"must be more than 0 and at most 1, not {mark.target}: the part of the records that is to be on time"
        yield error(f"{where}.target", message)
    for name, micros in (("min", mark.least), ("max", mark.most)):
        if micros < 0:
            yield error(f"{where}.{name}", "must not be negative")
        yield from too_long(f"{where}.{name}", micros)
    if mark.least > mark.most:
        yield error(f"{where}.min", f"must not be longer than max ({format_duration(mark.most)})")
