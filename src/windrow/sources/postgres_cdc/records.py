"""Changes of a table as records of the log: Debezium's envelope (`windrow.core.decode.debezium`), a line each.

    {"_log_time": 1767225600000, "before": null, "after": {"id": 1, "name": "Sally"}, "source": {"connector":
    "postgresql", "ts_ms": 1767225600000, ..., "txId": 771, "lsn": 34048040}, "op": "c", "ts_ms": 1767225600000,
    "transaction": {"id": "771:34048312", "total_order": 1}}

A line is a function of the table and the database's log (WAL) alone, to the byte: all times are the commit's, so a
change that is read once more after a crash gives the same line. Its place is the LSN of the commit record, in
`transaction.id`, and the number of the change among those of the table in its transaction. Both only grow, as
transactions come in the order of their commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from windrow.core.decode.debezium import UNAVAILABLE
from windrow.errors import SourceError
from windrow.sources.postgres_cdc.pgoutput import Begin, Change, Relation, Row, Unchanged
from windrow.sources.postgres_cdc.values import ToJson, TypeCatalog, text

_UNAVAILABLE = text(UNAVAILABLE)


class ChangePlace(NamedTuple):
    """The position of a change: the LSN of its transaction's commit record, and its number in that, from 1."""

    commit: int = 0
    number: int = 0

    @staticmethod
    def of_line(line: bytes) -> ChangePlace | None:
        """Return the place of a record; None for one of a snapshot. Raise ValueError or KeyError if it is none."""
        transaction = json.loads(line)["transaction"]
        if transaction is None:
            return None
        return ChangePlace(int(transaction["id"].rpartition(":")[2]), int(transaction["total_order"]))


class RecordWriter:
    """Writes changes of a table as lines; `key` are the columns that identify a row."""

    def __init__(self, database: str, schema: str, table: str, key: Sequence[str]) -> None:
        self._names = f'"db": {text(database)}, "schema": {text(schema)}, "table": {text(table)}'
        self._called = f"{schema}.{table}"
        self._name = text(database)
        self._key_names = tuple(key)
        self._columns: tuple[tuple[str, ToJson], ...] = ()
        self._key: tuple[int, ...] = ()
        self._source = self._head = ""
        self._transaction = ""
        self._commit = self._number = self._millis = 0

    def relate(self, columns: Sequence[tuple[str, int]], types: TypeCatalog) -> None:
        """Set the columns of the rows that follow; raise SourceError if a column of the key is not among them."""
        names = [name for name, _ in columns]
        if missing := [name for name in self._key_names if name not in names]:
            msg = (
                f"the table {self._called} has no published column {missing[0]!r} any more, which is in its key: "
                "follow it into a new log, with another `key`"
            )
            raise SourceError(msg)
        self._columns = types.encoders(columns)
        self._key = tuple(names.index(name) for name in self._key_names)

    def is_of(self, relation: Relation) -> bool:
        """Return whether a relation is the table."""
        return f"{relation.schema}.{relation.table}" == self._called

    def begin(self, begin: Begin) -> None:
        """Start the changes of a transaction."""
        self._commit, self._number = begin.commit, 0
        self._transaction = f'"{begin.xid}:{begin.commit}"'
        self._start(begin.time, "false", begin.xid)

    def snapshot_rows(self, rows: Iterator[Sequence[str | None]], lsn: int, micros: int) -> Iterator[str]:
        """Write rows as they were before the LSN `lsn`, at a time in microseconds."""
        self._start(micros, "true", None)
        for row in rows:
            yield self._line("r", "null", self._row(row), lsn, "null")

    def lines(self, change: Change, lsn: int) -> Iterator[tuple[ChangePlace, str]]:
        """Write a change that is at an LSN as one line, or two for an update that changes the key.

        As Debezium does, that is a deletion of the row with the old key, and an insertion of the one with the new.
        """
        old, new = change.old, change.new
        if old is None or new is None:
            before, after = (None if row is None else self._row(row) for row in (old, new))
            yield self._placed(change.op, before, after, lsn)
            return
        if change.is_whole:
            new = [was if value is Unchanged.TOAST else value for was, value in zip(old, new, strict=True)]
        before, after = self._row(old), self._row(new)
        if any(new[at] is not Unchanged.TOAST and old[at] != new[at] for at in self._key):
            yield self._placed("d", before, None, lsn)
            yield self._placed("c", None, after, lsn)
        else:
            yield self._placed(change.op, before if change.is_whole else None, after, lsn)

    def truncation(self, lsn: int) -> tuple[ChangePlace, str]:
        """Write that the table was truncated."""
        return self._placed("t", None, None, lsn)

    def _start(self, micros: int, snapshot: str, xid: int | None) -> None:
        self._millis = micros // 1000
        self._head = f'{{"_log_time": {self._millis}, "before": '
        self._source = (
            f'"source": {{"connector": "postgresql", "name": {self._name}, "ts_ms": {self._millis}, "ts_us": {micros}, '
            f'"snapshot": "{snapshot}", {self._names}, "txId": {"null" if xid is None else xid}, "lsn": '
        )

    def _placed(self, op: str, before: str | None, after: str | None, lsn: int) -> tuple[ChangePlace, str]:
        self._number += 1
        transaction = f'{{"id": {self._transaction}, "total_order": {self._number}}}'
        return ChangePlace(self._commit, self._number), self._line(
            op, before or "null", after or "null", lsn, transaction
        )

    def _line(self, op: str, before: str, after: str, lsn: int, transaction: str) -> str:
        return (
            f'{self._head}{before}, "after": {after}, {self._source}{lsn}}}, "op": "{op}", "ts_ms": {self._millis}, '
            f'"transaction": {transaction}}}\n'
        )

    def _row(self, row: Row | Sequence[str | None]) -> str:
        """Write a row as a JSON object."""
        members = [
            name + ("null" if value is None else to_json(value) if isinstance(value, str) else _UNAVAILABLE)
            for (name, to_json), value in zip(self._columns, row, strict=True)
        ]
        return f"{{{', '.join(members)}}}"
