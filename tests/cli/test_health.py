"""What probes are answered while a run starts, takes steps, retries and stalls."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from windrow.cli.health import HealthServer
from windrow.errors import InputError
from windrow.hosts.reports import StepReport

REPORT = StepReport(
    epoch=7,
    records=1,
    late=0,
    expired=0,
    dead=0,
    inserts=0,
    revisions=0,
    open_windows=0,
    watermarks={0: 1},
    offsets={0: 1},
    low_watermark=1,
    idle=[],
    seconds=1.0,
    lag={0: 5},
)

Ask = Callable[[str], tuple[int, dict[str, Any]]]


@pytest.fixture
def server() -> Iterator[HealthServer]:
    with HealthServer("127.0.0.1", 0, patience=10.0) as running:
        yield running


@pytest.fixture
def ask(server: HealthServer) -> Ask:
    def answer(path: str) -> tuple[int, dict[str, Any]]:
        try:
            with urlopen(f"http://127.0.0.1:{server.port}{path}") as response:
                return response.status, json.load(response)
        except HTTPError as exc:
            return exc.code, json.load(exc)

    return answer


def test_a_run_is_ready_once_it_takes_steps(server: HealthServer, ask: Ask) -> None:
    nothing = {"state": "starting", "epoch": None, "seconds_since_commit": None, "behind": None, "trouble": None}
    assert ask("/healthz") == (200, nothing)
    assert ask("/readyz") == (503, nothing)
    server.on_ready()
    assert ask("/readyz") == (200, nothing | {"state": "running"})
    reports: list[StepReport] = []
    server.on_step(reports.append)(REPORT)
    assert reports == [REPORT]
    code, said = ask("/readyz")
    assert code == 200
    assert said.pop("seconds_since_commit") < 10
    assert said == {"state": "running", "epoch": 7, "behind": 5, "trouble": None}


def test_a_run_that_retries_is_alive_and_not_ready(server: HealthServer, ask: Ask) -> None:
    server.on_ready()
    server.on_step(lambda _: None)(REPORT)
    messages: list[str] = []
    server.on_trouble(messages.append)("the database is down; trying again in 1 s")
    assert messages == ["the database is down; trying again in 1 s"]
    code, said = ask("/readyz")
    assert (code, said["state"], said["trouble"]) == (503, "retrying", messages[0])
    assert ask("/healthz")[0] == 200
    server.on_step(lambda _: None)(REPORT)
    assert ask("/readyz")[0] == 200


@pytest.mark.parametrize(("lag", "state", "code"), [({0: 5}, "stalled", 503), ({0: 0}, "running", 200)])
def test_a_run_without_commits_is_stalled_only_where_records_wait(
    lag: dict[int | str, int], state: str, code: int, server: HealthServer, ask: Ask
) -> None:
    server.on_step(lambda _: None)(replace(REPORT, lag=lag))
    with mock.patch("time.monotonic", return_value=time.monotonic() + 11):
        ready, said = server.state()
    assert (said["state"], ready) == (state, code == 200)
    assert ask("/metrics")[0] == 404


def test_an_address_that_is_taken_is_wrong_input(server: HealthServer) -> None:
    with pytest.raises(InputError, match=rf"--health 127.0.0.1:{server.port} cannot be listened on: Address already"):
        HealthServer("127.0.0.1", server.port, patience=1.0)
