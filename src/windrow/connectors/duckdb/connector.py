"""The connector for DuckDB files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import ClassVar

from windrow import model as m
from windrow.connectors import settings
from windrow.connectors.base import Connector, SinkConnector
from windrow.declare.arguments import field_names
from windrow.declare.findings import Finding
from windrow.declare.spec import Section


@dataclass(frozen=True)
class DuckDBSink(m.TableSink):
    """Tables in a DuckDB file."""

    path: str
    table: str
    key: tuple[str, ...] = ()
    changelog: bool = True
    lists: m.ListForm = "json"
    section: ClassVar[str] = "duckdb"
    system: ClassVar[str] = "duckdb"

    @property
    def place(self) -> str:
        """The path of the file."""
        return self.path

    @property
    def database(self) -> DuckDBSink:
        """The file, without the settings of a single table."""
        return DuckDBSink(self.path, "")


def duckdb(
    path: str | PathLike[str],
    *,
    table: str,
    key: Sequence[str] = (),
    changelog: bool = True,
    lists: m.ListForm = "json",
) -> DuckDBSink:
    """Write to tables of a DuckDB file, in which `key` identifies a row.

    For the other arguments, see `sqlite`. With ``lists="array"``, columns of lists are of type LIST instead of JSON
    text.
    """
    return DuckDBSink(fspath(path), table, field_names(key), changelog, lists)


def _findings(sink: DuckDBSink) -> Iterator[Finding]:
    yield from settings.file_findings(sink.path, "results.duckdb")
    yield from settings.table_findings(sink.table)


DUCKDB = Connector(
    sink=SinkConnector(
        (DuckDBSink,),
        Section(
            "wr.duckdb",
            DuckDBSink,
            (
                settings.folder_key("the file; created if it does not exist."),
                settings.table_key(),
                settings.primary_key(
                    "the columns by which rows are replaced; otherwise as for [SQLite](../connectors/sqlite.md)."
                ),
                settings.CHANGELOG,
                settings.LISTS,
            ),
        ),
        lambda sink: (
            f"table {sink.table} in the DuckDB file {sink.path}{settings.key_words(sink)}{settings.list_words(sink)}"
        ),
        "[tables in a DuckDB file](../connectors/duckdb.md).",
        dataset=settings.file_dataset,
        tables="windrow.connectors.duckdb.tables:DuckDBTables",
        findings=_findings,
        database="windrow.connectors.duckdb.tables:DuckDBDatabase",
    )
)
