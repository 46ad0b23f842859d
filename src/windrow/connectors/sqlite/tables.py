"""Tables in an SQLite file: the connection in WAL mode, its transactions, and error messages."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.connectors.sql.session import Column, Dependent, EmbeddedFile, EmbeddedSession
from windrow.connectors.sql.tables import SqlDatabase, SqlTables
from windrow.connectors.sqlite.rows import Decimals, SqliteSnapshot, sql_types, unfit, values
from windrow.connectors.tables import (
    Layout,
    Table,
    create_table,
    earlier_rows,
    in_order,
    net_changes,
    quote,
    quote_all,
    upsert,
)
from windrow.errors import SinkAddressError, SinkError, SinkUnavailableError
from windrow.expressions import SinkSpec

BUSY_SECONDS = 10.0
CACHE_KIB = 65_536
"""Cache for the pages that a large step writes. With a smaller cache, pages would be written and read several times."""


class SqliteFile(EmbeddedFile):
    """An SQLite file in WAL mode, which others can read during a write. It is open from the first `writing` to `close`.

    Times are text in UTC, ``YYYY-MM-DD HH:MM:SS``, followed by .fff or .ffffff if there is a fraction. Booleans are 0
    and 1. Decimals are in NUMERIC columns, which keep 15 digits or a 64-bit integer; a row whose value would be changed
    becomes a dead letter. Sums of longs, and other whole decimals that may exceed 64 bits, are in columns without a
    type, which store larger values as text. If `decimals` is ``text``, all decimals are text with all their digits.
    """

    system = "SQLite"
    error = sqlite3.Error

    def __init__(self, path: str, decimals: Decimals, busy: float = BUSY_SECONDS) -> None:
        super().__init__(path, busy)
        self._decimals = decimals
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def writing(self) -> Iterator[SqliteSession]:
        """Open a transaction. It is on disk when the block ends (synchronous=FULL)."""
        with translate_errors(self.path):
            if self._connection is None:
                self._connection = self._connect()
            db = self._connection
            db.execute("BEGIN IMMEDIATE")
            try:
                yield SqliteSession(db, self._decimals)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def writing_anew(self) -> AbstractContextManager[SqliteSession]:
        self.close()
        return self.writing()

    def refusal(self, error: Exception) -> str | None:
        return str(error) if getattr(error, "sqlite_errorname", None) in _REFUSALS else None

    @contextmanager
    def reading(self) -> Iterator[SqliteSession]:
        """Open a read-only transaction. Others can write to the file at the same time."""
        uri = f"{self.file.as_uri()}?mode=ro"
        with (
            translate_errors(self.path),
            closing(sqlite3.connect(uri, timeout=self.busy, uri=True, isolation_level=None)) as db,
        ):
            db.execute("BEGIN")
            yield SqliteSession(db, self._decimals)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        file = self.refuse_path()
        # a host may commit from another thread than it opened in, but never from two at once
        db = sqlite3.connect(file, timeout=self.busy, isolation_level=None, check_same_thread=False)
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            db.execute("PRAGMA synchronous = FULL")
            db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            # without it, SQLite would let views and triggers follow a table to its new name
            db.execute("PRAGMA legacy_alter_table = ON")
        except BaseException:
            db.close()
            raise
        if mode != "wal":
            db.close()
            msg = f"{self.path} cannot be read during writes there (SQLite's WAL mode): put it on a local disk"
            raise SinkAddressError(msg)
        return db


class SqliteSession(EmbeddedSession):
    """An open transaction in an SQLite file."""

    now = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
    same = "lower({}) = lower({})"
    error = sqlite3.Error

    def __init__(self, db: sqlite3.Connection, decimals: Decimals) -> None:
        self._db = db
        self._decimals = decimals

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._db.execute(sql, values).fetchall()

    def has(self, table: str) -> bool:
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
        return bool(self.execute(query, (table,)))

    def columns(self, table: str) -> list[Column]:
        kind = self._db.execute("SELECT type FROM sqlite_master WHERE name = ? COLLATE NOCASE", (table,)).fetchone()
        if kind is None:
            return []
        if kind[0] != "table":
            path = self._db.execute("PRAGMA database_list").fetchone()[2]
            msg = f"{table!r} in {path} is a {kind[0]}, not a table: choose another table"
            raise SinkError(msg)
        found = self._db.execute(
            'SELECT name, type, pk > 0, "notnull" > 0, dflt_value IS NOT NULL FROM pragma_table_info(?)', (table,)
        )
        return [Column(name, type_, *map(bool, has)) for name, type_, *has in found]

    def types(self, table: Table) -> dict[str, str]:
        return sql_types(table, self._decimals)

    def create(self, table: Table) -> None:
        """Create a table. With a primary key, rows are stored in its tree (WITHOUT ROWID), which halves the size."""
        self._db.execute(create_table(table, self.types(table)) + (" WITHOUT ROWID" if table.key else ""))

    def alter(self, table: Table, column: str, type_: str) -> str:
        """Return statements that copy the column, since SQLite cannot change its type; empty for a key column."""
        if column in table.key:
            return ""
        there, name, new = quote(table.name), quote(column), quote(f"{column}_new")
        return (
            f"ALTER TABLE {there} ADD COLUMN {new} {type_}; UPDATE {there} SET {new} = {name}; "
            f"ALTER TABLE {there} DROP COLUMN {name}; ALTER TABLE {there} RENAME COLUMN {new} TO {name}"
        )

    def relax(self, table: Table, columns: Sequence[str]) -> None:
        """Make columns of a table nullable, as described in https://sqlite.org/lang_altertable.html, section 7.

        Stored rows do not change; only the CREATE statement in the schema does. Raise SinkError if that statement is
        not as windrow wrote it.
        """
        types, where = self.types(table), "type = 'table' AND name = ? COLLATE NOCASE"
        [(sql,)] = self.execute(f"SELECT sql FROM sqlite_master WHERE {where}", (table.name,))
        for name in columns:
            column = f"{quote(name)} {types[name]}"
            if f"{column} NOT NULL" not in sql:
                msg = (
                    f"column {name!r} of table {table.name!r} is NOT NULL, but the pipeline can write null there: "
                    f"alter it ({self.alter(table, name, types[name])})"
                )
                raise SinkError(msg)
            sql = sql.replace(f"{column} NOT NULL", column)
        [(version,)] = self.execute("PRAGMA schema_version")
        self._db.execute("PRAGMA writable_schema = ON")
        try:
            self._db.execute(f"UPDATE sqlite_master SET sql = ? WHERE {where}", (sql, table.name))
            self._db.execute(f"PRAGMA schema_version = {version + 1}")
        finally:
            self._db.execute("PRAGMA writable_schema = RESET")

    def unfit(self, tables: Sequence[Table], rows: pa.Table) -> pa.Array | None:
        """Return the reason for each row in which a NUMERIC column would change a decimal."""
        names = [field.name for field in rows.schema if pa.types.is_decimal(field.type)]
        if not names or self._decimals == "text":
            return None
        numeric = {column.name for table in tables for column in self.columns(table.name) if column.type == "NUMERIC"}
        return unfit(rows.select([name for name in names if name in numeric]))

    def insert(self, table: Table, rows: pa.Table, else_: str = "") -> None:
        """Insert rows; only a batch of them is converted to Python values at a time."""
        if rows.num_rows:
            marks = ", ".join("?" * len(table.columns))
            self._db.executemany(
                f"INSERT INTO {quote(table.name)} ({quote_all(table.columns)}) VALUES ({marks}) {else_}",
                values(rows.select(list(table.columns)), self._decimals),
            )

    def write_changes(self, layout: Layout, epoch: int, first: int, changes: pa.Table, *, changelog: bool) -> None:
        """Apply changes of a step to the result table; if the changelog is written, read them from its last rows."""
        table = layout.result
        columns, key = quote_all(table.columns), quote_all(table.key)
        if changelog:
            earlier = earlier_rows(changes)
            if earlier.num_rows and self._has_checks(table):
                # each is replaced or deleted below
                self.insert(table, earlier, else_=upsert(table))
            self.insert(layout.changes, in_order(epoch, changes, first))
            # Within a key in the order of the changelog, so its last change wins. By key, so that the table's tree is
            # written from left to right. Reading the changelog costs half of binding the rows once more.
            self._db.execute(
                f"INSERT INTO {quote(table.name)} ({columns}) SELECT {columns} "
                f"FROM {quote(layout.changes.name)} WHERE epoch = ? AND seq >= ? "
                f"AND op IN ('insert', 'update_after') ORDER BY {key}, seq {upsert(table)}",
                (epoch, first),
            )
            if not pc.any(pc.equal(changes["op"], "delete")).as_py():
                return
        rows = net_changes(changes, table.key)
        if not changelog:
            self.insert(table, pa.concat_tables([rows.replaced, rows.inserts, rows.updates]), else_=upsert(table))
        if rows.deletes.num_rows:
            deletes = rows.deletes.select(list(table.key))
            where = " AND ".join(f"{quote(column)} = ?" for column in table.key)
            keys = values(deletes, self._decimals)
            self._db.executemany(f"DELETE FROM {quote(table.name)} WHERE {where}", keys)

    def _has_checks(self, table: Table) -> bool:
        [(sql,)] = self.execute("SELECT sql FROM sqlite_master WHERE name = ? COLLATE NOCASE", (table.name,))
        return "check" in sql.lower()

    def dependents(self, tables: Sequence[str]) -> list[Dependent]:
        """Return the indexes and triggers on tables, because they follow a table when it is renamed."""
        found = self._db.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql IS NOT NULL "
            f"AND lower(tbl_name) IN ({', '.join('?' * len(tables))})",
            [name.lower() for name in tables],
        )
        return [Dependent(*row) for row in found]

    def snapshot(self) -> SqliteSnapshot:
        return SqliteSnapshot(self._db, self._decimals)


_REFUSALS = {
    "SQLITE_CONSTRAINT_CHECK",
    "SQLITE_CONSTRAINT_NOTNULL",
    "SQLITE_CONSTRAINT_DATATYPE",
    "SQLITE_MISMATCH",
    "SQLITE_TOOBIG",
}
"""The names of errors that a row causes by its values alone."""
_ADVICE = {
    "SQLITE_NOTADB": "is not an SQLite database: give the sink another path",
    "SQLITE_CORRUPT": "is damaged: restore it from a copy, or move it away and start over with --fresh",
    "SQLITE_CANTOPEN": "cannot be opened: check that the path is a file in a folder with write permission",
    "SQLITE_READONLY": "may not be written: give write permission on the file and its folder",
    "SQLITE_PERM": "may not be written: give write permission on the file and its folder",
    "SQLITE_BUSY": "is locked by another writer: end it, then start again",
    "SQLITE_LOCKED": "is locked by another writer: end it, then start again",
    "SQLITE_FULL": "cannot grow, the disk is full: make room, then start again",
    "SQLITE_IOERR": "could not be read or written: check the disk, then start again",
    "SQLITE_CONSTRAINT": "refused a row",
}
_KINDS: dict[str, type[SinkError]] = {
    "SQLITE_BUSY": SinkUnavailableError,
    "SQLITE_LOCKED": SinkUnavailableError,
    "SQLITE_NOTADB": SinkAddressError,
}


def translate(error: sqlite3.Error, path: str) -> SinkError:
    """Convert an SQLite error to a SinkError that says what happened to the file and what to do."""
    name = getattr(error, "sqlite_errorname", "") or ""
    for prefix, advice in _ADVICE.items():
        if name.startswith(prefix):
            kind = _KINDS.get(prefix, SinkError)
            return kind(f"{path} {advice} ({error}); what was committed before stays")
    return SinkError(f"{path}: SQLite says: {error}; what was committed before stays")


@contextmanager
def translate_errors(path: str) -> Iterator[None]:
    """Convert SQLite errors raised in the block to SinkError."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error


class SqliteTables(SqlTables):
    """Result tables in an SQLite file. Waits at most `busy` seconds for another writer."""

    def __init__(self, *specs: SinkSpec, busy: float = BUSY_SECONDS) -> None:
        super().__init__(_file(specs[0].sink, busy), *specs)


class SqliteDatabase(SqlDatabase):
    """A sink's SQLite file outside of a run."""

    def __init__(self, sink: m.SqliteSink) -> None:
        super().__init__(_file(sink, BUSY_SECONDS))


def _file(sink: object, busy: float) -> SqliteFile:
    if not isinstance(sink, m.SqliteSink):
        raise TypeError(sink)
    return SqliteFile(sink.path, sink.decimals, busy)
