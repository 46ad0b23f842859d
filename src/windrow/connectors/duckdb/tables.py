"""Tables in a DuckDB file."""

from __future__ import annotations

from windrow.connectors.duckdb.connector import DuckDBSink
from windrow.connectors.duckdb.file import BUSY_SECONDS, DuckDBFile
from windrow.connectors.embedded.admin import EmbeddedDatabase
from windrow.connectors.embedded.tables import EmbeddedTables
from windrow.expressions import SinkSpec


class DuckDBTables(EmbeddedTables):
    """The tables of pipelines in a DuckDB file; whoever else holds it is waited for `busy` seconds."""

    def __init__(self, *specs: SinkSpec, busy: float = BUSY_SECONDS) -> None:
        super().__init__(DuckDBFile(specs[0].sink.place, busy), *specs)


class DuckDBDatabase(EmbeddedDatabase):
    """The DuckDB file of a sink outside of a run."""

    def __init__(self, sink: DuckDBSink) -> None:
        super().__init__(DuckDBFile(sink.path))
