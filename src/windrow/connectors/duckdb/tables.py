"""A DuckDB file: attached for each transaction alone, as DuckDB lets no other process read what one has open to write.

Attaching a file to this process's DuckDB, and detaching it with the checkpoint that this does, takes some 3 ms; opening
a DuckDB of its own for it would take 17. Between two steps of a run the file is free, and whole: what was committed is
in the file itself, without a log beside it. Whoever finds it held waits, as long as the file says.

Result tables have no PRIMARY KEY: its index would be ten times the size of the rows, and must fit into memory. A row's
key is deleted before it is inserted, in one transaction, and the key is in the comment on the table.
"""

from __future__ import annotations

import atexit
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
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

from windrow.connectors.database import Condition, Value
from windrow.connectors.duckdb.connector import DuckDBSink
from windrow.connectors.embedded.file import Column, EmbeddedFile, Made, Session
from windrow.connectors.embedded.tables import EmbeddedDatabase, EmbeddedTables
from windrow.connectors.misfits import exact_cast, with_misfits
from windrow.connectors.tables import (
    REDRIVES,
    REPLAYS,
    SHARED,
    Layout,
    Table,
    create_table,
    net_changes,
    nulls_last,
    quote,
    quote_all,
)
from windrow.engine.duckdb_sql import literal
from windrow.errors import SinkAddressError, SinkError, SinkUnavailableError
from windrow.expressions import SinkSpec

BUSY_SECONDS = 10.0
_POLL_SECONDS = 0.005
_BATCH = 50_000
"""Rows that are read at a time."""


@lru_cache(maxsize=1)
def _engine() -> duckdb.DuckDBPyConnection:
    """Open the DuckDB that files are attached to: beside Spark it has one thread, and spills what needs more memory."""
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
    """Close DuckDB while the interpreter still exists, which else writes of leaks to the terminal."""
    _engine().close()
    _engine.cache_clear()


class DuckDBFile(EmbeddedFile):
    """A DuckDB file, which nobody holds between two transactions."""

    system = "DuckDB"

    def __init__(self, path: str, busy: float = BUSY_SECONDS) -> None:
        super().__init__(path, busy)

    @contextmanager
    def writing(self) -> Iterator[DuckDBSession]:
        """Write all that is within, or nothing; it is on disk afterwards."""
        self.refuse_path()
        with self._attached(is_read_only=False) as session:
            session.execute("BEGIN")
            try:
                yield session
            except BaseException:
                session.rollback()
                raise
            session.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[DuckDBSession]:
        """Open a read-only transaction; until it ends, nobody can write to the file."""
        with self._attached(is_read_only=True) as session:
            yield session

    def close(self) -> None:
        """Do nothing: the file is not held."""

    def refuse_path(self) -> Path:
        """Return the file; raise SinkAddressError if no database can be there, or DuckDB would misplace its log."""
        file = super().refuse_path()
        if "?" in str(file.resolve()):
            msg = f"{self.path}: DuckDB cannot write a file with '?' in its path: give the sink another path"
            raise SinkAddressError(msg)
        return file

    @contextmanager
    def _attached(self, *, is_read_only: bool) -> Iterator[DuckDBSession]:
        with _translated(self.path):
            name = _ATTACHED.attach(self.file.resolve(), self.busy, is_read_only=is_read_only)
            try:
                with closing(DuckDBSession(name)) as session:
                    yield session
            finally:
                _ATTACHED.detach(name)


class _HeldError(duckdb.Error):
    """Another thread has the file."""


class _Attached:
    """The files that this process has attached: several readers share one, and a writer has it alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._names: dict[Path, str] = {}
        self._readers: Counter[str] = Counter()
        self._numbers = count(1)

    def attach(self, file: Path, busy: float, *, is_read_only: bool) -> str:
        """Return the name of the file as a database; wait for `busy` seconds at most for others that hold it."""
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
                # another process does not say when it lets go
                self._changed.wait(_POLL_SECONDS)

    def detach(self, name: str) -> None:
        """Let go of a file, after its last reader; what was written is moved to it from the log."""
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
                # an error within has invalidated the engine: the next file is attached to another
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
    """Write the condition that a row of DuckDB's catalog is of this file, and its name the parameter."""
    return f"database_name = current_database() AND schema_name = current_schema() AND {_SAME.format(column, '?')}"


class DuckDBSession(Session):
    """A connection to a file that is attached; see `windrow.connectors.embedded.file.Session`."""

    now = "now()"
    same = _SAME
    error = duckdb.Error

    def __init__(self, name: str) -> None:
        self._name = name
        self._cursors: list[duckdb.DuckDBPyConnection] = []
        self._db = self.cursor()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return another connection, which is closed with the session."""
        db = _engine().cursor()
        self._cursors.append(db)
        return db.execute(f"USE {quote(self._name)}")

    def close(self) -> None:
        """Close all connections."""
        for db in self._cursors:
            db.close()

    def rollback(self) -> None:
        """Undo the transaction, if an error has not undone it already."""
        try:
            self._db.execute("ROLLBACK")
        except duckdb.TransactionException:
            return

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        rows: list[tuple[Any, ...]] = self._db.execute(sql, list(values)).fetchall()
        return rows

    def has(self, table: str) -> bool:
        """Whether there is a table of that name."""
        return bool(self.execute(f"SELECT 1 FROM duckdb_tables() WHERE {_here('table_name')}", (table,)))

    def columns(self, table: str) -> list[Column]:
        """Return the columns of a table, none without a table; raise SinkError for a view."""
        found = self.execute(f"SELECT comment FROM duckdb_tables() WHERE {_here('table_name')}", (table,))
        if not found:
            if self.execute(f"SELECT 1 FROM duckdb_views() WHERE {_here('view_name')}", (table,)):
                msg = f"{table!r} is a view, not a table: choose another table"
                raise SinkError(msg)
            return []
        key = _key_of(found[0][0])
        columns = self.execute('SELECT name, type, pk, "notnull" FROM pragma_table_info(?)', (quote(table),))
        return [Column(name, type_, is_key or name in key, required) for name, type_, is_key, required in columns]

    def types(self, table: Table) -> dict[str, str]:
        """Return the type of each column, as DuckDB spells it."""
        return sql_types(table)

    def create(self, table: Table) -> None:
        """Create a table; only windrow's own, which are small, have a primary key, the others a comment."""
        if table in _OWN:
            self.execute(create_table(table, sql_types(table)))
            return
        self.execute(create_table(replace(table, key=()), sql_types(table)))
        if table.key:
            comment = literal(json.dumps({"key": table.key}, ensure_ascii=False))
            self.execute(f"COMMENT ON TABLE {quote(table.name)} IS {comment}")

    def alter(self, table: Table, column: str, type_: str) -> str:
        """Write how a column gets another type, or can be null."""
        change = f"ALTER TABLE {quote(table.name)} ALTER COLUMN {quote(column)}"
        nullable = f"; {change} DROP NOT NULL" if table.schema.field(column).nullable else ""
        return f"{change} TYPE {type_}{nullable}"

    def relax(self, table: Table, columns: Sequence[str]) -> None:
        """Let columns of a table be null."""
        for name in columns:
            self.execute(f"ALTER TABLE {quote(table.name)} ALTER COLUMN {quote(name)} DROP NOT NULL")

    def insert(self, table: Table, rows: pa.Table, else_: str = "") -> None:
        """Insert rows, which DuckDB reads as they are."""
        if rows.num_rows:
            columns = quote_all(table.columns)
            sql = f"INSERT INTO {quote(table.name)} ({columns}) SELECT {columns} FROM {_rows_for(table)} {else_}"
            self._over(table, rows.select(list(table.columns)), sql)

    def apply(self, layout: Layout, epoch: int, first: int, changes: pa.Table, *, changelog: bool) -> None:  # noqa: ARG002 - the contract's
        """Bring the result table up to changes of a step: rows of the same keys make way for those of the step."""
        table = layout.result
        rows = net_changes(changes, table.key)
        keys = pa.concat_tables([part.select(list(table.key)) for part in (rows.inserts, rows.updates, rows.deletes)])
        if keys.num_rows:
            same = " AND ".join(f"t.{quote(name)} = r.{quote(name)}" for name in table.key)
            sql = f"DELETE FROM {quote(table.name)} AS t USING {_rows_for(table)} AS r WHERE {same}"
            self._over(table, keys, sql)
        self.insert(table, pa.concat_tables([rows.inserts, rows.updates]))

    def made(self, tables: Sequence[str]) -> list[Made]:
        """Return indexes on tables, without which DuckDB gives no other names."""
        is_one = " OR ".join([_SAME.format("table_name", "?")] * len(tables))
        found = self.execute(
            "SELECT 'index', index_name, sql FROM duckdb_indexes() WHERE database_name = current_database() "
            f"AND sql IS NOT NULL AND ({is_one}) ORDER BY index_oid",
            tables,
        )
        return [Made(*row) for row in found]

    def snapshot(self) -> DuckDBSnapshot:
        """Return a reader of the tables."""
        return DuckDBSnapshot(self)

    def _over(self, table: Table, rows: pa.Table, sql: str) -> None:
        """Run a statement that reads rows under the name `_rows_for` the table."""
        name = _rows_for(table)
        self._db.register(name, rows)
        self._db.execute(sql)
        self._db.unregister(name)


def _rows_for(table: Table) -> str:
    """Return the name under which rows for a table are read: another than the table's, which it would hide."""
    return "windrow_rows_" if table.name.lower() == "windrow_rows" else "windrow_rows"


def sql_types(table: Table) -> dict[str, str]:
    """Return DuckDB's type of each column, as DuckDB spells it."""
    return {field.name: _sql_type(field.type) for field in table.schema}


def _sql_type(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP WITH TIME ZONE"
    names = {pa.bool_(): "BOOLEAN", pa.int32(): "INTEGER", pa.int64(): "BIGINT", pa.float64(): "DOUBLE"}
    return names.get(type_, "BLOB" if pa.types.is_binary(type_) else "VARCHAR")


def _key_of(comment: str | None) -> Sequence[str]:
    """Return the key in the comment on a table, which others may have changed; none if it has none."""
    try:
        found = json.loads(comment or "{}")
    except ValueError:
        return ()
    return found.get("key", ()) if isinstance(found, dict) else ()


class DuckDBSnapshot:
    """The tables of a file; see `windrow.connectors.database.Snapshot`."""

    def __init__(self, session: DuckDBSession) -> None:
        self._session = session

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns; none if there is no such table."""
        return [column.name for column in self._session.columns(table)]

    def rows(
        self,
        table: Table,
        order: Sequence[str],
        where: Sequence[Condition] = (),
        *,
        descending: Collection[str] = (),
        limit: int | None = None,
        misfits: bool = False,
    ) -> Iterator[pa.Table]:
        """Read columns of a table, ordered; see `windrow.connectors.database.Snapshot`."""
        within, values = _within(table, where)
        most = "" if limit is None else f" LIMIT {limit:d}"
        # of its own, since it may be read in turns with another
        db = self._session.cursor()
        by = nulls_last(order, descending)
        sql = f"SELECT {quote_all(table.columns)} FROM {quote(table.name)} WHERE {within} ORDER BY {by}{most}"
        found: pa.RecordBatchReader = db.execute(sql, values).to_arrow_reader(_BATCH)
        for batch in found:
            columns = [exact_cast(column, field.type) for column, field in zip(batch, table.schema, strict=True)]
            yield with_misfits(table, columns, keep=misfits)

    def count(self, table: Table, where: Sequence[Condition] = ()) -> int:
        """Return the number of rows that meet all conditions."""
        within, values = _within(table, where)
        [(number,)] = self._session.execute(f"SELECT count(*) FROM {quote(table.name)} WHERE {within}", values)
        return int(number)


def _within(table: Table, where: Sequence[Condition]) -> tuple[str, list[object]]:
    """Write conditions as SQL with parameters, and return these too."""
    types, fields = sql_types(table), [table.schema.field(one.column) for one in where]
    sides, values = [], []
    for one, field in zip(where, fields, strict=True):
        value = "make_timestamp(?)" if pa.types.is_timestamp(field.type) else "?"
        sides.append(f"{quote(one.column)} {one.operator} CAST({value} AS {types[one.column]})")
        values.append(_bound(one.value, field.type))
    return " AND ".join(sides) or "true", values


def _bound(value: Value, type_: pa.DataType) -> object:
    """Return a value as a parameter; None, which meets no condition, for a decimal that the column cannot hold."""
    if not isinstance(value, Decimal):
        return value
    try:
        return f"{pa.scalar(value, type_).as_py():f}"
    except pa.ArrowInvalid:
        return None


_HELD = ("Could not set lock", "Unique file handle conflict", "different configuration", "already attached")


def _is_held(error: duckdb.Error) -> bool:
    """Whether another process, or another DuckDB of this one, has the file open."""
    return isinstance(error, _HeldError) or any(words in str(error) for words in _HELD)


def translate(error: duckdb.Error, path: str) -> SinkError:
    """Return the SinkError that says what happened to the file and what to do."""
    said = str(error).partition("\n")[0]
    kind: type[SinkError] = SinkError
    if _is_held(error):
        kind, advice = (
            SinkUnavailableError,
            "is open elsewhere, and DuckDB lets only one write it and nobody read meanwhile: close it there",
        )
    elif "not a valid DuckDB database file" in said:
        kind, advice = SinkAddressError, "is not a DuckDB database: give the sink another path"
    elif "we can only read storage versions" in said:
        kind, advice = SinkAddressError, "was written by another version of DuckDB: install that, or give another path"
    elif "CHECKPOINT during DETACH failed" in said:
        advice = (
            "could not take in the log beside it, which keeps what was committed: see if the disk is full or failing"
        )
    elif "Corrupt database file" in said:
        advice = "is damaged: restore it from a copy, or move it away and start over with --fresh"
    elif "Permission denied" in said:
        advice = "may not be written: give write permission on the file and its folder"
    elif "No space left" in said:
        advice = "cannot grow, the disk is full: make room, then start again"
    elif isinstance(error, duckdb.ConstraintException):
        advice = "refused a row"
    elif isinstance(error, duckdb.FatalException | duckdb.IOException | duckdb.SerializationException):
        advice = "could not be read or written: check the disk, or restore the file from a copy"
    else:
        return SinkError(f"{path}: DuckDB says: {said}; what was committed before stays")
    return kind(f"{path} {advice} ({said}); what was committed before stays")


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Raise SinkError for DuckDB's errors within."""
    try:
        yield
    except duckdb.Error as error:
        raise translate(error, path) from error


class DuckDBTables(EmbeddedTables):
    """The tables of pipelines in a DuckDB file; whoever else holds it is waited for `busy` seconds."""

    def __init__(self, *specs: SinkSpec, busy: float = BUSY_SECONDS) -> None:
        super().__init__(DuckDBFile(specs[0].sink.place, busy), *specs)


class DuckDBDatabase(EmbeddedDatabase):
    """The DuckDB file of a sink outside of a run."""

    def __init__(self, sink: DuckDBSink) -> None:
        super().__init__(DuckDBFile(sink.path))
