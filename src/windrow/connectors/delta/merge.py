"""Write the rows of a step to a Delta table, by appending them or by merging them into files with ranges of keys.

Delta Lake's own MERGE writes all rows of the files that it touches into one file. Each step would then rewrite ever
older windows along with its recent ones, and would cost as much as writing the whole table. Here, the rows of those
files and of the step are sorted by key and split into files of `ROWS` rows. Early windows end up in files of their own
that later steps do not touch, so the cost of a step depends only on its windows. Files that contain no key of the step
are skipped using the minimum and maximum of the first key column.

Data files are on disk before a version refers to them.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import deltalake
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction, RemoveAction

from windrow.connectors.delta.folder import DeltaFolder, Write, commit_files
from windrow.connectors.list_columns import stored_sql
from windrow.connectors.step_folder import by_partition, write_parquet
from windrow.connectors.tables import EPOCH, Table, quote_all
from windrow.engine.duckdb_sql import QUERIES, Connection, literal, query
from windrow.errors import SinkError

ROWS = 250_000
"""Number of rows in each file that a merge writes."""
_LONGEST = 256
"""Maximum length of a text in the statistics of a file, in characters."""
_MILLI = 1_000
"""Microseconds by which other writers may round down a maximum, as their statistics are in milliseconds."""


def append(folder: DeltaFolder, rows: pa.Table) -> Write:
    """Write rows to a new file for each partition, and return a write that adds the files.

    Rows in memory-mapped files are read only as they are written.
    """
    # once, however often the commit is tried
    files = list(_files(folder, rows.select(list(folder.table.columns)), EPOCH.name))

    def write(folder: DeltaFolder, properties: deltalake.CommitProperties) -> None:
        commit_files(folder, properties, *files)

    return write


def merge(table: Table, changes: pa.Table) -> Write:
    """Return a write that applies the last change of each key to a table."""
    changes = changes.select([*table.columns, "op"])
    places = _last_places(changes, table.key)

    def write(folder: DeltaFolder, properties: deltalake.CommitProperties) -> None:
        found = _touched(folder, table.key[0], changes)
        now = time.time_ns() // 1_000_000
        removed = (
            RemoveAction(path, data_change=True, deletion_timestamp=now, size=size)
            for path, size in zip(found["path"].to_pylist(), found["size_bytes"].to_pylist(), strict=True)
        )
        added = [
            file
            for rows in _merge_files(folder, table, found, changes, places)
            for file in _files(folder, rows, table.key[0])
        ]
        commit_files(folder, properties, *added, *removed)

    return write


def _last_places(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the row number of the last change of each key as `__place`; large sets of keys spill to disk."""
    keys = _with_places(changes.select([*key, "op"]))
    by = quote_all(list(key))
    sql = f"SELECT max(__place) AS __place FROM keys WHERE op <> 'update_before' GROUP BY {by}"
    return query(Connection(), sql, keys=keys)


def _with_places(changes: pa.Table) -> pa.Table:
    return changes.append_column("__place", pa.array(np.arange(changes.num_rows)))


def _merge_files(
    folder: DeltaFolder, table: Table, files: pa.Table, changes: pa.Table, places: pa.Table
) -> Iterator[pa.Table]:
    """Yield the rows of the files, with the changes at `places` applied, sorted by key in tables of `ROWS` rows.

    The key comes after the columns by which the table is partitioned, which are not in the files. Columns that a user
    has added to the Delta table keep their values.
    """
    others = _others(folder, table) if files.num_rows else pa.schema([])
    schema = pa.schema([*table.stored, *others])
    columns, key = quote_all(list(schema.names)), quote_all(list(table.key))
    sql = f"SELECT {stored_sql(table)} FROM changes SEMI JOIN places USING (__place) WHERE op <> 'delete'"
    partitions = _partitions(folder, table, files)
    if files.num_rows:
        # characters of patterns are escaped
        paths = ", ".join(literal(re.sub(r"[*?\[]", r"[\g<0>]", file)) for file in partitions["__file"].to_pylist())
        options = ", union_by_name = true" if others.names else ""
        stored = f"read_parquet([{paths}], hive_partitioning = false{options})"
        if table.partition_by:
            stored = stored.removesuffix(")") + ", filename = '__file')"
            stored = f"(SELECT * EXCLUDE (__file) FROM {stored} JOIN partitions USING (__file))"
        if others.names:
            # some files may lack them, or all
            stored = f"(FROM {stored} UNION ALL BY NAME FROM others)"
            kept = f"SELECT {quote_all([*table.key, *others.names])} FROM {stored}"
            sql = f"SELECT {columns} FROM ({sql}) LEFT JOIN ({kept}) USING ({key})"
        changed = "(FROM changes SEMI JOIN places USING (__place))"
        sql += f" UNION ALL SELECT {columns} FROM {stored} ANTI JOIN {changed} USING ({key})"
    connection = QUERIES.database().cursor()
    try:
        connection.register("changes", _with_places(changes))
        connection.register("places", places)
        connection.register("partitions", partitions)
        if others.names:
            connection.register("others", others.empty_table())
        batches: list[pa.RecordBatch] = []
        connection.execute(f"{sql} ORDER BY {quote_all([*table.partition_by, *table.key])}")
        found: pa.RecordBatchReader = connection.to_arrow_reader(ROWS)
        for batch in found:
            batches.append(batch)
            while sum(batch.num_rows for batch in batches) >= ROWS:
                rows = pa.Table.from_batches(batches)
                yield rows.slice(0, ROWS).cast(schema)
                batches = rows.slice(ROWS).to_batches()
        if batches and any(batch.num_rows for batch in batches):
            yield pa.Table.from_batches(batches).cast(schema)
    except duckdb.Error as exc:
        msg = f"{folder.uri} cannot be merged: {exc}; what was committed before stays"
        raise SinkError(msg) from exc
    finally:
        connection.close()


def _partitions(folder: DeltaFolder, table: Table, files: pa.Table) -> pa.Table:
    """Return the absolute paths of files as `__file`, with their values of the columns that partition the table."""
    paths = pa.array([str(folder.path / path) for path in files["path"].to_pylist()], pa.string())
    values = {name: files[f"partition.{name}"].cast(table.schema.field(name).type) for name in table.partition_by}
    return pa.table({"__file": paths, **values})


def _others(folder: DeltaFolder, table: Table) -> pa.Schema:
    """Return the columns that a user has added to a Delta table."""
    fields = pa.schema(folder.delta.schema().to_arrow())
    return pa.schema([field for field in fields if field.name not in table.columns])


def _touched(folder: DeltaFolder, column: str, changes: pa.Table) -> pa.Table:
    """Return the add actions of the files that may contain values of `column` that occur in the changes."""
    files = pa.table(folder.delta.get_add_actions(flatten=True))
    values = _plain(changes[column].unique().sort())
    bounds = [
        _plain(files[name]) if name in files.column_names else [None] * files.num_rows
        for name in (f"min.{column}", f"max.{column}")
    ]
    more = _MILLI if pa.types.is_timestamp(changes[column].type) else None
    return files.take(
        pa.array(
            [
                number
                for number, (least, greatest) in enumerate(zip(*bounds, strict=True))
                if least is None
                or greatest is None
                or (
                    (at := bisect_left(values, least)) < len(values)
                    and values[at] <= (greatest + more if more else greatest)
                )
            ],
            pa.int64(),
        )
    )


def _plain(values: pa.ChunkedArray) -> list[Any]:
    """Convert values to comparable Python values; times are microseconds."""
    listed: list[Any] = (values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_pylist()
    return listed


def _files(folder: DeltaFolder, rows: pa.Table, column: str) -> Iterator[AddAction]:
    """Write rows to new files of a table, one for each partition."""
    for values, part in by_partition(rows, folder.table.partition_by):
        yield _file(folder, part.drop_columns(list(values)), column, values)


def _file(folder: DeltaFolder, rows: pa.Table, column: str, values: dict[str, str | None]) -> AddAction:
    """Write rows to a new file of a partition, recording the minimum and maximum of `column` in its statistics."""
    path = folder.path / f"part-{uuid.uuid4()}.parquet"
    write_parquet(path, rows, folder.table.lists)
    found = path.stat()
    return AddAction(
        path=path.name,
        size=found.st_size,
        partition_values=values,
        modification_time=found.st_mtime_ns // 1_000_000,
        data_change=True,
        # Delta Lake reads escapes of characters from U+20000 on as other characters
        stats=json.dumps({"numRecords": rows.num_rows, **_bounds(rows, column)}, ensure_ascii=False),
    )


def _bounds(rows: pa.Table, column: str) -> dict[str, dict[str, Any]]:
    """Return a column's minimum and maximum in Delta's format, empty if they cannot be written as statistics."""
    if column not in rows.column_names:
        return {}
    field = rows.schema.field(column)
    bounds = pc.min_max(rows[column])
    try:
        least, greatest = (_statistic(bounds[name], field.type) for name in ("min", "max"))
    except (ValueError, OverflowError):
        return {}
    return {"minValues": {column: least}, "maxValues": {column: greatest}, "nullCount": {column: 0}}


def _statistic(value: pa.Scalar, type_: pa.DataType) -> str | int:
    """Format a value for Delta's statistics; raise ValueError if its type is not supported or it is too long."""
    if pa.types.is_timestamp(type_):
        return f"{value.as_py().replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    if pa.types.is_integer(type_):
        return int(value.as_py())
    if pa.types.is_string(type_) and len(text := value.as_py()) <= _LONGEST:
        return str(text)
    msg = f"no statistics of {type_}"
    raise ValueError(msg)
