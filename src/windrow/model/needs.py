"""What a pipeline needs beside its records."""

from __future__ import annotations

from typing import assert_never

from windrow.model.process import AnyPipeline, ProcessPipeline
from windrow.model.trigger import AllOf, AnyOf, Every, Records, Repeat, Trigger, When


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
