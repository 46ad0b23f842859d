"""Samples of records in reports: uniform, bounded, the same in every cut, with the verdicts of the operators."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE, main, raw, record
from tests.examples import examples
from tests.graphs import as_graph
from tests.short_forms import Pipeline

from windrow.engine.schema import MICROS
from windrow.model import (
    MAX_PARTITIONS,
    DeduplicateNode,
    Emit,
    Graph,
    Hopping,
    Node,
    Session,
    SinkNode,
    SourceNode,
    SqliteSink,
    WindowNode,
)
from windrow.runtime.memory import MemoryHost
from windrow.telemetry.probe import step_probe
from windrow.telemetry.reports import StepReport, name_partitions
from windrow.telemetry.samples import SAMPLE, RecordSample, least, limit, places_below, ranks


def run(pipeline: Pipeline | Graph, *steps: pa.Table) -> list[StepReport]:
    """Run some steps; all partitions of these are known from the start."""
    numbers = {number for step in steps for number in step.column("partition").to_pylist()}
    graph = as_graph(pipeline)
    host = MemoryHost(graph, sorted(numbers), probe=step_probe(graph))
    return [StepReport.of(epoch, host.step(step), 0.0, committed=0) for epoch, step in enumerate(steps)]


def verdicts(report: StepReport, node: str = "") -> dict[int, str | None]:
    return {one.offset: one.verdicts.get(node) for one in sorted(report.samples, key=lambda one: one.offset)}


MINUTES = [0, 2, 20, 3, 17, 16, 18, 7]
"""With a delay of a minute the watermark is at 19 from the fourth record on."""


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (main().window, ["on_time", "on_time", "on_time", "expired", "on_time", "on_time", "on_time", "late"]),
        # minute 3 is late for one of its windows, and expired for the other
        (Hopping(10 * MINUTE, 5 * MINUTE), ["on_time"] * 3 + ["expired"] + ["on_time"] * 3 + ["late"]),
        (Session(2 * MINUTE), ["on_time"] * 3 + ["expired", "late", "late", "on_time", "expired"]),
    ],
)
@pytest.mark.parametrize("cut", [8, 3])
def test_verdicts_are_those_of_the_operator(window: object, expected: list[str], cut: int) -> None:
    pipeline = main(window=window, emit=Emit(lateness=10 * MINUTE))
    values = [record("ann", minute) for minute in MINUTES]
    found = run(pipeline, *(raw(0, first, *part) for first, part in ((0, values[:cut]), (cut, values[cut:])) if part))
    together = reduce(add, found)
    assert list(verdicts(together).values()) == expected
    assert [one.event_time // MINUTE for one in sorted(together.samples, key=lambda one: one.offset)] == MINUTES


@examples(40)
@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=4), st.integers(1, 5))
def test_a_sample_does_not_depend_on_how_records_are_cut(sizes: list[int], cuts: int) -> None:
    whole = [
        RecordSample(partition, offset, 0, None, rank)
        for partition, size in enumerate(sizes)
        for offset, rank in enumerate(ranks(np.full(size, partition), np.arange(size)).tolist())
    ]
    expected = least(whole)
    assert len(expected) == min(SAMPLE, len(whole))
    assert [one.rank for one in expected] == sorted(one.rank for one in whole)[:SAMPLE]
    assert least(one for cut in range(cuts) for one in least(whole[cut::cuts])) == expected
    below, _ = places_below(limit(len(whole)), np.zeros(sizes[0], dtype=np.int64), np.arange(sizes[0]))
    assert {one.offset for one in expected if one.partition == 0} <= set(below)


def test_a_sample_is_uniform() -> None:
    size = 1 << 17
    for partition in (0, 1, MAX_PARTITIONS):
        places, found = places_below(limit(size) * 32, np.full(size, partition), np.arange(size))
        assert abs(len(places) - 32 * 4 * SAMPLE) < 4 * (32 * 4 * SAMPLE) ** 0.5
        # neither an even offset nor an early one is more likely
        assert abs(np.mean(np.array(places) % 2) - 0.5) < 0.04
        assert abs(np.mean(places) / size - 0.5) < 0.02
        assert len(set(found)) == len(found)


def test_a_large_step_has_a_small_sample_of_all_partitions() -> None:
    values = [record(f"u{number % 50}", number / 1000) for number in range(4_000)]
    step = pa.concat_tables([raw(partition, 0, *values) for partition in range(3)])
    (report,) = run(main(), step)
    assert len(report.samples) == SAMPLE
    assert {one.partition for one in report.samples} == {0, 1, 2}
    assert {one.verdicts[""] for one in report.samples} == {"on_time"}
    assert report.again().samples == ()


def test_log_timestamps_are_those_of_the_records() -> None:
    values = [record("ann", minute) for minute in range(5)]
    steps = []
    for partition in (0, 1):
        step = raw(partition, 0, *values)
        times = [None if number == 1 else 1_000 * partition + number for number in range(5)]
        steps.append(step.set_column(2, "log_time", pa.array(times, MICROS)))
    (report,) = run(main(), pa.concat_tables(steps).combine_chunks())
    found = {(one.partition, one.offset): one.log_time for one in report.samples}
    assert found == {
        (partition, offset): None if offset == 1 else 1_000 * partition + offset
        for partition in (0, 1)
        for offset in range(5)
    }


def test_each_node_says_its_verdict_and_samples_name_their_source() -> None:
    plain = main()
    sources = [SourceNode(name, plain.source, plain.decode, plain.time) for name in ("orders", "rates")]
    unique = DeduplicateNode("unique", "orders", ("user", "t"), MINUTE)
    window = (plain.key, plain.window, plain.aggregates, Emit(lateness=0))
    nodes: tuple[Node, ...] = (
        *sources,
        unique,
        WindowNode("all", "orders", *window),
        WindowNode("each", "unique", *window, salt=2),
        WindowNode("of_rates", "rates", *window),
        *(SinkNode(f"to_{name}", name, SqliteSink("out.db", name)) for name in ("all", "each", "of_rates")),
    )
    graph = Graph("several", nodes, 2)
    values = [record("ann", minute) for minute in (0, 30, 30, 1)]
    step = pa.concat_tables([raw(0, 0, *values), raw(MAX_PARTITIONS + 1, 0, record("ann", 3))])
    told: list[StepReport] = []
    reports = run(graph, step)
    name_partitions(graph, told.append)(reports[0])
    found = {(one.partition, one.offset): one.verdicts for one in told[0].samples}
    assert found[("rates/1", 0)] == {"of_rates": "on_time"}
    assert found[("orders/0", 3)] == {"all": "expired"} | (
        {"each": "expired"} if "each" in found[("orders/0", 3)] else {}
    )
    assert found[("orders/0", 2)]["all"] == "on_time"
    assert "each" not in found[("orders/0", 2)]


def test_old_reports_have_no_samples() -> None:
    (report,) = run(main(), raw(0, 0, record("ann", 1)))
    made = report.plain()
    assert StepReport.of_plain(made) == report
    del made["samples"]
    assert StepReport.of_plain(made).samples == ()
