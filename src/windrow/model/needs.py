"""What a pipeline needs beside its records."""

from __future__ import annotations

from typing import TypeGuard, assert_never

from windrow.model.pipeline import Pipeline
from windrow.model.process import AnyPipeline, ProcessPipeline
from windrow.model.trigger import AllOf, AnyOf, Every, Records, Repeat, Trigger, When


def is_salted(pipeline: AnyPipeline) -> TypeGuard[Pipeline]:
    """Return whether a key's records are spread over several key groups, and come together in a second stage."""
    return isinstance(pipeline, Pipeline) and pipeline.salt > 1


def needs_ticks(pipeline: AnyPipeline) -> bool:
    """Return whether anything in a pipeline depends on processing time, which comes as ticks."""
    if pipeline.time.idle is not None:
        return True
    if isinstance(pipeline, ProcessPipeline):
        return pipeline.process.on_processing_timer is not None
    return pipeline.emit.early is not None and _looks_at_ticks(pipeline.emit.early)


def _looks_at_ticks(trigger: Trigger) -> bool:
    match trigger:
        case Every():
            return True
        case AnyOf(triggers) | AllOf(triggers):
            return any(_looks_at_ticks(part) for part in triggers)
        case Repeat(inner):
            return _looks_at_ticks(inner)
        case Records() | When():
            return False
        case _:
            assert_never(trigger)
