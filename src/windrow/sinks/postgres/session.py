"""A connection as the sink needs it."""

from __future__ import annotations

import psycopg
from psycopg import conninfo

from windrow.errors import SinkError
from windrow.sinks.postgres.errors import address, translate_connect, where
from windrow.sinks.quote import quote

CONNECT_SECONDS = 10
LOCK_WAIT = "10s"
"""What a statement waits for another session's lock, before it fails and the run says so."""
_KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
_TIMES = {**_KEEPALIVES, "tcp_user_timeout": 60_000}
"""When a connection is given up whose other end is silent; the kernel's own times are from 15 minutes to two hours."""

Connection = psycopg.Connection[tuple[object, ...]]


def connect(url: str) -> Connection:
    """Connect with autocommit, text in UTF-8 and times in UTC; raise SinkError if that is not possible.

    A connection that drops in silence is noticed within a minute, at both ends: the server's has the table's lock.
    Its cursors take ``$1`` for parameters, so that a percent sign in a name means nothing.
    """
    place = where(url)
    try:
        connection = psycopg.connect(
            _patient(address(url)),
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            cursor_factory=psycopg.RawCursor,
            prepare_threshold=None,  # a step's size changes too much for a plan to be kept
            fallback_application_name="windrow",
        )
    except psycopg.Error as error:
        raise translate_connect(error, place) from error
    try:
        connection.execute(
            "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET client_encoding = 'UTF8'; "
            f"SET lock_timeout = '{LOCK_WAIT}'; "
            + "; ".join(f"SET tcp_{name} = {value}" for name, value in _KEEPALIVES.items())
        )
    except BaseException:
        connection.close()
        raise
    return connection


def _patient(url: str) -> str:
    """Return a url with the times that it does not set."""
    given = conninfo.conninfo_to_dict(url)
    return conninfo.make_conninfo(url, **{name: value for name, value in _TIMES.items() if name not in given})


def schema_of(connection: Connection, place: str) -> str:
    """Return the schema that tables are created in: the first of the search path that exists."""
    row = connection.execute("SELECT current_schema()").fetchone()
    if row is None or row[0] is None:
        msg = f"{place}: no schema of this user's search_path exists: create one, or set search_path"
        raise SinkError(msg)
    return str(row[0])


def qualified(schema: str, table: str) -> str:
    """Write a table's name with its schema."""
    return f"{quote(schema)}.{quote(table)}"
