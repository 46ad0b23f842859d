"""Joins of two logs give the same on every host, in every cut, after a stop, and with other key groups."""

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
    Derive,
    Emit,
    Graph,
    JoinNode,
    SelectNode,
    SinkNode,
    SourceNode,
    SqliteSink,
    Sum,
    Tumbling,
    WindowNode,
)
from windrow.sinks import open_sinks

BOUGHT = events(900, duplicate_share=0.1)
RETURNED = [*events(300, partitions=2, seed=7), (0, event(30, "x" * 3000)), (1, b"{")]
ROWS = ("returned", "both", "again")
VALUES = BOUGHT, RETURNED
TABLES = (*ROWS, "hours", "pairs")


def graph(logs: Logs, folder: Path, *, key_groups: int = 2, at_end: Literal["fire", "hold"] = "fire") -> Graph:
    """Purchases with the returns of the user in the next half hour: as rows, per hour, with more, and pairs alone."""
    bought, returned = (log.source for log in logs)
    plain = spend(bought, SqliteSink("unused.db", "unused"))
    later = replace(plain.time, watermark=Delay(30 * MINUTE))
    total = (Aggregate("total", Sum("amount")), Aggregate("back", Sum("amount_right")), Aggregate("rows", Count()))
    near = JoinNode("near", "bought", "returned", ("user_id",), ("user_id",), 0, 30 * MINUTE, "left")
    path = str(folder / "graph.db")
    return Graph(
        "graph",
        (
            SourceNode("bought", bought, plain.decode, plain.time, lateness=45 * MINUTE),
            SourceNode("returned", returned, plain.decode, later, lateness=45 * MINUTE),
            near,
            replace(near, name="both", how="full", before=5 * MINUTE),
            replace(near, name="pair", how="inner"),
            SelectNode("large", ("returned",), "amount > 150", (Derive("u", "user_id"),), ("u", "amount")),
            SelectNode("slim", ("near",), select=("user_id", "event_time", "event_time_right")),
            JoinNode("again", "slim", "large", ("user_id",), ("u",), 0, 10 * MINUTE, "left"),
            WindowNode("hours", "near", plain.key, Tumbling(HOUR), total, Emit(at_end=at_end)),
            WindowNode("pairs", "pair", plain.key, Tumbling(HOUR), total, Emit(lateness=HOUR, at_end=at_end)),
            SinkNode("to_returned", "near", SqliteSink(path, "returned")),
            SinkNode("to_both", "both", SqliteSink(path, "both", changelog=False)),
            SinkNode("to_again", "again", SqliteSink(path, "again", changelog=False)),
            SinkNode("to_hours", "hours", SqliteSink(path, "hours")),
            SinkNode("to_pairs", "pairs", SqliteSink(path, "pairs", changelog=False)),
        ),
        key_groups,
    )


def tables(folder: Path) -> dict[str, list[Any]]:
    return read_tables(folder, TABLES, ("returned", "hours"))


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
    assert all(found[name] for name in (*TABLES, "returned_late", "returned_changes"))
    return found


def test_rows_are_named_by_their_records(tmp_path: Path, expected: dict[str, list[Any]]) -> None:
    pairs, alone = (
        query(tmp_path / "memory", f"SELECT row, amount_right FROM returned WHERE row {how} LIKE '%+'")
        for how in ("NOT", "")
    )
    assert pairs
    assert alone
    assert all(amount is None for _, amount in alone)
    for row, _ in pairs:
        left, right = row.split("+")
        assert left.startswith("bought/")
        assert right.startswith("returned/")
    left = {row.split("+")[0] for row, _ in pairs}
    assert not left.intersection(row.removesuffix("+") for row, _ in alone)
    ops = Counter(row[0] for row in expected["returned_changes"])
    assert set(ops) == {"insert", "delete"}
    assert ops["insert"] - ops["delete"] == len(expected["returned"])
    both = query(
        tmp_path / "memory", "SELECT substr(row, 1, 1) = '+', user_id IS NULL, count(*) FROM both GROUP BY 1, 2"
    )
    assert [row[:2] for row in both] == [(0, 0), (1, 0)]
    assert all(row.count("+") == 2 for row, *_ in query(tmp_path / "memory", "SELECT row FROM again"))


def test_what_a_join_cannot_take_is_a_dead_letter_of_its_log(expected: dict[str, list[Any]]) -> None:
    dead = Counter((source, reason.partition(":")[0]) for source, _, _, _, reason, _ in expected["returned_dead"])
    assert dead["returned", "long key"] == 1
    assert {source for source, _ in dead} == {"bought", "returned"}
    assert expected["both_dead"] == expected["returned_dead"]
    assert {row[0] for row in expected["returned_late"]} == {"bought", "returned"}


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
def test_a_savepoint_has_both_sides(logs: Logs, runner: Runner, tmp_path: Path, expected: dict[str, list[Any]]) -> None:
    fill(logs, VALUES, slice(200))
    held = graph(logs, tmp_path, at_end="hold")
    runner.bounded(held, 150)
    sinks = open_sinks(held)
    folder = take_savepoint(held, sinks, runner.checkpoint, None, SparkOptions("local[*]"))
    sinks.close()
    _, states = look(held, runner.checkpoint, SparkOptions("local[*]"))
    report = inspect_state(held, states)
    assert {"near/left", "near/right", "pair/left", "both/right"} <= report.kinds.keys()
    assert min(group.keys for group in report.groups) > 0
    fill(logs, VALUES, slice(200, None))
    Runner(tmp_path / "other").bounded(graph(logs, tmp_path, key_groups=3), 300, savepoint=folder)
    assert tables(tmp_path) == expected
