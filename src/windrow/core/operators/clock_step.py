"""How a step moves the clocks, and where that leaves its records: the same for every operator."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from windrow.core.clocks import Clocks
from windrow.core.micros import Micros, to_micros
from windrow.core.operators.base import StepInput
from windrow.core.operators.journal import journal
from windrow.core.records import PARTITION, WATERMARK
from windrow.core.watermark import clock_of
from windrow.model import AnyPipeline


@dataclass(frozen=True)
class ClockStep:
    """What a step does to the clocks.

    `watermarks` are those at the step's records, in their order; `low` is the low watermark after the step. `now` is
    the processing time then, if the step had a tick; `latest` the last that is known, of this step or one before, None
    before the first tick. `reached` is how far event time has come in any partition. `journal` holds the moves that the
    records do not explain.
    """

    watermarks: Micros
    low: int
    now: int | None
    latest: int | None
    reached: int
    journal: pa.Table


def take_clock_step(pipeline: AnyPipeline, clocks: Clocks, given: StepInput) -> ClockStep:
    """Move the clocks through a step."""
    raised = clocks.raise_to_low(given.clocks)
    watermarks = clocks.at(given.records.column(PARTITION), to_micros(given.records.column(WATERMARK)))
    now = None if given.tick is None else clocks.tick(given.tick)
    clocks.advance(given.clocks)
    time = pipeline.time
    fallen = [] if now is None or time.idle is None else clocks.rest(time.idle, time.all_idle)
    return ClockStep(
        watermarks=watermarks,
        low=clocks.low,
        now=now,
        latest=clocks.now,
        reached=clock_of(time.watermark, max(clocks.high, clocks.low)),
        journal=journal(pipeline, clocks, raised, fallen, end=given.end),
    )
