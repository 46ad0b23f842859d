"""A graph with several streams gives on every host, in each of its tables, what each stream gives alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.stores import SqliteStore
from tests.graphs import as_graph
from tests.runtime.runs import Runner
from tests.runtime.spend import MINUTE, Files, events, spend
from tests.short_forms import Pipeline

from windrow.connectors.open_sinks import open_sinks
from windrow.errors import CheckpointError
from windrow.model import (
    Aggregate,
    Count,
    Graph,
    Hopping,
    Session,
    SinkNode,
    SourceNode,
    SqliteSink,
    Tumbling,
    WindowNode,
)
from windrow.runtime.launch import launch
from windrow.runtime.run import HostName, RunSettings
from windrow.runtime.settings import SparkOptions
from windrow.runtime.stream.take_savepoint import take_savepoint

EVENTS = events(900)
HALF = 500


def streams(files: Files) -> dict[str, Pipeline]:
    """Three streams of one log: two of them per user, one over all; one is salted."""
    plain = spend(files.source, SqliteSink("unused.db", "unused"))
    return {
        "minutes": replace(plain, window=Tumbling(5 * MINUTE), salt=2),
        "visits": replace(plain, window=Session(20 * MINUTE), aggregates=(Aggregate("events", Count()),)),
        "amounts": replace(
            plain, window=Hopping(60 * MINUTE, 30 * MINUTE), key=(), aggregates=(Aggregate("events", Count()),)
        ),
    }


def graph(files: Files, folder: Path, key_groups: int = 2) -> Graph:
    """Two of the streams go to one database, one of these to two tables; the third has a database of its own."""
    one, other = str(folder / "one.db"), str(folder / "other.db")
    given = streams(files)
    first = given["minutes"]
    keyed = [
        WindowNode(name, "log", one.key, one.window, one.aggregates, one.emit, one.salt) for name, one in given.items()
    ]
    sinks = (
        SinkNode("a", "minutes", SqliteSink(one, "minutes")),
        SinkNode("b", "visits", SqliteSink(one, "visits")),
        SinkNode("c", "amounts", SqliteSink(other, "amounts")),
        SinkNode("d", "minutes", SqliteSink(one, "again", changelog=False)),
    )
    origin = SourceNode("log", first.source, first.decode, first.time)
    return Graph("shop", (origin, *keyed, *sinks), key_groups)


def tables(folder: Path) -> dict[str, list[Any]]:
    """The rows of all tables, but for those that name runs and epochs."""
    found: dict[str, list[Any]] = {}
    for file, names in (("one", ("minutes", "visits", "again")), ("other", ("amounts",))):
        store = SqliteStore(folder)
        store.path = folder / f"{file}.db"
        for name in names:
            for table in (name, f"{name}_late", f"{name}_dead"):
                found[table] = sorted(store.query(f"SELECT * FROM {table}"), key=repr)
    return found


def alone(files: Files, folder: Path) -> dict[str, list[Any]]:
    """What each stream gives as a pipeline of its own."""
    folder.mkdir()
    for name, one in streams(files).items():
        file = "other" if name == "amounts" else "one"
        for table in (name, "again") if name == "minutes" else (name,):
            pipeline = replace(one, name=table, sink=SqliteSink(str(folder / f"{file}.db"), table))
            options = RunSettings(folder / "unused", "memory", until_end=True, max_records=200)
            launch(as_graph(pipeline), options, lambda _: None, lambda _: None)
    return tables(folder)


def bounded(host: HostName, files: Files, tmp_path: Path) -> None:
    files.append(EVENTS)
    reports: list[Any] = []
    options = RunSettings(tmp_path / "checkpoint", host, until_end=True, max_records=300)
    launch(graph(files, tmp_path), options, reports.append, lambda _: None)
    assert sum(report.events for report in reports) == len(EVENTS)
    found = tables(tmp_path)
    assert all(found[name] for name in ("minutes", "visits", "amounts", "amounts_late", "minutes_dead", "again_dead"))
    assert found["minutes"] == found["again"]
    assert found == alone(files, tmp_path / "alone")


def test_in_memory(files: Files, tmp_path: Path) -> None:
    bounded("memory", files, tmp_path)


@pytest.mark.usefixtures("spark")
def test_as_a_batch(files: Files, tmp_path: Path) -> None:
    bounded("batch", files, tmp_path)


@pytest.mark.usefixtures("spark")
def test_a_stream_that_stops_and_resumes_from_a_savepoint(files: Files, runner: Runner, tmp_path: Path) -> None:
    held = graph(files, tmp_path)
    held = replace(
        held,
        nodes=tuple(
            replace(node, emit=replace(node.emit, at_end="hold")) if isinstance(node, WindowNode) else node
            for node in held.nodes
        ),
    )
    files.append(EVENTS[:HALF])
    runner.bounded(held, 200)
    sinks = open_sinks(held)
    folder = take_savepoint(held, sinks, runner.checkpoint, None, SparkOptions("local[*]"))
    sinks.close()
    files.append(EVENTS[HALF:])
    renamed = replace(
        held,
        nodes=tuple(
            replace(node, name="days")
            if node.name == "visits"
            else replace(node, input="days")
            if isinstance(node, SinkNode) and node.input == "visits"
            else node
            for node in held.nodes
        ),
    )
    other = Runner(tmp_path / "other")
    with pytest.raises(CheckpointError, match="streams cannot be added, removed or renamed"):
        other.bounded(renamed, 200, savepoint=folder)
    other.bounded(graph(files, tmp_path, key_groups=3), 200, savepoint=folder)
    assert tables(tmp_path) == alone(files, tmp_path / "alone")
