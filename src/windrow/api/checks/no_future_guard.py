"""Clocks that run ahead."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, warning
from windrow.model import AnyPipeline, KafkaSource


def no_future_guard(pipeline: AnyPipeline) -> Iterator[Finding]:
    """A Kafka record has a log timestamp, so a wrong clock can be told from a right one."""
    if isinstance(pipeline.source, KafkaSource) and pipeline.time.future is None:
        message = (
            "has no `future`: one device whose clock runs ahead makes the records of its partition late; give 1h or so"
        )
        yield warning("time", message)
