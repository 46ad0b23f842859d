"""Partitions of a task: one that fails again and again is given up, and the others do not wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.waiting import time_with

from windrow.errors import RecordsLostError, RunError, SinkError, SinkUnavailableError
from windrow.runtime.realtime import supervise
from windrow.runtime.realtime.partition import FencedError, Owner
from windrow.runtime.realtime.supervise import TakenOverError, serve


class Job:
    """A job, and its run: `fails` is called with the number of each turn."""

    number, source = 3, SimpleNamespace(topic="cards")
    owner = Owner("own", 0)

    def __init__(self, fails: Callable[[int], Exception | None], *, advances: bool = False) -> None:
        self.done = 7
        self.opened = self.turned = 0
        self.committed: Owner | None = self.owner
        self._advances = advances
        self._fails = fails

    def open(self) -> Job:
        self.opened += 1
        return self

    def last_owner(self) -> Owner | None:
        return self.committed

    def turn(self, seconds: float) -> None:
        del seconds
        self.turned += 1
        failure = self._fails(self.turned)
        if failure is not None:
            raise failure
        self.done += self._advances

    def abandon(self) -> None:
        """Leave."""

    def close(self) -> None:
        """Leave."""


def every_other(turn: int) -> Exception | None:
    """Fail every other turn, with what may pass."""
    return None if turn % 2 else SinkUnavailableError("the topic refuses it")


def supervised(monkeypatch: pytest.MonkeyPatch, job: Job, retry: float = 30.0) -> supervise.Supervised:
    """Return a partition for which a second passes whenever the clock is looked at, and which is opened at once."""
    clock = count()
    monkeypatch.setattr(supervise, "_PAUSE", 0.0)
    monkeypatch.setattr(supervise, "in_background", at_once)
    monkeypatch.setattr(supervise, "time", time_with(monotonic=lambda: float(next(clock))))
    return supervise.Supervised(cast("Any", job), retry)


def at_once(call: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(call())
    except Exception as exc:  # noqa: BLE001 - it is raised where the result is asked for
        future.set_exception(exc)
    return future


def turns(run: supervise.Supervised, times: int) -> None:
    for _ in range(times):
        run.turn(0.0)


def test_turns_that_take_nothing_do_not_end_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    run = supervised(monkeypatch, Job(every_other))
    with pytest.raises(SinkUnavailableError, match="the topic refuses it"):
        turns(run, 200)


def test_what_is_committed_ends_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    turns(supervised(monkeypatch, Job(every_other, advances=True)), 200)


@pytest.mark.parametrize("kind", [SinkError, RecordsLostError, ValueError])
def test_what_does_not_pass_is_tried_twice(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    job = Job(lambda _: kind("too large"))
    with pytest.raises(RunError, match="partition 3 of cards failed twice after offset 7: too large"):
        turns(supervised(monkeypatch, job, retry=600.0), 20)
    assert job.opened == 2


@pytest.mark.parametrize("kind", [SinkError, RecordsLostError])
def test_what_refuses_to_open_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    job = Job(lambda _: None)
    monkeypatch.setattr(job, "open", lambda: at_once(lambda: (_ for _ in ()).throw(kind("not allowed"))).result())
    with pytest.raises(kind, match="not allowed"):
        turns(supervised(monkeypatch, job, retry=600.0), 1)


def fenced(_: int) -> Exception:
    return FencedError("it is run by another task now")


def test_who_is_fenced_waits_and_looks_who_did_it(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(fenced)
    run = supervised(monkeypatch, job)
    turns(run, 1)
    job.committed = Owner("other", 0)
    with pytest.raises(TakenOverError, match="partition 3 of cards was taken over by another run of the pipeline"):
        turns(run, 20)
    assert job.opened == 1


def test_a_fence_that_nobody_owns_is_retried_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fatal error that is no fence comes again whenever the partition is opened."""
    job = Job(fenced)
    with pytest.raises(FencedError):
        turns(supervised(monkeypatch, job), 200)
    # 30 seconds of attempts, 5 apart
    assert job.opened < 8


def test_a_partition_that_is_being_opened_holds_up_no_other() -> None:
    waits, others = Event(), Job(lambda _: None)

    def slow() -> Job:
        assert waits.wait(60), "waited for the other partition"
        return slow_job

    slow_job = Job(lambda _: None)
    slow_job.open = slow  # type: ignore[method-assign]
    deadline = time.monotonic() + 60

    def is_stopped() -> bool:
        if others.turned > 5:
            waits.set()
        assert time.monotonic() < deadline, "waited for the partition that is opened"
        return slow_job.turned > 5

    serve(cast("Any", [slow_job, others]), is_stopped)
    assert others.turned > slow_job.turned
