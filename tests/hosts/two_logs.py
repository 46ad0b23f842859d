"""Two logs that a graph is over, and what is in its tables afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.hosts.spend import Files, Log

from windrow.hosts.launch import HostName, Options, launch
from windrow.model import Graph

Logs = tuple[Log, Log]


def open_logs(folder: Path) -> Logs:
    """Return empty logs of three and of two partitions."""
    return Files(folder / "bought", 3), Files(folder / "returned", 2)


def fill(logs: Logs, values: tuple[Sequence[Any], Sequence[Any]], *parts: slice) -> None:
    """Append parts of the values to both logs, or all of them."""
    for part in parts or (slice(None),):
        for log, own in zip(logs, values, strict=True):
            log.append(own[part])


def run(host: HostName, graph: Graph, folder: Path, max_records: int) -> None:
    """Run a graph to the end of its logs, with a checkpoint in the folder."""
    options = Options(folder / "checkpoint", host, until_end=True, max_records=max_records)
    launch(graph, options, lambda _: None, lambda _: None)


def query(folder: Path, sql: str) -> list[Any]:
    """Return the sorted rows of a query over the tables in a folder."""
    with closing(sqlite3.connect(folder / "graph.db")) as db:
        return sorted(db.execute(sql).fetchall(), key=repr)


def read_tables(folder: Path, tables: Iterable[str], changelogs: Iterable[str]) -> dict[str, list[Any]]:
    """Return the rows of tables, with what is late and dead; of changelogs without the numbers of steps and of rows."""
    names = [name for table in tables for name in (table, f"{table}_late", f"{table}_dead")]
    found = {name: query(folder, f'SELECT * FROM "{name}"') for name in names}
    for name in changelogs:
        found[f"{name}_changes"] = sorted((row[2:] for row in query(folder, f"SELECT * FROM {name}_changes")), key=repr)
    return found
