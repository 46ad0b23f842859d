"""The databases that the contract of sinks is tried on, each behind one face."""

from __future__ import annotations

import sqlite3
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from tests.contracts.steps import DAY, MINUTE, RUN, pipeline
from tests.waiting import wait_until

from windrow.core.changelog import StepOutput
from windrow.expressions import View
from windrow.model import Pipeline, PostgresSink, SqliteSink, TableSink
from windrow.sinks.base import Run
from windrow.sinks.postgres import PostgresTables
from windrow.sinks.sqlite import SqliteTables
from windrow.sinks.tables import EPOCHS, Layout, Table, layout

Row = dict[str, Any]


class Store(ABC):
    """A database with the sinks that write to it, and a reader of its own."""

    sees_runs = False
    """Whether it knows that a sink is open, also between its steps."""

    @abstractmethod
    def settings(self, table: str = "spend", key: tuple[str, ...] = ()) -> TableSink:
        """The model of a sink that writes there."""

    @abstractmethod
    def sink(self, *models: View) -> SqliteTables | PostgresTables:
        """A sink of these models' tables."""

    @abstractmethod
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement in a connection of its own."""

    @abstractmethod
    def python(self, value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401 - whatever the database gives
        """What the database gave, as what Arrow would give."""

    @abstractmethod
    def holds(self, value: Decimal) -> bool:
        """Whether the database's numeric column keeps that value."""

    @abstractmethod
    def kill_within_commit(self, child: Callable[[], subprocess.Popen[str]]) -> None:
        """Start a child that commits epoch 1, and kill -9 it when it has written some of it."""

    @abstractmethod
    def unlock(self, sink: SqliteTables | PostgresTables) -> None:
        """Take the lock from an open sink by which it keeps other runs away, as if the database had lost it."""

    @abstractmethod
    def index_tables(self, index: str) -> list[str]:
        """The tables that an index of that name is on."""

    def model(self, **changed: Any) -> Pipeline:  # noqa: ANN401 - any part of a pipeline
        """The plain pipeline into this store, with parts of it changed."""
        return pipeline(changed.pop("sink", None) or self.settings(), **changed)

    def tables(self, model: View) -> Layout:
        """The tables of a pipeline."""
        return layout(model, model.sink)

    def read(self, table: Table, order: str = "") -> list[Row]:
        """The rows of a table, with the values as Arrow would give them."""
        columns = ", ".join('"' + name.replace('"', '""') + '"' for name in table.columns)
        name = table.name.replace('"', '""')
        rows = self.query(f'SELECT {columns} FROM "{name}"' + (f" ORDER BY {order}" if order else ""))
        return [
            {field.name: self.python(value, field.type) for field, value in zip(table.schema, row, strict=True)}
            for row in rows
        ]

    def result(self, model: View) -> list[Row]:
        """The rows of the result table."""
        return self.read(self.tables(model).result, "window_start, 3")

    def changes(self, model: View) -> list[Row]:
        """The rows of the changelog, in order."""
        return self.read(self.tables(model).changes, "epoch, seq")

    def epochs(self, run: str = "run-1") -> list[int]:
        """The committed epochs of a run."""
        return sorted(row["epoch"] for row in self.read(EPOCHS) if row["run"] == run)


class SqliteStore(Store):
    """An SQLite file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "spend.db"

    def settings(self, table: str = "spend", key: tuple[str, ...] = ()) -> SqliteSink:
        return SqliteSink(str(self.path), table, key)

    def sink(self, *models: View) -> SqliteTables:
        return SqliteTables(*models, busy=5)

    def unlock(self, sink: SqliteTables | PostgresTables) -> None:
        """It has none."""

    def index_tables(self, index: str) -> list[str]:
        return [name for (name,) in self.query(f"SELECT tbl_name FROM sqlite_master WHERE name = '{index}'")]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            return db.execute(sql).fetchall()

    def python(self, value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401 - the parent's
        if value is None:
            return None
        if pa.types.is_timestamp(type_):
            return datetime.fromisoformat(value).replace(tzinfo=UTC)
        if pa.types.is_decimal(type_):
            return Decimal(str(value))
        return bool(value) if pa.types.is_boolean(type_) else value

    def holds(self, value: Decimal) -> bool:
        digits = "".join(map(str, value.as_tuple().digits)).strip("0")
        return len(digits) <= 15 or (value == int(value) and -(2**63) <= value < 2**63)

    def kill_within_commit(self, child: Callable[[], subprocess.Popen[str]]) -> None:
        # The child stops, and says so, when it is asked for the last part of its step.
        with child() as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
            process.kill()


class PostgresStore(Store):
    """A PostgreSQL database."""

    sees_runs = True

    def __init__(self, url: str, *, outbox: bool = False) -> None:
        self.url = url
        self.outbox = outbox

    def settings(self, table: str = "spend", key: tuple[str, ...] = ()) -> PostgresSink:
        return PostgresSink(self.url, table, key, outbox=self.outbox)

    def sink(self, *models: View) -> PostgresTables:
        return PostgresTables(*models, lock_seconds=20)

    def unlock(self, sink: SqliteTables | PostgresTables) -> None:
        assert isinstance(sink, PostgresTables)
        assert sink._connection is not None  # noqa: SLF001 - there is no other way to lose it
        sink._connection.execute("SELECT pg_advisory_unlock_all()")  # noqa: SLF001 - the same

    def index_tables(self, index: str) -> list[str]:
        return [name for (name,) in self.query(f"SELECT tablename FROM pg_indexes WHERE indexname = '{index}'")]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as db:
            cursor = db.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def python(self, value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401 - the parent's
        if value is not None and pa.types.is_timestamp(type_):
            return value.astimezone(UTC)
        return value

    def holds(self, value: Decimal) -> bool:  # noqa: ARG002 - all of them
        return True

    def kill_within_commit(self, child: Callable[[], subprocess.Popen[str]]) -> None:
        # A lock on the result table stops the step after it has written the changelog.
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'spend'::regclass"
        with psycopg.connect(self.url) as db:
            db.execute("LOCK TABLE spend IN EXCLUSIVE MODE")
            with child() as process:
                assert process.stdin is not None
                process.stdin.write("go on\n")
                process.stdin.flush()
                wait_until(lambda: process.poll() is not None or self.query(waiting) != [(0,)], "the lock")
                assert process.poll() is None
                process.kill()


def brief(rows: list[Row]) -> list[tuple[Any, ...]]:
    """The rows of a result table: minute of the window, user, total, events, pane, revision."""
    names = ("user", "total", "events", "pane", "revision")
    return [((row["window_start"] - DAY) // MINUTE, *(row[name] for name in names)) for row in rows]


def committed(store: Store, model: View, *steps: StepOutput, run: Run = RUN) -> None:
    """Commit steps to the store, from where the run stopped."""
    sink = store.sink(model)
    begin = sink.open(run)
    for epoch, output in enumerate(steps, 0 if begin is None else begin + 1):
        sink.commit(epoch, output)
    sink.close()
