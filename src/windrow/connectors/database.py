"""The interface to a database outside of a run: read results, record replays, and promote tables."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, Protocol

import pyarrow as pa

from windrow import model as m
from windrow.connectors.misfits import Fitted, with_misfits
from windrow.connectors.sink import Run
from windrow.connectors.tables import REPLAYS, Layout, Table, quote
from windrow.errors import InputError


@dataclass(frozen=True)
class Replayed:
    """A replay into a table, from the offsets `begin` (None is the beginning of the log) to `end`.

    If `since` (microseconds) is set, the table has only the windows that end after it. `finished` tells whether the
    replay has reached its end. `at` is the end as the source itself represents it, and `identity` distinguishes the log
    from another one of the same name. Both are None in records written by older versions.
    """

    table: str
    run: Run
    begin: Mapping[int, int] | None
    end: Mapping[int, int]
    since: int | None
    finished: bool
    at: Any = None
    identity: str | None = None

    def texts(self) -> tuple[str | None, str]:
        """Return `begin` (None if it is None) and `end` as JSON texts."""
        log = {} if self.at is None else {_LOG: {"at": self.at, "identity": self.identity}}
        return None if self.begin is None else json.dumps(self.begin), json.dumps({**self.end, **log})

    def row(self) -> pa.Table:
        """Return the replay as a row of the table `windrow.connectors.tables.REPLAYS`."""
        values = [self.table, self.run.pipeline, self.run.id, *self.texts(), self.since, self.finished]
        return pa.table([[value] for value in values], schema=REPLAYS.schema)

    @staticmethod
    def read(table: str, run: Run, texts: tuple[str | None, str], since: int | None, *, finished: bool) -> Replayed:
        """Restore a replay from the texts that `texts` returned."""
        begins, ends = texts
        end = json.loads(ends)
        log = end.pop(_LOG, {})
        begin = None if begins is None else _offsets(json.loads(begins))
        return Replayed(table, run, begin, _offsets(end), since, finished, **log)


def _offsets(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}


_LOG = "log"
"""The key, beside the partitions, under which the JSON of a replay's end has the log."""


@dataclass(frozen=True)
class Promoted:
    """The result of a promotion. `former` is the new name of the replaced table, None if no table was replaced.

    `carried` lists the users' indexes, triggers and views that were moved to the new tables. `left` lists the objects
    that still depend on the former tables.
    """

    former: str | None
    carried: tuple[str, ...]
    left: tuple[str, ...]


Value = str | int | float | bool | Decimal
"""A value of a column; a time is in microseconds UTC."""
_KINDS: Final = (
    (pa.types.is_string, "text in UTF-8"),
    (pa.types.is_boolean, "true or false"),
    (pa.types.is_integer, "a whole number of {0.bit_width} bits"),
    (pa.types.is_floating, "a number"),
    (pa.types.is_decimal, "a decimal({0.precision},{0.scale})"),
    (pa.types.is_timestamp, "a time, such as 2026-01-31 or 2026-01-31T10:05 (UTC)"),
)
"""Descriptions of column types."""


def read_value(field: pa.Field, text: str, option: str = "") -> Value:
    """Parse the value of an option ``COLUMN=VALUE`` according to the column's type; times are in ISO 8601.

    Raise InputError if the text is not a value of that type, or if the column's type cannot be compared.
    """
    value = _value_or_none(field, text)
    if value is None:
        kind = next((kind.format(field.type) for is_kind, kind in _KINDS if is_kind(field.type)), None)
        needs = "holds bytes, which cannot be compared" if kind is None else f"is {kind}"
        msg = f"{option} {f'{field.name}={text}'!r}: column {field.name!r} {needs}".lstrip()
        raise InputError(msg)
    return value


def _value_or_none(field: pa.Field, text: str) -> Value | None:
    try:
        if pa.types.is_string(field.type):
            text.encode()
            return text
        if pa.types.is_timestamp(field.type):
            return m.parse_time(text)
        value: Value | None = None if pa.types.is_binary(field.type) else pa.array([text]).cast(field.type)[0].as_py()
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return None
    return None if isinstance(value, float) and math.isnan(value) else value


@dataclass(frozen=True)
class Condition:
    """A comparison of a column with a value of the column's type. Nulls never satisfy it."""

    column: str
    operator: Literal["=", "<", ">"]
    value: Value


@dataclass(frozen=True)
class WindowRange:
    """The windows that end after `after` and start before `before` (microseconds); None leaves that side open."""

    after: int | None = None
    before: int | None = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The bounds that are set, as conditions on the window's start and end."""
        after = () if self.after is None else (Condition("window_end", ">", self.after),)
        return (*after, *(() if self.before is None else (Condition("window_start", "<", self.before),)))


class Snapshot(ABC):
    """The tables of a database as of one moment, read with SQL."""

    @abstractmethod
    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns, or an empty list if the table does not exist."""

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
        """Yield the rows that satisfy all conditions, in tables with the schema of `table`.

        Rows are sorted by the columns `order`: text by code points, nulls last, and the columns in `descending` in
        reverse. Decimals keep all their digits after the decimal point, even if the schema declares fewer. A value that
        does not have its column's type raises SinkError. With `misfits=True`, such a value becomes null, and the column
        `windrow.connectors.misfits.MISFITS` contains it as text.
        """
        columns = ", ".join(map(self.select, table.schema))
        by = ", ".join(self.order(table.schema.field(name), is_descending=name in descending) for name in order)
        most = "" if limit is None else f" LIMIT {limit:d}"
        conditions, values = self._where(table, where)
        sql = f"SELECT {columns} FROM {self.source(table)} WHERE {conditions} ORDER BY {by}{most}"
        for fitted_columns in self.fetch(table, sql, values):
            yield with_misfits(table, fitted_columns, keep=misfits)

    def stored(self, table: Table, where: Sequence[Condition]) -> pa.Table:
        """Return the rows that satisfy all conditions as a single table, sorted by the key."""
        rows = (part.cast(table.schema) for part in self.rows(table, table.key, where))
        return pa.concat_tables([table.schema.empty_table(), *rows])

    def count(self, table: Table, where: Sequence[Condition] = ()) -> int:
        """Return the number of rows that satisfy all conditions."""
        conditions, values = self._where(table, where)
        return self.fetch_number(table, f"SELECT count(*) FROM {self.source(table)} WHERE {conditions}", values)

    def _where(self, table: Table, where: Sequence[Condition]) -> tuple[str, list[object]]:
        """Return the conditions in SQL, and the values of the parameters in them."""
        fields = [table.schema.field(condition.column) for condition in where]
        sides = [self.compare(*pair, at) for at, pair in enumerate(zip(fields, where, strict=True), 1)]
        values = [self.bind(field, condition.value) for field, condition in zip(fields, where, strict=True)]
        return " AND ".join(sides) or "true", values

    def source(self, table: Table) -> str:
        """Return the SQL for the table in a FROM clause."""
        return quote(table.name)

    def select(self, field: pa.Field) -> str:
        """Return the SQL for a column in a SELECT clause."""
        return quote(field.name)

    def order(self, field: pa.Field, *, is_descending: bool) -> str:
        """Return the SQL for a column in an ORDER BY clause."""
        return f"{quote(field.name)} {'DESC' if is_descending else 'ASC'} NULLS LAST"

    @abstractmethod
    def compare(self, field: pa.Field, condition: Condition, number: int) -> str:
        """Return the SQL of a condition in a WHERE clause; its value is parameter `number`, counted from 1."""

    def bind(self, field: pa.Field, value: Value) -> object:  # noqa: ARG002 - for databases with other types
        """Convert a value to a query parameter; None, which satisfies no condition, if the column cannot hold it."""
        return value

    @abstractmethod
    def fetch(self, table: Table, sql: str, values: Sequence[object]) -> Iterator[list[Fitted]]:
        """Run a query that selects columns of a table, and yield the columns of one batch of rows at a time."""

    @abstractmethod
    def fetch_number(self, table: Table, sql: str, values: Sequence[object]) -> int:
        """Run a query that returns a single number."""


class Database(Protocol):
    """The database of a sink, opened by the address in the sink's settings. Methods raise SinkError."""

    @property
    def place(self) -> str:
        """The location as the user wrote it, without user name and password."""
        ...

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open a snapshot of the current tables without locks; raise InputError if the database does not exist."""
        ...

    def note(self, replayed: Replayed) -> None:
        """Record a replay into a table."""
        ...

    def note_redrives(self, rows: pa.Table) -> None:
        """Record copies of dead letters that were appended to a log, each once.

        `rows` are rows of `windrow.connectors.tables.REDRIVES`.
        """
        ...

    def replayed(self, table: str) -> Replayed | None:
        """Return the replay that wrote a table, or None if the run that owns the table was not a replay."""
        ...

    def stands(self, table: str) -> tuple[Run, int | None] | None:
        """Return the run that owns a result table and its last committed epoch, or None if no run owns the table."""
        ...

    def mismatches(self, layout: Layout) -> list[str]:
        """Describe how the columns, types and primary keys of existing tables differ from a layout."""
        ...

    def promote(self, pipeline: str, tables: Sequence[tuple[str, str]]) -> list[Promoted]:
        """Swap the names of live tables with those of their shadows, including the companion tables, all at once.

        `tables` has the names of each live table and its shadow. Raise SinkError if the tables belong to another
        pipeline, the replay is incomplete, or a run is writing one of them. Raise InputError if a shadow does not
        exist.
        """
        ...


def read_replayed(snapshot: Snapshot, table: str, owner: Run) -> Replayed | None:
    """Return the replay that the run `owner` made into a table, or None if the run was not a replay.

    A replay into several tables has one recorded row per table. The row of a promoted table has the table's former
    name.
    """
    if not snapshot.columns(REPLAYS.name):
        return None
    where = [Condition("pipeline", "=", owner.pipeline), Condition("run", "=", owner.id)]
    parts = [
        part.set_column(5, "since", part["since"].cast(pa.int64()))
        for part in snapshot.rows(REPLAYS, REPLAYS.key, where)
    ]
    rows = [row for part in parts for row in part.to_pylist()]
    if not rows:
        return None
    row = min(rows, key=lambda row: (row["table_name"] != table, row["table_name"].lower() != table.lower()))
    texts = row["begins"], row["ends"]
    return Replayed.read(row["table_name"], owner, texts, row["since"], finished=row["finished"])


def columns_of(snapshot: Snapshot, database: Database, table: Table) -> list[str]:
    """Return the names of a table's columns; raise InputError if the table does not exist."""
    columns = snapshot.columns(table.name)
    if not columns:
        msg = (
            f"there is no table {table.name!r} in {database.place}: no run has written it; "
            f"create it with `windrow run` or `windrow replay`"
        )
        raise InputError(msg)
    return columns


def present(snapshot: Snapshot, database: Database, table: Table) -> Table:
    """Restrict a table to the columns that exist in the database.

    The pipeline may have gained or lost columns since its last run. Raise InputError if the table does not exist.
    """
    there = columns_of(snapshot, database, table)
    return only_columns(table, [name for name in table.columns if name in there])


def only_columns(table: Table, columns: Sequence[str]) -> Table:
    """Restrict a table to some of its columns."""
    schema = pa.schema([table.schema.field(name) for name in columns])
    return Table(table.name, schema, table.key, lists=table.lists)
