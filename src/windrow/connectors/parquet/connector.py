"""The connector for Parquet files."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from typing import ClassVar

from windrow import model as m
from windrow.connectors import settings
from windrow.connectors.base import Connector, SinkConnector
from windrow.declare.spec import Section


@dataclass(frozen=True)
class ParquetSink(m.FolderSink):
    """Parquet files of changes in a folder, one subfolder per step: ``PATH/TABLE/epoch=N/changes.parquet``."""

    section: ClassVar[str] = "parquet"
    system: ClassVar[str] = "parquet"

    def companion(self, name: m.Companion) -> str:
        """Return the pattern of the companion files of a kind, such as the dead letters."""
        return f"{self.table}/*/*{name}.parquet"

    @property
    def reasons(self) -> str:
        """A description of where the reasons of dead letters are stored."""
        return f"the column `reason` of the files {self.path}/{self.companion('dead')}"


def parquet(path: str | PathLike[str], *, table: str) -> ParquetSink:
    """Write changes to Parquet files in a folder, one subfolder per step: ``PATH/TABLE/epoch=N/changes.parquet``.

    Late output, dead letters and clocks are written to ``_late.parquet``, ``_dead.parquet`` and ``_clocks.parquet``
    beside it, if a step has any; ``spark.read.parquet("PATH/TABLE")`` skips them.
    """
    return ParquetSink(fspath(path), table)


PARQUET = Connector(
    sink=SinkConnector(
        (ParquetSink,),
        Section("wr.parquet", ParquetSink, settings.FOLDER_SINK_KEYS),
        lambda sink: f"changes in the Parquet files {sink.table}/*/changes.parquet in {sink.path}",
        "[Parquet files](../connectors/parquet.md) of changes, a folder for each step.",
        dataset=settings.folder_dataset,
        tables="windrow.connectors.parquet.sink:ParquetFolder",
        findings=settings.folder_sink_findings,
        called="a folder of Parquet files of changes",
    )
)
