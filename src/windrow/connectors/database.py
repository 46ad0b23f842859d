"""The contract of a database outside of a run: read results, record replays, promote one."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, Protocol

import pyarrow as pa

from windrow import model as m
from windrow.connectors.sink import Run
from windrow.connectors.tables import REPLAYS, Layout, Table
from windrow.errors import InputError


@dataclass(frozen=True)
class Replayed:
    """A replay into a table: from `begin` (None: the beginning of the log) to `end`, and whether it got there.

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
        """Return begin and end as they are written down."""
        log = {} if self.at is None else {_LOG: {"at": self.at, "identity": self.identity}}
        return None if self.begin is None else json.dumps(self.begin), json.dumps({**self.end, **log})

    def row(self) -> pa.Table:
        """Return the row of `windrow.connectors.tables.REPLAYS`."""
        values = [self.table, self.run.pipeline, self.run.id, *self.texts(), self.since, self.finished]
        return pa.table([[value] for value in values], schema=REPLAYS.schema)

    @staticmethod
    def read(table: str, run: Run, texts: tuple[str | None, str], since: int | None, *, finished: bool) -> Replayed:
        """Read what `texts` wrote."""
        begins, ends = texts
        end = json.loads(ends)
        log = end.pop(_LOG, {})
        begin = None if begins is None else _offsets(json.loads(begins))
        return Replayed(table, run, begin, _offsets(end), since, finished, **log)


def _offsets(of: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in of.items()}


_LOG = "log"
"""The name beside partitions in the text of where a replay ended."""


@dataclass(frozen=True)
class Promoted:
    """The result of a promotion: `former` is the new name of the replaced tables, None if there were none.

    `carried` is what users had made on them and is on the new ones now; `left` what still hangs on the former.
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
    """Read the value in ``COLUMN=VALUE``, which an option may have, by the column's type, a time in ISO 8601.

    Raise InputError if it is no value of the type, or none that can be compared.
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
    """A comparison of a column with a value of the column's type; null meets none."""

    column: str
    operator: Literal["=", "<", ">"]
    value: Value


@dataclass(frozen=True)
class WindowRange:
    """Windows that end after `after` and begin before `before` (microseconds); None does not bound them."""

    after: int | None = None
    before: int | None = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The bounds as conditions."""
        after = () if self.after is None else (Condition("window_end", ">", self.after),)
        return (*after, *(() if self.before is None else (Condition("window_start", "<", self.before),)))


class Snapshot(Protocol):
    """Tables as they were at one moment."""

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns; none if there is no such table."""
        ...

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

        They are ordered by the columns `order`: text by code points, nulls last, and `descending` ones backwards.
        Decimals may come with more digits behind the point than the schema says, if the database holds such. A value
        that is not of its column's type is a SinkError; with `misfits` it is null, and a column
        `windrow.connectors.misfits.MISFITS` has it.
        """
        ...

    def count(self, table: Table, where: Sequence[Condition] = ()) -> int:
        """Return the number of rows that meet all conditions."""
        ...


class Database(Protocol):
    """A database by its sink's address. Its errors are SinkErrors."""

    @property
    def place(self) -> str:
        """The location, without user and password."""
        ...

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Read what is there now; nothing is locked."""
        ...

    def note(self, replayed: Replayed) -> None:
        """Write down what is replayed into a table."""
        ...

    def note_redrives(self, rows: pa.Table) -> None:
        """Write down which copies of dead letters were appended (`windrow.connectors.tables.REDRIVES`), each once."""
        ...

    def replayed(self, table: str) -> Replayed | None:
        """Return what was replayed into a table by the run that it belongs to; None if it was no replay."""
        ...

    def stands(self, table: str) -> tuple[Run, int | None] | None:
        """Return the run that a result table belongs to and the last epoch it committed; None if it is nobody's."""
        ...

    def mismatches(self, layout: Layout) -> list[str]:
        """Return in words how tables that exist differ from a layout: columns, types and primary keys."""
        ...

    def promote(self, pipeline: str, tables: Sequence[tuple[str, str]]) -> list[Promoted]:
        """Put result tables and their companions in the place of the live ones, which take their names, all at once.

        `tables` are the names of each live table and of its shadow. Raise SinkError if they are not the pipeline's, the
        replay is not whole, or a run that writes one of them is seen; InputError if there is no such shadow.
        """
        ...


def read_replayed(snapshot: Snapshot, table: str, owner: Run) -> Replayed | None:
    """Return what `owner`, which has a table, has replayed; None if it was no replay.

    A replay into several tables has a note for each; one that was promoted has it under its former name.
    """
    if not snapshot.columns(REPLAYS.name):
        return None
    where = [Condition("pipeline", "=", owner.pipeline), Condition("run", "=", owner.id)]
    parts = [
        part.set_column(5, "since", part["since"].cast(pa.int64()))
        for part in snapshot.rows(REPLAYS, REPLAYS.key, where)
    ]
    rows = [row for part in parts for row in part.to_pylist()]
    named = [row for row in rows if row["table_name"].lower() == table.lower()]
    for row in named or rows:
        texts = row["begins"], row["ends"]
        return Replayed.read(row["table_name"], owner, texts, row["since"], finished=row["finished"])
    return None


def columns_of(snapshot: Snapshot, database: Database, table: Table) -> list[str]:
    """Return the names of the columns that a table has; raise InputError if there is no such table."""
    columns = snapshot.columns(table.name)
    if not columns:
        msg = (
            f"there is no table {table.name!r} in {database.place}: no run has written it; "
            f"make it with `windrow run` or `windrow replay`"
        )
        raise InputError(msg)
    return columns


def present(snapshot: Snapshot, database: Database, table: Table) -> Table:
    """Return a table with the columns that are there: the pipeline may have got others since its last run.

    Raise InputError as `columns_of` does.
    """
    there = columns_of(snapshot, database, table)
    return only_columns(table, [name for name in table.columns if name in there])


def only_columns(table: Table, columns: Sequence[str]) -> Table:
    """Return a table with some of its columns."""
    return Table(table.name, pa.schema([table.schema.field(name) for name in columns]), table.key)
