"""An SQLite file outside of a run: read its results, note a replay, promote one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa

from windrow.errors import InputError, SinkError
from windrow.model import SqliteSink
from windrow.sinks.base import Run
from windrow.sinks.database import Promoted, Replayed
from windrow.sinks.ownership import may_promote
from windrow.sinks.sqlite.rows import SqliteSnapshot, sql_types, text, times, values
from windrow.sinks.sqlite.sink import BUSY_SECONDS, connect, table_mismatches, transaction, translated
from windrow.sinks.tables import EPOCHS, OWNERS, REDRIVES, REPLAYS, Layout, create_table, quote, quote_all, table_names


class SqliteDatabase:
    """The file of a sink; another writer is waited for `busy` seconds. See `windrow.sinks.database.Database`."""

    def __init__(self, sink: SqliteSink, *, busy: float = BUSY_SECONDS) -> None:
        self._sink = sink
        self._busy = busy

    @property
    def place(self) -> str:
        """The path, as it was given."""
        return self._sink.path

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """Read what is there now."""
        with self._reading() as db:
            db.execute("BEGIN")
            yield SqliteSnapshot(db, self._sink.decimals)

    def note(self, replayed: Replayed) -> None:
        """Write down what is replayed into a table."""
        begins, ends = replayed.texts()
        run, since = replayed.run, text(replayed.since)
        row = (replayed.table, run.pipeline, run.id, begins, ends, since, int(replayed.finished))
        with translated(self.place), closing(connect(self._sink.path, self._busy)) as db, transaction(db):
            if not _exists(db, REPLAYS.name):
                db.execute(create_table(REPLAYS, sql_types(REPLAYS, "text")) + " WITHOUT ROWID")
            db.execute(
                f"INSERT OR REPLACE INTO {quote(REPLAYS.name)} ({quote_all(REPLAYS.columns)}) "
                f"VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    def note_redrives(self, rows: pa.Table) -> None:
        """Write down copies of dead letters; see `windrow.sinks.database.Database`."""
        marks = ", ".join("?" * len(REDRIVES.columns))
        with translated(self.place), closing(connect(self._sink.path, self._busy)) as db, transaction(db):
            if not _exists(db, REDRIVES.name):
                db.execute(create_table(REDRIVES, sql_types(REDRIVES, "text")) + " WITHOUT ROWID")
            db.executemany(
                f"INSERT OR IGNORE INTO {quote(REDRIVES.name)} ({quote_all(REDRIVES.columns)}) VALUES ({marks})",
                values(REDRIVES.name, rows, "text"),
            )

    def replayed(self, table: str) -> Replayed | None:
        """Return what was replayed into a table by the run that it belongs to; None if it was no replay."""
        with self._reading() as db:
            return _replayed(db, table)

    def stands(self, table: str) -> tuple[Run, int | None] | None:
        """Return whose a result table is and its last epoch; see `windrow.sinks.database.Database`."""
        if not Path(self._sink.path).is_file():
            return None
        with self._reading() as db:
            if not _exists(db, OWNERS.name) or not _exists(db, EPOCHS.name):
                return None
            row = db.execute(
                f"SELECT pipeline, run, (SELECT max(epoch) FROM {quote(EPOCHS.name)} AS e "
                f"WHERE e.pipeline = o.pipeline AND e.run = o.run) "
                f"FROM {quote(OWNERS.name)} AS o WHERE table_name = ? COLLATE NOCASE",
                (table,),
            ).fetchone()
        return None if row is None else (Run(row[0], row[1]), row[2])

    def mismatches(self, layout: Layout) -> list[str]:
        """Return how tables that exist differ from a layout; see `windrow.sinks.database.Database`."""
        with self._reading() as db:
            return [one.what for one in table_mismatches(db, layout.all, self._sink.decimals)]

    def promote(self, pipeline: str, tables: Sequence[tuple[str, str]]) -> list[Promoted]:
        """Put shadows in the place of the live tables; see `windrow.sinks.database.Database`."""
        if not Path(self._sink.path).is_file():
            msg = f"there is no database {self._sink.path}: correct the sink's path"
            raise InputError(msg)
        with translated(self.place), closing(connect(self._sink.path, self._busy)) as db:
            # without it, SQLite would let views and triggers follow a table to its new name
            db.execute("PRAGMA legacy_alter_table = ON")
            with transaction(db):
                return [promote(db, pipeline, table_names(live), table_names(shadow)) for live, shadow in tables]

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        path = Path(self._sink.path)
        if not path.is_file():
            msg = f"there is no database {self._sink.path}: run the pipeline first, or correct the sink's path"
            raise InputError(msg)
        with (
            translated(self.place),
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as db,
        ):
            yield db


def _exists(db: sqlite3.Connection, table: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ? COLLATE NOCASE", (table,)).fetchone() is not None


def _replayed(db: sqlite3.Connection, table: str) -> Replayed | None:
    if not _exists(db, REPLAYS.name) or not _exists(db, OWNERS.name):
        return None
    row = db.execute(
        f"SELECT {quote_all(REPLAYS.columns)} FROM {quote(REPLAYS.name)} "
        f"JOIN {quote(OWNERS.name)} USING (table_name, pipeline, run) WHERE table_name = ? COLLATE NOCASE",
        (table,),
    ).fetchone()
    if row is None:
        return None
    name, pipeline, run, begins, ends, since, finished = row
    return Replayed(
        table=name,
        run=Run(pipeline, run),
        begin=None if begins is None else Replayed.offsets(begins),
        end=Replayed.offsets(ends),
        since=times([since]).cast(pa.int64())[0].as_py(),
        finished=bool(finished),
    )


_ASIDE = "windrow_promoted_aside"


def promote(db: sqlite3.Connection, pipeline: str, live: Sequence[str], shadow: Sequence[str]) -> Promoted:
    """Swap the names of tables, and their owners. Indexes and triggers stay with the names that they were made on.

    So do views and foreign keys, as SQLite finds their tables by name.
    """
    there = {name.lower() for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    owners = (_owner(db, there, live[0]), _owner(db, there, shadow[0]))
    may_promote(pipeline, (live[0], shadow[0]), owners, _replayed(db, shadow[0]))
    is_live = live[0].lower() in there
    made = db.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql IS NOT NULL "
        f"AND lower(tbl_name) IN ({', '.join('?' * (len(live) + len(shadow)))})",
        [name.lower() for name in (*live, *shadow)],
    ).fetchall()
    for type_, name, _ in made:
        db.execute(f"DROP {type_} {quote(name)}")
    for one, other in zip(live, shadow, strict=True):
        _swap(db, one, other, there)
    for type_, name, sql in made:
        try:
            db.execute(sql)
        except sqlite3.Error as exc:
            msg = (
                f"{type_} {name!r} cannot be made on the tables that would take the place of {live[0]!r} ({exc}): "
                f"drop it first; nothing was changed"
            )
            raise SinkError(msg) from exc
    for table, to in ((live[0], _ASIDE), (shadow[0], live[0]), (_ASIDE, shadow[0])):
        query = f"UPDATE {quote(OWNERS.name)} SET table_name = ? WHERE table_name = ? COLLATE NOCASE"
        db.execute(query, (to, table))
    return Promoted(shadow[0] if is_live else None, tuple(f"{type_} {name}" for type_, name, _ in made), ())


def _swap(db: sqlite3.Connection, one: str, other: str, there: set[str]) -> None:
    renames = ((one, _ASIDE), (other, one), (_ASIDE, other))
    for table, to in renames:
        if table == _ASIDE and one.lower() not in there:
            continue
        if table == _ASIDE or table.lower() in there:
            db.execute(f"ALTER TABLE {quote(table)} RENAME TO {quote(to)}")


def _owner(db: sqlite3.Connection, there: set[str], table: str) -> Run | None:
    """Return whose the table is; None if it is not there. Raise SinkError if it is nobody's."""
    if table.lower() not in there:
        return None
    query = f"SELECT pipeline, run FROM {quote(OWNERS.name)} WHERE table_name = ? COLLATE NOCASE"
    row = db.execute(query, (table,)).fetchone() if OWNERS.name in there else None
    if row is None:
        msg = f"table {table!r} is not windrow's: choose another table"
        raise SinkError(msg)
    return Run(*row)
