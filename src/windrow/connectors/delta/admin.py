"""Delta tables outside of a run: read results, and record replays and redrives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from windrow.connectors.database import Condition, Database, Promoted, Replayed, Snapshot, Value, read_replayed
from windrow.connectors.delta.connector import DeltaSink
from windrow.connectors.delta.folder import ATTEMPTS, DeltaFolder, translate_errors
from windrow.connectors.misfits import Fitted, fit_batch
from windrow.connectors.sink import Run
from windrow.connectors.tables import REDRIVES, REPLAYS, Layout, Table, quote
from windrow.engine.duckdb_sql import literal
from windrow.errors import InputError, SinkError


class DeltaDatabase(Database):
    """The folder that contains a sink's Delta tables."""

    def __init__(self, sink: DeltaSink) -> None:
        self._path = sink.path

    @property
    def place(self) -> str:
        return self._path

    @contextmanager
    def snapshot(self) -> Iterator[DeltaSnapshot]:
        """Open a snapshot in which each table is read at the version that it has when it is first accessed."""
        self._exists()
        with translate_errors(self._path):
            yield DeltaSnapshot(self._path)

    def note(self, replayed: Replayed) -> None:
        self._merge(REPLAYS, replayed.row(), is_new_only=False)

    def note_redrives(self, rows: pa.Table) -> None:
        self._merge(REDRIVES, rows, is_new_only=True)

    def replayed(self, table: str) -> Replayed | None:
        owner = self._folder(table).owner
        if owner is None:
            return None
        with self.snapshot() as snapshot:
            return read_replayed(snapshot, table, owner)

    def stands(self, table: str) -> tuple[Run, int | None] | None:
        folder = self._folder(table)
        return (folder.owner, folder.last(folder.owner)) if folder.owner is not None and folder.owner.id else None

    def mismatches(self, layout: Layout) -> list[str]:
        self._exists()
        folders = [DeltaFolder(self._path, table) for table in layout.own]
        return [mismatch.what for folder in folders if folder.read() for mismatch in folder.mismatches()]

    def promote(self, pipeline: str, tables: Sequence[tuple[str, str]]) -> list[Promoted]:  # noqa: ARG002 - the protocol's
        """Raise SinkError, because several folders cannot be renamed atomically."""
        live, shadow = tables[0]
        msg = (
            f"Delta tables cannot be renamed atomically, so {shadow!r} cannot replace {live!r}: let readers read "
            f"{shadow!r}, and resume from the replay's savepoint (run --from-savepoint, with another --checkpoint) "
            f"with `table: {shadow}`"
        )
        raise SinkError(msg)

    def _folder(self, table: str) -> DeltaFolder:
        folder = DeltaFolder(self._path, Table(table, pa.schema([])))
        folder.read()
        return folder

    def _exists(self) -> None:
        if not Path(self._path).is_dir():
            msg = f"there is no database {self._path}: run the pipeline first, or correct the sink's path"
            raise InputError(msg)

    def _merge(self, table: Table, rows: pa.Table, *, is_new_only: bool) -> None:
        """Insert rows into a shared table; unless `is_new_only`, replace the existing rows with the same keys."""
        folder = DeltaFolder(self._path, table)
        is_same = " AND ".join(f"s.{quote(name)} = t.{quote(name)}" for name in table.key)
        with translate_errors(folder.uri):
            for attempt in range(ATTEMPTS):
                try:
                    deltalake.DeltaTable.create(folder.uri, table.schema, mode="ignore")
                    folder.read()
                    merge = folder.delta.merge(rows, predicate=is_same, source_alias="s", target_alias="t")
                    merge = merge.when_not_matched_insert_all()
                    (merge if is_new_only else merge.when_matched_update_all()).execute()
                except CommitFailedError:
                    # another pipeline has committed its rows
                    if attempt == ATTEMPTS - 1:
                        raise
                else:
                    return


class DeltaSnapshot(Snapshot):
    """Delta tables at fixed versions, queried with DataFusion SQL."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tables: dict[str, DeltaFolder] = {}

    def columns(self, table: str) -> list[str]:
        folder = self._read(table)
        return [field.name for field in folder.delta.schema().fields] if folder is not None else []

    def fetch(self, table: Table, sql: str, values: Sequence[object]) -> Iterator[list[Fitted]]:  # noqa: ARG002 - the contract's
        return (fit_batch(batch, table.schema) for batch in self._query(table, sql))

    def fetch_number(self, table: Table, sql: str, values: Sequence[object]) -> int:  # noqa: ARG002 - the contract's
        (batch,) = self._query(table, sql)
        return int(batch.column(0)[0].as_py())

    def source(self, table: Table) -> str:  # noqa: ARG002 - the contract's
        return "delta"

    def compare(self, field: pa.Field, condition: Condition, number: int) -> str:  # noqa: ARG002 - the contract's
        return f"{quote(field.name)} {condition.operator} {_literal(field, condition.value)}"

    def _read(self, table: str) -> DeltaFolder | None:
        if table not in self._tables:
            folder = DeltaFolder(self._path, Table(table, pa.schema([])))
            if not folder.read():
                return None
            self._tables[table] = folder
        return self._tables[table]

    def _query(self, table: Table, sql: str) -> Iterator[pa.RecordBatch]:
        folder = self._read(table.name)
        if folder is None:
            msg = f"there is no Delta table {table.name!r} in {self._path}"
            raise SinkError(msg)
        return folder.query(sql)


def _literal(field: pa.Field, value: Value) -> str:
    """Write a condition's value in SQL; null, which satisfies no condition, if the column cannot hold the value."""
    if pa.types.is_timestamp(field.type):
        return f"arrow_cast({value}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    if pa.types.is_decimal(field.type):
        try:
            number = pa.scalar(value, field.type)
        except pa.ArrowInvalid:
            return "null"
        return f"arrow_cast('{number.as_py():f}', 'Decimal128({field.type.precision}, {field.type.scale})')"
    return literal(value) if isinstance(value, str) else str(value)
