"""A recorded run, made once: a day of purchases through the memory host, with its history, tables and pipeline."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from tests.waiting import join, wait_until

from windrow.authoring.load import open_pipeline
from windrow.connectors.open_sinks import open_sinks
from windrow.runtime.memory import MemoryRun
from windrow.telemetry.history import HistoryWriter, RunRecord, history_of
from windrow.terminal.listening import listen
from windrow.tools.dashboard.app import address_of, create_app, server
from windrow.tools.dashboard.watch import WatchedRun
from windrow.tools.generate import LogSpec, write_log

PIPELINE = """\
name: user-spend
source: {{log: {{path: {folder}/log}}}}
decode: {{user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}}
time: {{field: event_time, delay: 10m, future: 1h}}
key: [user_id]
window: {{tumbling: 1h}}
aggregate: {{total: sum(amount), events: count()}}
emit: {{lateness: 30m, late: each, mode: retract}}
sink: {{sqlite: {{path: {folder}/spend.db, table: spend}}}}
"""
EVENTS = 20_000


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> WatchedRun:
    """A run that has ended."""
    folder = tmp_path_factory.mktemp("recorded")
    write_log(LogSpec(events=EVENTS, users=50, partitions=3, late_share=0.02, malformed_share=0.005), folder / "log")
    file = folder / "spend.yaml"
    file.write_text(PIPELINE.format(folder=folder))
    pipeline = open_pipeline(str(file)).runnable()
    run = WatchedRun(pipeline.name, folder / "checkpoint", pipeline, str(file))
    sinks = open_sinks(pipeline)
    with HistoryWriter(history_of(run.checkpoint), RunRecord.here(run.name, "memory"), pytest.fail) as history:
        MemoryRun(pipeline, sinks, EVENTS // 40).run(history.on_step)
    sinks.close()
    return run


@dataclass(frozen=True)
class Served:
    """A dashboard that answers."""

    address: str
    run: WatchedRun


@contextmanager
def serving(*runs: WatchedRun, token: str | None = None) -> Iterator[Served]:
    """Serve runs on a free port of loopback until the block ends."""
    with listen("127.0.0.1", 0) as socket:
        serves = server(create_app(runs, token), socket)
        thread = threading.Thread(target=serves.run)
        thread.start()
        try:
            wait_until(lambda: serves.started or not thread.is_alive(), "the dashboard")
            assert serves.started
            yield Served(address_of(socket).removesuffix("/"), runs[0])
        finally:
            serves.should_exit = True
            join(thread)


@pytest.fixture(scope="session")
def served(recorded: WatchedRun) -> Iterator[Served]:
    """A dashboard of the recorded run, without a token."""
    with serving(recorded) as one:
        yield one
