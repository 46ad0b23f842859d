"""Tables in a DuckDB file. DuckDB locks a file for writing, so the file is attached only during a transaction.

Attaching a file to this process's DuckDB, and detaching it with a checkpoint, takes about 3 ms; opening a separate
DuckDB instance for the file would take 17 ms. Between the steps of a run the file is unlocked and complete: committed
data is in the file itself, without a write-ahead log beside it. A session waits up to `busy` seconds for a file that is
in use.

Result tables have no PRIMARY KEY, because its index would be ten times the size of the rows and would have to fit into
memory. Instead, a row is deleted by its key and inserted again in the same transaction. The key is recorded in a
comment on the table.
"""

from __future__ import annotations

import atexit
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from itertools import count
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from tempfile import gettempdir
from typing import Any

import duckdb
import pyarrow as pa

from windrow.connectors import tables
from windrow.connectors.database import Condition, Snapshot, Value
from windrow.connectors.duckdb.connector import DuckDBSink
from windrow.connectors.list_columns import stored_sql
from windrow.connectors.misfits import Fitted, fit_batch
from windrow.connectors.sql.session import Column, Dependent, EmbeddedFile, EmbeddedSession
from windrow.connectors.sql.tables import SqlDatabase, SqlTables
from windrow.connectors.tables import REDRIVES, REPLAYS, SHARED, Layout, Table, quote
from windrow.connectors.unfit import write_reason
from windrow.engine.duckdb_sql import literal
from windrow.errors import SinkAddressError, SinkError, SinkUnavailableError
from windrow.expressions import SinkSpec

BUSY_SECONDS = 10.0
_POLL_SECONDS = 0.005
_BATCH = 50_000
"""Number of rows that are read at a time."""


@lru_cache(maxsize=1)
def _engine() -> duckdb.DuckDBPyConnection:
    """Open the DuckDB instance that files are attached to.

    It runs beside Spark, so it has one thread and little memory, and spills to disk.
    """
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": "128MB",
        "temp_directory": str(Path(gettempdir()) / f"windrow-duckdb-{uuid.uuid4()}"),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    opened = duckdb.connect(config=config)
    opened.execute("SET GLOBAL TimeZone = 'UTC'")
    atexit.register(_close_engine)
    return opened


def _close_engine() -> None:
    """Close DuckDB before the interpreter exits; otherwise, DuckDB reports leaks on the terminal."""
    _engine().close()
    _engine.cache_clear()


class DuckDBFile(EmbeddedFile):
    """A DuckDB file that is closed between transactions."""

    system = "DuckDB"
    error = duckdb.Error

    def __init__(self, path: str, busy: float = BUSY_SECONDS) -> None:
        super().__init__(path, busy)

    @contextmanager
    def writing(self) -> Iterator[DuckDBSession]:
        """Open a transaction. It is on disk when the block ends."""
        self.refuse_path()
        with self._attached(is_read_only=False) as session:
            session.execute("BEGIN")
            try:
                yield session
            except BaseException:
                session.rollback()
                raise
            session.execute("COMMIT")

    def refusal(self, error: Exception) -> str | None:
        said = str(error).partition("\n")[0]
        is_of_row = isinstance(error, _REFUSALS) and not any(words in said for words in _OF_OTHERS)
        return said if is_of_row else None

    def reason(self, error: Exception) -> str | None:
        cause = error.__cause__ if isinstance(error, SinkError) else error
        # a defect of DuckDB
        return write_reason(cause) if isinstance(cause, duckdb.InternalException) else super().reason(error)

    @contextmanager
    def reading(self) -> Iterator[DuckDBSession]:
        """Open a read-only transaction. No other process can write to the file until it ends."""
        with self._attached(is_read_only=True) as session:
            yield session

    def close(self) -> None:
        """Do nothing, because the file is not kept open."""

    def refuse_path(self) -> Path:
        """Return the file; raise SinkAddressError if no database can be there or DuckDB would misplace its log."""
        file = super().refuse_path()
        if "?" in str(file.resolve()):
            msg = f"{self.path}: DuckDB cannot write a file with '?' in its path: give the sink another path"
            raise SinkAddressError(msg)
        return file

    @contextmanager
    def _attached(self, *, is_read_only: bool) -> Iterator[DuckDBSession]:
        with _translate_errors(self.path):
            name = _ATTACHED.attach(self.file.resolve(), self.busy, is_read_only=is_read_only)
            try:
                with closing(DuckDBSession(name)) as session:
                    yield session
            finally:
                _ATTACHED.detach(name)


class _HeldError(duckdb.Error):
    """Raised if another thread of this process uses the file."""


class _Attached:
    """The files attached by this process. Readers can share a file; a writer needs it exclusively."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._names: dict[Path, str] = {}
        self._readers: Counter[str] = Counter()
        self._numbers = count(1)

    def attach(self, file: Path, busy: float, *, is_read_only: bool) -> str:
        """Attach a file and return its database name; wait at most `busy` seconds while the file is in use."""
        until = time.monotonic() + busy
        with self._changed:
            while True:
                name = self._names.get(file)
                if name is None:
                    try:
                        return self._attach(file, is_read_only=is_read_only)
                    except duckdb.Error as error:
                        if not _is_held(error) or time.monotonic() > until:
                            raise
                elif is_read_only and self._readers[name]:
                    self._readers[name] += 1
                    return name
                elif time.monotonic() > until:
                    msg = f"another thread of this process has used it for {busy:g} seconds"
                    raise _HeldError(msg)
                # another process does not notify
                self._changed.wait(_POLL_SECONDS)

    def detach(self, name: str) -> None:
        """Detach a file when its last reader is done, which moves committed data from its log into the file."""
        with self._changed:
            self._readers[name] -= 1
            if self._readers[name] > 0:
                return
            del self._readers[name]
            self._names = {file: other for file, other in self._names.items() if other != name}
            try:
                with _engine().cursor() as db:
                    db.execute(f"DETACH {quote(name)}")
            except duckdb.FatalException:
                # an error within has invalidated this engine: the next file is attached to a new one
                _close_engine()
            self._changed.notify_all()

    def _attach(self, file: Path, *, is_read_only: bool) -> str:
        name = f"windrow_file_{next(self._numbers)}"
        mode = ", READ_ONLY" if is_read_only else ""
        with _engine().cursor() as db:
            db.execute(f"ATTACH {literal(str(file))} AS {quote(name)} (TYPE duckdb{mode})")
        self._names[file] = name
        self._readers[name] = int(is_read_only)
        return name


_ATTACHED = _Attached()
_OWN = (*SHARED, REPLAYS, REDRIVES)
# DuckDB's lower() knows other letters than A to Z, and the names of its tables do not
_FOLD = f"translate({{}}, '{ascii_uppercase}', '{ascii_lowercase}')"
_SAME = f"{_FOLD} = {_FOLD}"


def _here(column: str) -> str:
    """Return a condition on DuckDB's catalog: the entry is in this file, and its name equals the parameter."""
    return f"database_name = current_database() AND schema_name = current_schema() AND {_SAME.format(column, '?')}"


class DuckDBSession(EmbeddedSession):
    """A connection to an attached file."""

    now = "now()"
    same = _SAME
    error = duckdb.Error

    def __init__(self, name: str) -> None:
        self._name = name
        self._cursors: list[duckdb.DuckDBPyConnection] = []
        self._db = self.cursor()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return another connection, which is closed together with the session."""
        db = _engine().cursor()
        self._cursors.append(db)
        return db.execute(f"USE {quote(self._name)}")

    def close(self) -> None:
        """Close all connections."""
        for db in self._cursors:
            db.close()

    def rollback(self) -> None:
        """Roll back the transaction, unless an error has already ended it."""
        try:
            self._db.execute("ROLLBACK")
        except duckdb.TransactionException:
            return

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._db.execute(sql, list(values)).fetchall()
        return rows

    def has(self, table: str) -> bool:
        return bool(self.execute(f"SELECT 1 FROM duckdb_tables() WHERE {_here('table_name')}", (table,)))

    def columns(self, table: str) -> list[Column]:
        found = self.execute(f"SELECT comment FROM duckdb_tables() WHERE {_here('table_name')}", (table,))
        if not found:
            if self.execute(f"SELECT 1 FROM duckdb_views() WHERE {_here('view_name')}", (table,)):
                msg = f"{table!r} is a view, not a table: choose another table"
                raise SinkError(msg)
            return []
        key = _key_of(found[0][0])
        columns = self.execute(
            'SELECT name, type, pk, "notnull", dflt_value IS NOT NULL FROM pragma_table_info(?)', (quote(table),)
        )
        return [Column(name, type_, is_key or name in key, *others) for name, type_, is_key, *others in columns]

    def types(self, table: Table) -> dict[str, str]:
        return sql_types(table)

    def create(self, table: Table) -> None:
        """Create a table. The small shared tables get a primary key, other tables a comment with their key."""
        if table in _OWN:
            self.execute(tables.create_table(table, sql_types(table)))
            return
        self.execute(tables.create_table(replace(table, key=()), sql_types(table)))
        if table.key:
            comment = literal(json.dumps({"key": table.key}, ensure_ascii=False))
            self.execute(f"COMMENT ON TABLE {quote(table.name)} IS {comment}")

    def alter(self, table: Table, column: str, type_: str) -> str:
        change = f"ALTER TABLE {quote(table.name)} ALTER COLUMN {quote(column)}"
        nullable = f"; {change} DROP NOT NULL" if table.schema.field(column).nullable else ""
        return f"{change} TYPE {type_}{nullable}"

    def relax(self, table: Table, columns: Sequence[str]) -> None:
        for name in columns:
            self.execute(f"ALTER TABLE {quote(table.name)} ALTER COLUMN {quote(name)} DROP NOT NULL")

    def insert(self, table: Table, rows: pa.Table, else_: str = "") -> None:
        """Insert rows, which DuckDB reads directly from Arrow."""
        if rows.num_rows:
            columns, values = tables.quote_all(table.columns), stored_sql(table)
            sql = f"INSERT INTO {quote(table.name)} ({columns}) SELECT {values} FROM {_rows_for(table)} {else_}"
            self._over(table, rows.select(list(table.columns)), sql)

    def write_changes(self, layout: Layout, epoch: int, first: int, changes: pa.Table, *, changelog: bool) -> None:
        """Delete the rows of all changed keys from the result table, and insert their new rows.

        Columns that a user has added keep their values.
        """
        if changelog:
            self.insert(layout.changes, tables.in_order(epoch, changes, first))
        table = layout.result
        rows = tables.net_changes(changes, table.key)
        tried = rows.replaced
        if changelog and not self._has_checks(table):
            tried = tried.slice(0, 0)
        elif changelog:
            tried = pa.concat_tables([tried, tables.earlier_rows(changes)])
        keys = pa.concat_tables([part.select(list(table.key)) for part in (rows.inserts, rows.updates, rows.deletes)])
        same = " AND ".join(f"t.{quote(name)} = r.{quote(name)}" for name in table.key)
        others, kept = self._others(table) if keys.num_rows else [], f"temp.{quote(f'{_rows_for(table)}_kept')}"
        if others:
            columns = ", ".join(f"t.{quote(name)}" for name in (*table.key, *others))
            joined = f"{quote(table.name)} AS t SEMI JOIN {_rows_for(table)} AS r ON {same}"
            self._over(table, keys, f"CREATE TEMP TABLE {kept} AS SELECT {columns} FROM {joined}")
        # their keys are among those below
        self.insert(table, tried)
        if keys.num_rows:
            sql = f"DELETE FROM {quote(table.name)} AS t USING {_rows_for(table)} AS r WHERE {same}"
            self._over(table, keys, sql)
        self.insert(table, pa.concat_tables([rows.inserts, rows.updates]))
        if others:
            values = ", ".join(f"{quote(name)} = r.{quote(name)}" for name in others)
            self.execute(f"UPDATE {quote(table.name)} AS t SET {values} FROM {kept} AS r WHERE {same}")
            self.execute(f"DROP TABLE {kept}")

    def _others(self, table: Table) -> list[str]:
        """Return the columns that a user has added to a table and can set."""
        found = self.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_catalog = current_database() "
            f"AND {_SAME.format('table_name', '?')} AND is_generated = 'NEVER' ORDER BY ordinal_position",
            (table.name,),
        )
        return [name for (name,) in found if name not in table.columns]

    def _has_checks(self, table: Table) -> bool:
        where = f"{_here('table_name')} AND constraint_type = 'CHECK'"
        return bool(self.execute(f"SELECT 1 FROM duckdb_constraints() WHERE {where}", (table.name,)))

    def dependents(self, tables: Sequence[str]) -> list[Dependent]:
        """Return the indexes on tables, because DuckDB cannot rename a table that has an index."""
        is_one = " OR ".join([_SAME.format("table_name", "?")] * len(tables))
        found = self.execute(
            "SELECT 'index', index_name, sql FROM duckdb_indexes() WHERE database_name = current_database() "
            f"AND sql IS NOT NULL AND ({is_one}) ORDER BY index_oid",
            tables,
        )
        return [Dependent(*row) for row in found]

    def snapshot(self) -> DuckDBSnapshot:
        return DuckDBSnapshot(self)

    def _over(self, table: Table, rows: pa.Table, sql: str) -> None:
        """Run a statement that reads `rows` under the name `_rows_for(table)`."""
        name = _rows_for(table)
        self._db.register(name, rows)
        self._db.execute(sql)
        self._db.unregister(name)


def _rows_for(table: Table) -> str:
    """Return the name under which SQL reads the rows for a table; it must differ from the table's own name."""
    return "windrow_rows_" if table.name.lower() == "windrow_rows" else "windrow_rows"


def sql_types(table: Table) -> dict[str, str]:
    """Map each column to its DuckDB type, as DuckDB spells it."""
    return {field.name: _sql_type(field.type) for field in table.stored}


def _sql_type(type_: pa.DataType) -> str:
    if pa.types.is_list(type_):
        return f"{_sql_type(type_.value_type)}[]"
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP WITH TIME ZONE"
    names = {pa.bool_(): "BOOLEAN", pa.int32(): "INTEGER", pa.int64(): "BIGINT", pa.float64(): "DOUBLE"}
    return names.get(type_, "BLOB" if pa.types.is_binary(type_) else "VARCHAR")


def _key_of(comment: str | None) -> Sequence[str]:
    """Read the key from the comment on a table, which users may have changed; empty if it has no key."""
    try:
        found = json.loads(comment or "{}")
    except ValueError:
        return ()
    return found.get("key", ()) if isinstance(found, dict) else ()


class DuckDBSnapshot(Snapshot):
    """The tables of a DuckDB file."""

    def __init__(self, session: DuckDBSession) -> None:
        self._session = session

    def columns(self, table: str) -> list[str]:
        return [column.name for column in self._session.columns(table)]

    def fetch(self, table: Table, sql: str, values: Sequence[object]) -> Iterator[list[Fitted]]:
        # a connection of its own, since several queries may be read in turns
        found: pa.RecordBatchReader = self._session.cursor().execute(sql, list(values)).to_arrow_reader(_BATCH)
        return (fit_batch(batch, table.schema) for batch in found)

    def fetch_number(self, table: Table, sql: str, values: Sequence[object]) -> int:  # noqa: ARG002 - the contract's
        [(number,)] = self._session.execute(sql, values)
        return int(number)

    def compare(self, field: pa.Field, condition: Condition, number: int) -> str:  # noqa: ARG002 - the contract's
        value = "make_timestamp(?)" if pa.types.is_timestamp(field.type) else "?"
        return f"{quote(field.name)} {condition.operator} CAST({value} AS {_sql_type(field.type)})"

    def bind(self, field: pa.Field, value: Value) -> object:
        if not isinstance(value, Decimal):
            return value
        try:
            return f"{pa.scalar(value, field.type).as_py():f}"
        except pa.ArrowInvalid:
            return None


_REFUSALS = (duckdb.ConstraintException, duckdb.DataError)
"""Classes of errors that a row causes by its values alone, unless their message contains one of `_OF_OTHERS`."""
_OF_OTHERS = ("uplicate key", "foreign key")
_HELD = ("Could not set lock", "Unique file handle conflict", "different configuration", "already attached")


def _is_held(error: duckdb.Error) -> bool:
    """Whether an error means that another process, thread or DuckDB instance has the file open."""
    return isinstance(error, _HeldError) or any(words in str(error) for words in _HELD)


_ADVICE: tuple[tuple[str | tuple[type[duckdb.Error], ...], type[SinkError], str], ...] = (
    ("not a valid DuckDB database file", SinkAddressError, "is not a DuckDB database: give the sink another path"),
    (
        "we can only read storage versions",
        SinkAddressError,
        "was written by another version of DuckDB: install that version, or give another path",
    ),
    (
        "CHECKPOINT during DETACH failed",
        SinkError,
        "could not be merged with its log, which keeps what was committed: check whether the disk is full or failing",
    ),
    (
        "Corrupt database file",
        SinkError,
        "is damaged: restore it from a copy, or move it away and start over with --fresh",
    ),
    ("Permission denied", SinkError, "may not be written: give write permission on the file and its folder"),
    ("No space left", SinkError, "cannot grow, the disk is full: make room, then start again"),
    ((duckdb.ConstraintException,), SinkError, "refused a row"),
    (
        (duckdb.FatalException, duckdb.IOException, duckdb.SerializationException),
        SinkError,
        "could not be read or written: check the disk, or restore the file from a copy",
    ),
)
"""Errors, identified by words in their message or by their class, with advice; the first match is used."""


def translate(error: duckdb.Error, path: str) -> SinkError:
    """Convert a DuckDB error to a SinkError that says what happened to the file and what to do."""
    said = str(error).partition("\n")[0]
    if _is_held(error):
        advice = (
            "is open elsewhere, and nobody else can open a DuckDB file while one process writes to it: close it there"
        )
        return SinkUnavailableError(f"{path} {advice} ({said}); what was committed before stays")
    for known, kind, advice in _ADVICE:
        if known in said if isinstance(known, str) else isinstance(error, known):
            return kind(f"{path} {advice} ({said}); what was committed before stays")
    return SinkError(f"{path}: DuckDB says: {said}; what was committed before stays")


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise translate(error, path) from error


class DuckDBTables(SqlTables):
    """Result tables in a DuckDB file. Waits at most `busy` seconds while the file is in use elsewhere."""

    def __init__(self, *specs: SinkSpec, busy: float = BUSY_SECONDS) -> None:
        super().__init__(DuckDBFile(specs[0].sink.place, busy), *specs)


class DuckDBDatabase(SqlDatabase):
    """A sink's DuckDB file outside of a run."""

    def __init__(self, sink: DuckDBSink) -> None:
        super().__init__(DuckDBFile(sink.path))
