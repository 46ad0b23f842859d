"""A partition that fails again and again is given up, whatever goes well in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from windrow.errors import SinkUnavailableError
from windrow.hosts.realtime import supervise


class Flaky:
    """A job, and its run: every other turn fails."""

    def __init__(self, *, advances: bool) -> None:
        self.done = 7
        self._advances = advances
        self._turns: Iterator[bool] = iter([False, True] * 1000)

    def open(self) -> Flaky:
        return self

    def turn(self, seconds: float) -> None:
        del seconds
        if next(self._turns):
            msg = "the topic refuses it"
            raise SinkUnavailableError(msg)
        self.done += self._advances

    def abandon(self) -> None:
        """Leave."""


def turns(monkeypatch: pytest.MonkeyPatch, job: Flaky, count: int) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(supervise, "_PAUSE", 0.0)
    monkeypatch.setattr("windrow.hosts.realtime.supervise.time.monotonic", lambda: float(next(clock)))
    supervised = supervise.Supervised(cast("Any", job), retry=30.0)
    for _ in range(count):
        supervised.turn(0.0)


def test_turns_that_take_nothing_do_not_end_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SinkUnavailableError, match="the topic refuses it"):
        turns(monkeypatch, Flaky(advances=False), 200)


def test_what_is_committed_ends_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    turns(monkeypatch, Flaky(advances=True), 200)
