"""The field by which a device's clock is corrected."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.api.checks.named import decoded_type, no_field
from windrow.model import AnyPipeline, TimestampType


def sent_field(pipeline: AnyPipeline) -> Iterator[Finding]:
    """It is a decoded timestamp other than the event time."""
    name, where = pipeline.time.sent, "time.sent"
    if name is None:
        return
    type_ = decoded_type(pipeline, name)
    if type_ is None:
        yield error(where, no_field(pipeline, name))
    elif not isinstance(type_, TimestampType):
        yield error(where, f"{name!r} is a {type_}, not a time; declare it as timestamp_millis or another timestamp")
    elif name == pipeline.time.field:
        yield error(where, f"{name!r} is the event time itself; name the field that holds the time of sending")
