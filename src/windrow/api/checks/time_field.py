"""The field that holds event time, and the one that holds the watermark."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.api.checks.named import decoded_type, no_field
from windrow.model import AnyPipeline, Punctuated, TimestampType


def time_field(pipeline: AnyPipeline) -> Iterator[Finding]:
    """Both are timestamps of one type, and the watermark's is no key, for a record may lack it."""
    time = decoded_type(pipeline, pipeline.time.field)
    if time is None:
        yield error("time.field", no_field(pipeline, pipeline.time.field))
    elif not isinstance(time, TimestampType):
        hint = "declare it as timestamp_millis, timestamp_seconds, timestamp_micros or timestamp"
        yield error("time.field", f"{pipeline.time.field!r} is a {time}, not a time; {hint}")
    if isinstance(pipeline.time.watermark, Punctuated):
        yield from _mark(pipeline, pipeline.time.watermark.field)


def _mark(pipeline: AnyPipeline, mark: str) -> Iterator[Finding]:
    where = "time.punctuated"
    type_, time = decoded_type(pipeline, mark), decoded_type(pipeline, pipeline.time.field)
    if type_ is None:
        yield error(where, no_field(pipeline, mark))
    elif mark == pipeline.time.field:
        yield error(where, f"{mark!r} is the event time itself; name the field that holds the watermark")
    elif time is not None and type_ != time:
        yield error(where, f"{mark!r} is a {type_}, but {pipeline.time.field!r} a {time}; give both one type")
    if mark in pipeline.key:
        yield error("key", f"{mark!r} holds the watermark, and records may lack it; leave it out of the key")
