"""The database of a followed table: connections, the publication, the replication slot and its snapshot.

The slot is created on a replication connection, which also exports a snapshot. The table is copied from this snapshot:
earlier commits are in the copy, and later commits are in the slot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors
from psycopg.sql import Identifier

from windrow.connectors.postgres.client import Connection, Server, Translation
from windrow.errors import SourceError, SourceUnavailableError

_SETTINGS = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'iso_8601'; SET bytea_output = 'hex'; "
    "SET extra_float_digits = 1; SET client_encoding = 'UTF8'; SET lock_timeout = '10s'; "
    "SET row_security = off"
)
"""Settings that determine the text output of values; without row security, a query that it would limit is an error."""
BUSY_SECONDS, WAIT_SECONDS = 10.0, 0.2
"""Seconds to wait for a slot held by a process that has ended (the server notices this late), and between attempts."""
SLOT_SECONDS = 60.0
"""Seconds for which creating a slot waits for open transactions."""
_OLDEST = 150_000
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_ADVICE: tuple[tuple[type[psycopg.Error], str], ...] = (
    (
        errors.InsufficientPrivilege,
        (
            "grant the role what it lacks: ALTER ROLE ... REPLICATION, SELECT on the table (and BYPASSRLS if row-level "
            "security limits it), and, to create the publication, CREATE on the database and ownership of the table "
            "(or name one in `publication`)"
        ),
    ),
    (errors.ConfigurationLimitExceeded, "raise max_replication_slots or max_wal_senders, or drop unused slots"),
    (errors.ObjectInUse, "another process reads the slot: end it, or give this pipeline a slot and a log of its own"),
    (errors.DiskFull, "the database's disk is full; make room, then start again"),
    (errors.LockNotAvailable, "another session holds a lock; end it, then start again"),
    (psycopg.OperationalError, "the connection was lost or the database is in trouble; start again"),
)
_ERRORS = Translation(SourceError, SourceUnavailableError, _ADVICE, passing=(errors.ObjectInUse,))
translate_errors = _ERRORS.translate_errors


@dataclass(frozen=True)
class TableFacts:
    """A table: its schema and name, and the columns of its primary key and of its replica identity.

    `identity` is None with REPLICA IDENTITY FULL, and empty if the table has no replica identity.
    """

    oid: int
    schema: str
    name: str
    primary: tuple[str, ...]
    identity: tuple[str, ...] | None
    is_partitioned: bool

    @property
    def quoted(self) -> str:
        """The table's qualified name, quoted for SQL."""
        return Identifier(self.schema, self.name).as_string(None)


@dataclass(frozen=True)
class Publication:
    """What a publication publishes of a table: (name, type oid) pairs of the columns, and the row filter or None.

    `types` has the number of a column and what the text of its values depends on, `filled` are the columns that had a
    value in each row, or may have had, when they were added, and `others` those that are not published. `version`
    changes whenever the publication, or what it says of the table, is altered.
    """

    columns: tuple[tuple[str, int], ...]
    types: tuple[tuple[str, str], ...]
    filled: frozenset[str]
    others: frozenset[str]
    only: str | None
    version: str

    @property
    def quoted(self) -> str:
        """The names of the columns, quoted for SQL."""
        return ", ".join(quoted(name) for name, _ in self.columns)


@dataclass(frozen=True)
class SlotFacts:
    """A replication slot: its confirmed LSN, whether changes in it are lost, and the bytes of WAL after that LSN."""

    confirmed: int
    is_lost: bool
    behind: int


@contextmanager
def connected(server: Server, **options: str) -> Iterator[Connection]:
    """Connect for the block; raise SourceError if that fails.

    With ``replication="database"``, the connection accepts replication commands.
    """
    with translate_errors(server.place), closing(_ERRORS.connect(server, _SETTINGS, **options)) as connection:
        yield connection


def refuse_unready(sql: Connection, place: str) -> None:
    """Raise SourceError unless the database's version and settings allow following a table."""
    version = sql.info.server_version
    if version < _OLDEST:
        msg = f"{place} is PostgreSQL {version // 10_000}; changes can be read from version 15 on"
        raise SourceError(msg)
    level, recovers = single_row(sql, "SELECT current_setting('wal_level'), pg_is_in_recovery()")
    if recovers:
        msg = f"{place} is a standby: connect to the primary"
        raise SourceError(msg)
    if level != "logical":
        msg = f"{place} has wal_level {level}: set wal_level = logical, and restart the server"
        raise SourceError(msg)


_TABLE = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind, c.relreplident,
    c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid),
    (SELECT min(l.oid::regclass::text) FROM pg_class l WHERE l.oid IN (SELECT c.oid UNION SELECT relid FROM
        pg_partition_tree(c.oid)) AND (l.relpersistence <> 'p' OR l.relkind = 'f')),
    (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_index i JOIN pg_attribute a
        ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey) WHERE i.indrelid = c.oid AND i.indisprimary),
    (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_index i JOIN pg_attribute a
        ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey) WHERE i.indrelid = c.oid AND i.indisreplident)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)"""


def find_table(sql: Connection, name: str, place: str) -> TableFacts:
    """Look up a table by its name in SQL; raise SourceError if it does not exist."""
    try:
        row = sql.execute(_TABLE, (name,)).fetchone()
    except (errors.SyntaxError, errors.InvalidName, errors.UndefinedTable, errors.FeatureNotSupported):
        row = None
    if row is not None and row[3] not in {"r", "p"}:
        msg = f"{place}: {name} is no table, and PostgreSQL logs changes of tables only: follow the tables behind it"
        raise SourceError(msg)
    if row is None:
        msg = f"{place} has no table {name} that this role may see: correct `table` (SCHEMA.TABLE), or grant access"
        raise SourceError(msg)
    oid, schema, table, kind, identity, is_inherited, unlogged, primary, index = row
    if is_inherited:
        msg = (
            f"{place}: other tables inherit from the table {schema}.{table}, and their rows are logged under their own "
            "names: follow each of these tables, or use a partitioned table"
        )
        raise SourceError(msg)
    if unlogged is not None:
        msg = (
            f"{place}: PostgreSQL does not log the changes of {unlogged}, which is unlogged, temporary or foreign, and "
            f"whose rows are in the table {schema}.{table}: ALTER TABLE ... SET LOGGED, or detach it, and, if the "
            "table was copied before, copy it again, with windrow run --recopy"
        )
        raise SourceError(msg)
    columns = {"d": _names(primary), "i": _names(index), "f": None}
    return TableFacts(
        oid, str(schema), str(table), _names(primary), columns.get(str(identity), ()), is_partitioned=kind == "p"
    )


def _names(found: object) -> tuple[str, ...]:
    return tuple(map(str, found)) if isinstance(found, list) else ()


def key_of(table: TableFacts, given: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that identify a row; raise SourceError if the database does not log them for deletions."""
    key = tuple(given) or table.primary or (table.identity or ())
    where = f"the table {table.schema}.{table.name}"
    if not key:
        hint = "give it a primary key"
        if table.identity is None:
            hint = "name the columns that identify a row in `key`"
        msg = f"{where} has no primary key: {hint}"
        raise SourceError(msg)
    if table.identity is not None and (missing := [name for name in key if name not in table.identity]):
        msg = (
            f"{where} does not log the column {missing[0]!r}, which is in its key, when a row is deleted: "
            f"ALTER TABLE {table.quoted} REPLICA IDENTITY FULL"
        )
        raise SourceError(msg)
    return key


def refuse_unlogged(table: TableFacts, known_by: Sequence[Sequence[str]]) -> None:
    """Raise SourceError if updates do not log the old value of a column, given with all of its names."""
    if table.identity is None:
        return
    for names in known_by:
        if not set(names).intersection(table.identity):
            msg = (
                f"the table {table.schema}.{table.name} does not log the old value of {names[0]!r} when a row is "
                "updated, and the pipeline has a table whose key contains it: "
                f"ALTER TABLE {table.quoted} REPLICA IDENTITY FULL, or give that table the primary key"
            )
            raise SourceError(msg)


def refuse_unreadable(
    sql: Connection, place: str, tables: Sequence[TableFacts], published: Sequence[Publication] | None
) -> None:
    """Raise SourceError if the role may not read the tables, or, without `published`, not create a publication."""
    for number, table in enumerate(tables):
        columns = "*" if published is None else published[number].quoted
        if published is None and not all(single_row(sql, _MAY_PUBLISH, table.oid)):
            msg = (
                f"{place}: this role may not create a publication for the table {table.schema}.{table.name}, as it "
                "does not own the table, or lacks CREATE on the database: have the owner CREATE PUBLICATION "
                f"{quoted(tables[0].name)} FOR TABLE {', '.join(each.quoted for each in tables)}, and name it in "
                "`publication`"
            )
            raise SourceError(msg)
        sql.execute(f"SELECT {columns} FROM {table.quoted} LIMIT 0")


_MAY_PUBLISH = """
SELECT pg_has_role(relowner, 'USAGE'), has_database_privilege(current_database(), 'CREATE')
FROM pg_class WHERE oid = $1"""


def make_publication(sql: Connection, name: str, tables: Sequence[TableFacts]) -> None:
    """Create a publication for the tables unless one with that name exists."""
    if not single_row(sql, "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)", name)[0]:
        sql.execute(
            f"CREATE PUBLICATION {quoted(name)} FOR TABLE {', '.join(table.quoted for table in tables)} "
            "WITH (publish_via_partition_root = true)"
        )


def drop_publication(sql: Connection, name: str) -> None:
    """Drop a publication if it exists."""
    sql.execute(f"DROP PUBLICATION IF EXISTS {quoted(name)}")


_PUBLICATION = """
SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot,
    concat_ws('.', p.oid, p.xmin, t.oid, t.xmin, s.oid, s.xmin)
FROM pg_publication p
LEFT JOIN pg_publication_rel t ON t.prpubid = p.oid AND t.prrelid = $2
LEFT JOIN pg_publication_namespace s ON s.pnpubid = p.oid
    AND s.pnnspid = (SELECT relnamespace FROM pg_class WHERE oid = $2)
WHERE pubname = $1"""
"""What a publication publishes, and the rows of the catalog that define it, each by its oid and last transaction."""
_PUBLISHED_COLUMNS = """
SELECT a.attname::text, a.atttypid::bigint, p.rowfilter,
    concat_ws('.', a.attnum, a.atttypid, CASE
        WHEN a.atttypid = 'varchar'::regtype THEN NULL
        WHEN a.atttypid = 'numeric'::regtype AND a.atttypmod >= 0 THEN (a.atttypmod - 4) & 65535
        ELSE nullif(a.atttypmod, -1) END),
    a.atthasdef OR a.atthasmissing OR a.attnotnull OR a.attidentity <> '' OR t.typdefault IS NOT NULL
FROM pg_publication_tables p
JOIN pg_class c ON c.relname = p.tablename AND c.relnamespace::regnamespace::text = quote_ident(p.schemaname)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = ANY(p.attnames)
JOIN pg_type t ON t.oid = a.atttypid
WHERE p.pubname = $1 AND c.oid = $2
    AND (a.attgenerated = '' OR current_setting('server_version_num')::int >= 180000)
ORDER BY a.attnum"""
"""The columns that are logged: before PostgreSQL 18, generated ones are not, even if the publication lists them.

Of a numeric, only the scale changes the text of values, and of a varchar nothing but the type. A column that is dropped
and added again has another number.
"""
_COLUMNS = "SELECT attname::text FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped"
_PUBLISHED = ("insert", "update", "delete", "truncate")


def find_publication(sql: Connection, publication: str, table: TableFacts) -> Publication:
    """Look up what a publication publishes of a table; raise SourceError if that is not each change of its rows."""
    found = sql.execute(_PUBLICATION, (publication, table.oid)).fetchone()
    if found is None:
        msg = (
            f"there is no publication {publication}: CREATE PUBLICATION {quoted(publication)} FOR TABLE {table.quoted}"
        )
        raise SourceError(msg)
    *publishes, is_via_root, version = found
    if missing := [kind for kind, is_published in zip(_PUBLISHED, publishes, strict=True) if not is_published]:
        msg = (
            f"the publication {publication} does not publish each {missing[0]} of the table {table.quoted}: ALTER "
            f"PUBLICATION {quoted(publication)} SET (publish = '{', '.join(_PUBLISHED)}')"
        )
        raise SourceError(msg)
    if table.is_partitioned and not is_via_root:
        msg = (
            f"the publication {publication} publishes changes of the table {table.quoted} under the names of its "
            f"partitions: ALTER PUBLICATION {quoted(publication)} SET (publish_via_partition_root = true)"
        )
        raise SourceError(msg)
    rows = sql.execute(_PUBLISHED_COLUMNS, (publication, table.oid)).fetchall()
    if not rows:
        msg = (
            f"the publication {publication} does not include the table {table.quoted}: ALTER PUBLICATION "
            f"{quoted(publication)} ADD TABLE {table.quoted}; if the table was copied before, changes are missing: "
            "copy it again, with windrow run --recopy"
        )
        raise SourceError(msg)
    published = tuple((name, oid) for name, oid, *_ in rows)
    return Publication(
        columns=published,
        types=tuple((name, type_) for name, _, _, type_, _ in rows),
        filled=frozenset(name for name, *_, is_filled in rows if is_filled),
        others=frozenset(name for (name,) in sql.execute(_COLUMNS, (table.oid,)).fetchall()) - dict(published).keys(),
        only=rows[0][2],
        version=version,
    )


def find_slot(sql: Connection, name: str) -> SlotFacts | None:
    """Look up a slot by name; return None if it does not exist."""
    row = sql.execute(
        "SELECT coalesce(confirmed_flush_lsn - '0/0'::pg_lsn, 0)::bigint, coalesce(wal_status = 'lost', false), "
        "coalesce(pg_current_wal_lsn() - confirmed_flush_lsn, 0)::bigint FROM pg_replication_slots "
        "WHERE slot_name = $1",
        (name,),
    ).fetchone()
    return None if row is None else SlotFacts(*row)


def drop_slot(sql: Connection, name: str) -> None:
    """Drop a slot if it exists, waiting if the server still assigns it to a process that has ended."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            sql.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1", (name,)
            )
        except errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(WAIT_SECONDS)
        else:
            return


_OLDEST_WRITER = (
    "SELECT min(pid), min(xact_start)::text FROM (SELECT pid, xact_start FROM pg_stat_activity "
    "WHERE backend_xid IS NOT NULL ORDER BY xact_start LIMIT 1) AS writers"
)


def create_slot(sql: Connection, replication: Connection, name: str, place: str) -> tuple[int, str]:
    """Create a slot; return the LSN from which on it has changes, and the snapshot of the state before them.

    The snapshot is valid until the next command on `replication`. The server first waits for all open writing
    transactions, in any database, to end. Raise SourceUnavailableError if one of them does not.
    """
    command = f"CREATE_REPLICATION_SLOT {quoted(name)} LOGICAL pgoutput (SNAPSHOT 'export')"
    timer = threading.Timer(SLOT_SECONDS, replication.cancel_safe)
    timer.start()
    try:
        row = single_row(replication, command)
    except errors.QueryCanceled as error:
        pid, since = single_row(sql, _OLDEST_WRITER)
        msg = (
            f"{place}: the slot {name} waits for a transaction that has been open since {since} (process {pid}): end "
            f"it, by SELECT pg_terminate_backend({pid}) if need be, then start again"
        )
        raise SourceUnavailableError(msg) from error
    finally:
        timer.cancel()
    return parse_lsn(row[1]), row[2]


def copy_rows(
    sql: Connection, snapshot: str, table: TableFacts, published: Publication
) -> Generator[tuple[str | None, ...]]:
    """Yield the rows of a table in an exported snapshot, with each value as text; `sql` is busy until it is closed."""
    with sql.transaction():
        sql.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        sql.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        chosen = "" if published.only is None else f" WHERE {published.only}"
        with sql.cursor().copy(f"COPY (SELECT {published.quoted} FROM {table.quoted}{chosen}) TO STDOUT") as copy:
            yield from copy.rows()


def mark_end(sql: Connection) -> int:
    """Write a message to the WAL, so that the server sends everything before it; return its LSN, after all commits."""
    return int(single_row(sql, "SELECT (pg_logical_emit_message(true, 'windrow', '') - '0/0'::pg_lsn)::bigint")[0])


def now_micros(sql: Connection) -> int:
    """Return the database's time in microseconds since 1970."""
    return int(single_row(sql, f"SELECT {_NOW}")[0])


def now_and_end(sql: Connection) -> tuple[int, int]:
    """Return the database's time in microseconds since 1970, and the end of its write-ahead log as an LSN."""
    now, end = single_row(sql, f"SELECT {_NOW}, (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint")
    return now, end


def parse_lsn(text: str) -> int:
    """Parse an LSN such as ``16/B374D848``."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def single_row(sql: Connection, query: str, *values: object) -> tuple[Any, ...]:
    """Return the row that a query gives."""
    (row,) = sql.execute(query, values or None).fetchall()
    return row


def quoted(name: str) -> str:
    """Return a name, quoted for SQL."""
    return Identifier(name).as_string(None)
