"""Lengths of time that make sense."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.model import Delay, Pipeline, format_duration

_LONGEST = 36_500 * 86_400_000_000


def durations(pipeline: Pipeline) -> Iterator[Finding]:
    """A window has a length, its offset lies within it, and nothing is negative or longer than a hundred years."""
    window = pipeline.window
    size = "window.tumbling.size"
    if window.size <= 0:
        yield error(size, "must be longer than nothing, such as 5m")
    elif not 0 <= window.offset < window.size:
        message = f"must be shorter than the window ({format_duration(window.size)}) and not negative"
        yield error("window.tumbling.offset", message)
    lengths = {size: window.size, "emit.lateness": pipeline.emit.lateness, "time.future": pipeline.time.future or 0}
    if isinstance(pipeline.time.watermark, Delay):
        lengths["time.delay"] = pipeline.time.watermark.micros
    for where, micros in lengths.items():
        if micros > _LONGEST:
            yield error(where, "is longer than a hundred years (36500d)")
        if micros < 0 and where != size:
            yield error(where, "must not be negative")
