"""Operators: the part of a pipeline that runs in a key group, and the choice of one for a pipeline."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.core.operators.base import Operator
from windrow.core.operators.process.operator import ProcessOperator
from windrow.core.operators.session.operator import SessionOperator
from windrow.core.operators.window.operator import WindowOperator
from windrow.model import AnyPipeline, ProcessPipeline, Session

__all__ = ["Operator", "open_operator"]


def open_operator(pipeline: AnyPipeline, partitions: Iterable[int]) -> Operator:
    """Return the operator of a pipeline; `partitions` are those that the source had when it was first started."""
    if isinstance(pipeline, ProcessPipeline):
        return ProcessOperator(pipeline, partitions)
    if isinstance(pipeline.window, Session):
        return SessionOperator(pipeline, partitions)
    return WindowOperator(pipeline, partitions)
