"""The connector for Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import ClassVar

from windrow import model as m
from windrow.connectors import settings
from windrow.connectors.base import Connector, SinkConnector
from windrow.declare.arguments import field_names
from windrow.declare.spec import Section


@dataclass(frozen=True)
class ParquetSink(m.FolderSink):
    """Parquet files of changes in a folder, one subfolder per step: ``PATH/TABLE/epoch=N/changes.parquet``."""

    partition_by: tuple[str, ...] = ()
    lists: m.ListForm = "json"
    section: ClassVar[str] = "parquet"
    system: ClassVar[str] = "parquet"

    def companion(self, name: m.Companion) -> str:
        """Return the pattern of the companion files of a kind, such as the dead letters."""
        return f"{self.table}/*/*{name}.parquet"

    @property
    def reasons(self) -> str:
        """A description of where the reasons of dead letters are stored."""
        return f"the column `reason` of the files {self.path}/{self.companion('dead')}"


def parquet(
    path: str | PathLike[str], *, table: str, partition_by: Sequence[str] = (), lists: m.ListForm = "json"
) -> ParquetSink:
    """Write changes to Parquet files in a folder, one subfolder per step: ``PATH/TABLE/epoch=N/changes.parquet``.

    Late output, dead letters and clocks are written to ``_late.parquet``, ``_dead.parquet`` and ``_clocks.parquet``
    beside it, if a step has any; ``spark.read.parquet("PATH/TABLE")`` skips them. With ``partition_by=["day"]``, the
    changes are in ``epoch=N/day=VALUE/changes.parquet``. With ``lists="array"``, columns of lists are arrays instead of
    JSON text.
    """
    return ParquetSink(fspath(path), table, field_names(partition_by), lists)


_PARTITION_BY = settings.partition_key("the changes of a step are divided into folders.")
PARQUET = Connector(
    sink=SinkConnector(
        (ParquetSink,),
        Section(
            "wr.parquet",
            ParquetSink,
            (*settings.FOLDER_SINK_KEYS, _PARTITION_BY, settings.LISTS),
        ),
        lambda sink: (
            f"changes in the Parquet files {sink.table}/*{'/*' * len(sink.partition_by)}/changes.parquet in {sink.path}"
            f"{settings.partition_words(sink)}{settings.list_words(sink)}"
        ),
        "[Parquet files](../connectors/parquet.md) of changes, a folder for each step.",
        dataset=settings.folder_dataset,
        tables="windrow.connectors.parquet.sink:ParquetFolder",
        findings=settings.folder_sink_findings,
        called="a folder of Parquet files of changes",
    )
)
