"""Delta tables outside of a run: read results, note replays and redrives."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from windrow.connectors.database import Condition, Promoted, Replayed, read_replayed
from windrow.connectors.delta.connector import DeltaSink
from windrow.connectors.delta.folder import ATTEMPTS, DeltaFolder, translated
from windrow.connectors.misfits import exact_cast, with_misfits
from windrow.connectors.sink import Run
from windrow.connectors.tables import REDRIVES, REPLAYS, Layout, Table, nulls_last, quote, quote_all
from windrow.engine.duckdb_sql import literal
from windrow.errors import InputError, SinkError


class DeltaDatabase:
    """The folder of a sink's tables. See `windrow.connectors.database.Database`."""

    def __init__(self, sink: DeltaSink) -> None:
        self._path = sink.path

    @property
    def place(self) -> str:
        """The folder, as it was given."""
        return self._path

    @contextmanager
    def snapshot(self) -> Iterator[DeltaSnapshot]:
        """Read each table at the version that it has when it is first asked for."""
        self._exists()
        with translated(self._path):
            yield DeltaSnapshot(self._path)

    def note(self, replayed: Replayed) -> None:
        """Write down what is replayed into a table."""
        self._merge(REPLAYS, replayed.row(), is_new_only=False)

    def note_redrives(self, rows: pa.Table) -> None:
        """Write down copies of dead letters; see `windrow.connectors.database.Database`."""
        self._merge(REDRIVES, rows, is_new_only=True)

    def replayed(self, table: str) -> Replayed | None:
        """Return what was replayed into a table by the run that it belongs to; None if it was no replay."""
        owner = self._folder(table).owner
        if owner is None:
            return None
        with self.snapshot() as snapshot:
            return read_replayed(snapshot, table, owner)

    def stands(self, table: str) -> tuple[Run, int | None] | None:
        """Return whose a result table is and its last epoch; see `windrow.connectors.database.Database`."""
        folder = self._folder(table)
        return (folder.owner, folder.last(folder.owner)) if folder.owner is not None and folder.owner.id else None

    def mismatches(self, layout: Layout) -> list[str]:
        """Return how tables that exist differ from a layout; see `windrow.connectors.database.Database`."""
        self._exists()
        folders = [DeltaFolder(self._path, table) for table in layout.own]
        return [mismatch.what for folder in folders if folder.read() for mismatch in folder.mismatches()]

    def promote(self, pipeline: str, tables: Sequence[tuple[str, str]]) -> list[Promoted]:  # noqa: ARG002 - the protocol's
        """Raise SinkError: no rename of several folders is seen at once."""
        live, shadow = tables[0]
        msg = (
            f"Delta tables cannot change their names at one moment, so {shadow!r} cannot take the place of {live!r}: "
            f"let readers read {shadow!r}, and continue from the replay's savepoint (run --from-savepoint, with "
            f"another --checkpoint) with `table: {shadow}`"
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
        """Add rows to a table that all pipelines share; unless `is_new_only` they replace those of their key."""
        folder = DeltaFolder(self._path, table)
        is_same = " AND ".join(f"s.{quote(name)} = t.{quote(name)}" for name in table.key)
        with translated(folder.uri):
            for attempt in range(ATTEMPTS):
                try:
                    deltalake.DeltaTable.create(folder.uri, table.schema, mode="ignore")
                    folder.read()
                    merge = folder.delta.merge(rows, predicate=is_same, source_alias="s", target_alias="t")
                    merge = merge.when_not_matched_insert_all()
                    (merge if is_new_only else merge.when_matched_update_all()).execute()
                except CommitFailedError:
                    # another pipeline writes its own
                    if attempt == ATTEMPTS - 1:
                        raise
                else:
                    return


class DeltaSnapshot:
    """Tables at their versions; see `windrow.connectors.database.Snapshot`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tables: dict[str, DeltaFolder] = {}

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns; none if there is no such table."""
        folder = self._read(table)
        return [field.name for field in folder.delta.schema().fields] if folder is not None else []

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
        most = "" if limit is None else f"LIMIT {limit:d}"
        by = nulls_last(order, descending)
        for batch in self._query(table, quote_all(table.columns), where, f"ORDER BY {by} {most}"):
            columns = [exact_cast(column, field.type) for column, field in zip(batch, table.schema, strict=True)]
            yield with_misfits(table, columns, keep=misfits)

    def count(self, table: Table, where: Sequence[Condition] = ()) -> int:
        """Return the number of rows that meet all conditions."""
        (batch,) = self._query(table, "count(*)", where, "")
        return int(batch.column(0)[0].as_py())

    def _read(self, table: str) -> DeltaFolder | None:
        if table not in self._tables:
            folder = DeltaFolder(self._path, Table(table, pa.schema([])))
            if not folder.read():
                return None
            self._tables[table] = folder
        return self._tables[table]

    def _query(self, table: Table, what: str, where: Sequence[Condition], then: str) -> Iterator[pa.RecordBatch]:
        folder = self._read(table.name)
        if folder is None:
            msg = f"there is no Delta table {table.name!r} in {self._path}"
            raise SinkError(msg)
        sides = [f"{quote(one.column)} {one.operator} {_value(table.schema.field(one.column), one)}" for one in where]
        yield from folder.query(f"SELECT {what} FROM delta WHERE {' AND '.join(sides) or 'true'} {then}")


def _value(field: pa.Field, condition: Condition) -> str:
    """Write the value of a condition in the SQL of DataFusion; null, which meets none, if the column cannot hold it."""
    if pa.types.is_timestamp(field.type):
        return f"arrow_cast({condition.value}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    if pa.types.is_decimal(field.type):
        try:
            value = pa.scalar(condition.value, field.type)
        except pa.ArrowInvalid:
            return "null"
        return f"arrow_cast('{value.as_py():f}', 'Decimal128({field.type.precision}, {field.type.scale})')"
    return literal(condition.value) if isinstance(condition.value, str) else str(condition.value)
