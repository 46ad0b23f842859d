"""Lateness: how far a record is behind its partition's clock, counted the same in every cut of the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE, main, raw, record
from tests.examples import examples
from tests.graphs import Runnable, as_graph

from windrow.authoring.pipeline_file import read_document
from windrow.engine.schema import MICROS
from windrow.model import (
    MAX_PARTITIONS,
    Adaptive,
    Decode,
    DeduplicateNode,
    Delay,
    DelayByPartition,
    Emit,
    EventTime,
    Field,
    Graph,
    Node,
    Punctuated,
    SinkNode,
    SourceNode,
    SqliteSink,
    TimestampType,
    Watermark,
    WindowNode,
)
from windrow.runtime.memory import MemoryHost
from windrow.telemetry.histogram import Histogram
from windrow.telemetry.probe import step_probe
from windrow.telemetry.reports import StepReport

watermarks: st.SearchStrategy[Watermark] = st.sampled_from(
    [
        Delay(0),
        Delay(MINUTE),
        DelayByPartition(MINUTE, ((1, 3 * MINUTE),)),
        Adaptive(0.9, 0, 5 * MINUTE),
    ]
)
minutes = st.lists(st.integers(0, 60), max_size=20)


def reports(pipeline: Runnable, log: Sequence[Sequence[int]], cuts: int) -> list[StepReport]:
    """Run the minutes of records by partition in so many steps."""
    graph = as_graph(pipeline)
    host = MemoryHost(graph, range(len(log)), probe=step_probe(graph))
    made = []
    for step in range(cuts):
        tables = []
        for partition, times in enumerate(log):
            first, last = (len(times) * at // cuts for at in (step, step + 1))
            users = [f"u{number}" for number in range(first, last)]
            values = [record(user, time) for user, time in zip(users, times[first:last], strict=True)]
            tables += [raw(partition, first, *values)] if values else []
        if tables:
            groups = host.step(pa.concat_tables(tables))
            made.append(StepReport.of(step, groups, 0.0))
    return made


def expected(times: Sequence[int]) -> Histogram:
    """The definition."""
    behind = [max(0, max(times[:place], default=time) - time) for place, time in enumerate(times)]
    return Histogram.of(np.array(behind, dtype=np.int64) * MINUTE)


@examples(25)
@given(minutes, minutes, watermarks, st.integers(1, 4))
def test_lateness_is_behind_the_clock_whatever_the_delay_and_the_cut(
    one: list[int], two: list[int], watermark: Watermark, cuts: int
) -> None:
    pipeline = main(time=EventTime("t", watermark))
    found: dict[int | str, Histogram] = {}
    for report in reports(pipeline, [one, two], cuts):
        for partition, counts in report.lateness.items():
            found[partition] = found.get(partition, Histogram()) + counts
    assert found == {partition: expected(times) for partition, times in enumerate([one, two]) if times}


def test_salted_records_are_counted_once_on_their_way() -> None:
    (report,) = reports(replace(main(), salt=4), [[5, 3, 9]], 1)
    assert report.lateness == {0: expected([5, 3, 9])}
    assert report.read == {0: 3}


def test_a_record_is_counted_once_for_each_operator_that_takes_it_from_its_source() -> None:
    plain = main()
    nodes: list[Node] = [
        SourceNode("log", plain.source, plain.decode, plain.time, lateness=60 * MINUTE),
        DeduplicateNode("unique", "log", ("user", "t"), 60 * MINUTE),
        *(
            WindowNode(name, given, plain.key, plain.window, plain.aggregates, Emit())
            for name, given in {"behind": "unique", "beside": "log"}.items()
        ),
        *(SinkNode(f"to_{name}", name, SqliteSink("out.db", name)) for name in ("behind", "beside")),
    ]
    (report,) = reports(Graph("twice", tuple(nodes), 2), [[5, 3, 9]], 1)
    # the deduplication, at the first level, and the window beside it, at the first, too; not the one behind it
    assert report.lateness == {0: expected([5, 3, 9]) + expected([5, 3, 9])}


PRICED = """
name: priced
sources:
  rates:
    source: {log: {path: rates}}
    decode: {user: string, t: timestamp_micros, amount: "decimal(12,2)"}
    time: {field: t, delay: 1m}
  orders:
    source: {log: {path: orders}}
    decode: {user: string, t: timestamp_micros, amount: "decimal(12,2)"}
    time: {field: t, delay: 1m}
    lateness: 1h
streams:
  rate: {from: rates, table: {key: user}}
  priced: {from: orders, lookup: {table: rate, by: user, broadcast: true}}
sinks:
  to_priced: {from: priced, sink: {sqlite: {path: out.db, table: priced}}}
"""


def test_versions_of_a_broadcast_table_are_counted_once() -> None:
    graph = read_document(PRICED, "priced.yaml").pipeline
    host = MemoryHost(graph, [0, MAX_PARTITIONS], probe=step_probe(graph))
    rates, orders = [5, 3, 9], [4, 8, 1, 2]
    tables = [
        raw(partition, 0, *(record(f"u{minute}", minute) for minute in times))
        for partition, times in ((0, rates), (MAX_PARTITIONS, orders))
    ]
    report = StepReport.of(0, host.step(pa.concat_tables(tables)), 0.0)
    assert report.lateness == {0: expected(rates), MAX_PARTITIONS: expected(orders)}


def test_with_marks_lateness_is_behind_the_last_mark() -> None:
    plain = main()
    decode = Decode((*plain.decode.fields, Field("mark", TimestampType("micros"), optional=True)))
    marked = as_graph(replace(plain, decode=decode, time=EventTime("t", Punctuated("mark"))))
    host = MemoryHost(marked, [0], probe=step_probe(marked))
    rows = [(3, None), (9, 5), (2, None), (7, None)]
    values = [
        json.dumps({"user": "u", "t": at * MINUTE, "amount": 1, "mark": mark and mark * MINUTE}).encode()
        for at, mark in rows
    ]
    report = StepReport.of(0, host.step(raw(0, 0, *values)), 0.0)
    assert report.lateness == {0: Histogram.of(np.array([0, 0, 3 * MINUTE, 0]))}


def test_the_load_of_key_groups_is_a_multiple_of_the_mean() -> None:
    def load(users: int) -> float | None:
        graph = as_graph(replace(main(), key_groups=2))
        host = MemoryHost(graph, [0], probe=step_probe(graph))
        groups = host.step(
            raw(0, 0, *(record(f"u{number}", 1) for number in range(users) for _ in range(100 // users)))
        )
        return StepReport.of(0, groups, 0.0).key_group_load

    assert load(1) == 2.0
    many = load(100)
    assert many is not None
    assert 1.0 <= many < 1.5


def test_latency_is_from_the_log_timestamp_to_the_commit() -> None:
    graph = as_graph(main())
    host = MemoryHost(graph, [0, 1], probe=step_probe(graph))
    logged: list[list[int | None]] = [[10, 40, 20], [30, None, 35]]
    tables = []
    for partition, seconds in enumerate(logged):
        table = raw(partition, 0, *(record("u", minute) for minute in range(3)))
        times = pa.array([None if one is None else one * 1_000_000 for one in seconds]).cast(MICROS)
        tables.append(table.set_column(2, "log_time", times))
    groups = host.step(pa.concat_tables(tables))
    report = StepReport.of(0, groups, 0.0, committed=100_000_000)
    assert report.log_times == {0: 40_000_000, 1: 35_000_000}
    # 90 s, 60 s and 80 s, 70 s and 65 s ago
    assert report.latency == Histogram.of(np.array([120, 60, 120, 120, 120], dtype=np.int64) * 1_000_000)
    assert report.watermark_lag == 100 - (2 - 1) * 60
