"""Messages of PostgreSQL's output plugin pgoutput, protocol version 1.

Source: PostgreSQL's manual, "Logical Replication Message Formats". Each transaction is sent whole, after its commit, in
the order of commits: Begin, its changes, Commit. A Relation comes before the first change of a table in a session, and
again when its columns have changed. Times are microseconds since 1970 UTC, values are the text output of their types.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Literal

_EPOCH = 946_684_800_000_000
"""2000-01-01 UTC in microseconds since 1970."""


class Unchanged(Enum):
    """The value of an unchanged column that is stored outside the row (TOAST) and not logged."""

    TOAST = "toast"


Row = list["str | Unchanged | None"]
"""The values of a row, in the order of the columns of its relation; None is null."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins: the LSN of its commit record, its time of commit, and its id."""

    commit: int
    time: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction ends; `end` is the LSN after its commit record."""

    end: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, and the names and types (the oid) of its columns."""

    oid: int
    schema: str
    table: str
    columns: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A row that was inserted, updated or deleted.

    `old` is the former row, None if it was not logged. It is whole with REPLICA IDENTITY FULL; else it has only the
    columns of the key, null in others, and an update logs it only if one of these changed.
    """

    relation: int
    op: Literal["c", "u", "d"]
    old: Row | None
    new: Row | None
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables that were truncated, by oid."""

    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Change | Truncate

_OPERATIONS: dict[int, Literal["c", "u", "d"]] = {ord("I"): "c", ord("U"): "u", ord("D"): "d"}
_HEAD, _BEGIN, _COMMIT = struct.Struct(">I"), struct.Struct(">QqI"), struct.Struct(">BQQq")
_COUNT, _COLUMN = struct.Struct(">H"), struct.Struct(">II")
_TEXT, _NULL = ord("t"), ord("n")
_OLD, _KEY, _NEW = ord("O"), ord("K"), ord("N")


def parse_message(data: bytes) -> Message | None:
    """Parse a message; None for a message of another kind, which is not about rows."""
    kind = data[0]
    if (op := _OPERATIONS.get(kind)) is not None:
        return _change(data, op)
    match chr(kind):
        case "B":
            commit, time, xid = _BEGIN.unpack_from(data, 1)
            return Begin(commit, time + _EPOCH, xid)
        case "C":
            return Commit(_COMMIT.unpack_from(data, 1)[2])
        case "R":
            return _relation(data)
        case "T":
            (count,) = _HEAD.unpack_from(data, 1)
            return Truncate(struct.unpack_from(f">{count}I", data, 6))
        case _:
            return None


def _change(data: bytes, op: Literal["c", "u", "d"]) -> Change:
    (relation,) = _HEAD.unpack_from(data, 1)
    at, old, new, is_whole = 5, None, None, False
    while at < len(data):
        tag = data[at]
        row, at = _row(data, at + 1)
        if tag == _NEW:
            new = row
        elif tag in {_OLD, _KEY}:
            old, is_whole = row, tag == _OLD
    return Change(relation, op, old, new, is_whole)


def _row(data: bytes, at: int) -> tuple[Row, int]:
    """Return the row that begins at a byte, and the byte after it."""
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    row: Row = []
    for _ in range(count):
        tag = data[at]
        if tag == _TEXT:
            (size,) = _HEAD.unpack_from(data, at + 1)
            begin = at + 5
            at = begin + size
            row.append(data[begin:at].decode())
        else:
            at += 1
            row.append(None if tag == _NULL else Unchanged.TOAST)
    return row, at


def _relation(data: bytes) -> Relation:
    (oid,) = _HEAD.unpack_from(data, 1)
    schema, table, rest = data[5:].split(b"\0", 2)
    (count,) = _COUNT.unpack_from(rest, 1)
    columns, at = [], 3
    for _ in range(count):
        end = rest.index(b"\0", at + 1)
        type_, _ = _COLUMN.unpack_from(rest, end + 1)
        columns.append((rest[at + 1 : end].decode(), type_))
        at = end + 9
    return Relation(oid, schema.decode() or "pg_catalog", table.decode(), tuple(columns))
