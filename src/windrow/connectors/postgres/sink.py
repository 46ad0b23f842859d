"""The PostgreSQL sink. Each step is one transaction, written with binary COPY."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg

from windrow import model as m
from windrow.connectors.kafka.rows import KafkaRecords
from windrow.connectors.postgres import client
from windrow.connectors.postgres.client import Connection
from windrow.connectors.postgres.session import (
    PostgresSession,
    check_names,
    grant_statements,
    sql_types,
    table_statements,
)
from windrow.connectors.sql.session import SqlServer
from windrow.connectors.sql.tables import SqlTables
from windrow.connectors.tables import RELAYS, SHARED, Layout, create_table, layout, quote
from windrow.errors import InputError, SinkUnavailableError
from windrow.expressions import SinkSpec
from windrow.model.references import mask_url

LOCK_SECONDS = 15.0


class PostgresServer(SqlServer):
    """A schema of a database, by default the first in the user's search path, open from `opening` to `close`.

    While it is open, session-level advisory locks on the result tables keep other runs out. `opening` waits at most
    `lock_seconds` for these locks, since the server takes a moment to notice that a client was killed. The url must
    therefore lead to the server itself or to a pooler that keeps sessions.
    """

    system = "PostgreSQL"
    error = psycopg.Error

    def __init__(
        self,
        url: str,
        schema: str | None,
        outboxes: Mapping[str, KafkaRecords] | None = None,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self._url = url
        self._schema = schema
        self._outboxes = outboxes
        self._lock_seconds = lock_seconds
        self._session: PostgresSession | None = None
        self._results: Sequence[str] = ()
        self._was_opened = False

    @property
    def place(self) -> str:
        """The server and database, without user name and password, for messages."""
        return client.server(self._url).place

    @contextmanager
    def opening(self, tables: Sequence[str]) -> Iterator[PostgresSession]:
        connection = client.connect(self._url, self._schema)
        try:
            with client.translate_errors(self.place):
                schema = client.schema_of(connection, self.place, self._schema)
                # in the order of their names, or two runs could wait for each other
                for table in sorted(tables):
                    self._lock(connection, schema, table)
                session = PostgresSession(connection, schema, tables, self._outboxes)
                with connection.transaction():
                    client.lock_shared_tables(connection)
                    yield session
        except BaseException:
            connection.close()
            raise
        self._session, self._results = session, tables
        self._was_opened = True

    def _lock(self, connection: Connection, schema: str, table: str) -> None:
        if not client.lock_table(connection, schema, table, self._lock_seconds):
            msg = f"a run that writes table {table!r} is still running: end it, or choose another table"
            raise SinkUnavailableError(msg)

    @contextmanager
    def writing(self) -> Iterator[PostgresSession]:
        # the same connection to the end, even if the sink is opened again meanwhile
        session = self._session
        if session is None and self._was_opened:
            msg = "the sink was closed while a step was being written"
            raise SinkUnavailableError(msg)
        if session is None:
            with self.connected() as new, new.connection.transaction():
                client.lock_shared_tables(new.connection)
                yield new
        else:
            with client.translate_errors(self.place), session.connection.transaction():
                yield session

    @contextmanager
    def writing_anew(self) -> Iterator[PostgresSession]:
        with self._connected() as (connection, schema), connection.transaction():
            yield PostgresSession(connection, schema, self._results, self._outboxes)

    def refusal(self, error: Exception) -> str | None:
        return client.one_line(error) if isinstance(error, psycopg.Error) and client.is_of_row(error) else None

    @contextmanager
    def reading(self) -> Iterator[PostgresSession]:
        with self.connected() as session, session.connection.transaction():
            session.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield session

    @contextmanager
    def connected(self) -> Iterator[PostgresSession]:
        """Open a connection for the block, without a transaction."""
        with self._connected() as (connection, schema):
            yield PostgresSession(connection, schema)

    @contextmanager
    def _connected(self) -> Iterator[tuple[Connection, str]]:
        with client.connect(self._url, self._schema) as connection, client.translate_errors(self.place):
            yield connection, client.schema_of(connection, self.place, self._schema)

    def close(self) -> None:
        """Disconnect and thereby release the locks."""
        if self._session is not None:
            self._session.connection.close()
        self._session = None

    def refuse_names(self, layout: Layout) -> None:
        check_names(layout)


class PostgresTables(SqlTables):
    """Result tables and their companions in a PostgreSQL database; see `PostgresServer`."""

    def __init__(self, *specs: SinkSpec, lock_seconds: float = LOCK_SECONDS) -> None:
        sinks = [spec.sink for spec in specs if isinstance(spec.sink, m.PostgresSink)]
        outboxes = {sink.table: KafkaRecords(spec) for spec, sink in zip(specs, sinks, strict=True) if sink.outbox}
        url = client.server(sinks[0].url).address
        super().__init__(PostgresServer(url, sinks[0].schema, outboxes, lock_seconds), *specs)


def create_statements(specs: Sequence[SinkSpec]) -> list[str]:
    """Return lines of SQL that create the tables of sinks in one schema, and grant what the run's role needs.

    The role is the user of the url. If the url has none, the grants are comments.
    """
    sinks = [spec.sink for spec in specs if isinstance(spec.sink, m.PostgresSink)]
    url, schema, layouts = sinks[0].url, sinks[0].schema, [layout(spec) for spec in specs]
    user = _user_of(url)
    role = "..." if user is None else quote(user)
    made = [] if schema is None else [f"SET search_path = {quote(schema)}"]
    for table in (*SHARED, *([RELAYS] if any(each.outbox for each in layouts) else [])):
        statement = create_table(table, sql_types(table))
        made.append(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
    for each in layouts:
        check_names(each)
        made += [line for table in each.all if table not in SHARED for line in table_statements(table)]
    grants = [] if schema is None else [f"GRANT USAGE ON SCHEMA {quote(schema)} TO {role}"]
    grants += dict.fromkeys(grant for each in layouts for grant in grant_statements(each, role))
    begin = "-- " if user is None else ""
    return [f"-- {mask_url(url)}", *(f"{line};" for line in made), *(f"{begin}{grant};" for grant in grants)]


def _user_of(url: str) -> str | None:
    """Return the user in a url, or None if the url has no user or names it in a variable that is not set."""
    try:
        user = client.server(url).parts.get("user")
    except InputError:
        return None
    return None if user is None else str(user)
