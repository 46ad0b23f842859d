"""Sinks: the tables that a run writes, one package for each database."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from windrow.errors import InputError, WindrowError
from windrow.expressions import sink_specs
from windrow.model import DeltaSink, DuckDBSink, KafkaSink, ParquetSink, PostgresSink, SqliteSink, database_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.connectors.database import Database, Promoted
    from windrow.connectors.sink import Sink, SinkGroup
    from windrow.expressions import SinkSpec
    from windrow.model import Graph
    from windrow.model import Sink as SinkModel


_NO_TABLE = "which this command cannot look into; it takes pipelines that write to a table"


def open_sinks(graph: Graph) -> SinkGroup:
    """Return the sinks of a graph, not yet connected: one for all tables in the same database.

    Raise PipelineError if tables cannot be laid out in their database.
    """
    from windrow.connectors.sink import SinkGroup  # noqa: PLC0415 - Arrow loads only where a pipeline runs

    databases: dict[SinkModel, dict[str, SinkSpec]] = {}
    for name, spec in sink_specs(graph).items():
        databases.setdefault(database_of(spec.sink), {})[name] = spec
    return SinkGroup(*((list(specs), _open(*specs.values())) for specs in databases.values()))


def _open(*specs: SinkSpec) -> Sink:
    match specs[0].sink:
        case SqliteSink():
            from windrow.connectors.sqlite import SqliteTables  # noqa: PLC0415 - Arrow loads only where a pipeline runs

            return SqliteTables(*specs)
        case DuckDBSink():
            from windrow.connectors.duckdb import DuckDBTables  # noqa: PLC0415 - the same, and DuckDB

            return DuckDBTables(*specs)
        case PostgresSink():
            from windrow.connectors.postgres import PostgresTables  # noqa: PLC0415 - the same, and psycopg

            return PostgresTables(*specs)
        case DeltaSink():
            from windrow.connectors.delta import DeltaTables  # noqa: PLC0415 - the same, and deltalake

            return DeltaTables(*specs)
        case ParquetSink():
            from windrow.connectors.parquet import ParquetFolder  # noqa: PLC0415 - as above

            return ParquetFolder(*specs)
        case KafkaSink():
            from windrow.connectors.kafka.sink import KafkaTopics  # noqa: PLC0415 - the same, and librdkafka

            return KafkaTopics(*specs)
        case _:
            assert_never(specs[0].sink)


def promote(graph: Graph, shadows: Mapping[str, str]) -> dict[str, Promoted]:
    """Put the shadow of each live table of a pipeline in its place, those in one database at once.

    If one database refuses, what was promoted in others is taken back. Raises the errors of `Database.promote`.
    """
    databases: dict[SinkModel, list[tuple[str, str]]] = {}
    for node in graph.sinks:
        place = database_of(node.sink)
        databases.setdefault(place, []).append((node.sink.table, shadows[node.sink.table]))
    promoted: dict[str, Promoted] = {}
    done: list[SinkModel] = []
    try:
        for place, tables in databases.items():
            found = open_database(place).promote(graph.name, tables)
            done.append(place)
            promoted |= {live: one for (live, _), one in zip(tables, found, strict=True)}
    except WindrowError:
        for place in done:
            open_database(place).promote(graph.name, databases[place])
        raise
    return promoted


def open_database(sink: SinkModel) -> Database:
    """Return the database of a sink, not yet connected."""
    match sink:
        case SqliteSink():
            from windrow.connectors.sqlite import SqliteDatabase  # noqa: PLC0415 - as above

            return SqliteDatabase(sink)
        case DuckDBSink():
            from windrow.connectors.duckdb import DuckDBDatabase  # noqa: PLC0415 - as above

            return DuckDBDatabase(sink)
        case PostgresSink():
            from windrow.connectors.postgres.admin import PostgresDatabase  # noqa: PLC0415 - as above

            return PostgresDatabase(sink)
        case DeltaSink():
            from windrow.connectors.delta.admin import DeltaDatabase  # noqa: PLC0415 - as above

            return DeltaDatabase(sink)
        case KafkaSink():
            msg = f"the sink is a Kafka topic, {_NO_TABLE}"
            raise InputError(msg)
        case ParquetSink():
            msg = f"the sink is a folder of Parquet files of changes, {_NO_TABLE}"
            raise InputError(msg)
        case _:
            assert_never(sink)
