"""A PostgreSQL database beside a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from windrow.model import PostgresSink
from windrow.sinks.base import Run
from windrow.sinks.database import Promoted, Replayed
from windrow.sinks.layout import EPOCHS, OWNERS, REPLAYS, create_table, table_names
from windrow.sinks.postgres.catalog import sql_types
from windrow.sinks.postgres.errors import translated, where
from windrow.sinks.postgres.promote import Promotion
from windrow.sinks.postgres.rows import PostgresSnapshot
from windrow.sinks.postgres.session import Connection, connect, qualified, schema_of
from windrow.sinks.quote import quote_all

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PostgresDatabase:
    """The first schema of the user's search path in a database. See `windrow.sinks.database.Database`."""

    def __init__(self, sink: PostgresSink) -> None:
        self._sink = sink

    @property
    def place(self) -> str:
        """Server and database, without user and password."""
        return where(self._sink.url)

    @contextmanager
    def snapshot(self) -> Iterator[PostgresSnapshot]:
        """Read what is there now."""
        with self._connected() as (connection, schema), connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield PostgresSnapshot(connection, schema)

    def note(self, replayed: Replayed) -> None:
        """Write down what is replayed into a table."""
        begins, ends = replayed.texts()
        since = None if replayed.since is None else _EPOCH + timedelta(microseconds=replayed.since)
        row = (replayed.table, replayed.run.pipeline, replayed.run.id, begins, ends, since, replayed.finished)
        with self._connected() as (connection, schema), connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('windrow', 0))")
            if not _exists(connection, schema, REPLAYS.name):
                connection.execute(create_table(REPLAYS, sql_types(REPLAYS)))
            updates = ", ".join(f"{name} = excluded.{name}" for name in REPLAYS.columns if name not in REPLAYS.key)
            connection.execute(
                f"INSERT INTO {qualified(schema, REPLAYS.name)} ({quote_all(REPLAYS.columns)}) "
                f"VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT ({quote_all(REPLAYS.key)}) DO UPDATE SET {updates}",
                row,
            )

    def replayed(self, table: str) -> Replayed | None:
        """Return what was replayed into a table by the run that it belongs to; None if it was no replay."""
        with self._connected() as (connection, schema):
            return _replayed(connection, schema, table)

    def stands(self, table: str) -> tuple[Run, int | None] | None:
        """Return whose a result table is and its last epoch; see `windrow.sinks.database.Database`."""
        with self._connected() as (connection, schema):
            if not all(_exists(connection, schema, one.name) for one in (OWNERS, EPOCHS)):
                return None
            owners, epochs = (qualified(schema, one.name) for one in (OWNERS, EPOCHS))
            row = connection.execute(
                f"SELECT pipeline, run, (SELECT max(epoch) FROM {epochs} AS e "
                f"WHERE e.pipeline = o.pipeline AND e.run = o.run) FROM {owners} AS o WHERE table_name = $1",
                (table,),
            ).fetchone()
        if row is None:
            return None
        pipeline, run, epoch = row
        return Run(str(pipeline), str(run)), None if epoch is None else int(str(epoch))

    def promote(self, pipeline: str, live: str, shadow: str) -> Promoted:
        """Put the shadow's tables in the place of the live ones; see `windrow.sinks.database.Database`."""
        with self._connected() as (connection, schema):
            names = (table_names(table) for table in (live, shadow))
            return Promotion(connection, schema, *names).run(pipeline, lambda: _replayed(connection, schema, shadow))

    @contextmanager
    def _connected(self) -> Iterator[tuple[Connection, str]]:
        with connect(self._sink.url) as connection, translated(self.place):
            yield connection, schema_of(connection, self.place)


def _exists(connection: Connection, schema: str, table: str) -> bool:
    row = connection.execute("SELECT to_regclass($1) IS NOT NULL", (qualified(schema, table),)).fetchone()
    return row is not None and bool(row[0])


def _replayed(connection: Connection, schema: str, table: str) -> Replayed | None:
    if not all(_exists(connection, schema, one.name) for one in (REPLAYS, OWNERS)):
        return None
    replays, owners = (qualified(schema, one.name) for one in (REPLAYS, OWNERS))
    row = connection.execute(
        f"SELECT pipeline, run, begins, ends, (extract(epoch FROM since) * 1000000)::bigint, finished "
        f"FROM {replays} JOIN {owners} USING (table_name, pipeline, run) WHERE table_name = $1",
        (table,),
    ).fetchone()
    if row is None:
        return None
    pipeline, run, begins, ends, since, finished = row
    return Replayed(
        table=table,
        run=Run(str(pipeline), str(run)),
        begin=None if begins is None else Replayed.offsets(str(begins)),
        end=Replayed.offsets(str(ends)),
        since=None if since is None else int(str(since)),
        finished=bool(finished),
    )
