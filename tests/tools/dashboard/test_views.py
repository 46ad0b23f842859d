"""Views of the history: what they say is what the reports say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pytest
from tests.engine.pipelines import main as main_pipeline
from tests.graphs import Runnable, as_graph
from tests.telemetry.test_status import BASE, NOW, RUNNING, SECOND, steps

from windrow.authoring.pipeline_file import read_document
from windrow.errors import InputError
from windrow.model import Graph
from windrow.telemetry.histogram import BOUNDS, Histogram
from windrow.telemetry.history import RunRecord
from windrow.telemetry.reports import Lag, StepReport
from windrow.telemetry.samples import RecordSample
from windrow.telemetry.status import RunStatus
from windrow.telemetry.window_counts import WindowCounts
from windrow.tools.dashboard.views import HISTORY_VIEWS, graph, lateness, overview, throughput, watermark, windows
from windrow.tools.dashboard.views import event_time as time_view
from windrow.tools.dashboard.views import steps as step_view
from windrow.tools.dashboard.watch import POINTS, Seen, Series, WatchedRun
from windrow.tools.tune.choose import Goals, tune, what_if
from windrow.tools.tune.disorder import read_recorded

RUN = WatchedRun("spend", Path("checkpoint"), as_graph(main_pipeline()), "spend.yaml")


def seen(
    reports: Sequence[StepReport],
    record: RunRecord | None = RUNNING,
    run: WatchedRun = RUN,
    **changes: Any,  # noqa: ANN401
) -> Seen:
    series = Series()
    for report in reports:
        series.add(report)
    status = RunStatus.of(record, reports[-120:], NOW, run.pipeline)
    return Seen(run, 1, NOW, status, reports, series.sums, **changes)


def answers(made: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["level"], one["headline"]) for one in made["answers"]]


@pytest.mark.parametrize("view", HISTORY_VIEWS.values(), ids=HISTORY_VIEWS)
def test_a_run_without_steps_has_all_views(view: Any) -> None:  # noqa: ANN401 - a view
    assert view(seen([], None, absent="there is none"), {})


@pytest.mark.parametrize(
    ("record", "changes", "expected"),
    [
        (RUNNING, {"lag": {0: 0}}, [("good", "Running"), ("good", "All records of the log have been read")]),
        (
            replace(RUNNING, lag=Lag(NOW, {0: 900}, {0: 400.0})),
            {"lag": {0: 0}},
            [("good", "Running"), ("bad", "900 records behind, 6m40s")],
        ),
        (
            replace(RUNNING, lag=Lag(NOW, {0: 900}, {0: 3.0})),
            {"lag": {0: 0}},
            [("good", "Running"), ("warn", "900 records behind, 3s")],
        ),
        (
            replace(RUNNING, lag=Lag(NOW, {0: 50})),
            {"lag": {0: 900}},
            [("good", "Running"), ("warn", "50 records behind")],
        ),
        (
            replace(RUNNING, is_retrying=True, fault="it is locked\nmore", fault_at=NOW - SECOND),
            {"lag": None},
            [("warn", "Retrying after a fault"), ("done", "The lag is not known")],
        ),
        (
            replace(RUNNING, waiting=NOW - 300 * SECOND, lag=Lag(NOW, {0: 1})),
            {"lag": {0: 0}},
            [("bad", "Stalled: records are waiting, but no step is committed"), ("bad", "1 record behind")],
        ),
        (
            replace(RUNNING, ended=NOW, error="no room"),
            {"lag": {0: 2}},
            [("bad", "Failed"), ("bad", "2 records behind, 1.5s")],
        ),
        (
            replace(RUNNING, ended=NOW),
            {"lag": {0: 0}},
            [("done", "Ended"), ("done", "All records that the log had were read")],
        ),
        (replace(RUNNING, ended=NOW), {"lag": {0: 2}}, [("done", "Ended"), ("done", "2 records behind, 1.5s")]),
    ],
)
def test_whether_it_runs_and_is_up_to_date(
    record: RunRecord, changes: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    made = overview(seen(steps({}, changes), record), {})
    assert answers(made)[:2] == expected
    assert (made["held"] == []) == (record.ended is not None)


def test_a_watermark_that_stands_still_while_records_come_is_warned_of() -> None:
    moved = replace(BASE, epoch=0, committed=NOW - 400 * SECOND)
    made = overview(seen([moved, *steps({}, {})]), {})
    assert answers(made)[0] == ("warn", "Running, but the low watermark does not advance")
    assert "It has not moved for 6m40s although records arrive; see Watermark." in made["answers"][0]["reasons"]
    before = replace(moved, committed=NOW - 900 * SECOND, low_watermark=1)
    assert watermark(seen([before, moved, *steps({}, {})]), {})["standing_seconds"] == 400


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"records": 1000}, ("good", "All 1,000 records are counted")),
        ({"records": 9999, "dead": 1}, ("good", "99.99 % of the records are counted")),
        ({"records": 990, "expired": 5, "dead": 10}, ("warn", "98.5 % of the records are counted")),
        ({"records": 10_000_000, "expired": 1}, ("good", "99.999 % of the records are counted")),
        ({"records": 10, "expired": 1, "only_offsets": True}, ("done", "A realtime run counts only offsets")),
    ],
)
def test_whether_the_numbers_are_right(changes: dict[str, Any], expected: tuple[str, str]) -> None:
    assert answers(overview(seen(steps({"expired": 0, "dead": 0, "rejected": 0} | changes)), {}))[2] == expected


def test_what_a_realtime_run_does_not_count_is_not_0() -> None:
    made = overview(seen(steps({"only_offsets": True, "late": 0, "expired": 0})), {})
    totals = made["totals"]
    assert totals["events"] > 0
    assert {value for name, value in totals.items() if name not in {"events", "records"}} == {None}
    assert {value for name in ("late", "dead", "revisions", "open_windows") for value in made["series"][name]} == {None}
    assert set(time_view(seen(steps({"only_offsets": True})), {})["inserts"]) == {None}


def test_a_lag_of_what_comes_between_two_steps_is_none_to_warn_of() -> None:
    record = replace(RUNNING, lag=Lag(NOW, {0: 100}))
    busy = steps({"records": 6_000, "lag": {0: 0}}, {"records": 6_000, "lag": {0: 0}})
    assert answers(overview(seen(busy, record), {}))[1] == ("good", "100 records behind")
    slow = steps({"records": 60, "lag": {0: 0}}, {"records": 60, "lag": {0: 0}})
    assert answers(overview(seen(slow, record), {}))[1] == ("warn", "100 records behind")


def test_the_watermarks_of_partitions_say_who_holds_it() -> None:
    made = watermark(seen(steps({"lag": {0: 5, 1: 0}, "idle": []})), {})
    first, second = made["partitions"]
    assert (first["holds"], first["why"]) == (True, "5 of its records have not been read yet")
    assert (second["holds"], second["ahead_seconds"]) == (False, 1.0)
    assert made["held"] == [{"partition": 0, "why": first["why"]}]


def test_long_histories_are_summed_up_and_nothing_is_lost() -> None:
    reports = [replace(BASE, epoch=number, committed=NOW + number, records=number) for number in range(5 * POINTS)]
    found = seen(reports)
    made = throughput(found, {})
    assert POINTS <= len(made["time"]) <= 2 * POINTS
    assert found.total == reduce(add, reports)
    assert made["time"][-1] == reports[-1].committed


def test_a_span_is_of_the_newest_steps() -> None:
    reports = steps(*[{}] * 100)
    assert len(throughput(seen(reports), {"span": "10m"})["time"]) == 61
    assert len(throughput(seen(reports), {"span": "all"})["time"]) == 100
    with pytest.raises(InputError, match="; choose one of 10m, 1h, all"):
        throughput(seen(reports), {"span": "2h"})


def test_partitions_without_a_line_are_summed_up() -> None:
    many = {number: number for number in range(40)}
    made = throughput(seen(steps({"offsets": many, "watermarks": many, "lag": many, "read": many})), {})
    assert len(made["partitions"]) == 13
    assert made["partitions"][-1]["partition"] == "28 others"
    assert sum(one["lag"][0] for one in made["partitions"]) == sum(many.values())


def test_windows_are_open_now_and_fired_and_closed_in_the_span() -> None:
    counts = WindowCounts((3, 1), (2, 0), (0, 1))
    found = seen(steps(*[{"windows": {"user-spend": counts}}] * 100))
    (node,) = windows(found, {"span": "10m"})["nodes"]
    assert (node["node"], node["kind"], node["open"], node["fired"], node["closed"]) == (
        "user-spend",
        "tumbling",
        4,
        2 * 61,
        61,
    )
    assert node["key_groups"][0] == {"key_group": 0, "open": 3, "fired": 2 * 61, "closed": 0}
    (every,) = windows(found, {})["nodes"]
    assert (every["open"], every["fired"]) == (4, 200)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"windows": {}}, "the pipeline has no windows"),
        ({"windows": None}, "an older version of windrow reported these steps without the windows of each key group"),
        ({"windows": None, "only_offsets": True}, "a realtime run reports only offsets"),
    ],
)
def test_why_there_are_no_windows(changes: dict[str, Any], why: str) -> None:
    made = windows(seen(steps(changes)), {})
    assert (made["nodes"], made["why_not"]) == ([], why)


def test_steps_are_the_last_with_their_parts() -> None:
    made = step_view(seen(steps(*[{}] * 70)), {})["steps"]
    assert [one["epoch"] for one in made] == list(range(10, 70))
    assert made[0]["parts"] == BASE.parts


def sample(offset: int, event_time: int, **verdicts: str) -> RecordSample:
    return RecordSample(0, offset, event_time, None, offset, verdicts)  # type: ignore[arg-type]


def test_samples_have_their_worst_verdict_and_the_watermark_before_their_step() -> None:
    one = sample(1, NOW, a="on_time", b="late")
    two = sample(2, NOW - SECOND)
    made = time_view(seen(steps({"samples": (one,), "low_watermark": NOW - 5 * SECOND}, {"samples": (two,)})), {})
    points = made["samples"]["points"]
    assert [(p["offset"], p["verdict"], p["ahead_seconds"]) for p in points] == [(1, "late", None), (2, None, 4.0)]
    assert made["samples"]["arrival_is"] == "commit"
    logged = tuple(replace(s, log_time=NOW - 7) for s in (one, two))
    by_log = time_view(seen(steps({"samples": logged, "log_times": {0: NOW - 6, 1: NOW - 9}})), {})["samples"]
    assert by_log["arrival_is"] == "log"
    assert [p["arrival"] for p in by_log["points"]] == [NOW - 7, NOW - 7]
    assert by_log["line"] == {"arrival": [NOW - 6], "low_watermark": [BASE.low_watermark]}


# what if


def recorded(pipeline: Runnable, counts: Histogram) -> Seen:
    return seen(steps({"lateness": {0: counts}}), run=WatchedRun("spend", Path("c"), as_graph(pipeline)))


def test_other_settings_count_as_tune_does() -> None:
    pipeline = main_pipeline()
    counts = Histogram(tuple(range(100, 100 + len(BOUNDS))))
    found = recorded(pipeline, counts)
    disorder = read_recorded(as_graph(pipeline), found.series)
    (choice,) = tune(as_graph(pipeline), disorder, Goals(late=0.01)).delays
    assert len(choice.table) > 1
    for row in choice.table:
        made = lateness(found, {"delay": f"{row.delay}us"})["what_if"]
        missed = row.missed
        assert made["then"]["not_on_time"] == [missed.late.least, missed.late.most]
        assert made["then"]["expired"] == [missed.expired.least, missed.expired.most]
        assert made["state_ratio"] == pytest.approx(row.held, abs=1e-4)
        assert made["later_seconds"] == (row.delay - choice.now) / 1e6
    (other,) = tune(as_graph(pipeline), disorder, Goals(expired=0.01)).latenesses
    for row in other.table:
        made = lateness(found, {"lateness": f"{row.lateness}us"})["what_if"]
        assert made["then"]["expired"] == [row.missed.expired.least, row.missed.expired.most]


def test_what_if_needs_delays_and_a_pipeline() -> None:
    text = """
name: a
source: {log: {path: log}}
decode: {user: string, t: timestamp_millis, w: timestamp_millis}
time: {field: t, punctuated: w}
key: [user]
window: {tumbling: 5m}
aggregate: {n: count()}
sink: {sqlite: {path: a.db, table: a}}
"""
    punctuated = read_document(text, "a.yaml").pipeline
    made = lateness(recorded(punctuated, Histogram((1, 2))), {})
    assert made["what_if"] is None
    assert "adaptive or in the log" in made["why_not"]
    unknown = seen(steps({}), run=WatchedRun("spend", Path("c")))
    assert "give the pipeline's file" in lateness(unknown, {})["why_not"]
    assert made["counts"] == [1, 2]
    with pytest.raises(InputError, match="adaptive or in the log"):
        what_if(punctuated, read_recorded(as_graph(punctuated), [replace(BASE, lateness={0: Histogram((1,))})]))


def test_lines_break_where_no_run_ran() -> None:
    """A step tells how long it took since the one before it, or since its process began."""
    reports = [
        replace(BASE, epoch=number, committed=at * SECOND, seconds=seconds)
        for number, (at, seconds) in enumerate([(10, 5.0), (11, 1.0), (100, 89.0), (400, 2.0), (401, 1.0)])
    ]
    assert overview(seen(reports), {})["series"]["breaks"] == [3]
    made = time_view(seen(reports), {})
    assert (len(made["time"]), made["breaks"]) == (5, [3])
    assert throughput(seen(reports), {})["breaks"] == [3]


# the graph


def test_a_short_pipeline_has_a_source_a_stream_and_a_sink() -> None:
    found = seen(steps({"tasks": {"read": 1.0, "decode": 1.0, "operate": 5.0}, "parts": {"commit": 1.0}}))
    made = graph(found, {})
    assert [(one["kind"], one["layer"], one["share"]) for one in made["nodes"]] == [
        ("source", 0, 0.25), ("window", 1, 0.625), ("sink", 2, 0.125),
    ]  # fmt: skip
    assert [(edge["from"], edge["to"]) for edge in made["edges"]] == [(0, 1), (1, 2)]


def test_a_graph_is_in_layers_and_its_secrets_are_masked() -> None:
    text = Path("examples/shop.yaml").read_text()
    pipeline = read_document(text, "shop.yaml").pipeline
    assert isinstance(pipeline, Graph)
    made = graph(seen(steps({}), run=WatchedRun("shop", Path("c"), pipeline)), {})
    nodes = {one["id"]: one for one in made["nodes"]}
    assert len(nodes) == len(pipeline.nodes)
    for edge in made["edges"]:
        assert nodes[edge["from"]]["layer"] < nodes[edge["to"]]["layer"]
    assert {one["layer"] for one in made["nodes"] if one["kind"] == "source"} == {0}


def test_shares_of_time_sum_to_a_whole() -> None:
    """Several operators have one share together: each had it, so that two nodes had 79 % each."""
    pipeline = read_document(Path("examples/shop.yaml").read_text(), "shop.yaml").pipeline
    spent = {"tasks": {"read": 1.0, "decode": 1.0, "operate": 5.0}, "parts": {"commit": 1.0}}
    made = graph(seen(steps(spent), run=WatchedRun("shop", Path("c"), pipeline)), {})
    assert sum(one["share"] or 0 for one in made["nodes"]) <= 1
    assert {one["name"]: one["share"] for one in made["work"]} == {
        "read and decode": 0.25,
        "operate": 0.625,
        "commit": 0.125,
    }
    assert sum(one["nodes"] for one in made["work"]) == len(made["nodes"])


def test_the_time_to_clear_is_the_same_everywhere() -> None:
    """What waits between two steps is read soon, whatever the trend from one look to the next says."""
    found = seen(steps({"lag": {0: 1}}, {"lag": {0: 0}}, {"records": 600, "lag": {0: 9}}))
    made = overview(found, {})
    late = next(one for one in made["answers"] if one["question"] == "Is it up to date?")
    assert made["seconds_until_clear"] == pytest.approx(0.9, rel=0.01)
    assert late["reasons"] == ["That many are read in 897ms."]
