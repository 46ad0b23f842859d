"""Tables, lookups in them and joins of them give the same on every host, in every cut, after a stop, when rescaled."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.hosts.runs import Runner
from tests.hosts.spend import HOUR, MINUTE, event, events, spend
from tests.hosts.two_logs import Logs, fill, open_logs, query, read_tables, run

from windrow.core.state.inspect import inspect_state
from windrow.hosts.launch import HostName
from windrow.hosts.settings import SparkOptions
from windrow.hosts.stream.take_savepoint import look, take_savepoint
from windrow.model import (
    Aggregate,
    Count,
    Delay,
    Emit,
    Graph,
    LookupNode,
    SelectNode,
    SinkNode,
    SourceNode,
    SqliteSink,
    Sum,
    TableJoinNode,
    TableNode,
    Tumbling,
    WindowNode,
)
from windrow.sinks import open_sinks

BOUGHT = events(900, duplicate_share=0.1)
RETURNED = [*events(300, partitions=2, seed=7), (0, event(30, "x" * 3000)), (1, b"{")]
VALUES = BOUGHT, RETURNED
TABLES = ("found", "noted", "last", "pairs", "both", "hours")
CHANGELOGS = ("found", "pairs", "hours")


def graph(logs: Logs, folder: Path, *, key_groups: int = 2, at_end: Literal["fire", "hold"] = "fire") -> Graph:
    """Purchases with the user's last return, as of event time and of the order; per hour; and joins of tables."""
    bought, returned = (log.source for log in logs)
    plain = spend(bought, SqliteSink("unused.db", "unused"))
    later = replace(plain.time, watermark=Delay(30 * MINUTE))
    total = (Aggregate("total", Sum("amount")), Aggregate("back", Sum("amount_right")), Aggregate("rows", Count()))
    found = LookupNode("found", "bought", "last", ("user_id",), ("user_id",), "left", revise=2 * HOUR)
    pairs = TableJoinNode("pairs", "amounts", "last", ("user_id",), ("user_id",))
    path = str(folder / "graph.db")
    return Graph(
        "graph",
        (
            SourceNode("bought", bought, plain.decode, plain.time, lateness=45 * MINUTE),
            SourceNode("returned", returned, plain.decode, later),
            TableNode("last", "returned", ("user_id",), "amount > 60"),
            TableNode("amounts", "bought", ("user_id", "amount")),
            found,
            replace(found, name="noted", as_of="order", revise=None),
            pairs,
            replace(pairs, name="all", left="last", right="amounts", how="full"),
            SelectNode("both", ("all",), select=("user_id", "event_time", "event_time_right")),
            WindowNode("hours", "found", plain.key, Tumbling(HOUR), total, Emit(at_end=at_end)),
            SinkNode("to_found", "found", SqliteSink(path, "found")),
            SinkNode("to_noted", "noted", SqliteSink(path, "noted", changelog=False)),
            SinkNode("to_last", "last", SqliteSink(path, "last", changelog=False)),
            SinkNode("to_pairs", "pairs", SqliteSink(path, "pairs")),
            SinkNode("to_both", "both", SqliteSink(path, "both", changelog=False)),
            SinkNode("to_hours", "hours", SqliteSink(path, "hours")),
        ),
        key_groups,
    )


def tables(folder: Path) -> dict[str, list[Any]]:
    return read_tables(folder, TABLES, CHANGELOGS)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return open_logs(tmp_path)


def run_in(host: HostName, logs: Logs, folder: Path, max_records: int) -> dict[str, list[Any]]:
    folder.mkdir()
    run(host, graph(logs, folder), folder, max_records)
    return tables(folder)


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, list[Any]]:
    """What the memory host gives in one step."""
    (tmp_path / "whole").mkdir()
    logs = open_logs(tmp_path / "whole")
    fill(logs, VALUES)
    found = run_in("memory", logs, tmp_path / "memory", 10_000)
    assert all(found[name] for name in (*TABLES, "found_late", "found_changes", "last_dead"))
    return found


def test_rows_have_the_key_of_their_table(tmp_path: Path, expected: dict[str, list[Any]]) -> None:
    def asked(sql: str) -> list[Any]:
        return query(tmp_path / "memory", sql)

    assert asked("SELECT user_id FROM last GROUP BY user_id HAVING count(*) > 1 OR max(amount) > 60") == []
    assert asked("SELECT 1 FROM pairs GROUP BY user_id, amount HAVING count(*) > 1") == []
    ops = Counter(row[0] for row in expected["pairs_changes"])
    assert set(ops) == {"insert", "update_before", "update_after", "delete"}
    assert ops["insert"] - ops["delete"] == len(expected["pairs"])
    noted, found = (asked(f"SELECT count(*) FROM {name}") for name in ("noted", "found"))
    assert noted == found
    assert asked("SELECT 1 FROM both WHERE row LIKE '+%'")
    assert asked("SELECT 1 FROM found_changes WHERE op = 'delete'")


def test_in_memory_in_many_steps(logs: Logs, tmp_path: Path, expected: dict[str, list[Any]]) -> None:
    fill(logs, VALUES)
    found = run_in("memory", logs, tmp_path / "steps", 97)
    for name, rows in expected.items():
        assert found[name] == rows, name


@pytest.mark.usefixtures("spark")
def test_as_a_batch(logs: Logs, tmp_path: Path, expected: dict[str, list[Any]]) -> None:
    fill(logs, VALUES)
    assert run_in("batch", logs, tmp_path / "batch", 400) == expected


@pytest.mark.usefixtures("spark")
def test_a_stream_that_is_stopped_before_it_notes_a_step(
    logs: Logs, runner: Runner, tmp_path: Path, expected: dict[str, list[Any]]
) -> None:
    """The sink has the step, Spark has not noted it: the next run computes it again, and nothing changes."""
    fill(logs, VALUES)
    runner.bounded(graph(logs, tmp_path, at_end="hold"), 300)
    last = max((runner.checkpoint / "spark" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    before = tables(tmp_path)
    last.unlink()
    runner.bounded(graph(logs, tmp_path), 300)
    assert tables(tmp_path) == expected
    assert before["hours"] != expected["hours"]


@pytest.mark.usefixtures("spark")
def test_a_savepoint_has_the_versions(
    logs: Logs, runner: Runner, tmp_path: Path, expected: dict[str, list[Any]]
) -> None:
    fill(logs, VALUES, slice(200))
    held = graph(logs, tmp_path, at_end="hold")
    runner.bounded(held, 150)
    sinks = open_sinks(held)
    folder = take_savepoint(held, sinks, runner.checkpoint, None, SparkOptions("local[*]"))
    sinks.close()
    _, states = look(held, runner.checkpoint, SparkOptions("local[*]"))
    report = inspect_state(held, states)
    assert {"last/versions", "found/versions", "found/left", "noted/versions", "pairs/left"} <= report.kinds.keys()
    assert min(group.keys for group in report.groups) > 0
    fill(logs, VALUES, slice(200, None))
    Runner(tmp_path / "other").bounded(graph(logs, tmp_path, key_groups=3), 300, savepoint=folder)
    assert tables(tmp_path) == expected
