"""PostgreSQL addresses, connections and errors, for sources and sinks. No message contains a password."""

from __future__ import annotations

import os
import re
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo, errors, sql
from psycopg.abc import ConnDict, PQGen

from windrow.connectors.tables import quote
from windrow.errors import InputError, RunError, SinkAddressError, SinkError, SinkUnavailableError
from windrow.model.references import redact, resolve_references

R = TypeVar("R")

KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
_TIMES = {**KEEPALIVES, "tcp_user_timeout": 60_000, "connect_timeout": 10}
"""Timeouts for a connection whose other end does not respond; the kernel's defaults are 15 minutes to two hours."""
_OF_HOSTS = {"target_session_attrs": "read-write"}
SILENCE = 50.0
"""Seconds that a statement may take before windrow checks whether the server still accepts connections."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose statements may take long, but do not wait for a server that has stopped answering.

    The kernel of a server acknowledges what it receives even if PostgreSQL, or a proxy in front of it, never answers,
    and no statement of windrow has a time limit. After each `SILENCE`, a second connection to the server is therefore
    tried. If that is not complete within ``connect_timeout``, this connection is closed.
    """

    address = ""
    """The url of the server, with its references resolved."""

    def wait(self, gen: PQGen[R], *args: Any, **options: Any) -> R:  # noqa: ANN401 - psycopg's options
        """Wait for a statement; raise OperationalError if the server does not answer."""
        return super().wait(self._checking(gen), *args, **options)

    def _checking(self, gen: PQGen[R]) -> PQGen[R]:
        due = time.monotonic() + SILENCE
        try:
            waits = next(gen)
            while True:
                ready = yield waits
                if time.monotonic() > due:
                    self.require_answer()
                    due = time.monotonic() + SILENCE
                waits = gen.send(ready)
        except StopIteration as ended:
            found: R = ended.value
            return found

    def require_answer(self) -> None:
        """Close the connection and raise OperationalError if its server does not accept another one."""
        try:
            psycopg.connect(conninfo.make_conninfo(self.address, host=self.info.host, port=self.info.port)).close()
        except errors.ConnectionTimeout as exc:
            self.close()
            msg = "the server does not answer, and accepts no new connection"
            raise psycopg.OperationalError(msg) from exc
        except psycopg.Error:
            pass  # that is an answer, such as that there are too many connections


@dataclass(frozen=True)
class Server:
    """The server and database of a `url`. Messages call the owner of the url `called`, such as "sink".

    `invalid` is the class of the error raised if the url cannot be parsed.
    """

    url: str
    called: str
    invalid: type[InputError] = InputError

    @property
    def address(self) -> str:
        """The url with its references resolved; raise InputError if a reference cannot be resolved."""
        return resolve_references(self.url, f"the {self.called}'s url", partial(urllib.parse.quote, safe=""))

    @property
    def parts(self) -> ConnDict:
        """The parts of the url, under libpq's names; raise `invalid` if the url cannot be parsed."""
        address = self.address
        try:
            parts = conninfo.conninfo_to_dict(address)
        except psycopg.ProgrammingError:
            # libpq's message repeats the url with its password, so it must not be a cause of the error either
            parts = None
        # libpq would take a part of a password with an @ or a slash for the host, the port or the database
        if parts is None or _STRAY.search(address) or not _PORTS.fullmatch(str(parts.get("port") or "")):
            msg = (
                f"the {self.called}'s url cannot be read: write postgresql://USER@HOST:PORT/DATABASE, and "
                "percent-encode odd letters (an @ is %40, a slash %2F)"
            )
            raise self.invalid(msg)
        return parts

    @property
    def secrets(self) -> set[str]:
        """Texts that no message may repeat: passwords, and a user name that contains one."""
        parts = self.parts
        found = {str(parts[name]) for name in ("password", "sslpassword") if parts.get(name)}
        user = str(parts.get("user") or "")
        return found | ({user} if ":" in user else set())

    @property
    def host_port_database(self) -> tuple[str, str, str]:
        """Host, port and database name. Parts missing in the url come from libpq's environment variables."""
        parts = self.parts
        host = parts.get("host") or os.environ.get("PGHOST") or "localhost"
        port = parts.get("port") or os.environ.get("PGPORT") or "5432"
        database = parts.get("dbname") or os.environ.get("PGDATABASE") or parts.get("user") or ""
        return str(host), str(port), str(database)

    @property
    def place(self) -> str:
        """The server and database, without user name and password, for messages."""
        host, port, database = self.host_port_database
        hosts, ports = host.split(","), port.split(",")
        servers = zip(hosts, ports if len(ports) == len(hosts) else ports * len(hosts), strict=False)
        return f"PostgreSQL at {','.join(':'.join(server) for server in servers)}/{database}"

    def connect(self, **options: Any) -> Connection:  # noqa: ANN401 - psycopg's options
        """Connect with autocommit; raise psycopg.Error if that fails.

        A connection that is lost without notice is detected within a minute, as is a server that accepts connections
        and never answers. Of several hosts, the first one that accepts writes is used. Parameters are written as
        ``$1``, so that a percent sign in a name has no special meaning.
        """
        given = self.parts
        defaults = _TIMES | (_OF_HOSTS if "," in self.host_port_database[0] else {})
        defaults = {name: value for name, value in defaults.items() if name not in given}
        address = conninfo.make_conninfo(self.address, **defaults)
        connection = Connection.connect(
            conninfo.make_conninfo(address, **options),
            autocommit=True,
            cursor_factory=psycopg.RawCursor,
            prepare_threshold=None,  # queries differ too much to keep their plans
            fallback_application_name="windrow",
        )
        connection.address = address
        return connection

    def not_connected(self, error: psycopg.Error) -> tuple[str, bool]:
        """Return the message for a failed connection, and whether the problem may be transient."""
        # libpq's hints suggest to continue without a check
        text = redact(_HINT.sub("", one_line(error)), self.secrets)
        said = _NAME.sub('""', text)  # a host or a database may be called anything
        problem = f"cannot connect to {self.place}: {text}"
        if _FULL.search(said):
            return f"{problem}: raise max_connections, or close some connections", True
        advice = next((advice for pattern, advice in _REFUSED if pattern.search(said)), None)
        if advice is None:
            return f"{problem}: check that it runs, and the url of the {self.called}", True
        return f"{problem}: {advice}", False


_STRAY = re.compile(r"\w+://(?:[^/@]*@[^?]*@|[^/?@]*/[^?]*@)")
"""An address with an ``@`` in its host or database name."""
_PORTS = re.compile("[0-9,]*")
_SESSION = "SELECT pg_backend_pid()"
_NO_LIMITS = (
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout', "
    "'idle_session_timeout', 'idle_in_transaction_session_timeout')"
)
"""Turns off time limits that a role or database may have: a step takes as long as it takes, and a run can be idle."""
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
    errors.IdleSessionTimeout,
    psycopg.InterfaceError,
)
_FULL = re.compile("too many|remaining connection slots")
# errors that waiting does not help
_REFUSED: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(said), advice)
    for said, advice in (
        ("authentication failed|no password", "check the user, and the password in PGPASSWORD or the url"),
        ('role ""', "create the user, or correct the url"),
        ("start (?:WAL sender|walsender)", "give this user the right to replicate: ALTER ROLE ... REPLICATION"),
        ("permission denied", "grant this user CONNECT on the database, or correct the url"),
        (
            "pg_hba.conf .*(?:no encryption|SSL off)",
            "set sslmode=verify-full, since the server accepts only TLS, or let this user in without it in pg_hba.conf",
        ),
        ("pg_hba.conf", "let this user in from here in the server's pg_hba.conf, or correct the url"),
        ('database ""', "create the database, or correct the url"),
        ("startup parameter", "connect to the server itself instead of a pooler"),
        ("does not support SSL", "set up TLS on the server, or correct sslmode"),
        ("does not match host name", "connect by a name that is in the server's certificate"),
        (
            "certificate verify failed",
            "name the server's authority in sslrootcert, and check that the certificate has not expired",
        ),
        ("root certificate", "name the file of the server's authority in sslrootcert"),
        ("certificate|private key|unknown ca", "check sslcert and sslkey"),
        ("sslmode|channel binding", "correct the url"),
    )
)
_NAME = re.compile('"[^"]*"')
_HINT = re.compile(" Either provide the file.*? certificate verification[.]")


def may_pass(error: psycopg.Error) -> bool:
    """Return True if an error may be transient: a lost connection, or a conflict with another session."""
    # an error without a state is libpq's: the connection failed
    lost = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
    return lost or isinstance(error, _PASSING)


_NOT_OF_ROW = (errors.InvalidBinaryRepresentation, errors.BadCopyFileFormat)
"""Errors of class 22 for a column whose type was changed: they do not depend on the row."""
_OF_ROW = (errors.CheckViolation, errors.NotNullViolation, errors.ProgramLimitExceeded)


def is_of_row(error: psycopg.Error) -> bool:
    """Return True if a row causes an error of a write by its values alone.

    The classes are those of https://www.postgresql.org/docs/current/errcodes-appendix.html.
    """
    is_of_data = (error.sqlstate or "").startswith("22") or type(error) is psycopg.DataError
    return (is_of_data and not isinstance(error, _NOT_OF_ROW)) or isinstance(error, _OF_ROW)


def one_line(error: psycopg.Error) -> str:
    """Return the message of a PostgreSQL error as a single line."""
    primary = error.diag.message_primary
    return " ".join((primary or str(error) or type(error).__name__).split())


@dataclass(frozen=True)
class Translation:
    """Converts PostgreSQL errors to `failed`, or to `unavailable` for errors that may be transient.

    `advice` pairs classes of errors with advice, and the first match is used. `after` is appended to each message.
    Errors of the classes in `passing` also count as transient.
    """

    failed: type[RunError]
    unavailable: type[RunError]
    advice: tuple[tuple[type[psycopg.Error], str], ...]
    after: str = ""
    passing: tuple[type[psycopg.Error], ...] = ()

    def translate(self, error: psycopg.Error, place: str) -> RunError:
        """Convert an error to a message that says what happened at `place` and what to do."""
        advice = next((text for kind, text in self.advice if isinstance(error, kind)), "correct that, then start again")
        kind = self.unavailable if may_pass(error) or isinstance(error, self.passing) else self.failed
        return kind(f"{place}: {one_line(error)}: {advice}{self.after}")

    def translate_connect(self, error: psycopg.Error, server: Server) -> RunError:
        """Convert the error of a failed connection."""
        problem, passes = server.not_connected(error)
        return self.unavailable(problem) if passes else self.failed(problem)

    @contextmanager
    def translate_errors(self, place: str) -> Iterator[None]:
        """Convert PostgreSQL errors raised in the block."""
        try:
            yield
        except psycopg.Error as error:
            raise self.translate(error, place) from error

    def connect(self, server: Server, settings: str, **options: str) -> Connection:
        """Connect with `Server.connect` and execute `settings`; convert the errors of both."""
        try:
            connection = server.connect(**options)
        except psycopg.Error as error:
            raise self.translate_connect(error, server) from error
        try:
            with self.translate_errors(server.place):
                self._refuse_pooled(connection, server, options)
                connection.execute(_NO_LIMITS)
                connection.execute(settings)
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse_pooled(self, connection: Connection, server: Server, options: Mapping[str, str]) -> None:
        """Raise an error if a pooler shares the server's sessions among clients.

        A pooler gives its clients process ids of its own. One that keeps a session for each client cannot give another
        connection the same session.
        """
        if "replication" in options or (own := first_value(connection, _SESSION)) == connection.info.backend_pid:
            return
        try:
            with closing(server.connect(**options)) as other, other.transaction():
                is_shared = first_value(other, _SESSION) == own or first_value(connection, _SESSION) != own
        except errors.ProtocolViolation:  # it does not even keep a session for a transaction
            is_shared = True
        if is_shared:
            msg = (
                f"{server.place} is a pooler that gives a session to other clients after each transaction, but windrow "
                "needs the locks and settings of its session: connect to the server itself, or to a pooler whose mode "
                "is session"
            )
            raise self.failed(msg)


def dataset(server: Server, table: str) -> tuple[str, str]:
    """Return the namespace and name of a table in OpenLineage; the first of several hosts names the server."""
    host, port, database = server.host_port_database
    return f"postgres://{host.partition(',')[0]}:{port.partition(',')[0] or '5432'}", f"{database}.{table}"


def source_dataset(url: str, table: str) -> tuple[str, str]:
    """Return the namespace and name in OpenLineage of a table that a run follows."""
    return dataset(Server(url, "source"), table if "." in table else f"public.{table}")


LOCK_WAIT = "10s"
"""Time for which a statement waits for another session's lock before it fails."""


_SINK_SETTINGS = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET client_encoding = 'UTF8'; "
    f"SET lock_timeout = '{LOCK_WAIT}'; " + "; ".join(f"SET tcp_{name} = {value}" for name, value in KEEPALIVES.items())
)


_PATH = "nullif(current_setting('search_path'), '')"


def server(url: str) -> Server:
    """Return the server of a sink's url."""
    return Server(url, "sink", SinkAddressError)


def connect(url: str, schema: str | None = None) -> Connection:
    """Connect with autocommit, UTF-8 text and UTC times; raise SinkError if that fails.

    Both ends detect a connection that is lost without notice, because the server's end holds the lock of the table. A
    `schema` becomes the first one in the search path.
    """
    path = ""
    if schema is not None:
        path = f"; SELECT set_config('search_path', concat_ws(', ', {sql.quote(quote(schema))}, {_PATH}), false)"
    return SINK_ERRORS.connect(server(url), _SINK_SETTINGS + path)


def first_value(connection: Connection, query: str, *values: object) -> Any:  # noqa: ANN401 - of any type
    """Return the first value in the first row of a query's result, or None if there is no row."""
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]


def lock_shared_tables(connection: Connection) -> None:
    """Keep other transactions from creating the tables shared by all pipelines until this transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('windrow', 0))")


def schema_of(connection: Connection, place: str, schema: str | None = None) -> str:
    """Return the schema of the tables: by default, the first existing schema in the search path.

    Raise SinkError if the schema does not exist or the user may not use it.
    """
    found = first_value(connection, "SELECT current_schema()")
    if schema is not None and found != schema:
        if first_value(connection, "SELECT 1 FROM pg_namespace WHERE nspname = $1", schema) is None:
            msg = f"{place} has no schema {schema!r}: CREATE SCHEMA {quote(schema)}, or correct the sink's schema"
        else:
            user = quote(first_value(connection, "SELECT current_user"))
            grant = f"GRANT USAGE ON SCHEMA {quote(schema)} TO {user}"
            msg = f"{place}: user {user} may not use the schema {schema!r}: {grant}"
        raise SinkError(msg)
    if found is None:
        msg = f"{place}: no schema of this user's search_path exists: create one, or set search_path"
        raise SinkError(msg)
    return str(found)


def lock_table(connection: Connection, schema: str, table: str, seconds: float) -> bool:
    """Acquire the session lock that a run holds on a table it writes; return False if that takes too long.

    The server takes a moment to release the lock of a client that has disconnected or was killed.
    """
    connection.execute("SELECT set_config('lock_timeout', $1, false)", (f"{round(seconds * 1000)}ms",))
    try:
        connection.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", (f"windrow {schema} {table}",))
    except errors.LockNotAvailable:
        return False
    connection.execute(f"SET lock_timeout = '{LOCK_WAIT}'")
    return True


def require_creatable(connection: Connection, schema: str, table: str) -> None:
    """Raise SinkError if this user may not create a table that is missing in a schema."""
    if first_value(connection, "SELECT has_schema_privilege($1, 'CREATE')", schema):
        return
    user = first_value(connection, "SELECT current_user")
    msg = (
        f"table {table!r} does not exist, and user {user!r} may not create it: GRANT CREATE ON SCHEMA {quote(schema)} "
        f"TO {quote(user)}, or have the statements of `windrow explain --ddl` executed"
    )
    raise SinkError(msg)


def qualified(schema: str, table: str) -> str:
    """Return a table's name in SQL, qualified with its schema."""
    return f"{quote(schema)}.{quote(table)}"


_SINK_ADVICE: tuple[tuple[type[psycopg.Error], str], ...] = (
    (errors.InsufficientPrivilege, "a privilege is missing; grant it, then start again"),
    (errors.DiskFull, "the database's disk is full; make room, then start again"),
    (errors.OutOfMemory, "the database is out of memory; give it more, or process fewer records per step"),
    (errors.LockNotAvailable, "another session holds a lock; end it, then start again"),
    (errors.QueryCanceled, "the statement was cancelled; raise statement_timeout for this user, or start again"),
    (errors.DeadlockDetected, "another session locked the same rows; no other program may write to windrow's tables"),
    (
        errors.SerializationFailure,
        "another session wrote the same rows; no other program may write to windrow's tables",
    ),
    (errors.ReadOnlySqlTransaction, "the database does not accept writes; connect to the primary"),
    (errors.TooManyConnections, "the database has no connections left; raise max_connections, or close some"),
    (errors.UndefinedTable, "a table was dropped while the pipeline ran; start over with --fresh"),
    (errors.UndefinedColumn, "a table was altered while the pipeline ran; restore it, or start over with --fresh"),
    (errors.DependentObjectsStillExist, "drop what depends on the table first, or choose another table"),
    (
        errors.UntranslatableCharacter,
        "the database's encoding lacks a character; use a database with the encoding UTF8",
    ),
    (errors.IntegrityError, "a constraint refused a row; drop the constraint, or choose another table"),
    (
        errors.ProgramLimitExceeded,
        (
            "a value is too large for PostgreSQL, whose index has rows of at most 2,704 bytes. If it is a key: use a "
            "shorter one, as in `key: [{user_hash: md5(user)}]`, and start over with --fresh"
        ),
    ),
    (errors.AdminShutdown, "the database is shutting down; start again when it is back"),
    (psycopg.InterfaceError, "the connection was lost; start again"),
    (psycopg.OperationalError, "the connection was lost or the database is in trouble; start again"),
)
SINK_ERRORS = Translation(SinkError, SinkUnavailableError, _SINK_ADVICE, after="; what was committed before stays")
translate_errors = SINK_ERRORS.translate_errors
_SEARCH_PATH = re.compile(r'search_path\s*=\s*"?(\w+)')


def named_schema(url: str) -> str:
    """Return the first schema in the search path set by a url, without asking the server."""
    options = str(server(url).parts.get("options") or os.environ.get("PGOPTIONS") or "")
    found = _SEARCH_PATH.search(options)
    return found[1] if found else "public"


def sink_dataset(url: str, schema: str | None, table: str) -> tuple[str, str]:
    """Return the namespace and name in OpenLineage of a sink's table."""
    return dataset(server(url), f"{schema or named_schema(url)}.{table}")
