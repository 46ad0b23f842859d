"""Windows by key group: open, fired and closed are the plain counts, and the same in every cut of the log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

import pyarrow as pa
import pytest
from hypothesis import given
from tests.engine.pipelines import raw
from tests.examples import examples, many
from tests.graphs import Runnable, as_graph
from tests.properties.strategies import Case, cases
from tests.properties.test_sessions import sessions

from windrow.engine.tick import PlayStep, Tick
from windrow.model import Global
from windrow.runtime.memory import MemoryHost
from windrow.telemetry.probe import step_probe
from windrow.telemetry.reports import StepReport
from windrow.telemetry.window_counts import WindowCounts
from windrow.testing.transcript.run import cuts


def counts_of(
    pipeline: Runnable, steps: Sequence[PlayStep], partitions: Sequence[int]
) -> list[dict[str, WindowCounts]]:
    """Return the windows of all steps together before the end of the input, and with it."""
    graph = as_graph(pipeline)
    host, offsets = MemoryHost(graph, partitions, probe=step_probe(graph)), dict.fromkeys(partitions, 0)
    reports = []
    for number, step in enumerate(steps):
        if isinstance(step, Tick):
            groups = host.tick(step.micros)
        else:
            tables = []
            for partition in sorted({partition for partition, _ in step}):
                values = [value for at, value in step if at == partition]
                tables.append(raw(partition, offsets[partition], *values))
                offsets[partition] += len(values)
            groups = host.step(pa.concat_tables(tables))
        reports.append(StepReport.of(number, groups, 0.0))
    before = reduce(add, reports)
    end = StepReport.of(len(steps), host.end(), 0.0)
    return [one.windows or {} for one in (before, before + end)]


def hold_to_one_count(case: Case) -> None:
    if case.pipeline.time.idle is not None:
        return  # idleness is not in the log
    found = counts_of(case.pipeline, case.feed, case.partitions)
    assert found[0].keys() == {case.pipeline.name}
    for cut in cuts(case.feed, 1, case.seed):
        assert counts_of(case.pipeline, cut.steps, case.partitions) == found
    (counts,) = found[1].values()
    assert len(counts.open) == case.pipeline.key_groups
    if not isinstance(case.pipeline.window, Global):
        assert sum(counts.open) == 0


@examples(8)
@given(cases(most_records=20))
def test_windows_are_counted_the_same_in_every_cut(case: Case) -> None:
    hold_to_one_count(case)


@examples(10)
@given(sessions())
def test_sessions_are_counted_the_same_in_every_cut(case: Case) -> None:
    hold_to_one_count(case)


@pytest.mark.long
@many(800)
@given(cases(most_records=40) | sessions())
def test_windows_are_counted_the_same_in_many_cases(case: Case) -> None:
    hold_to_one_count(case)
