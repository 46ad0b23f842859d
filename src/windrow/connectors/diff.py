"""Compare two result tables row by row: those of two pipelines, or those in two SQLite files."""

from __future__ import annotations

import functools
import json
import math
import sqlite3
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.connectors.database import Database, Snapshot, WindowRange, columns_of, only_columns
from windrow.connectors.misfits import MISFITS, kind_of
from windrow.connectors.open_sinks import open_database
from windrow.connectors.tables import Table, layout, quote, quote_all, utc_text
from windrow.engine.schema import row_key
from windrow.errors import InputError
from windrow.expressions import SinkSpec

_ABOUT = ("pane", "revision")
"""Columns that describe how a result was obtained rather than the result itself."""


@dataclass(frozen=True)
class Compared:
    """The result of a comparison of two tables, limited to the windows within `bounds`.

    `only_here` and `only_there` are the names of columns that only one of the tables has.
    """

    found: Comparison
    bounds: WindowRange
    key: tuple[str, ...]
    columns: tuple[str, ...]
    only_here: tuple[str, ...]
    only_there: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether the tables have equal rows, each key only once, and the same columns."""
        return self.found.is_same and not self.only_here and not self.only_there


def compare_answers(
    here: SinkSpec, there: SinkSpec, bounds: WindowRange, *, limit: int, panes: bool = False
) -> Compared:
    """Compare the result tables of two pipelines' sinks; with `panes`, including the columns pane and revision.

    If one of the tables was written by a replay that starts at a given time, only the windows that end after this time
    are compared. Results without windows are always compared in full. Raise InputError if a table does not exist, or if
    the tables have different keys.
    """
    tables = layout(here).result, layout(there).result
    databases = open_database(here.sink), open_database(there.sink)
    replays = (database.replayed(table.name) for database, table in zip(databases, tables, strict=True))
    since = [replay.since for replay in replays if replay is not None and replay.since is not None]
    bounds = replace(bounds, after=max([*since, *([] if bounds.after is None else [bounds.after])], default=None))
    key = (*(field.name for field in row_key(here.rows)), *(("revision",) if here.discards else ()))
    _same_key([table.schema for table in tables], key)
    if not here.rows.has_panes:
        bounds = WindowRange()
    with ExitStack() as stack:
        # two tables in one database, as of one moment
        first = stack.enter_context(databases[0].snapshot())
        is_one = here.sink.database == there.sink.database
        snapshots = (first, first if is_one else stack.enter_context(databases[1].snapshot()))
        columns = [
            _keyed_columns(snapshot, database, table, key)
            for snapshot, database, table in zip(snapshots, databases, tables, strict=True)
        ]
        left_out = () if panes else tuple(name for name in _ABOUT if name not in key)
        both = [
            name
            for name in tables[0].columns
            if name in columns[0] and name in columns[1] and name in tables[1].columns and name not in left_out
        ]
        left, right = (
            snapshot.rows(only_columns(table, both), key, bounds.conditions, misfits=True)
            for snapshot, table in zip(snapshots, tables, strict=True)
        )
        found = compare(left, right, key, limit)
    return Compared(
        found=found,
        bounds=bounds,
        key=key,
        columns=tuple(name for name in both if name not in key),
        only_here=tuple(name for name in columns[0] if name not in columns[1]),
        only_there=tuple(name for name in columns[1] if name not in columns[0]),
    )


def _same_key(schemas: Sequence[pa.Schema], key: Sequence[str]) -> None:
    """Raise InputError if a key column has a different kind of type in each table."""
    for name in key:
        kinds = [kind_of(schema.field(name).type) for schema in schemas if name in schema.names]
        if len(set(kinds)) > 1:
            msg = f"the key column {name!r} is {kinds[0]} here and {kinds[1]} there: compare another table"
            raise InputError(msg)


def _keyed_columns(snapshot: Snapshot, database: Database, table: Table, key: Sequence[str]) -> list[str]:
    """Return the columns of a table; raise InputError if a key column is missing."""
    columns = columns_of(snapshot, database, table)
    missing = [name for name in key if name not in columns]
    if missing:
        msg = (
            f"table {table.name!r} has no column {missing[0]!r}, so its rows have a different key: compare another "
            "table"
        )
        raise InputError(msg)
    return columns


Number = int | float | Decimal
Kind = Literal["here", "there", "differs"]
OneSide = Literal["here", "there"]
KINDS: Final[tuple[OneSide, OneSide]] = ("here", "there")
_WIDE = 76
"""Digits with which decimals of different scales are compared and added."""


@dataclass
class Side:
    """One side of a comparison: its number of rows, and the sum of each numeric column.

    Sums of integers and decimals are exact. `repeated` is the number of rows with the same key as an earlier row;
    `first_repeated` has the first two rows of the first such key, with values as in `RowDifference`.
    """

    rows: int = 0
    repeated: int = 0
    first_repeated: tuple[dict[str, Any], ...] = ()
    sums: dict[str, Number] = field(default_factory=dict)


@dataclass(frozen=True)
class RowDifference:
    """A key whose rows differ, with the values on each side. A side that has no such row is None.

    Times, decimals, bytes, non-finite numbers, and values that do not have their column's type are given as text.
    """

    kind: Kind
    key: dict[str, Any]
    here: dict[str, Any] | None
    there: dict[str, Any] | None


@dataclass
class Comparison:
    """The result of comparing two sides row by row.

    `only_here`, `only_there` and `different` are numbers of rows, and `first` has the first differences in key order.
    """

    here: Side = field(default_factory=Side)
    there: Side = field(default_factory=Side)
    only_here: int = 0
    only_there: int = 0
    different: int = 0
    first: list[RowDifference] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        """Whether the rows are equal, and each key has only one."""
        is_repeated = self.here.repeated or self.there.repeated
        has_differences = self.only_here or self.only_there or self.different
        return self.here.rows == self.there.rows and not has_differences and not is_repeated


def compare(here: Iterator[pa.Table], there: Iterator[pa.Table], key: Sequence[str], limit: int) -> Comparison:
    """Compare two sides whose rows are sorted by key and have the same columns.

    Either side may also have the column of misfits. A side may repeat a key. All rows of a repeated key are compared as
    a set, and so are rows in which a part of the key is null or a misfit. Memory holds a few tables of each side, and
    all rows without a complete key. At most `limit` differences are kept; further differences are only counted.
    """
    comparer = _Comparer(key, limit)
    sides = _Rows(here, key), _Rows(there, key)
    while all(side.fill() for side in sides):
        bound = min(side.last for side in sides)
        left, right = (side.take(bound) for side in sides)
        comparer.add(left, right)
        comparer.compare(left, right)
    for kind, rest in zip(KINDS, sides, strict=True):
        while rest.fill():
            comparer.add_only(kind, rest.take(rest.last))
    keyless = [pa.concat_tables(side.keyless, **_PERMISSIVE) if side.keyless else None for side in sides]
    schema = next((rows.schema for rows in keyless if rows is not None), None)
    if schema is not None:
        left, right = _alike(*(schema.empty_table() if rows is None else rows for rows in keyless))
        comparer.add(left, right)
        comparer.compare_as_sets(left, right)
    return comparer.found


_PERMISSIVE: Final = {"promote_options": "permissive"}
"""Allows concatenating tables whose decimals have different scales."""


class _Rows:
    """Reads one side of a comparison, continuing after the rows that were already compared.

    `keyless` collects the rows in which a part of the key is null. They are in no particular order.
    """

    def __init__(self, tables: Iterator[pa.Table], key: Sequence[str]) -> None:
        self._tables = tables
        self._key = key
        self._held: pa.Table | None = None
        self._ahead: pa.Table | None = None
        self.keyless: list[pa.Table] = []

    def fill(self) -> bool:
        """Read more rows if none are buffered, keeping all rows of a key together; return False at the end."""
        if self._held is not None and self._held.num_rows:
            return True
        self._held, self._ahead = self._ahead or self._next(), None
        if self._held is None:
            return False
        while (more := self._next()) is not None and self._at(more, 0) == self.last:
            self._held = pa.concat_tables([self._held, more], **_PERMISSIVE)
        self._ahead = more
        return True

    def _next(self) -> pa.Table | None:
        for table in self._tables:
            rows = table
            if MISFITS.name not in table.schema.names:
                rows = table.append_column(MISFITS, pa.nulls(table.num_rows, MISFITS.type))
            lacks = [pc.is_null(rows.column(name)) for name in self._key if rows.column(name).null_count]
            if lacks:
                is_keyless = functools.reduce(pc.or_, lacks)
                self.keyless.append(rows.filter(is_keyless))
                rows = rows.filter(pc.invert(is_keyless))
            if rows.num_rows:
                return rows
        return None

    @property
    def last(self) -> tuple[Any, ...]:
        """The last key in the buffer."""
        return self._at(self._rows, self._rows.num_rows - 1)

    def take(self, bound: tuple[Any, ...]) -> pa.Table:
        """Remove the rows up to and including a key from the buffer, and return them."""
        rows = self._rows
        count = bisect_right(range(rows.num_rows), bound, key=lambda number: self._at(rows, number))
        self._held = rows.slice(count)
        return rows.slice(0, count)

    @property
    def _rows(self) -> pa.Table:
        if self._held is None:
            msg = "call fill() first"
            raise ValueError(msg)
        return self._held

    def _at(self, rows: pa.Table, number: int) -> tuple[Any, ...]:
        return _key_at(rows, self._key, number)


def _key_at(rows: pa.Table, key: Sequence[str], number: int) -> tuple[Any, ...]:
    columns = (rows.column(name) for name in key)
    return tuple(
        column[number].value if pa.types.is_timestamp(column.type) else column[number].as_py() for column in columns
    )


def _repeats(rows: pa.Table, key: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the numbers of the rows that have the same key as the row before; keys with nulls are never equal."""
    is_same = np.ones(max(0, rows.num_rows - 1), dtype=np.bool_)
    for name in key:
        column = rows.column(name).combine_chunks()
        is_same &= pc.equal(column[1:], column[:-1]).fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - Arrow's
    return np.flatnonzero(is_same) + 1


class _Comparer:
    def __init__(self, key: Sequence[str], limit: int) -> None:
        self.found = Comparison()
        self._key = key
        self._limit = limit

    def add(self, left: pa.Table, right: pa.Table) -> None:
        for side, rows in ((self.found.here, left), (self.found.there, right)):
            self._add(side, rows)

    def add_only(self, kind: OneSide, rows: pa.Table) -> None:
        self._add(getattr(self.found, kind), rows)
        self._count(kind, rows.num_rows)
        for row in _shown(rows.slice(0, max(0, self._limit - len(self.found.first)))):
            self._keep_only(kind, row)

    def _add(self, side: Side, rows: pa.Table) -> None:
        side.rows += rows.num_rows
        repeats = _repeats(rows, self._key)
        if len(repeats):
            side.repeated += len(repeats)
            if not side.first_repeated:
                side.first_repeated = tuple(_with_misfits(row) for row in _shown(rows.slice(int(repeats[0]) - 1, 2)))
        for column in rows.schema:
            values = rows.column(column.name)
            if column.name in self._key:
                continue
            if pa.types.is_floating(column.type):
                total: Number = pc.sum(values).as_py() or 0.0
            elif pa.types.is_decimal(column.type) or pa.types.is_integer(column.type):
                scale = column.type.scale if pa.types.is_decimal(column.type) else 0
                exact = pc.sum(values.cast(pa.decimal256(_WIDE, scale))).as_py() or Decimal(0)
                total = exact if scale else int(exact)
            else:
                continue
            side.sums[column.name] = total + side.sums.get(column.name, type(total)(0))  # type: ignore[operator]

    def compare(self, left: pa.Table, right: pa.Table) -> None:
        found, key = self.found, self._key
        left, right = _alike(left, right)
        if left.equals(right):
            return
        repeated = {_key_at(rows, key, int(number)) for rows in (left, right) for number in _repeats(rows, key)}
        if repeated:
            masks = [
                pa.array([_key_at(rows, key, row) in repeated for row in range(rows.num_rows)], pa.bool_())
                for rows in (left, right)
            ]
            self.compare_as_sets(left.filter(masks[0]), right.filter(masks[1]))
            left, right = (rows.filter(pc.invert(mask)) for rows, mask in zip((left, right), masks, strict=True))
        names = [name for name in left.schema.names if name not in key]
        keys = [f"key.{name}" for name in key]
        marked = [
            table.rename_columns(
                [f"key.{name}" if name in key else f"{mark}.{name}" for name in table.schema.names]
            ).append_column(mark, pa.array(np.ones(table.num_rows, dtype=np.bool_)))
            for mark, table in zip(KINDS, (left, right), strict=True)
        ]
        joined = marked[0].join(marked[1], keys, join_type="full outer", use_threads=False)
        is_here, is_there = (pc.is_valid(joined.column(mark)) for mark in KINDS)
        both = pc.and_(is_here, is_there)
        differs = pa.array(np.zeros(joined.num_rows, dtype=np.bool_))
        for name in names:
            differs = pc.or_(differs, _unequal(joined.column(f"here.{name}"), joined.column(f"there.{name}")))
        differs = pc.and_(differs, both)
        found.only_here += pc.sum(pc.invert(is_there)).as_py() or 0
        found.only_there += pc.sum(pc.invert(is_here)).as_py() or 0
        found.different += pc.sum(differs).as_py() or 0
        room = self._limit - len(found.first)
        if room <= 0:
            return
        rows = joined.filter(pc.or_(differs, pc.invert(both))).sort_by([(name, "ascending") for name in keys])
        for row in _shown(rows.slice(0, room)):
            kind: Kind = "differs" if row["here"] and row["there"] else "here" if row["here"] else "there"
            sides = ({name: row[f"{mark}.{name}"] for name in names} if row[mark] else None for mark in KINDS)
            found.first.append(_row_difference(kind, {name: row[f"key.{name}"] for name in key}, *sides))

    def compare_as_sets(self, left: pa.Table, right: pa.Table) -> None:
        """Pair equal rows of both sides, for rows that a key does not identify."""
        sides = [list(_shown(rows)) for rows in (left, right)]
        counts = [Counter(map(repr, rows)) for rows in sides]
        for kind, rows, rest in zip(KINDS, sides, (counts[0] - counts[1], counts[1] - counts[0]), strict=True):
            self._count(kind, rest.total())
            for row in rows:
                if len(self.found.first) >= self._limit or not rest:
                    break
                if rest[repr(row)]:
                    rest -= Counter([repr(row)])
                    self._keep_only(kind, row)

    def _count(self, kind: OneSide, rows: int) -> None:
        if kind == "here":
            self.found.only_here += rows
        else:
            self.found.only_there += rows

    def _keep_only(self, kind: OneSide, row: dict[str, Any]) -> None:
        values = {name: value for name, value in row.items() if name not in self._key}
        sides = (values, None) if kind == "here" else (None, values)
        self.found.first.append(_row_difference(kind, {name: row[name] for name in self._key}, *sides))


def _row_difference(
    kind: Kind, key: dict[str, Any], here: dict[str, Any] | None, there: dict[str, Any] | None
) -> RowDifference:
    """Return a difference in which misfits, kept as text, replace the nulls of their columns."""
    for side in (here, there):
        for name, text in json.loads((side or {}).pop(MISFITS.name, None) or "{}").items():
            (key if name in key else side or {})[name] = text
    return RowDifference(kind, key, here, there)


def _with_misfits(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row in which misfits, kept as text, replace the nulls of their columns."""
    misfits: dict[str, str] = json.loads(row.pop(MISFITS.name, None) or "{}")
    return row | misfits


def _alike(left: pa.Table, right: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Convert the columns of two tables to common types in which equal values compare equal."""
    columns = [_alike_columns(left.column(name), right.column(name)) for name in left.schema.names]
    return tuple(pa.table(list(side), names=left.schema.names) for side in zip(*columns, strict=True))


def _alike_columns(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Convert two columns to a common type: decimals for exact numbers, otherwise text if their types differ."""
    types = left.type, right.type
    if types[0] == types[1]:
        return left, right
    if all(pa.types.is_decimal(type_) or pa.types.is_integer(type_) for type_ in types):
        scale = max(type_.scale if pa.types.is_decimal(type_) else 0 for type_ in types)
        return tuple(column.cast(pa.decimal256(_WIDE, scale)) for column in (left, right))
    return tuple(
        pa.chunked_array([pa.array(map(_as_text, column.to_pylist()), pa.string())]) for column in (left, right)
    )


def _as_text(value: object) -> str | None:
    """Convert a value to text that is the same for equal numbers of different types."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case int() | Decimal():
            return f"{Decimal(value).normalize(_EXACT):f}"
        case float() if math.isfinite(value):
            return f"{Decimal(repr(value)).normalize(_EXACT):f}"
        case bytes():
            return value.hex()
        case _:
            return str(value)


_EXACT = Context(prec=_WIDE)


def _unequal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the mask of values that differ. Nulls equal each other, and so do NaNs."""
    unequal = pc.fill_null(pc.not_equal(left, right), fill_value=False)
    if pa.types.is_floating(left.type):
        neither = pc.and_(pc.is_nan(left), pc.is_nan(right))
        unequal = pc.and_(unequal, pc.invert(pc.fill_null(neither, fill_value=False)))
    return pc.or_(unequal, pc.xor(pc.is_null(left), pc.is_null(right)))


def _shown(rows: pa.Table) -> Iterable[dict[str, Any]]:
    """Convert rows to JSON values: times, decimals, bytes and non-finite numbers become text."""
    columns = []
    for column in rows.columns:
        values = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        if pa.types.is_timestamp(values.type):
            values = utc_text(values)
        listed = values.to_pylist()
        if pa.types.is_decimal(values.type):
            listed = [None if value is None else f"{value:f}" for value in listed]
        elif pa.types.is_binary(values.type):
            listed = [None if value is None else f"x'{value.hex()}'" for value in listed]
        elif pa.types.is_floating(values.type):
            listed = [value if value is None or math.isfinite(value) else str(value) for value in listed]
        columns.append(listed)
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


_LONGEST_TEXT = 256 << 20
"""Maximum size, as text, of a table that is compared as a whole; larger tables are compared row by row."""


def differences(spec: SinkSpec, left: Path, right: Path) -> list[str]:
    """Compare the tables of a sink in two SQLite files; return one line per differing table with its first difference.

    Epochs and the order of rows with different keys are ignored, because they depend on how the log was divided into
    steps.
    """
    tables = layout(spec)
    key = tuple(field.name for field in row_key(spec.rows))
    orders = (
        (tables.result, tables.result.key),
        (tables.changes, (*key, "epoch", "seq")),
        (tables.late, tables.late.order),
        (tables.dead, tables.dead.order),
    )
    with ThreadPoolExecutor(2) as pool:
        return [line for table, order in orders if (line := _difference(table, order, left, right, pool)) is not None]


def _difference(table: Table, order: tuple[str, ...], left: Path, right: Path, pool: Executor) -> str | None:
    columns = [column for column in table.columns if column not in {"epoch", "seq"}]
    # a name of a column alone would mean `line` below, if that is its name
    ordered = f"FROM {quote(table.name)} ORDER BY {', '.join(f'{quote(table.name)}.{quote(name)}' for name in order)}"
    rows = f"SELECT {quote_all(columns)} {ordered}"
    # SQLite builds a text without Python's lock, so for both files at once; json_array rounds a number to 15 digits
    # and refuses blobs, quote() keeps both
    values = ", ".join(
        quote(name) if _is_exact_in_json(table.schema.field(name).type) else f"quote({quote(name)})" for name in columns
    )
    as_text = f"SELECT group_concat(line) FROM (SELECT json_array({values}) AS line {ordered})"
    texts = list(pool.map(lambda file: _text(file, as_text), (left, right)))
    if texts[0] is not None and texts[0] == texts[1]:
        return None
    with closing(_open(left)) as left_db, closing(_open(right)) as right_db:
        for a, b in zip_longest(left_db.execute(rows), right_db.execute(rows)):
            if a != b:
                return f"{table.name}: {a} in {left.name}, {b} in {right.name}"
    return None


def _is_exact_in_json(type_: pa.DataType) -> bool:
    return any(is_(type_) for is_ in (pa.types.is_string, pa.types.is_integer, pa.types.is_timestamp))


def _text(file: Path, sql: str) -> bytes | None:
    """Return the text that a query returns; None if it is null or too long."""
    with closing(_open(file)) as db:
        db.text_factory = bytes
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_TEXT)
        try:
            text: bytes | None = db.execute(sql).fetchone()[0]
        except sqlite3.DataError:
            return None
    return text


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)
