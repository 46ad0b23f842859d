"""The difference between the rows of a log and those of a table that is copied again.

Both are gathered in a temporary SQLite database, so they need not fit into memory. Rows are compared as the JSON
objects of their columns, with the bytes that `windrow.connectors.postgres.cdc.records` writes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from windrow.connectors.postgres.cdc.values import text
from windrow.engine.decode.debezium import UNAVAILABLE
from windrow.errors import SourceError

_CHUNK = 10_000
_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE logged (key TEXT PRIMARY KEY, row TEXT NOT NULL, partition INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE copied (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, row TEXT NOT NULL);
"""
_REMOVED = """
SELECT l.key, l.row, NULL FROM logged l LEFT JOIN copied c ON c.key = l.key
WHERE c.key IS NULL OR (? AND c.row <> l.row) ORDER BY l.key"""
_ADDED = """
SELECT c.key, iif(?, NULL, l.row), c.row FROM copied c LEFT JOIN logged l ON l.key = c.key
WHERE l.key IS NULL OR c.row <> l.row ORDER BY c.number"""


class _Number(str):
    """A number as it is written in JSON."""

    __slots__ = ()


_Value = str | bool | list["_Value"] | None
_PARSER = json.JSONDecoder(parse_float=_Number, parse_int=_Number)


class RowChange(NamedTuple):
    """The key of a row, and the row before and after the change or None, each as a JSON object."""

    key: str
    before: str | None
    after: str | None


def row_changes(
    records: Iterable[tuple[int, bytes]],
    trimmed: Callable[[], Collection[int]],
    key: Sequence[str],
    rows: Iterable[tuple[str, str]],
    *,
    is_split: bool,
) -> Iterator[RowChange | None]:
    """Yield the changes that turn the rows of a log into those of a table, None for a truncation of the table.

    `records` are those of the log and their partitions. Its rows are identified by the columns `key`. `rows` are the
    keys and rows of the table. Rows are removed before others are added, so that a row can take over a unique value of
    another one. With `is_split`, a changed row is first removed and then added, too. Of rows with the same key, the
    last counts. The rows in the partitions that `trimmed` returns after the records were read are unknown, unless a
    truncation follows: then the first change is a truncation. Raise SourceError for a record that is not a change of
    a row, or if there is no space for the temporary database.
    """
    try:
        with closing(sqlite3.connect("", isolation_level=None)) as sql:
            sql.executescript(_TABLES)
            sql.executemany("INSERT OR REPLACE INTO copied (key, row) VALUES (?, ?)", rows)
            if not _read_log(sql, records, key).issuperset(trimmed()):
                sql.execute("DELETE FROM logged")
                yield None
            for query in (_REMOVED, _ADDED):
                found = sql.execute(query, (is_split,))
                while chunk := found.fetchmany(_CHUNK):
                    yield from map(RowChange._make, chunk)
    except sqlite3.Error as exc:
        msg = f"the table cannot be compared with its log in a temporary file ({exc}): set TMPDIR to a larger disk"
        raise SourceError(msg) from exc


def _read_log(sql: sqlite3.Connection, records: Iterable[tuple[int, bytes]], key: Sequence[str]) -> set[int]:
    """Apply the records of a log to the table `logged`; return the partitions with truncations."""
    truncated: set[int] = set()
    moved: str | None = None
    for partition, record in records:
        try:
            change = _PARSER.decode(record.decode())
            op = change["op"]
            if op == "t":
                sql.execute("DELETE FROM logged WHERE partition = ?", (partition,))
                truncated.add(partition)
                continue
            row: Mapping[str, _Value] = change["before" if op == "d" else "after"]
            name = _object({column: row[column] for column in key})
        except (ValueError, LookupError, TypeError) as exc:
            msg = (
                f"a record of the log is not a change of the table: {record[:200].decode(errors='replace')}; no other "
                "program may append to this log"
            )
            raise SourceError(msg) from exc
        if op == "d":
            moved = _logged(sql, name)
            sql.execute("DELETE FROM logged WHERE key = ?", (name,))
            continue
        if UNAVAILABLE.encode() in record:
            # an unchanged long value is in the row before, which had another key if that was just deleted
            row = _completed(row, _logged(sql, name) or moved)
        sql.execute("INSERT OR REPLACE INTO logged VALUES (?, ?, ?)", (name, _object(row), partition))
        moved = None
    return truncated


def _logged(sql: sqlite3.Connection, key: str) -> str | None:
    found = sql.execute("SELECT row FROM logged WHERE key = ?", (key,)).fetchone()
    return None if found is None else str(found[0])


def _completed(row: Mapping[str, _Value], before: str | None) -> Mapping[str, _Value]:
    """Return a row with the values that were not logged, as far as they are in the row before."""
    known: Mapping[str, _Value] = {} if before is None else _PARSER.decode(before)
    return {
        name: known.get(name, value) if value == UNAVAILABLE and not isinstance(value, _Number) else value
        for name, value in row.items()
    }


def _object(row: Mapping[str, _Value]) -> str:
    return f"{{{', '.join([f'{text(name)}: {_json(value)}' for name, value in row.items()])}}}"


def _json(value: _Value) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list():
            return f"[{', '.join(map(_json, value))}]"
        case _Number():
            return str(value)
        case _:
            return text(value)
