"""A step has about as many bytes as it may have, and results do not depend on that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.graphs import as_graph
from tests.runtime.spend import spend

from windrow.connectors.memory import CollectSink
from windrow.connectors.open_sources import open_source
from windrow.model import LogSource, SqliteSink
from windrow.runtime.batch.plan import BatchSettings, batch_plan
from windrow.runtime.memory import MemoryRun
from windrow.telemetry.reports import StepReport

SIZES = (100, 1_000, 10_000, 100_000)


@pytest.fixture
def log(tmp_path: Path) -> LogSource:
    """A partition whose records grow, 50 of each size."""
    lines = []
    for number, size in enumerate(size for size in SIZES for _ in range(50)):
        given = {"user_id": f"u{number % 3}", "event_time": 1_767_225_600_000 + number * 10_000, "amount": "1.50"}
        lines.append(json.dumps(given | {"more": "x" * size}).encode() + b"\n")
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "partition-0.jsonl").write_bytes(b"".join(lines))
    return LogSource(str(folder))


def rows(log: LogSource, max_bytes: int) -> tuple[list[int], list[dict[str, object]]]:
    """Return the number of records of each step, and the rows of the table at the end."""
    sink, reports = CollectSink(), list[StepReport]()
    graph = as_graph(spend(log, SqliteSink("unused.db", "spend")))
    MemoryRun(graph, sink, max_bytes=max_bytes).run(reports.append)
    found = [row for step in sink.steps.values() for row in step.changes.to_pylist()]
    return [report.events for report in reports], [row for row in found if row["op"] != "update_before"]


def test_steps_of_growing_records_have_fewer_of_them(log: LogSource) -> None:
    [all_at_once, *_], whole = rows(log, 1 << 30)
    assert all_at_once == 200
    counts, in_steps = rows(log, 1_000_000)
    assert sum(counts) == 200
    assert counts[0] > 100
    assert max(counts[2:]) <= 10
    # the last rows of each window are the same
    last = [
        {tuple(row[name] for name in ("user_id", "window_start")): row["total"] for row in found}
        for found in (whole, in_steps)
    ]
    assert last[0] == last[1]


def test_a_record_above_the_limit_is_a_step_of_its_own(log: LogSource) -> None:
    counts, _ = rows(log, 50_000)
    assert counts[-51:-1] == [1] * 50


def test_a_batch_run_has_steps_of_about_as_many_bytes(log: LogSource) -> None:
    graph = as_graph(spend(log, SqliteSink("unused.db", "spend")))
    source = open_source(log)
    size = sum(path.stat().st_size for path in Path(log.path).iterdir())
    assert len(batch_plan(graph, source, BatchSettings(max_bytes=size)).cut) == 1
    assert len(batch_plan(graph, source, BatchSettings(max_bytes=size // 10)).cut) in {10, 11}
    assert len(batch_plan(graph, source, BatchSettings(max_bytes=1)).cut) == 200
