"""Connections to PostgreSQL, and its errors as windrow's. No message holds a password."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psycopg
from psycopg import conninfo, errors
from psycopg.abc import ConnDict

from windrow.errors import SinkAddressError, SinkError, SinkUnavailableError
from windrow.model.connectors import resolve_references
from windrow.sinks.tables import quote

CONNECT_SECONDS = 10
LOCK_WAIT = "10s"
"""How long a statement waits for another session's lock before it fails."""
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
_PASSING = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.ConnectionException,
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.LockNotAvailable,
    errors.TooManyConnections,
    errors.IdleInTransactionSessionTimeout,
    psycopg.InterfaceError,
)
_FULL = re.compile("too many|remaining connection slots")
# what no waiting mends
_REFUSED: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(said), advice)
    for said, advice in (
        ("authentication failed|no password", "check the user, and the password in PGPASSWORD or the url"),
        ('role ""', "create the user, or correct the url"),
        ("permission denied", "grant this user CONNECT on the database, or correct the url"),
        (
            "pg_hba.conf .*(?:no encryption|SSL off)",
            "set sslmode=verify-full, since the server takes TLS only, or let this user in without in its pg_hba.conf",
        ),
        ("pg_hba.conf", "let this user in from here in the server's pg_hba.conf, or correct the url"),
        ('database ""', "create the database, or correct the url"),
        ("does not support SSL", "set up TLS on the server, or correct sslmode"),
        ("does not match host name", "connect by a name that is in the server's certificate"),
        (
            "certificate verify failed",
            "name the server's authority in sslrootcert, and see that the certificate has not expired",
        ),
        ("root certificate", "name the file of the server's authority in sslrootcert"),
        ("certificate|private key|unknown ca", "check sslcert and sslkey"),
        ("sslmode|channel binding", "correct the url"),
    )
)
_NAME = re.compile('"[^"]*"')
_SEARCH_PATH = re.compile(r'search_path\s*=\s*"?(\w+)')
_HINT = re.compile(" Either provide the file.*? certificate verification[.]")


def address(url: str) -> str:
    """Return a url with what its references name; raise InputError if that is not there."""
    return resolve_references(url, "the sink's url", partial(urllib.parse.quote, safe=""))


def where(url: str) -> str:
    """Name the server and database of a url, without user and password; raise SinkAddressError if it is invalid."""
    host, port, database = server_of(url)
    return f"PostgreSQL at {host}:{port}/{database}"


def server_of(url: str) -> tuple[str, str, str]:
    """Return the host, port and database of a url; raise SinkAddressError if it is invalid."""
    parts = _parts(url)
    host = parts.get("host") or os.environ.get("PGHOST") or "localhost"
    port = parts.get("port") or os.environ.get("PGPORT") or "5432"
    database = parts.get("dbname") or os.environ.get("PGDATABASE") or parts.get("user") or ""
    return str(host), str(port), str(database)


def named_schema(url: str) -> str:
    """Return the first schema of the search path that a url sets, without asking the server."""
    options = str(_parts(url).get("options") or os.environ.get("PGOPTIONS") or "")
    found = _SEARCH_PATH.search(options)
    return found[1] if found else "public"


def _parts(url: str) -> ConnDict:
    try:
        return conninfo.conninfo_to_dict(address(url))
    except psycopg.ProgrammingError:
        # libpq's message repeats the url, password and all, so it must not be seen as a cause either.
        msg = (
            "the sink's url cannot be read: write postgresql://USER@HOST:PORT/DATABASE, and percent-encode odd letters"
        )
        raise SinkAddressError(msg) from None


def translate(error: psycopg.Error, place: str) -> SinkError:
    """Return the SinkError that says what happened there and what to do."""
    advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), "correct that, then start again")
    # without a state it was libpq that failed, which is to say the connection
    lost = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
    kind = SinkUnavailableError if lost or isinstance(error, _PASSING) else SinkError
    return kind(f"{place}: {_one_line(error)}: {advice}; what was committed before stays")


def translate_connect(error: psycopg.Error, place: str) -> SinkError:
    """Return the SinkError for a connection that could not be made."""
    text = _HINT.sub("", _one_line(error))  # libpq's: to go on without a check, among others
    said = _NAME.sub('""', text)  # a host or a database may be called anything
    problem = f"cannot connect to {place}: {text}"
    if _FULL.search(said):
        return SinkUnavailableError(f"{problem}: raise max_connections, or close some")
    advice = next((advice for pattern, advice in _REFUSED if pattern.search(said)), None)
    if advice is None:
        return SinkUnavailableError(f"{problem}: check that it runs, and the url of the sink")
    return SinkError(f"{problem}: {advice}")


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Raise SinkError for PostgreSQL's errors within."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, place) from error


def _one_line(error: psycopg.Error) -> str:
    primary = error.diag.message_primary
    return " ".join((primary or str(error) or type(error).__name__).split())
