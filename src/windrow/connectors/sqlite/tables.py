"""Tables in an SQLite file."""

from __future__ import annotations

from windrow import model as m
from windrow.connectors.embedded.admin import EmbeddedDatabase
from windrow.connectors.embedded.tables import EmbeddedTables
from windrow.connectors.sqlite.file import BUSY_SECONDS, SqliteFile
from windrow.expressions import SinkSpec


class SqliteTables(EmbeddedTables):
    """The tables of pipelines in an SQLite file; another writer is waited for `busy` seconds."""

    def __init__(self, *specs: SinkSpec, busy: float = BUSY_SECONDS) -> None:
        super().__init__(_file(specs[0].sink, busy), *specs)


class SqliteDatabase(EmbeddedDatabase):
    """The SQLite file of a sink outside of a run."""

    def __init__(self, sink: m.SqliteSink) -> None:
        super().__init__(_file(sink, BUSY_SECONDS))


def _file(sink: object, busy: float) -> SqliteFile:
    if not isinstance(sink, m.SqliteSink):
        raise TypeError(sink)
    return SqliteFile(sink.path, sink.decimals, busy)
