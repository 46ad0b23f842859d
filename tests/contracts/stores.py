"""The databases that the contract of sinks is tried on, each behind one face."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from itertools import repeat
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from tests.contracts.steps import DAY, MINUTE, RUN, Model, pipeline
from tests.graphs import sink_spec_of
from tests.short_forms import Pipeline
from tests.waiting import wait_until

from windrow.connectors.delta.connector import DeltaSink
from windrow.connectors.duckdb.connector import DuckDBSink
from windrow.connectors.duckdb.tables import DuckDBTables
from windrow.connectors.jsonl.connector import JsonlSink
from windrow.connectors.parquet.connector import ParquetSink
from windrow.connectors.postgres.sink import PostgresTables
from windrow.connectors.registry import sink_connector
from windrow.connectors.sink import Run, Sink
from windrow.connectors.sqlite.tables import SqliteTables
from windrow.connectors.tables import EPOCHS, Layout, Table, layout
from windrow.engine.changelog import StepOutput
from windrow.expressions import SinkSpec
from windrow.model import PostgresSink, SqliteSink

Row = dict[str, Any]
TableSettings = SqliteSink | DuckDBSink | PostgresSink | DeltaSink
Settings = TableSettings | ParquetSink | JsonlSink


class AnyStore(ABC):
    """Where sinks write tables, with a reader of its own."""

    @abstractmethod
    def settings(self, table: str = "spend") -> Settings:
        """The model of a sink that writes there."""

    def open(self, *specs: SinkSpec) -> Sink:
        """A sink of these tables."""
        connector = sink_connector(specs[0].sink)
        sink: Sink = connector.load(connector.tables)(*specs)
        return sink

    @abstractmethod
    def read(self, table: Table, order: str = "") -> list[Row]:
        """The rows of a table, with the values as Arrow would give them."""

    @abstractmethod
    def epochs(self, run: str = "run-1") -> list[int]:
        """The committed epochs of a run."""

    @abstractmethod
    def drop(self, table: str) -> None:
        """Remove a table, as a user might."""

    @abstractmethod
    def owners(self) -> dict[str, str]:
        """The run that each result table belongs to."""

    @abstractmethod
    def give_away(self, run: str) -> None:
        """Say that the table belongs to another run of the pipeline."""

    def unlock(self, sink: Sink) -> None:  # noqa: B027 - few have a lock
        """Take the lock from an open sink by which it keeps other runs away, as if the database had lost it."""

    def holds(self, value: Decimal) -> bool:  # noqa: ARG002 - all of them
        """Whether the store's decimals keep that value."""
        return True

    def is_cleared(self, model: Model) -> bool:
        """Whether there are no rows of the pipeline."""
        return all(not self.read(table) for table in self.tables(model).own)

    def kill_within_commit(self, child: Callable[[], subprocess.Popen[str]]) -> None:
        """Start a child that commits epoch 1, and kill -9 it within that."""
        # The child stops, and says so, when it is asked for the last part of its step.
        with child() as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
            process.kill()

    def model(self, **changed: Any) -> Pipeline:  # noqa: ANN401 - any part of a pipeline
        """The plain pipeline into this store, with parts of it changed."""
        return pipeline(changed.pop("sink", None) or self.settings(), **changed)

    def sink(self, *models: Model, streams: Sequence[str] = ()) -> Sink:
        """A sink of these models' tables."""
        return self.open(
            *(sink_spec_of(model, stream) for model, stream in zip(models, streams or repeat(""), strict=False))
        )

    def tables(self, model: Model) -> Layout:
        """The tables of a pipeline."""
        return layout(sink_spec_of(model))

    def result(self, model: Model) -> list[Row]:
        """The rows of the result table."""
        return self.read(self.tables(model).result, "window_start, 3")

    def changes(self, model: Model) -> list[Row]:
        """The rows of the changelog, in order."""
        return self.read(self.tables(model).changes, "epoch, seq")


class TableStore(AnyStore):
    """Where sinks write tables of results."""

    @abstractmethod
    def settings(self, table: str = "spend", key: tuple[str, ...] = ()) -> TableSettings:
        """The model of a sink that writes there."""

    @abstractmethod
    def add_column(self, table: str, name: str) -> None:
        """Add a column of text to a table, as a user might."""

    @abstractmethod
    def note(self, text: str, user: str) -> None:
        """Set the column `note`, which was added to the result table, in the row of a user."""


class Store(TableStore):
    """A database of SQL."""

    sees_runs = False
    """Whether it knows that a sink is open, also between its steps."""

    @abstractmethod
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement in a connection of its own."""

    @abstractmethod
    def python(self, value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401 - whatever the database gives
        """What the database gave, as what Arrow would give."""

    @abstractmethod
    def index_tables(self, index: str) -> list[str]:
        """The tables that an index of that name is on."""

    def read(self, table: Table, order: str = "") -> list[Row]:
        columns = ", ".join('"' + name.replace('"', '""') + '"' for name in table.columns)
        name = table.name.replace('"', '""')
        rows = self.query(f'SELECT {columns} FROM "{name}"' + (f" ORDER BY {order}" if order else ""))
        return [
            {field.name: self.python(value, field.type) for field, value in zip(table.schema, row, strict=True)}
            for row in rows
        ]

    def epochs(self, run: str = "run-1") -> list[int]:
        return sorted(row["epoch"] for row in self.read(EPOCHS) if row["run"] == run)

    def drop(self, table: str) -> None:
        self.query(f"DROP TABLE {table}")

    def add_column(self, table: str, name: str) -> None:
        self.query(f"ALTER TABLE {table} ADD COLUMN {name} TEXT")

    def note(self, text: str, user: str) -> None:
        self.query(f"UPDATE spend SET note = '{text}' WHERE \"user\" = '{user}'")

    def owners(self) -> dict[str, str]:
        return dict(self.query("SELECT table_name, run FROM windrow_tables"))

    def give_away(self, run: str) -> None:
        self.query(f"UPDATE windrow_tables SET run = '{run}'")

    def is_cleared(self, model: Model) -> bool:
        with pytest.raises(Exception, match=r"no such table|does not exist"):
            self.result(model)
        return True


def _ordered(of: str, table: Table, order: str, found: pa.Table | None = None, **values: Any) -> list[Row]:  # noqa: ANN401 - for DuckDB
    """Rows that DuckDB reads."""
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in table.columns)
    sql = f"SELECT {names} FROM {of}" + (f" ORDER BY {order}" if order else "")
    with duckdb.connect() as db:
        if found is not None:
            db.register("found", found)
        db.execute(sql, values or None)
        read: Any = db.to_arrow_table()
        rows: list[Row] = read.cast(table.schema).to_pylist()
        return rows


class DeltaStore(TableStore):
    """A folder of Delta tables, which Delta Lake's own reader reads."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lake"

    def settings(self, table: str = "spend", key: tuple[str, ...] = ()) -> DeltaSink:
        return DeltaSink(str(self.path), table, key)

    def read(self, table: Table, order: str = "") -> list[Row]:
        return _ordered("found", table, order, DeltaTable(self.path / table.name).to_pyarrow_table())

    def add_column(self, table: str, name: str) -> None:
        DeltaTable(self.path / table).alter.add_columns([Field(name, PrimitiveType("string"))])

    def note(self, text: str, user: str) -> None:
        DeltaTable(self.path / "spend").update(updates={"note": f"'{text}'"}, predicate=f"\"user\" = '{user}'")

    def commits(self, table: str) -> list[list[dict[str, Any]]]:
        """The actions of each version of a table."""
        logs = sorted((self.path / table / "_delta_log").glob("*.json"))
        return [[json.loads(line) for line in log.read_text().strip().split("\n")] for log in logs]

    def epochs(self, run: str = "run-1") -> list[int]:
        found: set[int] = set()
        for folder in self.path.iterdir():
            committed: set[int] = set()
            for actions in self.commits(folder.name):
                for txn in (one["txn"] for one in actions if "txn" in one):
                    if txn["appId"] == f"windrow:{RUN.pipeline}:{run}":
                        committed = committed | {txn["version"]} if txn["version"] >= 0 else set()
            found |= committed
        return sorted(found)

    def drop(self, table: str) -> None:
        shutil.rmtree(self.path / table)

    def owners(self) -> dict[str, str]:
        tables = {folder.name: DeltaTable(folder).metadata().configuration for folder in self.path.iterdir()}
        return {name: one["windrow.run"] for name, one in tables.items() if one["windrow.key"] != "[]"}

    def give_away(self, run: str) -> None:
        for folder in self.path.iterdir():
            DeltaTable(folder).alter.set_table_properties({"windrow.run": run}, raise_if_not_exists=False)


class ParquetStore(AnyStore):
    """A folder of Parquet files, which DuckDB reads."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lake"

    def settings(self, table: str = "spend") -> ParquetSink:
        return ParquetSink(str(self.path), table)

    def read(self, table: Table, order: str = "") -> list[Row]:
        name, _, kind = table.name.rpartition("_")
        if kind in {"changes", "late", "dead", "clocks"}:
            files = [str(file) for file in sorted((self.path / name).glob(f"*/**/*{kind}.parquet"))]
            return _ordered("read_parquet($files)", table, order, files=files) if files else []
        # the last change of each key is its row
        files = [str(file) for file in sorted((self.path / table.name).glob("*/changes.parquet"))]
        changes = Table("", pa.schema([("epoch", pa.int64()), ("seq", pa.int64()), ("op", pa.string()), *table.schema]))
        rows: dict[tuple[Any, ...], Row] = {}
        for row in _ordered("read_parquet($files)", changes, "epoch, seq", files=files) if files else ():
            key = tuple(row[name] for name in table.key)
            rows.pop(key, None)
            if row["op"] in {"insert", "update_after"}:
                rows[key] = {name: row[name] for name in table.columns}
        return _ordered("found", table, order, pa.Table.from_pylist(list(rows.values()), table.schema))

    def epochs(self, run: str = "run-1") -> list[int]:
        # the folder is as it was before, and has the steps of the runs that were followed
        owners = [owner for owner in self.path.glob("*/_owner.json") if json.loads(owner.read_text())["run"] == run]
        return sorted(int(step.name[6:]) for owner in owners for step in owner.parent.glob("epoch=*"))

    def drop(self, table: str) -> None:
        shutil.rmtree(self.path / table, ignore_errors=True)

    def owners(self) -> dict[str, str]:
        found = self.path.glob("*/_owner.json")
        return {owner.parent.name: json.loads(owner.read_text())["run"] for owner in found}

    def give_away(self, run: str) -> None:
        for owner in self.path.glob("*/_owner.json"):
            owner.write_text(json.dumps(json.loads(owner.read_text()) | {"run": run}))

    def is_cleared(self, model: Model) -> bool:
        return not (self.path / model.sink.table).exists()


class JsonlStore(AnyStore):
    """A folder of JSON lines files."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lines"

    def settings(self, table: str = "spend") -> JsonlSink:
        return JsonlSink(str(self.path), table)

    def read(self, table: Table, order: str = "") -> list[Row]:
        name, _, kind = table.name.rpartition("_")
        if kind in {"changes", "late", "dead", "clocks"}:
            begin = "step" if kind == "changes" else kind
            return _ordered("found", table, order, self._rows(name, begin, table.schema))
        # the last change of each key is its row
        schema = pa.schema([("epoch", pa.int64()), ("seq", pa.int64()), ("op", pa.string()), *table.schema])
        rows: dict[tuple[Any, ...], Row] = {}
        for row in (
            self._rows(table.name, "step", schema).sort_by([("epoch", "ascending"), ("seq", "ascending")]).to_pylist()
        ):
            key = tuple(row[name] for name in table.key)
            rows.pop(key, None)
            if row["op"] in {"insert", "update_after"}:
                rows[key] = {name: row[name] for name in table.columns}
        return _ordered("found", table, order, pa.Table.from_pylist(list(rows.values()), table.schema))

    def _rows(self, table: str, begin: str, schema: pa.Schema) -> pa.Table:
        files = sorted((self.path / table).glob(f"{begin}-*.jsonl"))
        lines = [line for file in files for line in file.read_text().split("\n") if line]
        rows = [json.loads(line) for line in lines]
        return pa.Table.from_pylist([{field.name: self._value(row, field) for field in schema} for row in rows], schema)

    def _value(self, row: Row, field: pa.Field) -> Any:  # noqa: ANN401 - of any column
        value, encoded = row[field.name], row.get(f"{field.name}_base64")
        if encoded is not None:
            return base64.b64decode(encoded)
        if value is None:
            return None
        if pa.types.is_timestamp(field.type):
            return datetime.fromisoformat(value)
        if pa.types.is_decimal(field.type):
            return Decimal(value)
        if pa.types.is_floating(field.type):
            return float(value)
        return value.encode() if pa.types.is_binary(field.type) else value

    def epochs(self, run: str = "run-1") -> list[int]:
        # as of Parquet files
        owners = [owner for owner in self.path.glob("*/_owner.json") if json.loads(owner.read_text())["run"] == run]
        return sorted(int(step.stem[5:]) for owner in owners for step in owner.parent.glob("step-*"))

    def drop(self, table: str) -> None:
        shutil.rmtree(self.path / table, ignore_errors=True)

    def owners(self) -> dict[str, str]:
        found = self.path.glob("*/_owner.json")
        return {owner.parent.name: json.loads(owner.read_text())["run"] for owner in found}

    def give_away(self, run: str) -> None:
        for owner in self.path.glob("*/_owner.json"):
            owner.write_text(json.dumps(json.loads(owner.read_text()) | {"run": run}))

    def is_cleared(self, model: Model) -> bool:
        return not (self.path / sink_spec_of(model).sink.table).exists()


class SqliteStore(Store):
    """An SQLite file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "spend.db"

    def settings(self, table: str = "spend", key: tuple[str, ...] = ()) -> SqliteSink:
        return SqliteSink(str(self.path), table, key)

    def open(self, *specs: SinkSpec) -> Sink:
        return SqliteTables(*specs, busy=5)

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


class DuckDBStore(Store):
    """A DuckDB file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "spend.duckdb"

    def settings(self, table: str = "spend", key: tuple[str, ...] = ()) -> DuckDBSink:
        return DuckDBSink(str(self.path), table, key)

    def open(self, *specs: SinkSpec) -> Sink:
        return DuckDBTables(*specs, busy=20)

    def index_tables(self, index: str) -> list[str]:
        return [name for (name,) in self.query(f"SELECT table_name FROM duckdb_indexes() WHERE index_name = '{index}'")]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        found: list[list[tuple[Any, ...]]] = []

        def is_free() -> bool:
            # the sink may hold the file at this moment
            try:
                db = duckdb.connect(str(self.path))
            except duckdb.Error as error:
                if "Unique file handle conflict" not in str(error):
                    raise
                return False
            with db:
                db.execute("SET TimeZone = 'UTC'")
                found.append(db.execute(sql).fetchall())
            return True

        wait_until(is_free, "the file")
        return found[0]

    def python(self, value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401 - the parent's
        if value is not None and pa.types.is_timestamp(type_):
            return value.astimezone(UTC)
        return value


class PostgresStore(Store):
    """A PostgreSQL database."""

    sees_runs = True

    def __init__(self, url: str, *, outbox: bool = False) -> None:
        self.url = url
        self.outbox = outbox

    def settings(self, table: str = "spend", key: tuple[str, ...] = ()) -> PostgresSink:
        return PostgresSink(self.url, table, key, outbox=self.outbox)

    def open(self, *specs: SinkSpec) -> Sink:
        return PostgresTables(*specs, lock_seconds=20)

    def unlock(self, sink: Sink) -> None:
        assert isinstance(sink, PostgresTables)
        with sink._server.writing() as session:  # noqa: SLF001 - there is no other way to lose it
            session.execute("SELECT pg_advisory_unlock_all()")

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


def committed(store: AnyStore, model: Model, *steps: StepOutput, run: Run = RUN) -> None:
    """Commit steps to the store, from where the run stopped."""
    sink = store.sink(model)
    begin = sink.open(run)
    for epoch, output in enumerate(steps, 0 if begin is None else begin + 1):
        sink.commit(epoch, output)
    sink.close()
