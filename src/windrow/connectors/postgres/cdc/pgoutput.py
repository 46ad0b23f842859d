"""Messages of PostgreSQL's output plugin pgoutput, protocol version 1.

Source: PostgreSQL's manual, "Logical Replication Message Formats". Each transaction is sent as a whole after its
commit, in commit order: Begin, its changes, Commit. In each session, a Relation message precedes the first change of a
table, and is sent again after the table's columns have changed. Times are in microseconds since 1970 UTC, and values
are in the text output format of their types.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Literal

_EPOCH = 946_684_800_000_000
"""2000-01-01 UTC in microseconds since 1970."""


class Unchanged(Enum):
    """Stands for the value of an unchanged column that is stored outside the row (TOAST) and was not logged."""

    TOAST = "toast"


Row = list["str | Unchanged | None"]
"""The values of a row, in the order of the columns of its relation; None is null."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a transaction: the LSN of its commit record, its commit time, and its id."""

    commit: int
    time: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction. `end` is the LSN after its commit record."""

    end: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, with the names and type oids of its columns, and the names of those in its replica identity."""

    oid: int
    schema: str
    table: str
    columns: tuple[tuple[str, int], ...]
    identity: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A row that was inserted, updated or deleted.

    `old` is the row before the change, None if it was not logged. With REPLICA IDENTITY FULL, it is the whole row.
    Otherwise, only the key columns are set and the other columns are null, and an update logs it only if a key column
    changed.
    """

    relation: int
    op: Literal["c", "u", "d"]
    old: Row | None
    new: Row | None
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    """The oids of tables that were truncated."""

    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Change | Truncate

_OPERATIONS: dict[int, Literal["c", "u", "d"]] = {ord("I"): "c", ord("U"): "u", ord("D"): "d"}
_HEAD, _BEGIN, _COMMIT = struct.Struct(">I"), struct.Struct(">QqI"), struct.Struct(">BQQq")
_COUNT, _COLUMN = struct.Struct(">H"), struct.Struct(">II")
_TEXT, _NULL = ord("t"), ord("n")
_OLD, _KEY, _NEW = ord("O"), ord("K"), ord("N")
_IN_IDENTITY = 1


def parse_message(data: bytes) -> Message | None:
    """Parse a message; return None for kinds of messages that do not concern rows."""
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
    """Parse the row that starts at byte `at`; return it and the position after it."""
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
    columns, identity, at = [], [], 3
    for _ in range(count):
        end = rest.index(b"\0", at + 1)
        name = rest[at + 1 : end].decode()
        type_, _ = _COLUMN.unpack_from(rest, end + 1)
        columns.append((name, type_))
        if rest[at] & _IN_IDENTITY:
            identity.append(name)
        at = end + 9
    return Relation(oid, schema.decode() or "pg_catalog", table.decode(), tuple(columns), tuple(identity))
