"""Takes the states of a run's key groups over into those of a pipeline that goes on from it."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.core.carry.plan import Plan
from windrow.core.carry.processes import carry_process
from windrow.core.carry.sessions import carry_sessions
from windrow.core.carry.widening import unsound, why_not_wider
from windrow.core.carry.windows import carry_windows
from windrow.core.state import MemoryState
from windrow.model import AnyPipeline, ProcessPipeline, Session

__all__ = ["Plan", "carry", "unsound", "why_not_wider"]


def carry(pipeline: AnyPipeline, plan: Plan, states: Iterable[MemoryState]) -> list[MemoryState]:
    """Return what the key groups of a pipeline begin with, in their order, from what those of a run knew."""
    known = list(states)
    if all(state.summary() is None for state in known):
        return [MemoryState() for _ in range(pipeline.key_groups)]
    if isinstance(pipeline, ProcessPipeline):
        return carry_process(pipeline, known)
    if isinstance(pipeline.window, Session):
        return carry_sessions(pipeline, plan, known)
    return carry_windows(pipeline, plan, known)
