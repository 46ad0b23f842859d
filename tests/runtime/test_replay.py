"""A replay of a live run that had silent partitions, a crash and an end on the way: the same, to the last byte."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.graphs import as_graph, sink_spec_of
from tests.runtime.spend import HOUR, Files, event, spend
from tests.short_forms import Pipeline

from windrow.connectors.database import WindowRange
from windrow.connectors.diff import compare_answers
from windrow.connectors.open_sinks import open_database
from windrow.connectors.sqlite.tables import SqliteTables
from windrow.engine.changelog import StepOutput
from windrow.errors import SinkError
from windrow.model import SqliteSink
from windrow.runtime.launch import launch
from windrow.runtime.replay import Replay, ReplayOptions, plan_replay, run_replay
from windrow.runtime.run import ReplayHost, RunSettings
from windrow.runtime.stream.run import StreamRun
from windrow.telemetry.reports import StepReport

pytestmark = pytest.mark.usefixtures("spark")


class Refusing(SqliteTables):
    """Refuses, once, the first step whose journal has a row with the reason, as if the run had died there."""

    reason: str | None = None

    def commit(self, epoch: int, *outputs: StepOutput) -> list[pa.Table]:
        if self.reason in outputs[0].clocks.column("reason").to_pylist():
            self.reason = None
            msg = "refused"
            raise SinkError(msg)
        return super().commit(epoch, *outputs)


def contents(path: str, table: str) -> dict[str, list[Any]]:
    """All rows of the tables but the journal: changes in the order of each window and user, without their steps."""
    order = "window_start, user_id, epoch, seq"
    found: dict[str, list[Any]] = {}
    with closing(sqlite3.connect(path)) as db:
        for part, by in (("", "1, 3"), ("_changes", order), ("_late", "2, 3"), ("_dead", "2, 3")):
            cursor = db.execute(f"SELECT * FROM {table}{part} ORDER BY {by}")
            keep = [place for place, column in enumerate(cursor.description) if column[0] not in {"epoch", "seq"}]
            found[part] = [tuple(row[place] for place in keep) for row in cursor]
    return found


def bounds(path: str, table: str) -> set[Any]:
    """The moves that the journal has, but the ends."""
    with closing(sqlite3.connect(path)) as db:
        columns = "partition, offset, clock, low_watermark, reason"
        return set(db.execute(f"SELECT {columns} FROM {table}_clocks WHERE reason <> 'end'"))


class Live:
    """A live run with idle partitions, which stands somewhere in a log that goes on."""

    def __init__(self, log: Files, folder: Path) -> None:
        self.path = str(folder / "spend.db")
        plain = spend(log.source, SqliteSink(self.path, "spend"), lateness=10 * HOUR, at_end="hold")
        time = replace(plain.time, idle=2_000_000)
        self.pipeline: Pipeline = replace(plain, time=time, key_groups=2)
        self.checkpoint = folder / "checkpoint"
        self.minute = 60
        self._log = log
        self._sink = Refusing(sink_spec_of(self.pipeline))

    def refused(self, reason: str) -> None:
        """Run, while partition 0 has records, until a step of that kind is refused."""
        self._sink.reason = reason
        with pytest.raises(SinkError, match="refused"):
            self._run(lambda _: False)

    def until(self, done: Callable[[StepReport], bool]) -> None:
        self._run(done)

    def bounded(self) -> None:
        """Run to the end of the log, and fire what is open."""
        fires = replace(self.pipeline, emit=replace(self.pipeline.emit, at_end="fire"))
        StreamRun(as_graph(fires), self._sink, RunSettings(self.checkpoint, until_end=True)).run(lambda _: None)
        self._sink.close()

    def _run(self, done: Callable[[StepReport], bool]) -> None:
        run = StreamRun(as_graph(self.pipeline), self._sink, RunSettings(self.checkpoint, every=50_000))

        def on_step(report: StepReport) -> None:
            if done(report):
                run.stop()
            else:
                self._log.append([(0, event(self.minute))])
                self.minute += 1

        try:
            run.run(on_step)
        finally:
            self._sink.close()

    def replay(self, host: ReplayHost, **options: Any) -> Replay:  # noqa: ANN401 - options of it
        given = ReplayOptions(self.checkpoint, default=False, host=host, into=f"spend_{host}", **options)
        replay = plan_replay(as_graph(self.pipeline), given)
        assert run_replay(replay, given, lambda _: None, lambda _: None) == "end"
        return replay


def test_a_live_run_with_idle_partitions_a_crash_and_an_end_is_repeated_where_it_stands(
    files: Files, tmp_path: Path
) -> None:
    live = Live(files, tmp_path)
    files.append([(0, event(0)), (1, event(1, "u2")), (1, event(7, "u2"))])
    live.refused("idle")
    live.until(lambda report: report.idle == [1, 2])
    files.append([(1, event(2, "u2")), (2, event(3, "u3")), (1, event(59, "u2"))])
    live.refused("active")
    live.bounded()
    files.append([(2, event(8, "u3"))])
    live.until(lambda report: report.idle == [1, 2])
    # the log goes on, and the live run does not
    files.append([(0, event(live.minute + 100)), (1, event(61, "u2"))])
    told = contents(live.path, "spend")
    assert {change[1] for change in told["_changes"]} == {"on_time", "late"}

    for host in ("memory", "batch"):
        replay = live.replay(host)
        assert replay.settings.idle_at_end.partitions == (1, 2)
        assert len(replay.settings.ends) == 1
        assert contents(live.path, f"spend_{host}") == told
        assert bounds(live.path, f"spend_{host}") == bounds(live.path, "spend")
        there = replace(live.pipeline, sink=SqliteSink(live.path, f"spend_{host}"))
        assert compare_answers(
            sink_spec_of(live.pipeline), sink_spec_of(there), WindowRange(), limit=1, panes=True
        ).is_same
    assert contents(live.path, "spend") == told


@pytest.mark.long
def test_a_replay_takes_the_place_of_the_live_run_and_goes_on(files: Files, tmp_path: Path) -> None:
    live = Live(files, tmp_path)
    files.append([(0, event(0)), (1, event(1, "u2")), (1, event(7, "u2"))])
    live.until(lambda report: report.idle == [1, 2])
    kept = tmp_path / "kept"
    live.replay("batch", savepoint=kept)
    open_database(live.pipeline.sink).promote("user-spend", [("spend", "spend_batch")])
    with pytest.raises(SinkError, match=r"--from-savepoint"):
        live.until(lambda _: True)
    files.append([(1, event(2, "u2")), (2, event(3, "u3")), (0, event(live.minute))])
    fires = replace(live.pipeline, emit=replace(live.pipeline.emit, at_end="fire"))
    options = RunSettings(tmp_path / "next", until_end=True, savepoint=kept)
    assert launch(as_graph(fires), options, lambda _: None, lambda _: None) == "end"
    # the journal goes on too, so that all of it can be replayed
    given = ReplayOptions(tmp_path / "next", default=False, host="memory", into="again")
    assert run_replay(plan_replay(as_graph(live.pipeline), given), given, lambda _: None, lambda _: None) == "end"
    assert contents(live.path, "again") == contents(live.path, "spend")
    whole = ReplayOptions(tmp_path / "none", end="log", host="memory", into="whole")
    assert run_replay(plan_replay(as_graph(fires), whole), whole, lambda _: None, lambda _: None) == "end"
    assert contents(live.path, "whole") == contents(live.path, "spend")
