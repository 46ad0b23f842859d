"""A pipeline in a file, with the log and the tables that it names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.contracts.stores import Store
from tests.faults.windrow_process import WindrowProcess

from windrow.api.load import open_pipeline
from windrow.api.printing import to_yaml
from windrow.model import Pipeline


@dataclass
class Job:
    """A pipeline file in a folder, run with one checkpoint."""

    folder: Path
    pipeline: Pipeline
    store: Store

    def __post_init__(self) -> None:
        file = self.folder / "pipeline.yaml"
        file.write_text(to_yaml(self.pipeline), encoding="utf-8")
        assert open_pipeline(str(file)).valid() == self.pipeline

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def start(self, *options: str, **environment: str) -> WindrowProcess:
        """Start `windrow run`."""
        arguments = ("run", "pipeline.yaml", "--checkpoint", "checkpoint", *options)
        return WindrowProcess(arguments, self.folder, **environment)

    def committed(self) -> int:
        """How many steps are in the tables."""
        if self.pipeline.sink.table not in self._tables():
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
        source = "pg_tables" if "Postgres" in type(self.pipeline.sink).__name__ else "sqlite_master"
        name = "tablename" if source == "pg_tables" else "name"
        return {row[0] for row in self.store.query(f"SELECT {name} FROM {source}")}
