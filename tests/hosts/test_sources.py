"""A graph over two logs gives the same on every host, in every cut, and after a stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.hosts.runs import Runner, Scene, read
from tests.hosts.spend import HOUR, MINUTE, Files, Topic, event, events, spend
from tests.hosts.two_logs import Logs, fill, open_logs, query, read_tables, run
from tests.servers.kafka import Kafka

from windrow.errors import SourceError
from windrow.hosts.launch import HostName
from windrow.hosts.replay import ReplayOptions, plan_replay, run_replay
from windrow.hosts.settings import SparkOptions
from windrow.hosts.stream.take_savepoint import take_savepoint
from windrow.model import (
    Aggregate,
    Count,
    DeduplicateNode,
    Delay,
    Emit,
    Graph,
    SelectNode,
    SinkNode,
    Source,
    SourceNode,
    SqliteSink,
    Sum,
    Tumbling,
    WindowNode,
)
from windrow.sinks import open_sinks

BOUGHT = events(900, duplicate_share=0.1)
RETURNED = events(300, partitions=2, seed=7, duplicate_share=0.1)
VALUES = BOUGHT, RETURNED
TABLES = ("minutes", "hours", "bought", "all")


def graph(
    bought: Source,
    returned: Source,
    folder: Path,
    *,
    key_groups: int = 2,
    at_end: Literal["fire", "hold"] = "fire",
    idle: int | None = None,
) -> Graph:
    """Purchases and returns without copies per user and 5 minutes, these per hour; purchases alone; all as rows.

    A partition of returns is `idle` after so many microseconds.
    """
    plain = spend(bought, SqliteSink("unused.db", "unused"))
    later = replace(plain.time, watermark=Delay(30 * MINUTE), idle=idle)
    total = (Aggregate("total", Sum("total")), Aggregate("events", Sum("events")), Aggregate("rows", Count()))
    emit = Emit(lateness=HOUR, at_end=at_end)
    path = str(folder / "graph.db")
    return Graph(
        "graph",
        (
            SourceNode("bought", bought, plain.decode, plain.time, lateness=2 * HOUR),
            SourceNode("returned", returned, plain.decode, later, lateness=HOUR),
            SelectNode("moved", ("bought", "returned")),
            DeduplicateNode("unique", "moved", ("user_id", "event_time", "amount"), HOUR),
            WindowNode("minutes", "unique", plain.key, Tumbling(5 * MINUTE), plain.aggregates[:2], emit),
            WindowNode("hours", "minutes", plain.key, Tumbling(HOUR), total, replace(emit, lateness=0)),
            WindowNode("purchases", "bought", plain.key, Tumbling(5 * MINUTE), plain.aggregates, emit),
            SinkNode("to_minutes", "minutes", SqliteSink(path, "minutes", changelog=False)),
            SinkNode("to_hours", "hours", SqliteSink(path, "hours")),
            SinkNode("to_bought", "purchases", SqliteSink(path, "bought", changelog=False)),
            SinkNode("to_all", "moved", SqliteSink(path, "all", changelog=False)),
        ),
        key_groups,
    )


def tables(folder: Path) -> dict[str, list[Any]]:
    return read_tables(folder, TABLES, ("hours",))


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return open_logs(tmp_path)


def run_in(host: HostName, logs: Logs, folder: Path, max_records: int) -> dict[str, list[Any]]:
    folder.mkdir()
    run(host, graph(logs[0].source, logs[1].source, folder), folder, max_records)
    return tables(folder)


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, list[Any]]:
    """What the memory host gives in one step."""
    (tmp_path / "whole").mkdir()
    logs = open_logs(tmp_path / "whole")
    fill(logs, VALUES)
    found = run_in("memory", logs, tmp_path / "memory", 10_000)
    assert all(found[name] for name in (*TABLES, "minutes_late", "minutes_dead", "hours_changes"))
    return found


def test_rows_name_their_log(logs: Logs, tmp_path: Path, expected: dict[str, list[Any]]) -> None:
    fill(logs, VALUES)
    places = {(row[0], row[1]) for row in expected["all"]}
    assert places == {("bought", 0), ("bought", 1), ("bought", 2), ("returned", 0), ("returned", 1)}
    counted = query(tmp_path / "memory", 'SELECT source, "partition", "offset" FROM minutes_dead')
    assert {source for source, *_ in counted} == {"bought", "returned"}
    assert len(counted) == len(set(counted))
    assert run_in("memory", logs, tmp_path / "steps", 137) == expected


@pytest.mark.usefixtures("spark")
def test_as_a_batch(logs: Logs, tmp_path: Path, expected: dict[str, list[Any]]) -> None:
    fill(logs, VALUES)
    assert run_in("batch", logs, tmp_path / "batch", 400) == expected


@pytest.mark.usefixtures("spark")
def test_a_stream_that_grows_and_is_stopped(
    logs: Logs, runner: Runner, tmp_path: Path, expected: dict[str, list[Any]]
) -> None:
    """The sink has the last step, Spark has not noted it: the next run computes it again, and nothing changes."""
    fill(logs, VALUES, slice(0, 150))
    sources = logs[0].source, logs[1].source
    runner.bounded(graph(*sources, tmp_path, at_end="hold"), 130)
    last = max((runner.checkpoint / "spark" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    fill(logs, VALUES, slice(150, None))
    runner.bounded(graph(*sources, tmp_path), 400)
    assert tables(tmp_path) == expected
    assert set(runner.reports[-1].offsets) == {"bought/0", "bought/1", "bought/2", "returned/0", "returned/1"}
    assert sum(runner.reports[-1].offsets.values()) == len(BOUGHT) + len(RETURNED)


@pytest.mark.usefixtures("spark")
def test_a_savepoint_has_the_positions_in_both(
    logs: Logs, runner: Runner, tmp_path: Path, expected: dict[str, list[Any]]
) -> None:
    fill(logs, VALUES, slice(0, 150))
    sources = logs[0].source, logs[1].source
    held = graph(*sources, tmp_path, at_end="hold")
    runner.bounded(held, 300)
    sinks = open_sinks(held)
    folder = take_savepoint(held, sinks, runner.checkpoint, None, SparkOptions("local[*]"))
    sinks.close()
    fill(logs, VALUES, slice(150, None))
    Runner(tmp_path / "other").bounded(graph(*sources, tmp_path, key_groups=3), 300, savepoint=folder)
    assert tables(tmp_path) == expected


@pytest.mark.usefixtures("spark")
def test_a_source_without_records_holds_back_what_depends_on_it_until_it_is_idle(
    logs: Logs, runner: Runner, tmp_path: Path
) -> None:
    logs[0].append((partition, event(minute)) for minute in range(200) for partition in range(3))
    logs[1].append([(0, event(0)), (1, event(0))])
    sources = logs[0].source, logs[1].source
    runner.bounded(graph(*sources, tmp_path, at_end="hold"))
    assert query(tmp_path, "SELECT count(*) FROM bought") != [(0,)]
    assert query(tmp_path, "SELECT count(*) FROM minutes") == [(0,)]

    def scene() -> Scene:
        yield lambda report: report.idle == ["returned/0", "returned/1"]

    (tmp_path / "idle").mkdir()
    Runner(tmp_path / "other").live(graph(*sources, tmp_path / "idle", at_end="hold", idle=1_000_000), scene())
    assert query(tmp_path / "idle", "SELECT count(*) FROM minutes") != [(0,)]
    journal = query(tmp_path / "idle", 'SELECT source, "partition", reason FROM bought_clocks')
    assert journal == [("returned", 0, "idle"), ("returned", 1, "idle")]


@pytest.mark.usefixtures("spark")
def test_a_replay_repeats_the_journal_of_both(logs: Logs, runner: Runner, tmp_path: Path) -> None:
    """A partition of returns is idle for a while, so the verdicts on what comes later depend on the journal."""
    sources = logs[0].source, logs[1].source
    live = graph(*sources, tmp_path, at_end="hold", idle=300_000)
    logs[0].append((partition, event(minute)) for minute in range(200) for partition in range(3))
    logs[1].append([(0, event(0)), (1, event(0))])

    def scene() -> Scene:
        yield lambda report: report.idle == ["returned/0", "returned/1"]
        # late by the low watermark, not by what was read of its partition
        logs[1].append([(0, event(100, "u1")), (0, event(180, "u1"))])
        yield read(604)

    runner.live(live, scene())
    options = ReplayOptions(runner.checkpoint, default=False, host="memory")
    replay = plan_replay(live, options)
    assert replay.tables == tuple((name, f"{name}_shadow") for name in TABLES)
    assert run_replay(replay, options, lambda _: None, lambda _: None) == "end"
    for name in TABLES:
        for part in ("", "_late", "_dead"):
            rows = query(tmp_path, f'SELECT * FROM "{name}_shadow{part}"')
            assert rows == query(tmp_path, f'SELECT * FROM "{name}{part}"'), name + part
    assert ("returned", 0, "idle") in query(tmp_path, 'SELECT source, "partition", reason FROM all_shadow_clocks')
    assert query(tmp_path, "SELECT count(*) FROM minutes_late WHERE source = 'returned'") == [(1,)]


@pytest.mark.usefixtures("spark")
def test_records_that_one_of_them_lost_are_in_the_journal_under_its_name(
    logs: Logs, runner: Runner, tmp_path: Path
) -> None:
    logs[0].append((0, event(minute)) for minute in range(60))
    logs[1].append((1, event(minute)) for minute in range(40))
    given = graph(logs[0].source, logs[1].source, tmp_path, at_end="hold")
    runner.bounded(given)
    (tmp_path / "returned" / "partition-1.jsonl").write_bytes(event(50, "u2") + b"\n")
    with pytest.raises(SourceError, match=r"lost records: partition returned/1: .* is another file now"):
        runner.bounded(given)
    said: list[str] = []
    runner.bounded(given, on_data_loss="continue", on_trouble=said.append)
    assert any("partition returned/1" in one for one in said)
    journal = query(tmp_path, 'SELECT source, "partition", "offset", reason FROM hours_clocks')
    assert [row[:3] for row in journal if row[3].startswith("lost: ")] == [("returned", 1, 0)]
    # the position in the other log stays, and the file that starts again has these offsets once more
    assert query(tmp_path, 'SELECT source, count(*) FROM "all" GROUP BY 1') == [("bought", 60), ("returned", 40)]
    again = """SELECT user_id FROM "all" WHERE source = 'returned' AND "offset" = 0"""
    assert query(tmp_path, again) == [("u2",)]


@pytest.mark.service
@pytest.mark.usefixtures("spark")
def test_a_topic_and_a_log(
    kafka: Kafka, topic: Callable[..., str], tmp_path: Path, runner: Runner, expected: dict[str, list[Any]]
) -> None:
    bought, returned = Topic(kafka, topic(3)), Files(tmp_path / "returned", 2)
    fill((bought, returned), VALUES, slice(0, 200))

    def scene() -> Scene:
        yield read(400)
        fill((bought, returned), VALUES, slice(200, None))
        yield read(len(BOUGHT) + len(RETURNED))

    given = graph(bought.source, returned.source, tmp_path, at_end="hold")
    runner.live(given, scene())
    runner.bounded(graph(bought.source, returned.source, tmp_path))

    def places_aside(found: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {name: found[name] for name in ("minutes", "hours", "bought", "hours_changes")}

    assert places_aside(tables(tmp_path)) == places_aside(expected)
