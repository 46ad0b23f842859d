"""The SQLite sink: each step in one transaction of one connection."""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from windrow.core.changelog import StepOutput
from windrow.core.schema import CLOCKS
from windrow.errors import PipelineError, SinkAddressError, SinkError, SinkUnavailableError
from windrow.expressions import View
from windrow.model import SqliteSink
from windrow.sinks.base import Follows, Run
from windrow.sinks.ownership import (
    Existing,
    FoundTables,
    SchemaMismatch,
    authorize,
    is_new,
    last_to_forget,
    may_clear,
    refuse,
    schema_mismatches,
    still_opened,
    still_owned,
)
from windrow.sinks.sqlite.rows import Decimals, sql_types, times, values
from windrow.sinks.tables import (
    EPOCHS,
    OPENERS,
    OWNERS,
    SHARED,
    Table,
    create_table,
    in_order,
    layout,
    net_changes,
    of_epoch,
    pieces,
    quote,
    quote_all,
    with_plain_reasons,
)


def read_journal(path: Path, table: Table) -> pa.Table:
    """Return the rows of the table of clocks in `CLOCKS`, by epoch; none if the file or the table is not there."""
    if not path.is_file():
        return CLOCKS.empty_table()
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ? COLLATE NOCASE", (table.name,)).fetchone():
            return CLOCKS.empty_table()
        rows = db.execute(
            f'SELECT {quote_all(CLOCKS.names)} FROM {quote(table.name)} ORDER BY epoch, partition, "offset", reason'
        ).fetchall()
    columns = list(zip(*rows, strict=True)) or [()] * len(CLOCKS)
    arrays = [
        times(column) if pa.types.is_timestamp(field.type) else pa.array(column, field.type)
        for column, field in zip(columns, CLOCKS, strict=True)
    ]
    return pa.table(arrays, schema=CLOCKS)


BUSY_SECONDS = 10.0
CACHE_KIB = 65_536
"""Room for the pages that a large step writes: without it, they go to disk and come back within the step."""


def refuse_path(path: str) -> Path:
    """Return the file of a sink's path; raise SinkAddressError if no database can be there."""
    file = Path(path).absolute()
    if file.is_dir():
        msg = f"{path} is a folder: give the sink the path of a file in it"
        raise SinkAddressError(msg)
    blocking = next((above for above in file.parents if above.exists() and not above.is_dir()), None)
    if blocking is not None:
        msg = f"{blocking} in {path} is a file, not a folder: correct the sink's path"
        raise SinkAddressError(msg)
    if not file.parent.is_dir():
        msg = f"the folder {file.parent} of {path} does not exist: create it, or correct the sink's path"
        raise SinkAddressError(msg)
    return file


def connect(path: str, busy: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open a file, which is made if need be, in WAL mode; another writer is waited for `busy` seconds.

    Raise SinkAddressError if no database can be there.
    """
    file = refuse_path(path)
    # A host may commit from another thread than it opened in, though never from two at once.
    db = sqlite3.connect(file, timeout=busy, isolation_level=None, check_same_thread=False)
    try:
        mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    except BaseException:
        db.close()
        raise
    if mode != "wal":
        db.close()
        msg = f"{path} cannot be read while it is written there (SQLite's WAL): put it on a local disk"
        raise SinkAddressError(msg)
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Write all that is within, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


class SqliteTables:
    """Result tables and their companions in an SQLite file, in WAL mode so that anyone can read meanwhile.

    Exactly once: a step and its epoch are one transaction, and it is on disk when `commit` returns (synchronous=FULL):
    neither a killed process nor, on a disk that flushes when told to, a power cut takes it back. What a cut
    interrupts is rolled back by the next to open the file. Another writer is waited for `busy` seconds.

    Times are text in UTC, ``YYYY-MM-DD HH:MM:SS`` and then .fff or .ffffff if there is a fraction. Booleans are
    0 and 1. Decimals go in NUMERIC columns, which keep 15 digits or a 64-bit integer: `commit` raises SinkError for a
    value that would not come back as it was, and with ``decimals: text`` they are text with all digits.
    """

    needs_rows = True
    is_even = True

    def __init__(self, *pipelines: View, busy: float = BUSY_SECONDS) -> None:
        self._tables = [SqliteTable(pipeline) for pipeline in pipelines]
        self._path = self._tables[0].sink.path
        self._pipeline = pipelines[0].name
        self._busy = busy
        self._connection: sqlite3.Connection | None = None
        self._run: Run | None = None
        self._id = str(uuid.uuid4())

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        """Create what is missing; return the last epoch that this run committed, or None.

        A run that `follows` another one is given its tables. Raise SinkError if the file cannot be opened or written,
        or holds other tables or another run's rows.
        """
        self.close()
        with translated(self._path):
            self._connection = connect(self._path, self._busy)
            try:
                with self._transaction() as db:
                    # all are looked at before one is changed
                    found = self._find(db, run)
                    if self._run == run:
                        still_opened(self._id, _opener(db, run), self._tables[0].sink.table)
                    handed_over = [
                        authorize(run, one.layout.own, there, follows)
                        for one, there in zip(self._tables, found, strict=True)
                    ]
                    for one in self._tables:
                        one.create(db)
                        one.claim(db, run)
                    if any(handed_over) and follows is not None:
                        _fence(db, run, follows.epoch)
                    _note_opener(db, run, self._id)
                    last = _last(db, run)
            except BaseException:
                self.close()
                raise
        self._run = run
        return last

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        """Raise what `open` would raise."""
        file = refuse_path(self._path)
        if not all(os.access(one, os.W_OK) for one in (file, file.parent) if one.exists()):
            msg = f"{self._path} cannot be written: give this user write permission on it, and on its folder"
            raise SinkError(msg)
        if not file.exists():
            return
        uri = f"{file.as_uri()}?mode=ro"
        with translated(self._path), closing(sqlite3.connect(uri, timeout=self._busy, uri=True)) as db:
            for one, found in zip(self._tables, self._find(db, run), strict=True):
                authorize(run, one.layout.own, found, follows)
                one.check(db)

    def journal(self) -> pa.Table:
        """Return the clock journal in the file, by epoch; empty if there is none."""
        with translated(self._path):
            return read_journal(Path(self._path), self._tables[0].layout.clocks)

    def clear(self) -> None:
        """Drop the pipeline's tables and their epochs in one transaction; raise SinkError if they are not its own."""
        if not Path(self._path).exists():
            return
        self.close()
        self._run = None
        with translated(self._path):
            self._connection = connect(self._path, self._busy)
            try:
                with self._transaction() as db:
                    found = self._find(db, Run(self._pipeline, ""))
                    for one, there in zip(self._tables, found, strict=True):
                        may_clear(self._pipeline, one.sink.table, there)
                    for there in found:
                        drop_tables(db, there)
            finally:
                self.close()

    def commit(self, epoch: int, *outputs: StepOutput) -> None:
        """Write a step in one transaction; an epoch that is already there changes nothing.

        Raise SinkError if steps are missing before it, for a decimal that NUMERIC would change, or if SQLite fails.
        """
        if self._connection is None or self._run is None:
            msg = "the sink is not open: call open() before commit()"
            raise SinkError(msg)
        with translated(self._path), self._transaction() as db:
            for one in self._tables:
                still_owned(self._run, one.owner(db), one.sink.table)
            still_opened(self._id, _opener(db, self._run), self._tables[0].sink.table)
            if not is_new(epoch, _last(db, self._run), self._tables[0].sink.table):
                return
            _fence(db, self._run, epoch)
            for one, output in zip(self._tables, outputs, strict=True):
                one.write(db, epoch, output)

    def close(self) -> None:
        """Close the file; more than once does no harm."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _find(self, db: sqlite3.Connection, run: Run) -> list[FoundTables]:
        own = [one.sink.table for one in self._tables]
        return [one.find(db, run, own) for one in self._tables]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._connection is None:
            msg = "the sink is not open: call open() first"
            raise SinkError(msg)
        with transaction(self._connection) as db:
            yield db


class SqliteTable:
    """A result table and its companions, within a transaction."""

    def __init__(self, pipeline: View) -> None:
        if not isinstance(pipeline.sink, SqliteSink):
            raise TypeError(pipeline.sink)
        self.sink = pipeline.sink
        self.layout = layout(pipeline, pipeline.sink)
        for table in self.layout.own:
            _refuse_twins(table)

    def find(self, db: sqlite3.Connection, run: Run, own: Sequence[str]) -> FoundTables:
        """Return what is there; `own` are the result tables of the run."""
        present = [table.name for table in self.layout.own if _columns(db, table.name)]
        filled = [name for name in present if db.execute(f"SELECT 1 FROM {quote(name)} LIMIT 1").fetchone()]
        owner = self.owner(db)
        return FoundTables(
            owner=owner,
            owner_last=_last(db, owner) if owner is not None else None,
            last=_last(db, run),
            elsewhere=self._elsewhere(db, run, own),
            present=present,
            filled=filled,
        )

    def create(self, db: sqlite3.Connection) -> None:
        """Check the tables that exist, and create the others."""
        existing = self.check(db)
        for table in self.layout.all:
            if table.name not in existing:
                # A table with a key is stored by its key: half the size, and no second tree to write.
                create = create_table(table, sql_types(table, self.sink.decimals))
                db.execute(create + (" WITHOUT ROWID" if table.key else ""))

    def claim(self, db: sqlite3.Connection, run: Run) -> None:
        """Write down whose the table is, in the place of who had it under any spelling of its name."""
        table = self.sink.table
        db.execute(f"DELETE FROM {quote(OWNERS.name)} WHERE table_name = ? COLLATE NOCASE", (table,))
        db.execute(
            f"INSERT INTO {quote(OWNERS.name)} ({quote_all(OWNERS.columns)}) VALUES (?, ?, ?)",
            (table, run.pipeline, run.id),
        )

    def write(self, db: sqlite3.Connection, epoch: int, output: StepOutput) -> None:
        """Write a step."""
        self._insert(db, self.layout.late, output.late)
        self._insert(db, self.layout.dead, with_plain_reasons(output.dead))
        self._insert(db, self.layout.clocks, of_epoch(epoch, output.clocks))
        for first, changes in pieces(output.changes):
            if self.sink.changelog:
                self._insert(db, self.layout.changes, in_order(epoch, changes, first))
            self._apply(db, epoch, first, changes)

    def _insert(self, db: sqlite3.Connection, table: Table, rows: pa.Table, else_: str = "") -> None:
        """Insert rows; `else_` says what is done where a key is there."""
        if rows.num_rows:
            marks = ", ".join("?" * len(table.columns))
            db.executemany(
                f"INSERT INTO {quote(table.name)} ({quote_all(table.columns)}) VALUES ({marks}) {else_}",
                values(table.name, rows.select(list(table.columns)), self.sink.decimals),
            )

    def _apply(self, db: sqlite3.Connection, epoch: int, first: int, changes: pa.Table) -> None:
        """Bring the result table up to changes of a step, which are the last in the changelog if there is one."""
        table = self.layout.result
        columns, key = quote_all(table.columns), quote_all(table.key)
        updates = ", ".join(f"{quote(c)} = excluded.{quote(c)}" for c in table.columns if c not in table.key)
        upsert = f"ON CONFLICT ({key}) DO UPDATE SET {updates}"
        if self.sink.changelog:
            # Within a row in the order of the changelog, so its last change wins. By key, so that the table's tree is
            # written from left to right. Reading the changelog costs half of binding the rows once more.
            db.execute(
                f"INSERT INTO {quote(table.name)} ({columns}) SELECT {columns} "
                f"FROM {quote(self.layout.changes.name)} WHERE epoch = ? AND seq >= ? "
                f"AND op IN ('insert', 'update_after') ORDER BY {key}, seq {upsert}",
                (epoch, first),
            )
            if not pc.any(pc.equal(changes["op"], "delete")).as_py():
                return
        rows = net_changes(changes, table.key)
        if not self.sink.changelog:
            self._insert(db, table, pa.concat_tables([rows.inserts, rows.updates]), else_=upsert)
        if rows.deletes.num_rows:
            deletes = rows.deletes.select(list(table.key))
            where = " AND ".join(f"{quote(column)} = ?" for column in table.key)
            keys = values(table.name, deletes, self.sink.decimals)
            db.executemany(f"DELETE FROM {quote(table.name)} WHERE {where}", keys)

    def check(self, db: sqlite3.Connection) -> set[str]:
        """Return which of the tables exist; raise SinkError if one of them has other columns."""
        refuse(table_mismatches(db, self.layout.all, self.sink.decimals))
        return {table.name for table in self.layout.all if _columns(db, table.name)}

    def owner(self, db: sqlite3.Connection) -> Run | None:
        """Return the run that writes the result table."""
        if not _columns(db, OWNERS.name):
            return None
        query = f"SELECT pipeline, run FROM {quote(OWNERS.name)} WHERE table_name = ? COLLATE NOCASE"
        row = db.execute(query, (self.sink.table,)).fetchone()
        return None if row is None else Run(*row)

    def _elsewhere(self, db: sqlite3.Connection, run: Run, own: Sequence[str]) -> str | None:
        if not _columns(db, OWNERS.name):
            return None
        query = f"SELECT table_name FROM {quote(OWNERS.name)} WHERE pipeline = ? AND run = ? ORDER BY table_name"
        names = (str(name) for (name,) in db.execute(query, (run.pipeline, run.id)))
        known = {name.lower() for name in own}
        return next((name for name in names if name.lower() not in known), None)


def _fence(db: sqlite3.Connection, run: Run, epoch: int) -> None:
    """Write down that an epoch is committed, in the transaction that commits it; now and then forget old ones."""
    db.execute(
        f"INSERT INTO {quote(EPOCHS.name)} ({quote_all(EPOCHS.columns)}) "
        f"VALUES (?, ?, ?, strftime('%Y-%m-%d %H:%M:%f', 'now'))",
        (run.pipeline, run.id, epoch),
    )
    if (last := last_to_forget(epoch)) is not None:
        query = f"DELETE FROM {quote(EPOCHS.name)} WHERE pipeline = ? AND run = ? AND epoch <= ?"
        db.execute(query, (run.pipeline, run.id, last))


def _opener(db: sqlite3.Connection, run: Run) -> str | None:
    """Return which sink has opened the tables of a run last."""
    query = f"SELECT opener FROM {quote(OPENERS.name)} WHERE pipeline = ? AND run = ?"
    row = db.execute(query, (run.pipeline, run.id)).fetchone() if _columns(db, OPENERS.name) else None
    return None if row is None else str(row[0])


def _note_opener(db: sqlite3.Connection, run: Run, opener: str) -> None:
    """Write down which sink has opened the tables of a run."""
    db.execute(f"REPLACE INTO {quote(OPENERS.name)} VALUES (?, ?, ?)", (run.pipeline, run.id, opener))


def _last(db: sqlite3.Connection, run: Run) -> int | None:
    """Return the last epoch that a run has committed."""
    if not _columns(db, EPOCHS.name):
        return None
    query = f"SELECT max(epoch) FROM {quote(EPOCHS.name)} WHERE pipeline = ? AND run = ?"
    last: int | None = db.execute(query, (run.pipeline, run.id)).fetchone()[0]
    return last


def drop_tables(db: sqlite3.Connection, found: FoundTables) -> None:
    """Drop the tables that were found, and forget the epochs of the run that wrote them."""
    for name in found.present:
        db.execute(f"DROP TABLE {quote(name)}")
    if found.owner is not None:
        owner = (found.owner.pipeline, found.owner.id)
        for shared in SHARED:
            if _columns(db, shared.name):
                db.execute(f"DELETE FROM {quote(shared.name)} WHERE pipeline = ? AND run = ?", owner)


def table_mismatches(db: sqlite3.Connection, tables: Sequence[Table], decimals: Decimals) -> list[SchemaMismatch]:
    """Return how tables that exist differ from those that are expected."""
    found: list[SchemaMismatch] = []
    for table in tables:
        if columns := _columns(db, table.name):
            key = [name for name, _, position, _ in columns if position]
            types = {name: type_ for name, type_, _, _ in columns}
            required = {name for name, _, _, required in columns if required}
            there = Existing(types, key, required, _alter)
            found += schema_mismatches(table, sql_types(table, decimals), there)
    return found


def _columns(db: sqlite3.Connection, table: str) -> list[tuple[str, str, int, int]]:
    """Return name, type, place in the key and whether it is NOT NULL of each column; nothing without a table."""
    kind = db.execute("SELECT type FROM sqlite_master WHERE name = ? COLLATE NOCASE", (table,)).fetchone()
    if kind is None:
        return []
    if kind[0] != "table":
        path = db.execute("PRAGMA database_list").fetchone()[2]
        msg = f"{table!r} in {path} is a {kind[0]}, not a table: choose another table"
        raise SinkError(msg)
    query = 'SELECT name, type, pk, "notnull" FROM pragma_table_info(?)'
    return db.execute(query, (table,)).fetchall()


def _refuse_twins(table: Table) -> None:
    """Raise PipelineError for two columns whose names SQLite cannot tell apart."""
    seen: dict[str, str] = {}
    for name in table.columns:
        quote(name)
        other = seen.setdefault(name.lower(), name)
        if other != name:
            msg = f"the columns {other!r} and {name!r} are one to SQLite, which ignores case: rename one"
            raise PipelineError(msg)


def _alter(table: Table, column: str, type_: str) -> str:
    """Write how a column gets another type or can be null: SQLite has no statement for it, and none for a key."""
    if column in table.key:
        return ""
    there, name, new = quote(table.name), quote(column), quote(f"{column}_new")
    return (
        f"ALTER TABLE {there} ADD COLUMN {new} {type_}; UPDATE {there} SET {new} = {name}; "
        f"ALTER TABLE {there} DROP COLUMN {name}; ALTER TABLE {there} RENAME COLUMN {new} TO {name}"
    )


_ADVICE = {
    "SQLITE_NOTADB": "is not an SQLite database: give the sink another path",
    "SQLITE_CORRUPT": "is damaged: restore it from a copy, or move it away and start over with --fresh",
    "SQLITE_CANTOPEN": "cannot be opened: check that the path is a file in a folder that may be written",
    "SQLITE_READONLY": "may not be written: give write permission on the file and its folder",
    "SQLITE_PERM": "may not be written: give write permission on the file and its folder",
    "SQLITE_BUSY": "is locked by another writer: end that one, then start again",
    "SQLITE_LOCKED": "is locked by another writer: end that one, then start again",
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
    """Return the SinkError that says what happened to the file and what to do."""
    name = getattr(error, "sqlite_errorname", "") or ""
    for prefix, advice in _ADVICE.items():
        if name.startswith(prefix):
            kind = _KINDS.get(prefix, SinkError)
            return kind(f"{path} {advice} ({error}); what was committed before stays")
    return SinkError(f"{path}: SQLite says: {error}; what was committed before stays")


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise SinkError for SQLite's errors within."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error
