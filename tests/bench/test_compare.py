"""A comparison's figures: ratios within rounds, goals, tables and the file; and a process is measured."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bench.compare import apart
from bench.peers.engines import ENGINES, engine
from bench.peers.job import DONE, READY, Job, command, told
from bench.peers.report import (
    JOIN_ENGINES,
    JOINS,
    Goal,
    goals,
    join_ratio,
    joins,
    joins_of,
    measured,
    page,
    ratio,
    table,
    unequal_joins,
)
from bench.peers.results import AlertRun, Answer, Crashes, JoinRun, Results, Run, Sums
from bench.peers.watch import FailedError, watch
from hypothesis import given
from hypothesis import strategies as st

NAMES = [one.name for one in ENGINES]
RESULTS = Path(__file__).parents[2] / "bench" / "results"
MILLION = 1_000_000
EMPTY = Results("2026-01-01", {"cores": "2 cores"}, {"Spark": "4"}, {"events": "1"})
RUNS = st.builds(
    Run,
    st.integers(1, 3),
    st.sampled_from(NAMES),
    st.sampled_from(["none", "postgres"]),
    st.sampled_from([MILLION, 2 * MILLION]),
    st.floats(1, 1000),
    st.floats(0, 1000),
    st.floats(100, 9000),
    st.integers(0, MILLION),
    st.sampled_from(["", "it | broke"]),
)

JOIN_RUNS = st.builds(
    JoinRun,
    st.integers(1, 3),
    st.sampled_from(list(JOINS)),
    st.sampled_from(list(JOIN_ENGINES)),
    st.sampled_from([MILLION, 2 * MILLION]),
    st.floats(1, 1000),
    st.floats(0, 1000),
    st.floats(100, 9000),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["", "it | broke"]),
)
ALERTS = AlertRun(
    "spark", 2, 1000, 7, {"p50": 1.5, "p95": 2.0, "p99": 3.0, "p99.9": 4.0, "max": 5.0}, {"p50": 0.1, "p99": 0.2}
)
CRASHES = Crashes(2, 1000, {"worker": 1.0, "everything": 16.0}, 100, 0, 0, 0)


def results(*runs: Run) -> Results:
    return replace(EMPTY, runs=list(runs))


@given(st.lists(RUNS, max_size=40), st.lists(JOIN_RUNS, max_size=5))
def test_a_file_gives_back_what_was_saved(
    tmp_path_factory: pytest.TempPathFactory, runs: list[Run], joined: list[JoinRun]
) -> None:
    found = replace(results(*runs), joins=joined, alerts=[ALERTS], crashes=[CRASHES])
    found = replace(found, answers=[Answer("stream", "", Sums(1, "2.00", 3), Sums(0, "0.00", 0))])
    file = tmp_path_factory.mktemp("results") / "folder" / "found.json"
    found.save(file)
    assert Results.load(file) == found
    both = Results.of([found, results(*runs)])
    assert both.runs[: len(runs)] == runs
    assert len(both.runs) == 2 * len(runs)
    assert {run.round for run in runs}.isdisjoint(run.round for run in both.runs[len(runs) :])
    twice = Results.of([found, found])
    assert twice.answers == found.answers
    assert twice.joins[: len(joined)] == joined
    assert {run.round for run in joined}.isdisjoint(run.round for run in twice.joins[len(joined) :])
    assert twice.alerts == [ALERTS, ALERTS]
    assert twice.crashes == [CRASHES, CRASHES]


@given(st.lists(RUNS, max_size=40))
def test_whatever_was_measured_has_a_page(runs: list[Run]) -> None:
    found = results(*runs)
    text = page(found)
    for sink in ("none", "postgres"):
        rows = [line for line in table(found, sink) if line.startswith("| ")][2:]
        assert len(rows) == len(measured(found, sink))
        assert {row.count("|") for row in rows} <= {7 if sink == "none" else 8}
        assert all(row in text for row in rows)
    assert len(list(goals(found))) == 9


def test_a_file_of_an_older_version_is_read() -> None:
    found = Results.load(next(RESULTS.glob("*-peers-postgres.json")))
    assert found.runs
    assert not found.joins


@given(st.lists(JOIN_RUNS, max_size=20))
def test_whatever_was_joined_has_a_page(joined: list[JoinRun]) -> None:
    found = replace(EMPTY, joins=joined)
    text, rows = page(found), list(joins(found))[2:]
    failed = [run for run in joined if run.error]
    assert len(rows) == len(failed) + sum(len(joins_of(found, case)) for case in JOINS)
    assert {row.count("|") for row in rows} <= {8}
    assert all(row in text for row in rows)
    assert ("### Joins" in text) is bool(joined)


def test_joins_that_find_other_rows_are_told() -> None:
    ours = JoinRun(1, "interval", "windrow", MILLION, 2.0, rows=5, checksum=7)
    theirs = replace(ours, engine="flink", seconds=5.0)
    found = replace(EMPTY, joins=[ours, theirs])
    beside = join_ratio(found, "interval", "flink")
    assert beside is not None
    assert beside.pairs == pytest.approx([2.5])
    assert list(unequal_joins(found)) == []
    wrong = replace(EMPTY, joins=[ours, replace(theirs, checksum=8)])
    assert "two streams, inner: THE ENGINES DID NOT FIND THE SAME ROWS" in page(wrong)
    assert list(unequal_joins(replace(EMPTY, joins=[ours, replace(theirs, records=2, rows=1)]))) == []


def test_alerts_and_crashes_have_a_page() -> None:
    text = page(replace(EMPTY, alerts=[ALERTS], crashes=[CRASHES]))
    assert "| Spark, real-time mode | 2 | 1,000 | 7 | 1.5 | 3.0 | 5.0 |" in text
    assert "within 3 s: met, 1.0 s" in text
    assert "within 15 s: NOT MET, 16.0 s" in " ".join(text.split())


def test_an_engine_that_was_measured_on_several_days_has_the_rounds_of_the_first_file() -> None:
    new = results(Run(1, "stream", "none", MILLION, 1.0), Run(1, "flink", "none", MILLION, 2.0))
    old = results(Run(1, "flink", "none", MILLION, 9.0), Run(1, "flink", "postgres", MILLION, 9.0))
    assert [one.runs for one in apart([new, old])] == [new.runs, [Run(1, "flink", "postgres", MILLION, 9.0)]]


def test_a_page_says_what_was_measured_elsewhere() -> None:
    other = replace(results(Run(1, "quix", "none", MILLION, 1.0)), date="2026-02-02", alerts=[ALERTS])
    text = " ".join(page(Results.of([EMPTY, other]), [other]).split())
    assert "- 2026-02-02: no sink (Quix Streams, 2 processes), fraud alerts." in text


@given(st.floats(1, 100), st.floats(1, 100), st.lists(st.floats(0.1, 10), min_size=1, max_size=5))
def test_a_ratio_is_within_rounds_however_the_machine_slows(mine: float, theirs: float, slowness: list[float]) -> None:
    runs = [
        Run(number, name, "none", MILLION, seconds * slow)
        for number, slow in enumerate(slowness)
        for name, seconds in (("stream", mine), ("flink", theirs))
    ]
    found = ratio(results(*runs), "stream", "flink", "none")
    assert found is not None
    assert found.pairs == pytest.approx([theirs / mine] * len(slowness))
    assert found.median == pytest.approx(theirs / mine)


def test_a_ratio_needs_both_on_as_many_events() -> None:
    stream = Run(1, "stream", "none", MILLION, 10.0)
    for other in (
        Run(2, "flink", "none", MILLION, 10.0),
        Run(1, "flink", "postgres", MILLION, 10.0),
        Run(1, "flink", "none", 2 * MILLION, 10.0),
        Run(1, "flink", "none", MILLION, error="it broke"),
    ):
        assert ratio(results(stream, other), "stream", "flink", "none") is None


@pytest.mark.parametrize(("seconds", "met"), [(12.6, True), (12.4, False)])
def test_a_goal_is_met_or_not(seconds: float, met: bool) -> None:  # noqa: FBT001 - a case
    found = results(Run(1, "stream", "none", MILLION, 10.0), Run(1, "flink", "none", MILLION, seconds))
    first = next(goals(found))
    assert first.met is met
    assert ("NOT MET" in str(first)) is not met


def test_the_best_peer_counts_with_postgres_also_if_it_had_fewer_events() -> None:
    def goal(*runs: Run) -> Goal:
        return next(goal for goal in goals(results(*runs)) if goal.wanted.startswith("stream into PostgreSQL"))

    runs = [Run(1, name, "postgres", MILLION, seconds) for name, seconds in (("stream", 10), ("flink", 30))]
    assert goal(*runs).met
    assert goal(*runs, Run(1, "batch", "postgres", MILLION, 1.0)).met
    better = goal(*runs, Run(1, "pathway", "postgres", MILLION // 2, 7.5))
    assert better.met is False
    assert better.wanted.endswith("the best peer, pathway")


def test_an_answer_is_the_same_or_lacks_what_is_open_or_is_another() -> None:
    right = Answer("stream", "", Sums(10, "10.00", 20), Sums(8, "8.00", 16))
    assert replace(right, engine="flink").beside(right) == "the same"
    lacking = replace(right, everything=Sums(9, "9.00", 18))
    assert lacking.beside(right) == "the same, except for 1 rows of windows open at the end"
    assert replace(lacking, closed=Sums(8, "7.00", 16)).beside(right).startswith("ANOTHER")
    assert Answer("flink", "no jar").beside(right) == "failed: no jar"


@given(st.sampled_from(NAMES), st.none() | st.just("postgresql://me@127.0.0.1:5/d"), st.integers(1, 10**9))
def test_a_script_is_told_its_job(name: str, postgres: str | None, events: int) -> None:
    job = Job(name, "127.0.0.1:9", "spend", events, Path("/tmp/x"), postgres, None, None, 1000, "{session: 5m}")  # noqa: S108
    assert told(command(job)) == job
    if postgres is not None:
        assert job.jdbc == ("jdbc:postgresql://127.0.0.1:5/d", "me")


def test_each_engine_has_a_script_and_its_versions_are_pinned() -> None:
    for one in ENGINES:
        assert one.script.exists()
        wanted = one.script.with_name("requirements.txt")
        lines = wanted.read_text().splitlines() if wanted.exists() else []
        assert all("==" in line and "/" not in line for line in lines)
    assert engine("stream:{session: 5m}").window == "{session: 5m}"
    with pytest.raises(KeyError):
        engine("nobody")


GRANDCHILD = "import time; held = b'x' * (200 << 20)\nwhile time.process_time() < 1: pass"
CHILD = f"""
import subprocess, sys
print("words", flush=True)
print("{READY}", flush=True)
subprocess.run([sys.executable, "-c", {GRANDCHILD!r}])
print("{DONE}", flush=True)
"""


def test_a_process_is_measured_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.peers.watch._EVERY", 0.25)
    figures = watch([sys.executable, "-c", CHILD], dict(os.environ), tmp_path / "log", 60)
    assert 0.5 < figures.seconds < 60
    assert figures.memory > 200
    assert 0.9 < figures.cpu < 3
    assert (tmp_path / "log").read_text().startswith("words\n")


@pytest.mark.parametrize(
    ("code", "limit", "said"),
    [
        ("raise KeyError('no such topic')", 60, "it ended with 1 before it was done: KeyError: 'no such topic'"),
        ("import signal; signal.pause()", 1, "it was not done in time"),
    ],
)
def test_what_fails_says_so(tmp_path: Path, code: str, limit: float, said: str) -> None:
    with pytest.raises(FailedError, match=said):
        watch([sys.executable, "-c", code], dict(os.environ), tmp_path / "log", limit)
