"""The connector for SQLite files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from typing import Literal

from windrow import model as m
from windrow.connectors import settings
from windrow.connectors.base import Connector, SinkConnector
from windrow.declare.arguments import field_names
from windrow.declare.findings import Finding, error
from windrow.declare.spec import FLAG, Key, Section, choice


def _words(sink: m.SqliteSink) -> str:
    decimals = "" if sink.decimals == "numeric" else ", decimals as text"
    return f"table {sink.table} in the SQLite file {sink.path}{settings.key_words(sink)}{decimals}"


def sqlite(
    path: str | PathLike[str],
    *,
    table: str,
    key: Sequence[str] = (),
    decimals: Literal["numeric", "text"] = "numeric",
    changelog: bool = True,
) -> m.SqliteSink:
    """Write to tables of an SQLite file: `table`, its changelog, late output, dead letters and clocks.

    `key` is the table's primary key, by default the window and the pipeline's key. SQLite's NUMERIC keeps 15 digits of
    a decimal; ``decimals="text"`` keeps all digits. With ``changelog=False`` the table of changes stays empty.
    """
    return m.SqliteSink(fspath(path), table, field_names(key), decimals, changelog)


def _findings(sink: m.SqliteSink) -> Iterator[Finding]:
    yield from settings.file_findings(sink.path, "results.db")
    yield from settings.table_findings(sink.table)
    if sink.table.lower().startswith("sqlite_"):
        yield error("table", f"{sink.table!r}: SQLite reserves names that begin with sqlite_")


SQLITE = Connector(
    sink=SinkConnector(
        (m.SqliteSink,),
        Section(
            "wr.sqlite",
            m.SqliteSink,
            (
                settings.folder_key("the file; created if it does not exist."),
                settings.table_key(
                    "the result table, and the prefix of the other tables' names. At most 48 letters, digits and `_`, "
                    "not starting with a digit."
                ),
                settings.primary_key(
                    "the primary key of the result table, if it should differ from `window_start`, `window_end` and "
                    "the pipeline's key. It must contain `window_start` (of cumulate windows also `window_end`) and "
                    "the pipeline's key, and with `mode: discard` also `revision`."
                ),
                Key(
                    "decimals",
                    choice("numeric", "text"),
                    "SQLite's NUMERIC keeps 15 digits. A row with a decimal of more digits is a dead letter, so that "
                    "it is not rounded; `text` keeps all digits. Sums of longs are exact with either.",
                    default=m.SqliteSink.decimals,
                ),
                Key(
                    "changelog",
                    FLAG,
                    "whether `T_changes` is written. With `false` it stays empty, and the database grows half as "
                    "fast; the result table is the same. The setting can change between runs.",
                    default=m.SqliteSink.changelog,
                ),
            ),
        ),
        _words,
        "[tables in an SQLite file](../connectors/sqlite.md).",
        dataset=settings.file_dataset,
        tables="windrow.connectors.sqlite.tables:SqliteTables",
        findings=_findings,
        database="windrow.connectors.sqlite.tables:SqliteDatabase",
        row_bytes="windrow.connectors.row_bytes:sqlite",
    )
)
