"""Connectors that read: the embedded log and Kafka."""

from __future__ import annotations

from typing import assert_never

from windrow.model import KafkaSource, LogSource, Runnable, as_graph
from windrow.model import Source as SourceModel
from windrow.sources.base import Cut, Source

__all__ = ["Cut", "Source", "open_source", "open_sources"]


def open_source(source: SourceModel) -> Source:
    """Return the connector of a pipeline's source; nothing is read or reached before its methods are called."""
    match source:
        case LogSource():
            from windrow.sources.log import EmbeddedLog  # noqa: PLC0415 - Arrow only when a source is opened

            return EmbeddedLog(source)
        case KafkaSource():
            from windrow.sources.kafka import KafkaTopic  # noqa: PLC0415 - the same

            return KafkaTopic(source)
        case _:
            assert_never(source)


def open_sources(pipeline: Runnable) -> Source:
    """Return the connector of all sources of a pipeline, as one log."""
    first, *others = as_graph(pipeline).sources
    if not others:
        return open_source(first.source)
    from windrow.sources.several import SeveralLogs  # noqa: PLC0415 - Arrow only when a source is opened

    return SeveralLogs({one.name: open_source(one.source) for one in (first, *others)})
