"""Sinks: the tables that a run writes, one package for each database."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from windrow.model import PostgresSink, SqliteSink

if TYPE_CHECKING:
    from windrow.model import AnyPipeline
    from windrow.model import Sink as SinkModel
    from windrow.sinks.base import Sink
    from windrow.sinks.database import Database


def open_sink(pipeline: AnyPipeline) -> Sink:
    """Return the sink that the pipeline names, not yet connected.

    Raise PipelineError if its tables cannot be laid out in that database.
    """
    match pipeline.sink:
        case SqliteSink():
            from windrow.sinks.sqlite import SqliteTable  # noqa: PLC0415 - Arrow loads only where a pipeline runs

            return SqliteTable(pipeline, pipeline.sink)
        case PostgresSink():
            from windrow.sinks.postgres import PostgresTable  # noqa: PLC0415 - the same, and psycopg

            return PostgresTable(pipeline, pipeline.sink)
        case _:
            assert_never(pipeline.sink)


def open_database(sink: SinkModel) -> Database:
    """Return the database of a sink, not yet connected."""
    match sink:
        case SqliteSink():
            from windrow.sinks.sqlite.admin import SqliteDatabase  # noqa: PLC0415 - as above

            return SqliteDatabase(sink)
        case PostgresSink():
            from windrow.sinks.postgres.admin import PostgresDatabase  # noqa: PLC0415 - as above

            return PostgresDatabase(sink)
        case _:
            assert_never(sink)
