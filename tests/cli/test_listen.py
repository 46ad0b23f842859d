"""What probes and scrapers are answered while a run starts, takes steps, retries and stalls."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any
from unittest import mock
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.servers.hostile import half_open, is_closed, sending_slowly
from tests.waiting import time_with, wait_until

from windrow.cli.listen import RunServer
from windrow.errors import InputError
from windrow.telemetry.histogram import Histogram
from windrow.telemetry.hot_keys import HotKeys
from windrow.telemetry.reports import Fault, Lag, StepReport
from windrow.telemetry.window_counts import WindowCounts
from windrow.terminal import listening
from windrow.terminal.listening import CONNECTIONS

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
STEP = replace(
    REPORT,
    late=2,
    expired=1,
    dead=3,
    inserts=4,
    revisions=5,
    committed=1_767_225_600_500_000,
    read={"orders/0": 10, "rates/0": 1},
    leaps={"orders/0": 3},
    lag={"orders/0": 5},
    lag_seconds={"orders/0": 1.5},
    watermarks={"orders/0": 1_767_225_600_000_000, "rates/0": None},
    idle=["rates/0"],
    low_watermark=1_767_225_600_000_000,
    lateness={"orders/0": Histogram.of_one(59_000_000) + Histogram.of_one(0)},
    latency=Histogram.of_one(250_000),
    parts={"commit": 0.15},
    tasks={"read": 1.25},
    key_group_load=1.5,
    state_bytes=1000,
    state_by_node={"spend": (3, 1000)},
    hot_keys={"": HotKeys(40, {"ann": 30, "bob": 5})},
    windows={"spend": WindowCounts((3, 1), (2, 0), (0, 1))},
)

Ask = Callable[[str], tuple[int, dict[str, Any]]]


@pytest.fixture
def server() -> Iterator[RunServer]:
    with RunServer("127.0.0.1", 0, "user-spend", stalled_after=10.0, every=5_000_000) as running:
        yield running


@pytest.fixture
def ask(server: RunServer) -> Ask:
    def answer(path: str) -> tuple[int, dict[str, Any]]:
        try:
            with urlopen(f"http://127.0.0.1:{server.port}{path}") as response:
                return response.status, json.load(response)
        except HTTPError as exc:
            return exc.code, json.load(exc)

    return answer


def test_a_run_is_ready_once_it_takes_steps(server: RunServer, ask: Ask) -> None:
    nothing = {"state": "starting", "epoch": None, "seconds_since_commit": None, "behind": None, "trouble": None}
    assert ask("/healthz") == (200, nothing)
    assert ask("/readyz") == (503, nothing)
    server.on_ready()
    assert ask("/readyz") == (200, nothing | {"state": "running"})
    server.on_step(REPORT)
    code, said = ask("/readyz")
    assert code == 200
    assert said.pop("seconds_since_commit") < 10
    assert said == {"state": "running", "epoch": 7, "behind": 5, "trouble": None}


def test_a_run_that_retries_is_alive_and_not_ready(server: RunServer, ask: Ask) -> None:
    server.on_ready()
    server.on_step(REPORT)
    fault = Fault("the database is down", "sink", "trying again in 1 s")
    for then in (server.on_ready, partial(server.on_step, REPORT)):
        server.on_trouble(fault)
        code, said = ask("/readyz")
        assert (code, said["state"], said["trouble"]) == (503, "retrying", fault)
        assert scrape(server)['windrow_retrying{pipeline="user-spend"}'] == 1
        assert ask("/healthz")[0] == 200
        then()
        assert ask("/readyz")[0] == 200
        assert scrape(server)['windrow_retrying{pipeline="user-spend"}'] == 0


@pytest.mark.parametrize(
    ("report", "is_stalled"),
    [
        (replace(REPORT, lag={0: 5}), True),
        (replace(REPORT, lag={0: 0}), False),
        (replace(REPORT, lag={0: 0}, only_offsets=True), True),
    ],
)
def test_a_run_without_commits_is_stalled_only_where_records_wait(
    report: StepReport,
    is_stalled: bool,  # noqa: FBT001 - a parameter of the test
    server: RunServer,
    ask: Ask,
) -> None:
    server.on_step(report)
    later = time.monotonic() + 11
    with mock.patch("windrow.cli.listen.time", time_with(monotonic=lambda: later)):
        codes = [ask(path)[0] for path in ("/healthz", "/readyz")]
        _, said = ask("/healthz")
    assert (said["state"], codes) == (("stalled", [503, 503]) if is_stalled else ("running", [200, 200]))
    assert ("no step has been committed for 11 s" in str(said["trouble"])) is is_stalled
    assert ask("/status")[0] == 404


def test_a_query_that_hangs_is_stalled_though_it_had_read_all(server: RunServer) -> None:
    began = time.monotonic()

    def state_after(seconds: float, behind: int | None = None) -> tuple[str, int | None]:
        with mock.patch("windrow.cli.listen.time", time_with(monotonic=lambda: began + seconds)):
            if behind is not None:
                server.on_lag(Lag(1, {0: behind}))
            said = server.state()
        return said["state"], said["behind"]

    server.on_step(replace(REPORT, lag={0: 0}))
    assert state_after(100, 0) == ("running", 0)  # nothing comes
    assert state_after(200, 3) == ("running", 3)
    assert state_after(209, 4) == ("running", 4)
    assert state_after(211) == ("stalled", 4)
    assert scrape(server)['windrow_consumer_lag_records{partition="0",pipeline="user-spend"}'] == 4
    assert state_after(212, 0) == ("running", 0)


def test_an_address_that_is_taken_is_wrong_input(server: RunServer) -> None:
    with pytest.raises(InputError, match=rf"cannot listen on --listen 127.0.0.1:{server.port}: Address already"):
        RunServer("127.0.0.1", server.port, "user-spend", stalled_after=1.0)


def scrape(server: RunServer) -> dict[str, float]:
    """The samples of /metrics by their text."""
    with urlopen(f"http://127.0.0.1:{server.port}/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        lines = response.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_metrics_add_up_steps(server: RunServer) -> None:
    server.on_step(STEP)
    server.on_step(replace(STEP, epoch=8))
    server.on_trouble(Fault("the database is down", "sink"))
    server.metrics.on_warning()
    found = scrape(server)
    own = 'pipeline="user-spend"'
    assert found.pop(f"windrow_start_timestamp_seconds{{{own}}}") == pytest.approx(time.time(), abs=60)
    assert {name: found[name] for name in found if "bucket" not in name and "_lag_seconds{" not in name} == {
        f'windrow_build_info{{{own},version="{version("windrow")}"}}': 1,
        f"windrow_steps_total{{{own}}}": 2,
        f"windrow_epoch{{{own}}}": 8,
        f"windrow_last_commit_timestamp_seconds{{{own}}}": 1_767_225_600.5,
        f"windrow_trigger_interval_seconds{{{own}}}": 5,
        f'windrow_retries_total{{{own},reason="source"}}': 0,
        f'windrow_retries_total{{{own},reason="sink"}}': 1,
        f'windrow_retries_total{{{own},reason="engine"}}': 0,
        f'windrow_retries_total{{{own},reason="lost"}}': 0,
        f"windrow_retrying{{{own}}}": 1,
        f"windrow_warnings_total{{{own}}}": 1,
        f'windrow_records_total{{partition="orders/0",{own}}}': 20,
        f'windrow_records_total{{partition="rates/0",{own}}}': 2,
        f'windrow_verdicts_total{{{own},verdict="late"}}': 4,
        f'windrow_verdicts_total{{{own},verdict="expired"}}': 2,
        f'windrow_dead_letters_total{{{own},reason="unreadable"}}': 6,
        f'windrow_dead_letters_total{{{own},reason="rejected"}}': 0,
        f"windrow_internal_dead_letters_total{{{own}}}": 0,
        f"windrow_duplicates_total{{{own}}}": 0,
        f'windrow_leaps_total{{partition="orders/0",{own}}}': 6,
        f'windrow_changes_total{{op="insert",{own}}}': 8,
        f'windrow_changes_total{{op="update",{own}}}': 10,
        f"windrow_event_lateness_seconds_count{{{own}}}": 4,
        f"windrow_event_lateness_seconds_sum{{{own}}}": 120,
        f"windrow_end_to_end_latency_seconds_count{{{own}}}": 2,
        f"windrow_end_to_end_latency_seconds_sum{{{own}}}": 1,
        f'windrow_step_duration_seconds_count{{part="commit",{own}}}': 2,
        f'windrow_step_duration_seconds_sum{{part="commit",{own}}}': 0.3,
        f'windrow_task_seconds_total{{part="read",{own}}}': 2.5,
        f'windrow_partition_watermark_timestamp_seconds{{partition="orders/0",{own}}}': 1_767_225_600,
        f'windrow_partition_idle{{partition="orders/0",{own}}}': 0,
        f'windrow_partition_idle{{partition="rates/0",{own}}}': 1,
        f'windrow_partition_holds_watermark{{partition="orders/0",{own}}}': 1,
        f'windrow_partition_holds_watermark{{partition="rates/0",{own}}}': 0,
        f"windrow_low_watermark_timestamp_seconds{{{own}}}": 1_767_225_600,
        f'windrow_consumer_lag_records{{partition="orders/0",{own}}}': 5,
        f"windrow_open_windows{{{own}}}": 0,
        f'windrow_windows_fired_total{{node="spend",{own}}}': 4,
        f'windrow_windows_closed_total{{node="spend",{own}}}': 2,
        f"windrow_key_group_load_ratio{{{own}}}": 1.5,
        f"windrow_state_bytes{{{own}}}": 1000,
        f'windrow_node_state_rows{{node="spend",{own}}}': 3,
        f'windrow_node_state_bytes{{node="spend",{own}}}': 1000,
        f'windrow_hot_key_share_ratio{{node="user-spend",{own}}}': 0.75,
    }
    assert found[f'windrow_consumer_lag_seconds{{partition="orders/0",{own}}}'] == 1.5
    assert found[f"windrow_watermark_lag_seconds{{{own}}}"] > 0
    # late with a delay of 45 s, and not with one of a minute
    late = {bound: found[f'windrow_event_lateness_seconds_bucket{{le="{bound}",{own}}}'] for bound in (45, 60, "+Inf")}
    assert late == {45: 2, 60: 4, "+Inf": 4}


def test_what_a_host_of_offsets_does_not_count_is_left_out(server: RunServer) -> None:
    server.on_step(replace(REPORT, committed=1, read={0: 1}, only_offsets=True))
    found = {name.partition("{")[0] for name in scrape(server)}
    assert {"windrow_records_total", "windrow_consumer_lag_records"} <= found
    unknown = ("verdicts", "dead_letters", "duplicates", "changes", "event_lateness", "windows")
    assert not [name for name in found if any(one in name for one in unknown)]


def test_a_head_has_no_body(server: RunServer) -> None:
    with urlopen(Request(f"http://127.0.0.1:{server.port}/metrics", method="HEAD")) as response:
        assert int(response.headers["Content-Length"]) > 0
        assert response.read() == b""


def test_before_the_first_step_counters_are_there(server: RunServer) -> None:
    assert scrape(server)['windrow_steps_total{pipeline="user-spend"}'] == 0


def test_a_scraper_gets_open_metrics_if_it_asks_for_them(server: RunServer) -> None:
    server.on_step(REPORT)
    request = Request(
        f"http://127.0.0.1:{server.port}/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    )
    with urlopen(request) as response:  # noqa: S310 - a server of ours
        assert response.headers["Content-Type"].startswith("application/openmetrics-text")
        assert response.read().decode().endswith("# EOF\n")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - without a descriptor for each entry


def test_clients_that_send_nothing_take_few_descriptors_and_no_answers(server: RunServer, ask: Ask) -> None:
    before, threads = descriptors(), threading.active_count()
    with half_open(server.port, 300) as clients:
        for _ in range(5):
            assert ask("/healthz")[0] == 200
            assert descriptors() <= before + len(clients) + CONNECTIONS + 2
            assert threading.active_count() <= threads + CONNECTIONS + 1
        wait_until(lambda: sum(map(is_closed, clients)) >= 300 - CONNECTIONS, "clients that were shut down")
        assert ask("/healthz")[0] == 200
    wait_until(lambda: threading.active_count() <= threads, "the end of the threads")


def test_a_client_that_sends_a_byte_now_and_then_is_shut_down(
    server: RunServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "SECONDS", 0.5)
    with half_open(server.port, 1) as (client,):
        wait_until(sending_slowly(client, b"GET /healthz HTTP/1.1\r\nX: "), "the end of the connection", seconds=10)


def test_the_end_of_a_server_does_not_wait_for_its_clients() -> None:
    with RunServer("127.0.0.1", 0, "user-spend", stalled_after=10.0) as running, half_open(running.port, 5) as clients:
        wait_until(lambda: threading.active_count() > 5, "their threads")
        began = time.monotonic()
        running.__exit__(None, None, None)
        wait_until(lambda: all(map(is_closed, clients)), "the end of the connections")
        assert time.monotonic() - began < 5
