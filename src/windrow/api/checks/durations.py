"""Lengths of time that make sense."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.model import AnyPipeline, Delay, Pipeline

LONGEST = 36_500 * 86_400_000_000
"""A hundred years, in microseconds."""


def durations(pipeline: AnyPipeline) -> Iterator[Finding]:
    """Nothing is negative or longer than a hundred years, and idleness takes some time."""
    time = pipeline.time
    lengths = {"time.future": time.future or 0}
    if isinstance(pipeline, Pipeline):
        lengths["emit.lateness"] = pipeline.emit.lateness
    if isinstance(time.watermark, Delay):
        lengths["time.delay"] = time.watermark.micros
    for where, micros in lengths.items():
        if micros < 0:
            yield error(where, "must not be negative")
        yield from too_long(where, micros)
    if time.idle is not None:
        if time.idle <= 0:
            yield error("time.idle", "must be longer than nothing: a partition is idle after so long without a record")
        yield from too_long("time.idle", time.idle)


def too_long(where: str, micros: int) -> Iterator[Finding]:
    """Find a length of more than a hundred years."""
    if micros > LONGEST:
        yield error(where, "is longer than a hundred years (36500d)")
