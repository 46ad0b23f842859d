"""The sink's connections to PostgreSQL, and its errors as windrow's. No message holds a password."""

from __future__ import annotations

import os
import re

import psycopg
from psycopg import errors

from windrow.connectors.postgres.client import KEEPALIVES, Connection, Server, Translation, dataset
from windrow.connectors.tables import quote
from windrow.errors import SinkAddressError, SinkError, SinkUnavailableError

LOCK_WAIT = "10s"
"""How long a statement waits for another session's lock before it fails."""


_SETTINGS = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET client_encoding = 'UTF8'; "
    f"SET lock_timeout = '{LOCK_WAIT}'; " + "; ".join(f"SET tcp_{name} = {value}" for name, value in KEEPALIVES.items())
)


def server(url: str) -> Server:
    """Return the server of a sink's url."""
    return Server(url, "sink", SinkAddressError)


def connect(url: str) -> Connection:
    """Connect with autocommit, text in UTF-8 and times in UTC; raise SinkError if that is not possible.

    A connection that drops in silence is noticed at both ends: the server's has the table's lock.
    """
    return SINK_ERRORS.connect(server(url), _SETTINGS)


def schema_of(connection: Connection, place: str) -> str:
    """Return the schema that tables are created in: the first of the search path that exists."""
    row = connection.execute("SELECT current_schema()").fetchone()
    if row is None or row[0] is None:
        msg = f"{place}: no schema of this user's search_path exists: create one, or set search_path"
        raise SinkError(msg)
    return str(row[0])


def lock_table(connection: Connection, schema: str, table: str, seconds: float) -> bool:
    """Acquire the session's lock that a run holds on a table that it writes; return whether it was free in time.

    The server takes a moment to release the lock of a client that disconnected or was killed.
    """
    connection.execute("SELECT set_config('lock_timeout', $1, false)", (f"{round(seconds * 1000)}ms",))
    try:
        connection.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", (f"windrow {schema} {table}",))
    except errors.LockNotAvailable:
        return False
    connection.execute(f"SET lock_timeout = '{LOCK_WAIT}'")
    return True


def qualified(schema: str, table: str) -> str:
    """Write a table's name with its schema."""
    return f"{quote(schema)}.{quote(table)}"


_ADVICE: tuple[tuple[type[psycopg.Error], str], ...] = (
    (errors.InsufficientPrivilege, "a privilege is missing; grant it, then start again"),
    (errors.DiskFull, "the database's disk is full; make room, then start again"),
    (errors.OutOfMemory, "the database is out of memory; give it more, or take fewer records a step"),
    (errors.LockNotAvailable, "another session holds a lock; end that one, then start again"),
    (errors.QueryCanceled, "the statement was cancelled; raise statement_timeout for this user, or start again"),
    (errors.DeadlockDetected, "another session locked the same rows; nobody else may write windrow's tables"),
    (errors.SerializationFailure, "another session wrote the same rows; nobody else may write windrow's tables"),
    (errors.ReadOnlySqlTransaction, "the database takes no writes; connect to the primary"),
    (errors.TooManyConnections, "the database has no connection left; raise max_connections, or close some"),
    (errors.UndefinedTable, "a table was dropped while the pipeline ran; start over with --fresh"),
    (errors.UndefinedColumn, "a table was altered while the pipeline ran; restore it, or start over with --fresh"),
    (errors.DependentObjectsStillExist, "drop what depends on the table first, or choose another table"),
    (errors.IntegrityError, "a constraint refused a row; drop the constraint, or choose another table"),
    (
        errors.ProgramLimitExceeded,
        (
            "a value is too large for PostgreSQL, whose index has rows of at most 2,704 bytes. If it is a key: use a "
            "shorter one, as in `key: [{user_hash: md5(user)}]`, and start over with --fresh"
        ),
    ),
    (errors.AdminShutdown, "the database is going down; start again when it is back"),
    (psycopg.InterfaceError, "the connection was lost; start again"),
    (psycopg.OperationalError, "the connection was lost or the database is in trouble; start again"),
)
SINK_ERRORS = Translation(SinkError, SinkUnavailableError, _ADVICE, after="; what was committed before stays")
translated = SINK_ERRORS.translated
_SEARCH_PATH = re.compile(r'search_path\s*=\s*"?(\w+)')


def named_schema(url: str) -> str:
    """Return the first schema of the search path that a url sets, without asking the server."""
    options = str(server(url).parts.get("options") or os.environ.get("PGOPTIONS") or "")
    found = _SEARCH_PATH.search(options)
    return found[1] if found else "public"


def sink_dataset(url: str, table: str) -> tuple[str, str]:
    """Return the namespace and the name that OpenLineage has for a table of a sink."""
    return dataset(server(url), f"{named_schema(url)}.{table}")
