"""What a pipeline needs beside its records."""

from __future__ import annotations

from typing import assert_never

from windrow.model.pipeline import Pipeline
from windrow.model.trigger import AllOf, AnyOf, Every, Records, Repeat, Trigger, When


def needs_ticks(pipeline: Pipeline) -> bool:
    """Return whether anything in a pipeline depends on processing time, which comes as ticks."""
    return pipeline.time.idle is not None or (pipeline.emit.early is not None and _looks_at_ticks(pipeline.emit.early))


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
