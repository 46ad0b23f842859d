"""Followers beside a run: they are retried, and give up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from threading import Event

import pytest

from windrow.connectors.follower import Follower, SlotLag
from windrow.errors import InputError, SourceError, SourceUnavailableError
from windrow.runtime.stream.following import Following, RetryPolicy
from windrow.telemetry.reports import Fault

SECONDS = 30.0


class Failing(Follower):
    """Fails with some errors, one a call, and then follows until it is stopped."""

    lag: SlotLag | None = None

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.follows = Event()

    def preflight(self) -> None:
        raise NotImplementedError

    def update(self) -> None:
        raise NotImplementedError

    def follow(self, stop: Event, warn: Callable[[str], None]) -> None:
        if self.errors:
            raise self.errors.pop(0)
        warn("it follows")
        self.lag = SlotLag("orders", 10, 0.5)
        self.follows.set()
        stop.wait(SECONDS)


class Retries(RetryPolicy):
    """Retries at once, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._left = times

    def after(self, epoch: int) -> float | None:
        assert epoch == 0
        self._left -= 1
        return None if self._left < 0 else 0.0


def run(*followers: Failing, times: int = 2) -> tuple[Following, list[Fault], list[str]]:
    faults: list[Fault] = []
    warnings: list[str] = []
    named = {str(number): one for number, one in enumerate(followers)}
    return Following(named, lambda: Retries(times), faults.append, warnings.append), faults, warnings


def test_a_fault_that_passes_is_retried() -> None:
    follower, other = Failing(*[SourceUnavailableError("away")] * 2), Failing()
    following, faults, warnings = run(follower, other)
    with following:
        assert follower.follows.wait(SECONDS)
        assert other.follows.wait(SECONDS)
        following.raise_failure()
        assert list(following.lags()) == [SlotLag("orders", 10, 0.5)] * 2
    assert faults == ["away; trying again in 0 s"] * 2
    assert [fault.reason for fault in faults] == ["source"] * 2
    assert warnings == ["it follows"] * 2
    assert not [one for one in threading.enumerate() if one.name.startswith("windrow-follow")]


@pytest.mark.parametrize("error", [SourceError("the slot is lost"), InputError("no such secret"), ValueError("bug")])
def test_other_errors_end_the_run(error: Exception) -> None:
    following, faults, _ = run(Failing(error))
    with following:
        wait_for_failure(following, str(error))
    assert not faults


def test_it_gives_up_with_an_error_that_is_not_retried_again() -> None:
    following, faults, _ = run(Failing(*[SourceUnavailableError("away")] * 3))
    with following:
        assert not wait_for_failure(following, "away").passes  # type: ignore[attr-defined] # a SourceError
    assert len(faults) == 2


def wait_for_failure(following: Following, match: str) -> Exception:
    deadline = time.monotonic() + SECONDS
    while (found := failure(following)) is None:
        assert time.monotonic() < deadline, f"waited for the failure {match}"
    assert str(found) == match
    return found


def failure(following: Following) -> Exception | None:
    try:
        following.raise_failure()
    except Exception as exc:  # noqa: BLE001 - whatever it is
        return exc
    return None
