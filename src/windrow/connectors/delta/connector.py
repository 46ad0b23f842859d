"""The connector for Delta tables."""

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
class DeltaSink(m.TableSink):
    """Delta tables in a folder. Each table is a subfolder of the same name."""

    path: str
    table: str
    key: tuple[str, ...] = ()
    changelog: bool = True
    partition_by: tuple[str, ...] = ()
    lists: m.ListForm = "json"
    section: ClassVar[str] = "delta"
    system: ClassVar[str] = "delta"
    is_one_transaction: ClassVar[bool] = False

    @property
    def place(self) -> str:
        """The folder that contains the tables."""
        return self.path

    @property
    def database(self) -> DeltaSink:
        """The folder, without the settings of a single table."""
        return DeltaSink(self.path, "")


def delta(
    path: str | PathLike[str],
    *,
    table: str,
    key: Sequence[str] = (),
    changelog: bool = True,
    partition_by: Sequence[str] = (),
    lists: m.ListForm = "json",
) -> DeltaSink:
    """Write to Delta tables in a folder, merging rows by `key`.

    For the other arguments, see `sqlite`. The table and its changelog are partitioned by the columns `partition_by`.
    With ``lists="array"``, columns of lists are arrays instead of JSON text. Needs ``pip install 'windrow[delta]'``.
    """
    return DeltaSink(fspath(path), table, field_names(key), changelog, field_names(partition_by), lists)


DELTA = Connector(
    sink=SinkConnector(
        (DeltaSink,),
        Section(
            "wr.delta",
            DeltaSink,
            (
                settings.folder_key(),
                settings.table_key(
                    "as for [SQLite](../connectors/sqlite.md). Each table is a folder with its name in `path`."
                ),
                settings.primary_key(
                    "the columns by which rows are merged; otherwise as for [SQLite](../connectors/sqlite.md)."
                ),
                settings.CHANGELOG,
                settings.partition_key("the result table and `T_changes` are partitioned."),
                settings.LISTS,
            ),
        ),
        lambda sink: (
            f"the Delta table {sink.table} in {sink.path}{settings.key_words(sink)}{settings.partition_words(sink)}"
            f"{settings.list_words(sink)}"
        ),
        "[Delta tables](../connectors/delta.md) in a folder.",
        dataset=settings.folder_dataset,
        tables="windrow.connectors.delta.sink:DeltaTables",
        findings=settings.folder_sink_findings,
        database="windrow.connectors.delta.admin:DeltaDatabase",
        called="a sink of Delta tables",
        extra="delta",
    )
)
