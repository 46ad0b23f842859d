"""A chain of streams gives the same on every host, in every cut, and after a stop: deduplication, minutes, hours."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.stores import SqliteStore
from tests.runtime.runs import Runner
from tests.runtime.spend import HOUR, MINUTE, Files, event, events, spend

from windrow.connectors.open_sinks import open_sinks
from windrow.engine.state.inspect import inspect_state
from windrow.model import (
    Aggregate,
    Count,
    DeduplicateNode,
    Derive,
    Emit,
    Graph,
    Hopping,
    Node,
    SelectNode,
    SinkNode,
    SourceNode,
    SplitNode,
    SqliteSink,
    Sum,
    Tumbling,
    WindowNode,
)
from windrow.runtime.launch import launch
from windrow.runtime.run import HostName, RunSettings
from windrow.runtime.settings import SparkOptions
from windrow.runtime.stream.take_savepoint import look, take_savepoint
from windrow.telemetry.reports import StepReport
from windrow.tools.alerts.conditions import AlertEvaluator

EVENTS = events(1_500, duplicate_share=0.1)
TABLES = ("minutes", "hours", "halves", "large", "copies")


def chain(files: Files, folder: Path, key_groups: int = 2) -> Graph:
    """Purchases without their copies, per user and 5 minutes, these per hour, and the large ones and copies as rows."""
    plain = spend(files.source, SqliteSink("unused.db", "unused"))
    total = (Aggregate("total", Sum("total")), Aggregate("events", Sum("events")), Aggregate("rows", Count()))
    nodes: list[Node] = [
        SourceNode("log", plain.source, plain.decode, plain.time, lateness=2 * HOUR),
        DeduplicateNode("unique", "log", ("user_id", "event_time", "amount"), HOUR),
        SplitNode("sizes", "unique", (Derive("large", "amount > 150"),), "small"),
        SelectNode("all", ("sizes.large", "sizes.small")),
        WindowNode("minutes", "all", plain.key, Tumbling(5 * MINUTE), plain.aggregates[:2], Emit(lateness=HOUR)),
        WindowNode("hours", "minutes", plain.key, Tumbling(HOUR), total, Emit()),
        SelectNode("rich", ("hours",), "total > 100"),
        WindowNode("halves", "rich", ("rows",), Hopping(12 * HOUR, 6 * HOUR), total[:2], Emit()),
        SelectNode("copies", ("unique.duplicates",), select=("user_id", "amount")),
    ]
    path = str(folder / "chain.db")
    sinks = [
        SinkNode(f"to {name}", stream, SqliteSink(path, name, changelog=name in {"hours", "halves"}))
        for name, stream in zip(TABLES, ("minutes", "hours", "halves", "sizes.large", "copies"), strict=True)
    ]
    return Graph("chain", (*nodes, *sinks), key_groups)


def held(graph: Graph) -> Graph:
    """The graph with windows that stay open at the end of the input."""
    return replace(
        graph,
        nodes=tuple(
            replace(node, emit=replace(node.emit, at_end="hold")) if isinstance(node, WindowNode) else node
            for node in graph.nodes
        ),
    )


def tables(folder: Path) -> dict[str, list[Any]]:
    """The rows of all tables; of changelogs, without the numbers of steps and of rows."""
    store = SqliteStore(folder)
    store.path = folder / "chain.db"
    found = {}
    for name in TABLES:
        for table in (name, f"{name}_late", f"{name}_dead"):
            found[table] = sorted(store.query(f"SELECT * FROM {table}"), key=repr)
    for name in ("hours", "halves"):
        found[f"{name}_changes"] = sorted((row[2:] for row in store.query(f"SELECT * FROM {name}_changes")), key=repr)
    return found


def run(host: HostName, files: Files, folder: Path, max_records: int) -> dict[str, list[Any]]:
    folder.mkdir()
    options = RunSettings(folder / "checkpoint", host, until_end=True, max_records=max_records)
    launch(chain(files, folder), options, lambda _: None, lambda _: None)
    return tables(folder)


@pytest.fixture
def expected(files: Files, tmp_path: Path) -> dict[str, list[Any]]:
    """What the memory host gives in one step."""
    files.append(EVENTS)
    found = run("memory", files, tmp_path / "memory", 10_000)
    assert all(found[name] for name in TABLES)
    assert any(row[0] == "update_after" for row in found["hours_changes"])
    assert found["minutes_dead"] == found["copies_dead"] != []
    return found


def test_in_memory_in_many_steps(files: Files, tmp_path: Path, expected: dict[str, list[Any]]) -> None:
    assert run("memory", files, tmp_path / "steps", 137) == expected


def test_what_fails_behind_a_deduplication_is_a_dead_letter_of_that_table(files: Files, tmp_path: Path) -> None:
    """The record is accepted; the stream behind cannot have it, and says so in its own table, once."""
    files.append([(0, event(minute, "u7" if minute % 2 else "seven")) for minute in range(6)])
    plain = spend(files.source, SqliteSink("unused.db", "unused"))
    path = str(tmp_path / "chain.db")
    graph = Graph(
        "failing",
        (
            SourceNode("log", plain.source, plain.decode, plain.time, lateness=HOUR),
            DeduplicateNode("unique", "log", ("user_id", "event_time"), HOUR),
            SelectNode("numbers", ("unique",), None, (Derive("number", "CAST(substr(user_id, 2) AS BIGINT)"),)),
            SinkNode("to_all", "unique", SqliteSink(path, "everything", changelog=False)),
            SinkNode("to_numbers", "numbers", SqliteSink(path, "numbers", changelog=False)),
        ),
        2,
    )
    reports: list[StepReport] = []
    options = RunSettings(tmp_path / "checkpoint", "memory", until_end=True, max_records=2)
    launch(graph, options, reports.append, lambda _: None)
    store = SqliteStore(tmp_path)
    store.path = tmp_path / "chain.db"
    assert store.query("SELECT count(*) FROM everything") == [(6,)]
    assert store.query("SELECT count(*) FROM everything_dead") == [(0,)]
    assert store.query("SELECT DISTINCT user_id, number FROM numbers") == [("u7", 7)]
    dead = store.query('SELECT source, "partition", "offset", reason FROM numbers_dead ORDER BY 3')
    assert [row[:3] for row in dead] == [("spend", 0, 0), ("spend", 0, 2), ("spend", 0, 4)]
    assert all("number" in row[3] for row in dead)
    assert sum(report.rejected for report in reports) == 3
    total = reduce(add, reports)
    assert total.dead_by_sink == {"to_numbers": total.dead_reasons}
    evaluator = AlertEvaluator(graph, every=1_000_000, now=0)
    evaluator.add_step(replace(total, committed=1), 1)
    (alert,) = evaluator.evaluate(1)
    assert "First check them with `windrow show PIPELINE numbers_dead --limit 20`" in alert.message


@pytest.mark.usefixtures("spark")
def test_as_a_batch(files: Files, tmp_path: Path, expected: dict[str, list[Any]]) -> None:
    assert run("batch", files, tmp_path / "batch", 400) == expected


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_a_stream_that_is_stopped_before_it_notes_a_step(
    files: Files, runner: Runner, tmp_path: Path, expected: dict[str, list[Any]]
) -> None:
    """The sink has the step, Spark has not noted it: the next run computes it again, and nothing changes."""
    graph = chain(files, tmp_path)
    runner.bounded(held(graph), 500)
    last = max((runner.checkpoint / "spark" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    before = tables(tmp_path)
    last.unlink()
    runner.bounded(graph, 500)
    assert tables(tmp_path) == expected
    assert before["hours"] != expected["hours"]


@pytest.mark.usefixtures("spark")
def test_a_checkpoint_that_divides_a_deduplication_by_its_own_key_resumes(
    runner: Runner, tmp_path: Path, expected: dict[str, list[Any]]
) -> None:
    """Older versions had a level of its own for it."""
    (tmp_path / "half").mkdir()
    half = Files(tmp_path / "half" / "spend", 3)
    half.append(EVENTS[:800])
    runner.bounded(replace(held(chain(half, tmp_path)), copartitions=False), 400)
    assert len(runner.reports[-1].state_by_node) == len(chain(half, tmp_path).levels) + 1
    half.append(EVENTS[800:])
    runner.bounded(chain(half, tmp_path), 700)
    assert tables(tmp_path) == expected


@pytest.mark.usefixtures("spark")
def test_state_and_hot_keys_are_reported_by_node(files: Files, runner: Runner, tmp_path: Path) -> None:
    files.append([*EVENTS, *((0, event(minute, "hot")) for minute in range(1_500))])
    memory: list[StepReport] = []
    for name in ("memory", "stream"):
        (tmp_path / name).mkdir()
    options = RunSettings(tmp_path / "none", "memory", until_end=True, max_records=10_000)
    launch(held(chain(files, tmp_path / "memory")), options, memory.append, lambda _: None)
    runner.bounded(held(chain(files, tmp_path / "stream")), 10_000)
    last = runner.reports[-1]
    assert [name.partition(", to")[0] for name in last.state_by_node] == ["unique, minutes", "hours", "halves"]
    # Spark has a row for the summary of each key group too
    rows = {name: rows - 2 for name, (rows, _) in last.state_by_node.items()}
    assert rows == {name: rows for name, (rows, _) in memory[-1].state_by_node.items()}
    assert len(set(rows.values())) > 1
    for reports in (memory, runner.reports):
        assert next(iter(reports[0].hot_keys["minutes"].shares)) == "hot"


@pytest.mark.long
@pytest.mark.parametrize("copartitions", [True, False])
@pytest.mark.usefixtures("spark")
def test_a_savepoint_has_the_state_of_all_levels(
    runner: Runner, tmp_path: Path, expected: dict[str, list[Any]], *, copartitions: bool
) -> None:
    (tmp_path / "half").mkdir()
    half = Files(tmp_path / "half" / "spend", 3)
    half.append(EVENTS[:800])
    graph = replace(chain(half, tmp_path), copartitions=copartitions)
    runner.bounded(held(graph), 400)
    sinks = open_sinks(graph)
    folder = take_savepoint(held(graph), sinks, runner.checkpoint, None, SparkOptions("local[*]"))
    sinks.close()
    _, states = look(held(graph), runner.checkpoint, SparkOptions("local[*]"))
    report = inspect_state(graph, states)
    assert {kind.partition("/")[0] for kind in report.kinds} == {"unique", "minutes", "hours", "halves"}
    assert min(report.windows, report.revisable, *(group.keys for group in report.groups)) > 0
    half.append(EVENTS[800:])
    Runner(tmp_path / "other").bounded(chain(half, tmp_path, key_groups=3), 700, savepoint=folder)
    assert tables(tmp_path) == expected
