"""Pipelines in files, with the logs and the tables that they name, and what is right in the tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.contracts.stores import PostgresStore, SqliteStore, Store
from tests.faults.windrow_process import WindrowProcess
from tests.graphs import Runnable, as_graph
from tests.runtime.answers import assert_epochs, assert_same
from tests.runtime.spend import Value
from tests.runtime.two_logs import Case, Logs
from tests.short_forms import Pipeline

from windrow.authoring.load import open_pipeline
from windrow.authoring.printing import to_yaml


class Job(ABC):
    """A pipeline file in a folder, run with one checkpoint; `changelogs` are tables that have one."""

    changelogs: tuple[str, ...]

    def __init__(self, folder: Path, pipeline: Runnable, store: Store) -> None:
        self.folder, self.pipeline, self.store = folder, pipeline, store
        file = folder / "pipeline.yaml"
        file.write_text(to_yaml(as_graph(pipeline)), encoding="utf-8")
        assert open_pipeline(str(file)).runnable() == as_graph(pipeline)

    @abstractmethod
    def assert_right(self) -> None:
        """Hold the tables, and the steps in them, to what they should be for all that is in the log."""

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def start(self, *options: str, **environment: str) -> WindrowProcess:
        """Start `windrow run`."""
        arguments = ("run", "pipeline.yaml", "--checkpoint", "checkpoint", *options)
        return WindrowProcess(arguments, self.folder, **environment)

    def committed(self) -> int:
        """How many steps are in the tables."""
        if self.changelogs[0] not in self._tables():
            return 0
        [(count,)] = self.store.query("SELECT count(*) FROM windrow_epochs")
        return int(count)

    def known(self, log: str) -> int:
        """How many steps are in one of Spark's logs, `offsets` or `commits`."""
        folder = self.checkpoint / "spark" / log
        return sum(path.name.isdigit() for path in folder.iterdir()) if folder.is_dir() else 0

    def states(self) -> int:
        """How many files of state Spark has written."""
        return sum(path.is_file() for path in (self.checkpoint / "spark" / "state").rglob("[!.]*.*"))

    def _tables(self) -> set[str]:
        source = "pg_tables" if isinstance(self.store, PostgresStore) else "sqlite_master"
        name = "tablename" if source == "pg_tables" else "name"
        return {row[0] for row in self.store.query(f"SELECT {name} FROM {source}")}


class PipelineJob(Job):
    """A pipeline over one log: the oracle says what is right."""

    def __init__(self, folder: Path, pipeline: Pipeline, store: Store) -> None:
        super().__init__(folder, pipeline, store)
        self._plain = pipeline
        self.changelogs = (pipeline.sink.table,)

    def assert_right(self) -> None:
        """Hold the tables to the oracle."""
        found = assert_same(self.store, self._plain)
        assert found.on_time
        assert found.late
        assert found.dead
        assert_epochs(self.store)


class GraphJob(Job):
    """A graph over two logs: right is what the memory host gives in one step, which other tests hold to the oracle."""

    def __init__(self, folder: Path, case: Case, logs: Logs, at_end: Literal["fire", "hold"]) -> None:
        store = SqliteStore(folder)
        store.path = folder / "graph.db"
        super().__init__(folder, case.graph(logs, folder).ending(at_end), store)
        self.changelogs = case.changelogs
        self._case, self._logs, self._at_end = case, logs, at_end

    def assert_right(self) -> None:
        """Hold tables and changelogs to those of a run that nothing disturbs."""
        right = self._case.run("memory", self._logs, self.folder / "whole", 1_000_000, self._at_end)
        found = self._case.read(self.folder)
        for name, rows in right.items():
            assert found[name] == rows, name
        assert all(right[name] for name in (*self._case.tables, *self._case.filled))
        assert_epochs(self.store)


@dataclass
class TwoLogs:
    """Two logs that are written as one: each fourth record is in the second."""

    logs: Logs
    _written: int = field(default=0, init=False)

    def append(self, values: Iterable[Value]) -> None:
        """Append values to their partitions, in their order."""
        for partition, value in values:
            second = self._written % 4 == 3
            self.logs[second].append([(partition % 2 if second else partition, value)])
            self._written += 1
