"""What is predicted for a delay and a lateness is what a run with them counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.graphs import Runnable, as_graph
from tests.properties.strategies import HOUR, MICROS, Case, cases
from tests.short_forms import Pipeline

from windrow.engine.columns import to_micros
from windrow.engine.schema import RAW
from windrow.engine.tick import Tick
from windrow.model import Calendar, Delay, Global, TimestampType
from windrow.runtime.memory import MemoryHost
from windrow.telemetry.probe import step_probe
from windrow.telemetry.reports import StepReport
from windrow.tools.tune.choose import Goals, tune, with_settings
from windrow.tools.tune.disorder import Bounds, Missed, measure, read_recorded

TICKS = st.integers(0, 8)
"""Delays and latenesses in ticks of a case, of which its windows are made, so that times are often equal."""


def tick(case: Case) -> int:
    """Return the unit of event times in microseconds, or hours where windows are days."""
    types = {field.name: field.type for field in case.pipeline.decode.fields}
    assert isinstance(types["t"], TimestampType)
    return 5 * HOUR if isinstance(case.pipeline.window, Calendar) else MICROS[types["t"].unit]


def tables(case: Case) -> list[pa.Table]:
    """Return the log of a case in its steps, each partition's offsets from 0."""
    offsets: dict[int, int] = {}
    made = []
    for step in case.feed:
        rows = []
        for partition, value in () if isinstance(step, Tick) else step:
            rows.append((partition, offsets.get(partition, 0), None, None, value))
            offsets[partition] = offsets.get(partition, 0) + 1
        if rows:
            columns = zip(*rows, strict=True)
            made.append(
                pa.table([pa.array(values, field.type) for values, field in zip(columns, RAW, strict=True)], schema=RAW)
            )
    return made


def with_policy(case: Case, delay: int, lateness: int) -> Pipeline:
    pipeline = case.pipeline
    time = replace(pipeline.time, watermark=Delay(delay), idle=None, all_idle="hold")
    emit = replace(pipeline.emit, lateness=0 if isinstance(pipeline.window, Global) else lateness)
    return replace(pipeline, time=time, emit=emit)


def reports(pipeline: Runnable, steps: Sequence[pa.Table]) -> list[StepReport]:
    partitions = np.unique(np.concatenate([step.column("partition").to_numpy() for step in steps])).tolist()
    graph = as_graph(pipeline)
    host = MemoryHost(graph, partitions, probe=step_probe(graph))
    return [StepReport.of(epoch, host.step(step), 0.0, committed=0) for epoch, step in enumerate(steps)]


@given(cases(), TICKS, TICKS, TICKS, TICKS)
@examples(20)
def test_what_is_predicted_is_what_a_run_counts(
    case: Case, recorded: int, delay: int, recorded_lateness: int, lateness: int
) -> None:
    recorded, delay, recorded_lateness, lateness = (
        ticks * tick(case) for ticks in (recorded, delay, recorded_lateness, lateness)
    )
    steps = tables(case)
    now, then = with_policy(case, recorded, recorded_lateness), with_policy(case, delay, lateness)
    counted = reports(then, steps)
    late, expired = sum(one.late for one in counted), sum(one.expired for one in counted)
    changed = {"emit.lateness": lateness}

    whole = pa.concat_tables(steps)
    places = np.lexsort([to_micros(whole.column("offset")), whole.column("partition").to_numpy()])
    exact = measure(as_graph(now), whole.take(pa.array(places)).to_batches())
    found = exact.missed(delay, None, changed)
    assert exact.is_exact
    assert found == Missed(found.pairs, Bounds(late + expired, late + expired), Bounds(expired, expired))
    assert exact.records == sum(one.records for one in counted)

    # what is recorded counts a record once, however many windows it has
    if exact.records == found.pairs > 0:
        bounds = read_recorded(as_graph(now), reports(now, steps)).missed(delay, None, changed)
        assert bounds.late.least <= late + expired <= bounds.late.most
        assert bounds.expired.least <= expired <= bounds.expired.most


@given(cases(), st.sampled_from([0.0, 0.1, 0.5]), st.sampled_from([0.0, 0.1]))
@examples(6)
def test_a_run_with_what_was_chosen_meets_the_goals(case: Case, late: float, expired: float) -> None:
    steps = tables(case)
    pipeline = with_policy(case, 0, 0)
    chosen = tune(
        as_graph(pipeline),
        measure(as_graph(pipeline), pa.concat_tables(steps).to_batches()),
        Goals(late=late, expired=expired),
    )
    if chosen.problems:
        return
    counted = reports(with_settings(as_graph(pipeline), chosen.changes), steps)
    pairs = chosen.delays[0].table[0].missed.pairs if chosen.delays else 0
    assert sum(one.late + one.expired for one in counted) <= late * pairs
    assert sum(one.expired for one in counted) <= expired * pairs
