"""What a key group does with its records."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.core.operators.base import Operator
from windrow.core.operators.process import KeyedProcess
from windrow.core.operators.session_aggregate import SessionAggregate
from windrow.core.operators.window_aggregate import WindowAggregate
from windrow.model import AnyPipeline, ProcessPipeline, Session

__all__ = ["Operator", "open_operator"]


def open_operator(pipeline: AnyPipeline, partitions: Iterable[int]) -> Operator:
    """Return the operator of a pipeline; `partitions` are those that the source had when it was first started."""
    if isinstance(pipeline, ProcessPipeline):
        return KeyedProcess(pipeline, partitions)
    if isinstance(pipeline.window, Session):
        return SessionAggregate(pipeline, partitions)
    return WindowAggregate(pipeline, partitions)
