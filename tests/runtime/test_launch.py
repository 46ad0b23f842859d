"""A launch gives a host its settings; several pipelines in one run stop together, by a signal or as one fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.graphs import Runnable, as_graph
from tests.runtime.spend import Files, events, spend
from tests.waiting import wait_until

from windrow.errors import SourceError
from windrow.model import LogSource, SqliteSink
from windrow.runtime.batch.plan import BatchSettings
from windrow.runtime.launch import Job, launch, launch_all
from windrow.runtime.run import Ended, HostName, OnStart, RunSettings
from windrow.runtime.stream.run import largest_step
from windrow.telemetry.reports import OnStep, StepReport


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    pipeline = spend(LogSource(str(tmp_path)), SqliteSink("s.db", "t"))
    return [
        Job(as_graph(replace(pipeline, name=name)), RunSettings(Path(name)), lambda _: None) for name in ("a", "b", "c")
    ]


def _nothing(_: object) -> None:
    pass


@pytest.mark.parametrize("failing", [None, "b"])
def test_live_ones_run_side_by_side_and_stop_together(
    jobs: list[Job], failing: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: set[str] = set()
    all_run = threading.Event()

    def launch(pipeline: Runnable, options: RunSettings, on_step: OnStep, on_start: OnStart) -> Ended:
        assert options.has_company
        on_step_of[pipeline.name] = on_step
        stopped = threading.Event()
        on_start(stopped.set)
        running.add(pipeline.name)
        wait_until(lambda: len(running) == len(jobs) or stopped.is_set(), "all run")
        all_run.set()
        if pipeline.name == failing:
            msg = "the log is gone"
            raise SourceError(msg)
        assert stopped.wait(20)
        return "asked"

    def stop_once_all_run(stop: Callable[[], None]) -> None:
        all_run.wait(20)
        stop()

    on_step_of: dict[str, OnStep] = {}
    monkeypatch.setattr("windrow.runtime.launch.launch", launch)
    said: list[str] = []

    def on_start(stop: Callable[[], None]) -> None:
        if failing is None:
            threading.Thread(target=stop_once_all_run, args=(stop,)).start()

    if failing is None:
        assert launch_all(jobs, on_start, said.append) == ["asked"] * 3
        assert said == []
    else:
        with pytest.raises(SourceError, match="the log is gone"):
            launch_all(jobs, on_start, said.append)
        assert said == ["b failed; stopped: a, c"]
    assert on_step_of.keys() == {"a", "b", "c"}


def test_bounded_ones_run_in_turn_until_one_fails_or_all_are_stopped(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded = [replace(job, options=replace(job.options, until_end=True)) for job in jobs]
    begun: list[str] = []
    failing = ""
    stops: list[Callable[[], None]] = []

    def launch(pipeline: Runnable, options: RunSettings, _: OnStep, on_start: OnStart) -> Ended:
        assert not options.has_company
        on_start(lambda: None)
        begun.append(pipeline.name)
        if pipeline.name == failing:
            msg = "the log is gone"
            raise SourceError(msg)
        if pipeline.name == "b" and stops:
            stops[0]()
            return "asked"
        return "end"

    monkeypatch.setattr("windrow.runtime.launch.launch", launch)
    assert launch_all(bounded, _nothing, _nothing) == ["end"] * 3
    failing = "a"
    said: list[str] = []
    with pytest.raises(SourceError):
        launch_all(bounded, _nothing, said.append)
    failing = ""
    assert launch_all(bounded, stops.append, said.append) == ["end", "asked"]
    assert begun == ["a", "b", "c", "a", "a", "b"]
    assert said == ["a failed; not run: b, c"]


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_two_live_pipelines_run_in_one_spark(tmp_path: Path) -> None:
    log = Files(tmp_path / "log", 2)
    log.append(events(500, 2))
    steps: dict[str, int] = {}
    made = []
    stop: list[Callable[[], None]] = []
    for name in ("a", "b"):
        pipeline = replace(spend(log.source, SqliteSink(str(tmp_path / "s.db"), name)), name=name, key_groups=2)

        def on_step(report: StepReport, name: str = name) -> None:
            steps[name] = steps.get(name, 0) + report.events
            if len(steps) == 2:
                stop[0]()

        made.append(Job(as_graph(pipeline), RunSettings(tmp_path / name, max_records=100_000), on_step))
    assert launch_all(made, stop.append, _nothing) == ["asked", "asked"]
    assert steps["a"] == steps["b"] > 0


@pytest.mark.parametrize(
    ("host", "until_end", "given", "taken"),
    [
        ("stream", False, None, 500_000),
        ("stream", True, None, 1_000_000),
        ("batch", True, None, 1_000_000),
        ("stream", True, 30, 30),
        ("batch", True, 30, 30),
    ],
)
def test_a_step_has_the_records_that_are_given_or_those_of_the_host(
    host: HostName, given: int | None, taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, until_end: bool
) -> None:
    found: list[int | None] = []

    class Run:
        def __init__(self, _: Runnable, __: object, settings: RunSettings | BatchSettings) -> None:
            found.append(largest_step(settings) if isinstance(settings, RunSettings) else settings.max_records)

        def stop(self) -> None:
            pass

        def run(self, _: OnStep) -> Ended:
            return "end"

    monkeypatch.setattr("windrow.runtime.stream.run.StreamRun", Run)
    monkeypatch.setattr("windrow.runtime.batch.run.BatchRun", Run)
    pipeline = spend(LogSource(str(tmp_path)), SqliteSink(str(tmp_path / "s.db"), "t"))
    options = RunSettings(tmp_path / "checkpoint", host=host, until_end=until_end, max_records=given)
    assert launch(as_graph(pipeline), options, lambda _: None, lambda _: None) == "end"
    assert found == [taken]
