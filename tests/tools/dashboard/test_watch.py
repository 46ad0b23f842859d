"""What is read of a history as it grows: each report once, and anew where the file is another one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.telemetry.test_history import STEP, T0, written
from tests.waiting import join

from windrow.errors import InputError, StoppedError
from windrow.telemetry.history import HistoryWriter, RunRecord, forget_history, history_of, read_new, read_runs
from windrow.telemetry.reports import Alert, StepReport
from windrow.tools.dashboard.views import overview
from windrow.tools.dashboard.watch import LongView, Query, Seen, Watch, WatchedRun


def steps(first: int, number: int) -> list[StepReport]:
    return [replace(STEP, epoch=epoch, committed=T0 + epoch) for epoch in range(first, first + number)]


@pytest.fixture(autouse=True)
def _look_always() -> Iterator[None]:
    with mock.patch("windrow.tools.dashboard.watch._PAUSE", -1):
        yield


def watch(folder: Path, **views: Any) -> Watch:  # noqa: ANN401 - views
    return Watch(WatchedRun("spend", folder), views)


def test_each_report_is_read_once(tmp_path: Path) -> None:
    one, path = watch(tmp_path), history_of(tmp_path)
    assert "has written a history" in (one.look().absent or "")
    written(path, steps(0, 3))
    first = one.look()
    assert ([step.epoch for step in first.recent], first.absent) == ([0, 1, 2], None)
    assert one.look() is first
    written(path, steps(3, 2))
    second = one.look()
    assert second.version > first.version
    assert [step.epoch for step in second.recent] == [0, 1, 2, 3, 4]
    assert second.total is not None
    assert second.total.records == 5 * STEP.records


def test_sums_are_not_read_with_the_steps_that_are_in_them(tmp_path: Path) -> None:
    path = tmp_path / "progress.sqlite"
    written(path, steps(0, 30), full=20)
    found = read_new(path, None, 1000)
    written(path, steps(30, 5), full=20)
    after = read_new(path, found.last, 1000)
    assert [step.epoch for step in after.reports] == list(range(30, 35))
    assert not after.is_whole
    assert read_new(path, after.last, 1000).reports == ()
    # who was away for so long that the place is in a sum reads all anew
    written(path, steps(35, 40), full=20)
    anew = read_new(path, found.last, 1000)
    assert anew.is_whole
    assert sum(step.records for step in anew.reports) == 75 * STEP.records


def test_the_history_of_a_fresh_run_is_read_anew(tmp_path: Path) -> None:
    one, path = watch(tmp_path), history_of(tmp_path)
    written(path, steps(0, 9))
    assert len(one.look().recent) == 9
    forget_history(path)
    written(path, [replace(step, committed=T0 + 77) for step in steps(0, 12)])
    assert [step.committed for step in one.look().recent] == [T0 + 77] * 12


def test_a_long_history_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "progress.sqlite"
    written(path, steps(0, 50))
    assert [step.epoch for step in read_new(path, None, 5).reports] == list(range(45, 50))


def test_what_is_left_out_of_a_long_history_is_counted_and_said(tmp_path: Path) -> None:
    path = history_of(tmp_path)
    with mock.patch("windrow.tools.dashboard.watch._READ", 20):
        written(path, steps(0, 15))
        one = watch(tmp_path)
        assert one.look().partial is None
        # more than are read at once came while nobody looked: no step is missing between those that are shown
        written(path, steps(15, 30))
        seen = one.look()
        assert [step.epoch for step in seen.recent] == list(range(25, 45))
        assert seen.counts is not None
        assert seen.counts["events"] == 45 * STEP.events
        assert seen.counts["records"] == 45 * STEP.records
        assert seen.partial == {"since": T0 + 25, "counts_since": read_runs(path)[0].began}
        assert overview(seen, {})["totals"] == seen.counts
        written(path, steps(45, 1))
        assert (one.look().counts or {})["events"] == 46 * STEP.events
        anew = watch(tmp_path).look()
    assert one.look().status.record == read_runs(path)[-1], "of several processes the last one's"
    assert (anew.counts, anew.partial is None) == (one.look().counts, False)


def test_an_hour_of_many_short_steps_is_a_whole_hour(tmp_path: Path) -> None:
    many = [replace(STEP, epoch=epoch, committed=T0 + epoch * 1_000_000) for epoch in range(100)]
    written(history_of(tmp_path), many)
    with mock.patch("windrow.tools.dashboard.watch._RECENT", 10):
        shown = watch(tmp_path).look().over(60)
    assert sum(step.records for step in shown) == 61 * STEP.records


def test_alerts_are_active_ones_first(tmp_path: Path) -> None:
    path = history_of(tmp_path)
    written(path, steps(0, 1))
    one = watch(tmp_path)
    assert one.look().alerts == ()
    alerts = [Alert("user-spend", "lag", "behind", 1, 2), Alert("user-spend", "no-step", "stuck", 3, 4, resolved=9)]
    with HistoryWriter(path, RunRecord.here("user-spend", "stream"), pytest.fail) as history:
        history.begin()
        for alert in alerts:
            history.note_alert(alert)
    found = one.look().alerts
    assert [(alert["name"], alert["resolved"]) for alert in found] == [("lag", None), ("no-step", 9)]


def test_an_answer_is_made_once_for_all(tmp_path: Path) -> None:
    made, begun = 0, threading.Barrier(8, timeout=60)

    def view(seen: Seen, query: Query) -> dict[str, Any]:
        nonlocal made
        made += 1
        time.sleep(0.05)
        return {"epochs": len(seen.recent), **query}

    one = watch(tmp_path, view=view)
    written(history_of(tmp_path), steps(0, 3))
    found: list[tuple[int, bytes]] = []

    def ask() -> None:
        begun.wait()
        found.append(one.answer("view", {"a": "1"}))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        join(thread)
    assert (made, len(set(found))) == (1, 1)
    assert json.loads(found[0][1])["epochs"] == 3
    one.answer("view", {"a": "2"})
    written(history_of(tmp_path), steps(3, 1))
    assert json.loads(one.answer("view", {"a": "1"})[1])["epochs"] == 4
    assert made == 3


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    calls = iter([InputError("it is locked")])

    def view(seen: Seen, query: Query) -> dict[str, Any]:
        del seen, query
        for error in calls:
            raise error
        return {}

    one = watch(tmp_path, view=view)
    with pytest.raises(InputError, match="locked"):
        one.answer("view", {})
    assert json.loads(one.answer("view", {})[1])["run"] == "spend"


def test_answers_do_not_pile_up(tmp_path: Path) -> None:
    one = watch(tmp_path, view=lambda _, query: dict(query))
    for number in range(600):
        one.answer("view", {"q": str(number)})
    assert len(one._answers) <= 256  # noqa: SLF001


def test_an_answer_is_made_as_long_as_somebody_waits_for_it(tmp_path: Path) -> None:
    """Who asks again, as by reloading the page, gets the answer that the one who has left had asked for."""
    begun, joined, is_first_gone = threading.Event(), threading.Event(), threading.Event()
    made = 0

    def view(seen: Seen, query: Query, is_stopped: Callable[[], bool]) -> dict[str, Any]:
        nonlocal made
        del seen, query
        made += 1
        begun.set()
        assert joined.wait(20)
        is_first_gone.set()
        if is_stopped():
            raise StoppedError
        return {"made": made}

    def joins() -> bool:
        joined.set()
        return False

    one = watch(tmp_path, view=LongView(view))
    with ThreadPoolExecutor() as pool:
        first = pool.submit(one.answer, "view", {}, is_first_gone.is_set)
        assert begun.wait(20)
        second = pool.submit(one.answer, "view", {}, joins)
        assert json.loads(second.result(20)[1])["made"] == 1
        first.result(20)


def test_an_answer_that_nobody_waits_for_is_begun_anew(tmp_path: Path) -> None:
    def view(seen: Seen, query: Query, is_stopped: Callable[[], bool]) -> dict[str, Any]:
        del seen, query
        if is_stopped():
            raise StoppedError
        return {}

    one = watch(tmp_path, view=LongView(view))
    with pytest.raises(StoppedError):
        one.answer("view", {}, lambda: True)
    assert json.loads(one.answer("view", {})[1])["run"] == "spend"


def test_who_leaves_does_not_wait_for_the_answer(tmp_path: Path) -> None:
    begun, end = threading.Event(), threading.Event()

    def view(seen: Seen, query: Query) -> dict[str, Any]:
        del seen, query
        begun.set()
        assert end.wait(20)
        return {}

    one = watch(tmp_path, view=view)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(one.answer, "view", {})
        assert begun.wait(20)
        with pytest.raises(StoppedError):
            one.answer("view", {}, lambda: True)
        end.set()
        first.result(20)
