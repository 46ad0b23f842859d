"""Choices of delays and latenesses for pipelines and graphs, and what is predicted for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tests.graphs import Runnable, as_graph
from tests.runtime.spend import events

from windrow.authoring.pipeline_file import read_document
from windrow.engine.schema import RAW
from windrow.errors import InputError
from windrow.model import Graph, SinkNode, parse_duration
from windrow.runtime.memory import MemoryHost
from windrow.telemetry.histogram import Histogram
from windrow.telemetry.numbers import percent
from windrow.telemetry.probe import step_probe
from windrow.telemetry.reports import StepReport
from windrow.tools.tune.choose import Goals, Tuning, tune, with_settings
from windrow.tools.tune.disorder import Counts, Disorder, fed_operators, measure, read_recorded

RECORDS = """
source: {log: {path: spend}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
"""
TIME = "time: {field: event_time, delay: 10s}"
SINK = "sink: {sqlite: {path: spend.db, table: spend}}"
WINDOW = f"""
name: spend
{RECORDS}
{TIME}
key: user_id
window: {{tumbling: 5m}}
aggregate: {{n: count()}}
emit: {{lateness: 10m}}
{SINK}
"""
RULES = f"""
name: spend
{RECORDS}
{TIME}
key: user_id
recent: {{within: 1h, last: 5}}
rules:
  - {{name: large, when: amount > 100, say: large}}
emit: {{lateness: 10m}}
{SINK}
"""
SOURCE = RECORDS.replace("\n", "\n    ")
GRAPH = f"""
name: spend
sources:
  purchases:
    {SOURCE}
    {TIME}
    lateness: 1h
streams:
  large: {{from: purchases, where: amount > 5}}
  minutes:
    {{from: large, key: user_id, window: {{tumbling: 5m}}, aggregate: {{n: count()}}, emit: {{lateness: 10m}}}}
  visits:
    {{from: purchases, key: user_id, window: {{session: 2m}}, aggregate: {{n: count()}}, emit: {{lateness: 5m}}}}
  hours: {{from: minutes, key: user_id, window: {{tumbling: 1h}}, aggregate: {{n: sum(n)}}}}
sinks:
  to_large: {{from: large, sink: {{sqlite: {{path: spend.db, table: large, changelog: false}}}}}}
  to_visits: {{from: visits, sink: {{sqlite: {{path: spend.db, table: visits}}}}}}
  to_hours: {{from: hours, sink: {{sqlite: {{path: spend.db, table: hours}}}}}}
"""
DAY = 86_400_000_000


def pipeline(text: str) -> Runnable:
    return read_document(text, "pipeline.yaml").pipeline


def log(number: int = 3_000) -> pa.Table:
    """A log by partition, with many late records."""
    rows: dict[int, list[tuple[int, int, None, None, bytes | None]]] = {}
    for partition, value in events(number, late_share=0.2):
        own = rows.setdefault(partition, [])
        own.append((partition, len(own), None, None, value))
    columns = zip(*(row for _, own in sorted(rows.items()) for row in own), strict=True)
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, RAW, strict=True)], schema=RAW)


def run(given: Runnable, records: pa.Table) -> StepReport:
    partitions = np.unique(records.column("partition").to_numpy()).tolist()
    graph = as_graph(given)
    groups = MemoryHost(graph, partitions, probe=step_probe(graph)).step(records)
    return StepReport.of(0, groups, 0.0, committed=0)


@pytest.mark.parametrize("text", [WINDOW, RULES, WINDOW.replace("{tumbling: 5m}", "{hopping: {size: 6m, slide: 2m}}")])
@pytest.mark.parametrize("delay", ["0s", "10s", "7m", "1h"])
@pytest.mark.parametrize("lateness", ["0s", "30m"])
def test_a_run_counts_what_was_predicted(text: str, delay: str, lateness: str) -> None:
    given, records = pipeline(text), log()
    changes = {"time.delay": parse_duration(delay), "emit.lateness": parse_duration(lateness)}
    report = run(with_settings(as_graph(given), changes), records)
    found = measure(as_graph(given), records.to_batches()).missed(changes["time.delay"], None, changes)
    assert report.expired or lateness != "0s" or delay == "1h"
    assert (found.late.most, found.expired.most) == (report.late + report.expired, report.expired)


def latenesses(given: Runnable) -> Mapping[str, int]:
    return {one.path: one.lateness for one in fed_operators(as_graph(given)) if one.path}


@pytest.mark.parametrize("delay", ["0s", "2m", "30m"])
@pytest.mark.parametrize("source_lateness", ["0s", "10m", "2h"])
def test_a_run_of_a_graph_counts_what_was_predicted(delay: str, source_lateness: str) -> None:
    given, records = pipeline(GRAPH), log()
    assert isinstance(given, Graph)
    # a window over windows counts late rows of its own, which are of no source
    nodes = [
        replace(one, input="minutes") if isinstance(one, SinkNode) and one.input == "hours" else one
        for one in given.nodes
        if one.name != "hours"
    ]
    given = replace(given, nodes=tuple(nodes))
    changes = {
        "sources.purchases.time.delay": parse_duration(delay),
        "sources.purchases.lateness": parse_duration(source_lateness),
    }
    report = run(with_settings(given, changes), records)
    found = measure(given, records.to_batches()).missed(parse_duration(delay), parse_duration(source_lateness), {})
    assert report.expired
    assert (found.late.most, found.expired.most) == (report.late + report.expired, report.expired)


def test_the_operators_of_a_graph_that_take_records_of_a_source_have_latenesses() -> None:
    assert latenesses(pipeline(GRAPH)) == {
        "streams.minutes.emit.lateness": 10 * 60_000_000,
        "streams.visits.emit.lateness": 5 * 60_000_000,
    }


def choose(text: str, **goals: float) -> Tuning:
    given = pipeline(text)
    return tune(given, measure(given, log().to_batches()), Goals(**goals))  # type: ignore[arg-type]


BEHIND = {
    "deduplicate": "{from: purchases, deduplicate: {by: [user_id, event_time], within: 1h}}",
    "part": "{from: once, where: amount > 0}\n  once: {from: purchases, deduplicate: {by: [event_time], within: 1h}}",
    "lookup": "{from: purchases, lookup: {table: last, by: user_id, as_of: order, how: left}}",
    "as of": "{from: purchases, lookup: {table: last, by: user_id, how: left}}",
    "inner": "{from: purchases, join: {with: others, by: user_id, after: 5m}}",
    "left": "{from: purchases, join: {with: others, by: user_id, after: 5m, how: left}}",
    "windows": "{from: purchases, key: user_id, window: {tumbling: 1m}, aggregate: {amount: sum(amount)}}",
    "sessions": "{from: purchases, key: user_id, window: {session: 1m}, aggregate: {amount: sum(amount)}}",
}


def behind(operator: str) -> str:
    """Return a graph with windows of five minutes behind an operator."""
    own = f"{SOURCE}\n    {TIME}\n    lateness: 1h"
    return f"""
name: behind
sources:
  purchases:
    {own}
  others:
    {own.replace("path: spend", "path: others")}
streams:
  made: {operator}
  last: {{from: others, table: {{key: user_id}}}}
  minutes: {{from: made, key: user_id, window: {{tumbling: 5m}}, aggregate: {{n: count()}}, emit: {{lateness: 1h}}}}
sinks:
  minutes: {{from: minutes, {SINK}}}
  last: {{from: last, sink: {{sqlite: {{path: spend.db, table: last}}}}}}
"""


@pytest.mark.parametrize("how", BEHIND)
def test_records_behind_an_operator_are_counted(how: str) -> None:
    given, direct = pipeline(behind(BEHIND[how])), pipeline(behind("{from: purchases, where: true}"))
    disorder = measure(as_graph(given), log().to_batches())
    assert not disorder.is_exact
    assert not disorder.is_log_exact
    found, plain = (
        tune(as_graph(one), measure(as_graph(one), log().to_batches()), Goals(late=0.05)) for one in (given, direct)
    )
    chosen, others = found.delays[0].chosen, plain.delays[0].chosen
    assert chosen is not None
    assert others is not None
    assert chosen >= others > 0
    if how not in {"left", "windows", "sessions"}:
        assert chosen == others
    missed = disorder.missed(0, None, {})
    # the operator may drop each of them; a window judges them itself
    assert missed.late.least < missed.late.most
    assert (missed.late.least == 0) is (how not in {"windows", "sessions"})
    report = run(with_settings(as_graph(given), {"sources.purchases.time.delay": 0}), log())
    assert report.late <= missed.late.most
    named = {as_graph(given).partition_name(int(number)): one for number, one in report.lateness.items()}
    recorded = read_recorded(as_graph(given), [replace(report, lateness=named)])
    assert recorded.missed(0, None, {}).late.most >= report.late


def test_the_least_value_that_meets_the_goals_is_chosen() -> None:
    found = choose(WINDOW, late=0.05, expired=0.01)
    assert not found.problems
    (delay,), (lateness,) = found.delays, found.latenesses
    assert delay.chosen is not None
    assert lateness.chosen is not None
    records = log()
    for value, is_met in ((delay.chosen, True), (delay.chosen // 2, False)):
        smaller = with_settings(as_graph(pipeline(WINDOW)), {"time.delay": value})
        report = run(smaller, records)
        assert (report.late + report.expired <= 0.05 * delay.records) is is_met


def test_each_setting_of_a_graph_is_chosen() -> None:
    found = choose(GRAPH, late=0.05, expired=0.01)
    assert [one.path for one in found.delays] == ["sources.purchases.time.delay"]
    assert [one.path for one in found.latenesses] == [
        "sources.purchases.lateness",
        "streams.minutes.emit.lateness",
        "streams.visits.emit.lateness",
    ]
    given = pipeline(GRAPH)
    then = with_settings(as_graph(given), found.changes)
    assert run(then, log()).expired < run(given, log()).expired


def test_each_delay_by_partition_is_chosen_by_its_own_records() -> None:
    given = pipeline(WINDOW.replace("delay: 10s", "delay: {by_partition: {default: 1m, 1: 5m, 7: 1h}}"))
    records = log()
    numbers = records.column("partition").to_numpy()
    # only partition 1 is out of order
    times = pa.array([b'{"user_id": "a", "event_time": %d, "amount": 1}' % n for n in range(len(numbers))])
    mixed = pa.array(np.where(numbers == 1, times.to_numpy(zero_copy_only=False)[::-1], times))
    records = records.set_column(4, records.schema.field(4), mixed.cast(RAW.field(4).type))
    found = tune(as_graph(given), measure(as_graph(given), records.to_batches()), Goals(late=0.05))
    assert {one.path: one.chosen for one in found.delays} == {
        "time.delay.by_partition.default": 0,
        "time.delay.by_partition.1": 0,  # windows of 5 minutes hold all of its records
        "time.delay.by_partition.7": None,
    }
    found = tune(as_graph(given), measure(as_graph(given), records.to_batches()), Goals(quantile=0.95))
    assert found.changes.keys() == {"time.delay.by_partition.default", "time.delay.by_partition.1"}
    assert found.changes["time.delay.by_partition.1"] > found.changes["time.delay.by_partition.default"] == 0


def test_too_few_records_choose_nothing() -> None:
    found = choose(WINDOW, late=0.0001, expired=0.0001)
    assert found.changes == {}
    assert len(found.problems) == 2
    assert "records are too few: measuring a share as small as the goal takes 100,000" in found.problems[0]


def test_goals_that_exclude_each_other_are_a_problem() -> None:
    found = choose(WINDOW, late=0.01, within=1_000_000)
    assert found.changes == {}
    assert "exclude each other" in found.problems[0]


def test_a_time_alone_gives_the_delay_that_leaves_fewest_behind() -> None:
    (delay,) = choose(WINDOW, within=7 * 60_000_000).delays
    assert delay.chosen is not None
    assert delay.chosen <= 7 * 60_000_000
    records = log()
    longest, chosen = (
        run(with_settings(as_graph(pipeline(WINDOW)), {"time.delay": one}), records)
        for one in (7 * 60_000_000, delay.chosen)
    )
    assert longest.late + longest.expired == chosen.late + chosen.expired


@pytest.mark.parametrize("delay", ["delay: {adaptive: {target: 99%, min: 0s, max: 1h}}", "punctuated: event_time"])
def test_a_source_without_a_fixed_delay_is_skipped(delay: str) -> None:
    text = WINDOW.replace("delay: 10s", delay)
    if "adaptive" in delay:
        text = text.replace("target: 99%", "target: 0.99")
    found = choose(text, late=0.05, expired=0.01)
    assert (found.delays, found.latenesses, len(found.skipped)) == ((), (), 1)


def recorded(given: Runnable, lateness: Mapping[int | str, Histogram]) -> Disorder:
    report = replace(run(given, log(10)), lateness=dict(lateness))
    return read_recorded(as_graph(given), [report, report])


def test_what_is_recorded_bounds_what_windows_miss() -> None:
    found = recorded(pipeline(WINDOW), {0: Histogram.of(np.array([0, 60, 299, 301, 700, 40 * 86_400]) * 1_000_000)})
    assert not found.is_exact
    missed = found.missed(1_000_000, None, {})
    assert (missed.pairs, missed.late.least, missed.late.most) == (12, 2 * 2, 2 * 5)
    assert (missed.expired.least, missed.expired.most) == (2, 2 * 2)
    assert found.high.out(1_000_001) == 10
    assert found.low.out(86_400_000_000) == 2


def test_a_lateness_is_chosen_by_what_is_recorded_whatever_that_of_others_is() -> None:
    given = pipeline(GRAPH)
    found = tune(
        as_graph(given), recorded(given, {0: Histogram.of(np.full(1_000, 1_200) * 1_000_000)}), Goals(expired=0.01)
    )
    assert found.problems == []
    assert {path: chosen // 60_000_000 for path, chosen in found.changes.items()} == {
        "sources.purchases.lateness": 20,
        "streams.minutes.emit.lateness": 20,
        "streams.visits.emit.lateness": 20,
    }


def test_a_history_without_lateness_is_refused() -> None:
    with pytest.raises(InputError, match="use --log"):
        recorded(pipeline(WINDOW), {})


def test_quantiles_of_nothing_are_zero() -> None:
    nothing = np.array([], dtype=np.int64)
    assert Counts(*[nothing] * 6).quantile(0.5) == 0


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (1, "100 %"), (0.123, "12 %"), (0.00341, "0.34 %"), (1.23e-5, "0.0012 %"), (0.0099995, "1.0 %")],
)
def test_shares_have_two_digits(share: float, text: str) -> None:
    assert percent(share) == text
