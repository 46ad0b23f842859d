"""How a step moves the clocks, and where that leaves its records: the same for every operator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.core.clocks import Clocks
from windrow.core.micros import Micros, to_micros
from windrow.core.operators.base import StepInput
from windrow.core.operators.journal import journal
from windrow.core.records import OFFSET, PARTITION, WATERMARK
from windrow.model import Adaptive, AnyPipeline


@dataclass(frozen=True)
class ClockStep:
    """What a step does to the clocks.

    `watermarks` are those at the step's records, in their order; `low` is the low watermark after the step. `now` is
    the processing time then, if the step had a tick; `latest` the last that is known, of this step or one before, None
    before the first tick. `reached` is how far event time has come in any partition, or the low watermark if that is
    further. `journal` holds the moves that the records do not explain.
    """

    watermarks: Micros
    low: int
    now: int | None
    latest: int | None
    reached: int
    journal: pa.Table


def take_clock_step(pipeline: AnyPipeline, clocks: Clocks, given: StepInput) -> ClockStep:
    """Move the clocks through a step."""
    time = pipeline.time
    lost = clocks.skip(time.watermark, given.lost)
    raised = clocks.raise_to_low(time.watermark, given.clocks)
    watermarks = clocks.at(given.records.column(PARTITION), to_micros(given.records.column(WATERMARK)))
    if isinstance(time.watermark, Adaptive):
        watermarks = np.maximum(watermarks, _adapt(time.watermark, clocks, given))
    now = None if given.tick is None else clocks.tick(given.tick)
    clocks.advance(given.clocks)
    clocks.leave_out(given.idle)
    fallen = [] if now is None or time.idle is None else clocks.rest(time.idle, time.all_idle)
    return ClockStep(
        watermarks=watermarks,
        low=clocks.low,
        now=now,
        latest=clocks.now,
        reached=max(clocks.low, clocks.reached),
        journal=journal(pipeline, clocks, lost, raised, fallen, end=given.end),
    )


def _adapt(adaptive: Adaptive, clocks: Clocks, given: StepInput) -> Micros:
    """Move the clocks through all records of the step, and return the watermarks at those of the key group."""
    numbers = given.records.column(PARTITION).to_numpy()
    offsets = to_micros(given.records.column(OFFSET))
    watermarks = np.empty(len(offsets), dtype=np.int64)
    for partition, reached in clocks.adapt(adaptive, given.clocks, given.times).items():
        its_own = numbers == partition
        watermarks[its_own] = reached.watermarks[np.searchsorted(reached.offsets, offsets[its_own])]
    return watermarks
