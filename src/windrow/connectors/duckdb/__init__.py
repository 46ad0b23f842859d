"""Tables in a DuckDB file."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.connectors.duckdb.file import BUSY_SECONDS, DuckDBFile
from windrow.connectors.embedded.admin import EmbeddedDatabase
from windrow.connectors.embedded.tables import EmbeddedTables
from windrow.expressions import View
from windrow.model import DuckDBSink

__all__ = ["DuckDBDatabase", "DuckDBTables"]


class DuckDBTables(EmbeddedTables):
    """The tables of pipelines in a DuckDB file; whoever else holds it is waited for `busy` seconds."""

    def __init__(self, *pipelines: View, busy: float = BUSY_SECONDS, streams: Sequence[str] = ()) -> None:
        super().__init__(DuckDBFile(pipelines[0].sink.place, busy), *pipelines, streams=streams)


class DuckDBDatabase(EmbeddedDatabase):
    """The DuckDB file of a sink outside of a run."""

    def __init__(self, sink: DuckDBSink) -> None:
        super().__init__(DuckDBFile(sink.path))
