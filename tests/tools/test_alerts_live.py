"""Each alert, provoked in one live run on Spark; its results are those of a run without alerts."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.contracts.stores import SqliteStore
from tests.graphs import as_graph
from tests.runtime.answers import assert_same
from tests.runtime.receivers import appending, lines, webhook
from tests.runtime.spend import Topic, Value, event, spend
from tests.short_forms import Pipeline
from tests.waiting import wait_until

import windrow as wr
from windrow.authoring.printing import to_yaml
from windrow.cli import main
from windrow.model import ALERT_NAMES
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings
from windrow.telemetry.history import history_of, read_alerts
from windrow.telemetry.reports import Alert, StepReport
from windrow.testing.servers.kafka import Kafka
from windrow.tools.alerts.delivery import watch_run

SPAN = "3s"
ALERTS = wr.alerts(
    lag={"time": "1s", "for": SPAN},
    no_step=SPAN,
    watermark_stuck=SPAN,
    latency={"p99": "3s", "for": SPAN},
    late_spike={"times": 3, "share": 0.05, "for": SPAN},
    expired_share={"share": 0.05, "for": SPAN},
    dead_letters={"share": 0.05, "for": SPAN},
    sink_errors=SPAN,
    checkpoint={"savepoint": "1s"},
    backpressure=SPAN,
    partition_idle=SPAN,
    hot_key={"share": 0.4, "for": SPAN},
)
NAMES = frozenset(ALERT_NAMES) - {"internal-errors"}
"""The alerts that a run of correct code can raise."""
STAY = {"checkpoint", "backpressure"}
"""Alerts that the run cannot resolve: it takes no savepoint, and its steps are begun 50 ms apart."""
MOST = 500
"""Records in a step; a bad batch has 900, so the lag grows."""
RECORDS = 225


class Feed:
    """Appends to the three partitions of a log; event time goes on by half a minute a batch."""

    def __init__(self, log: Topic) -> None:
        self._log = log
        self._minute = 120.0
        self.records = 0

    def _append(self, records: Sequence[Value]) -> None:
        self._log.append(records)
        self.records += len(records)

    def good(self) -> None:
        """Records that are on time, of many keys, of all partitions."""
        self._minute += 0.5
        self._append(
            [(partition, event(self._minute, f"u{number % 50}")) for partition in range(3) for number in range(40)]
        )

    def bad(self) -> None:
        """Records of which many are late, expired, dead letters or of one key; partition 2 has none."""
        self._minute += 0.5
        values = [event(self._minute, "hot") for _ in range(RECORDS)]
        values += [event(self._minute - 20, f"u{number}") for number in range(RECORDS // 3)]
        values += [event(self._minute - 90, f"u{number}") for number in range(RECORDS // 3)]
        values += [b'{"user_id": "u1"}'] * (RECORDS // 3)
        self._append([(partition, value) for partition in range(2) for value in values])


class Steps:
    """Hears the reports of a run: whether there was a new one, and how many records were read."""

    def __init__(self) -> None:
        self.new, self.events = threading.Event(), 0

    def on_step(self, report: StepReport) -> None:
        self.events += report.events
        self.new.set()


def play(log: Topic, store: SqliteStore, said: list[Alert], steps: Steps, stop: Callable[[], None]) -> None:
    """Have everything go wrong, then mend it, and have all of the log read."""
    feed, path, stepped = Feed(log), store.settings().path, steps.new

    def raised(names: AbstractSet[str]) -> Callable[[], bool]:
        return lambda: {one.name for one in said} >= names

    def resolved(names: AbstractSet[str]) -> Callable[[], bool]:
        return lambda: {name for name, state in _last(said).items() if state == "resolved"} >= names

    def going_on(act: Callable[[], None], check: Callable[[], bool]) -> None:
        def look() -> bool:
            if stepped.wait(2):
                stepped.clear()
            act()
            return check()

        wait_until(look, "the alerts to change", 120)

    try:
        feed.good()
        wait_until(stepped.is_set, "a step", 120)
        began = time.monotonic()
        going_on(feed.good, lambda: time.monotonic() - began > 6)
        going_on(feed.bad, raised(NAMES - {"no-step", "sink-errors"}))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            feed.bad()
            wait_until(raised({"no-step", "sink-errors"}), "alerts of a locked sink", 120)
            other.execute("ROLLBACK")
        going_on(feed.good, resolved(NAMES - STAY))
        wait_until(lambda: steps.events >= feed.records, "all records", 120)
    finally:
        stop()


def _last(said: list[Alert]) -> dict[str, str]:
    return {one.name: one.state for one in said}


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_each_alert_of_a_live_run(kafka: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
    log = Topic(kafka, topic(3))
    store = SqliteStore(tmp_path)
    file, checkpoint = tmp_path / "alerts.jsonl", tmp_path / "checkpoint"
    said: list[Alert] = []
    warnings: list[str] = []
    players: list[threading.Thread] = []
    steps = Steps()

    def on_start(stop: Callable[[], None]) -> None:
        players.append(threading.Thread(target=play, args=(log, store, said, steps, stop)))
        players[0].start()

    with webhook() as hook:
        alerts = replace(ALERTS, webhook=hook.url, command=tuple(appending(file)))
        pipeline = replace(spend(log.source, store.settings(), at_end="hold"), alerts=alerts)
        options = RunSettings(
            checkpoint,
            every=50_000,
            max_records=MOST,
            on_alert=said.append,
            watch=watch_run,
            on_warning=warnings.append,
        )
        assert launch(as_graph(pipeline), options, steps.on_step, on_start) == "asked"
        players[0].join(60)
    assert warnings == []
    assert {one.name for one in said} == NAMES
    for name in NAMES:
        states = [one.state for one in said if one.name == name]
        assert states == ["raised", "resolved"] * (len(states) // 2) + ["raised"] * (len(states) % 2), (name, states)
        assert len(states) % 2 == (name in STAY)
    texts = {one.name: one.message for one in said if one.is_active}
    assert "partition 2 holds it back: " in texts["watermark-stuck"]
    assert "no records have arrived from partition 2" in texts["partition-idle"]
    assert "the key 'hot' has about " in texts["hot-key"]
    assert "missing: event_time" in texts["dead-letters"] or "missing: amount" in texts["dead-letters"]
    assert "is locked by another writer" in texts["sink-errors"]
    assert [Alert.of_plain(body) for body in hook.bodies] == said
    assert [Alert.of_plain(body) for body in lines(file)] == said
    assert _of(read_alerts(history_of(checkpoint))) == _of(said)
    _status_has_the_active_one(pipeline, checkpoint, tmp_path)
    assert_same(store, pipeline)


def _of(said: list[Alert]) -> dict[tuple[str, int], str]:
    """How each alert stood last."""
    return {(one.name, one.raised): one.state for one in said}


def _status_has_the_active_one(pipeline: Pipeline, checkpoint: Path, folder: Path) -> None:
    spec = folder / "pipeline.yaml"
    spec.write_text(to_yaml(as_graph(pipeline)))
    arguments = ["status", str(spec), "--checkpoint", str(checkpoint)]
    assert "  alert checkpoint, raised 20" in CliRunner().invoke(main, arguments).output
    found = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).output)
    assert {one["name"] for one in found["alerts"] if one["state"] == "raised"} == STAY
