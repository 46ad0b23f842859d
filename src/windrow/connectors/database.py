"""The contract of a database outside of a run: read results, record replays, promote tables."""

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
    """A replay into a table: from `begin` (None: the beginning of the log) to `end`, and whether it `finished`.

    With `since` only the windows that end after it (microseconds) are in the table. `at` is the end in the source's own
    form, and `identity` distinguishes the log from another of the same name; a note of an older version has neither.
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
        """Return begin and end as JSON."""
        log = {} if self.at is None else {_LOG: {"at": self.at, "identity": self.identity}}
        return None if self.begin is None else json.dumps(self.begin), json.dumps({**self.end, **log})

    def row(self) -> pa.Table:
        """Return the row of `windrow.connectors.tables.REPLAYS`."""
        values = [self.table, self.run.pipeline, self.run.id, *self.texts(), self.since, self.finished]
        return pa.table([[value] for value in values], schema=REPLAYS.schema)

    @staticmethod
    def read(table: str, run: Run, texts: tuple[str | None, str], since: int | None, *, finished: bool) -> Replayed:
        """Read a replay from the result of `texts`."""
        begins, ends = texts
        end = json.loads(ends)
        log = end.pop(_LOG, {})
        begin = None if begins is None else _offsets(json.loads(begins))
        return Replayed(table, run, begin, _offsets(end), since, finished, **log)


def _offsets(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}


_LOG = "log"
"""The key beside partitions in the end of a replay as JSON."""


@dataclass(frozen=True)
class Promoted:
    """The result of a promotion: `former` is the new name of the replaced tables, None if there were none.

    `carried` are the indexes, triggers and views of users that were moved to the new tables; `left` are the objects
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
"""The types of columns in words."""


def read_value(field: pa.Field, text: str, option: str = "") -> Value:
    """Read the value in ``COLUMN=VALUE`` of an option by the column's type; a time is in ISO 8601.

    Raise InputError if it is not a value of the type, or cannot be compared.
    """
    value = _value_or_none(field, text)
    if value is None:
        kind = next((kind.format(field.type) for is_kind, kind in _KINDS if is_kind(field.type)), None)
        needs = "holds bytes, which are not compared" if kind is None else f"is {kind}"
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
    """A comparison of a column with a value of the column's type; null meets no condition."""

    column: str
    operator: Literal["=", "<", ">"]
    value: Value


@dataclass(frozen=True)
class WindowRange:
    """Windows that end after `after` and begin before `before` (microseconds); None is no bound."""

    after: int | None = None
    before: int | None = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The bounds as conditions."""
        after = () if self.after is None else (Condition("window_end", ">", self.after),)
        return (*after, *(() if self.before is None else (Condition("window_start", "<", self.before),)))


class Snapshot(ABC):
    """Tables as they were at one moment, read by SQL of the database."""

    @abstractmethod
    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns; none if there is no such table."""

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
        """Read columns of a table, of rows that meet all conditions; the tables yielded have its schema.

        They are ordered by the columns `order`: text by code points, nulls last, and `descending` columns backwards.
        Decimals may have more digits after the point than the schema declares, if the database holds such. A value that
        is not of its column's type is a SinkError; with `misfits` it is null, and a column
        `windrow.connectors.misfits.MISFITS` has it.
        """
        columns = ", ".join(map(self.select, table.schema))
        by = ", ".join(self.order(table.schema.field(name), is_descending=name in descending) for name in order)
        most = "" if limit is None else f" LIMIT {limit:d}"
        conditions, values = self._where(table, where)
        sql = f"SELECT {columns} FROM {self.source(table)} WHERE {conditions} ORDER BY {by}{most}"
        for fitted_columns in self.fetch(table, sql, values):
            yield with_misfits(table, fitted_columns, keep=misfits)

    def count(self, table: Table, where: Sequence[Condition] = ()) -> int:
        """Return the number of rows that meet all conditions."""
        conditions, values = self._where(table, where)
        return self.fetch_number(table, f"SELECT count(*) FROM {self.source(table)} WHERE {conditions}", values)

    def _where(self, table: Table, where: Sequence[Condition]) -> tuple[str, list[object]]:
        """Return conditions in SQL, and the values of their parameters."""
        fields = [table.schema.field(condition.column) for condition in where]
        sides = [self.compare(*pair, at) for at, pair in enumerate(zip(fields, where, strict=True), 1)]
        values = [self.bind(field, condition.value) for field, condition in zip(fields, where, strict=True)]
        return " AND ".join(sides) or "true", values

    def source(self, table: Table) -> str:
        """Return the table in the FROM clause."""
        return quote(table.name)

    def select(self, field: pa.Field) -> str:
        """Return a column in the SELECT clause."""
        return quote(field.name)

    def order(self, field: pa.Field, *, is_descending: bool) -> str:
        """Return a column in the ORDER BY clause."""
        return f"{quote(field.name)} {'DESC' if is_descending else 'ASC'} NULLS LAST"

    @abstractmethod
    def compare(self, field: pa.Field, condition: Condition, number: int) -> str:
        """Return a condition in the WHERE clause, whose value is the parameter `number`, from 1."""

    def bind(self, field: pa.Field, value: Value) -> object:  # noqa: ARG002 - for databases with other types
        """Return the value of a parameter; None, which meets no condition, if the column cannot hold it."""
        return value

    @abstractmethod
    def fetch(self, table: Table, sql: str, values: Sequence[object]) -> Iterator[list[Fitted]]:
        """Run a query of columns of a table; yield the columns of some of its rows at a time."""

    @abstractmethod
    def fetch_number(self, table: Table, sql: str, values: Sequence[object]) -> int:
        """Run a query for one number."""


class Database(Protocol):
    """A database by its sink's address; it raises SinkErrors."""

    @property
    def place(self) -> str:
        """The location as it was given, without user and password."""
        ...

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Read the current tables; nothing is locked. Raise InputError if there is no such database."""
        ...

    def note(self, replayed: Replayed) -> None:
        """Record a replay into a table."""
        ...

    def note_redrives(self, rows: pa.Table) -> None:
        """Record copies of dead letters that were appended (`windrow.connectors.tables.REDRIVES`), each once."""
        ...

    def replayed(self, table: str) -> Replayed | None:
        """Return the replay into a table by the run that it belongs to; None if it was no replay."""
        ...

    def stands(self, table: str) -> tuple[Run, int | None] | None:
        """Return the run that a result table belongs to and its last committed epoch; None if it belongs to no run."""
        ...

    def mismatches(self, layout: Layout) -> list[str]:
        """Describe how existing tables differ from a layout: columns, types and primary keys."""
        ...

    def promote(self, pipeline: str, tables: Sequence[tuple[str, str]]) -> list[Promoted]:
        """Swap the names of live tables and of their shadows, with their companions, all at once.

        `tables` are the names of each live table and of its shadow. Raise SinkError if they are not the pipeline's, the
        replay is incomplete, or a run is writing one of them; InputError if there is no such shadow.
        """
        ...


def read_replayed(snapshot: Snapshot, table: str, owner: Run) -> Replayed | None:
    """Return the replay into a table by the run `owner`; None if it was no replay.

    A replay into several tables has a row for each; a promoted table has it under its former name.
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
    """Return the names of a table's columns; raise InputError if there is no such table."""
    columns = snapshot.columns(table.name)
    if not columns:
        msg = (
            f"there is no table {table.name!r} in {database.place}: no run has written it; "
            f"make it with `windrow run` or `windrow replay`"
        )
        raise InputError(msg)
    return columns


def present(snapshot: Snapshot, database: Database, table: Table) -> Table:
    """Return a table with the columns that exist: the pipeline may have others since its last run.

    Raise InputError as `columns_of` does.
    """
    there = columns_of(snapshot, database, table)
    return only_columns(table, [name for name in table.columns if name in there])


def only_columns(table: Table, columns: Sequence[str]) -> Table:
    """Return a table with some of its columns."""
    return Table(table.name, pa.schema([table.schema.field(name) for name in columns]), table.key)
