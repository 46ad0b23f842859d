"""An SQLite file beside a run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa

from windrow.errors import InputError
from windrow.model import SqliteSink
from windrow.sinks.base import Run
from windrow.sinks.database import Promoted, Replayed
from windrow.sinks.layout import EPOCHS, OWNERS, REPLAYS, create_table, table_names
from windrow.sinks.quote import quote, quote_all
from windrow.sinks.sqlite.errors import translated
from windrow.sinks.sqlite.promote import promote
from windrow.sinks.sqlite.rows import SqliteSnapshot, text, times
from windrow.sinks.sqlite.session import BUSY_SECONDS, connect, transaction
from windrow.sinks.sqlite.values import sql_types


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

    def promote(self, pipeline: str, live: str, shadow: str) -> Promoted:
        """Put the shadow's tables in the place of the live ones; see `windrow.sinks.database.Database`."""
        if not Path(self._sink.path).is_file():
            msg = f"there is no database {self._sink.path}: correct the sink's path"
            raise InputError(msg)
        with translated(self.place), closing(connect(self._sink.path, self._busy)) as db:
            names = (table_names(live), table_names(shadow))
            return promote(db, pipeline, *names, lambda: _replayed(db, shadow))

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
