"""Write the changes of a table as records of a log: JSON objects in Debezium's envelope.

The envelope is described in `windrow.engine.decode.debezium`. For example:

    {"before": null, "after": {"id": 1, "name": "Sally"}, "source": {"connector": "postgresql", "ts_ms": 1767225600000,
    ..., "txId": 771, "lsn": 34048040}, "op": "c", "ts_ms": 1767225600000,
    "transaction": {"id": "771:34048312", "total_order": 1}}

The bytes of a record depend only on the table and the database's write-ahead log (WAL). All times are commit times, so
a change that is read again after a crash gives the same record. The position of a change consists of the LSN of the
commit record, in `transaction.id`, and the number of the change among its transaction's changes of the table. Positions
only increase, as transactions are sent in commit order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from windrow import model as m
from windrow.connectors.postgres.cdc.pgoutput import Begin, Change, Row, Unchanged
from windrow.connectors.postgres.cdc.recopy import RowChange
from windrow.connectors.postgres.cdc.values import ToJson, TypeCatalog, text
from windrow.engine.decode.debezium import EACH_PARTITION, TRUNCATE, UNAVAILABLE
from windrow.errors import SourceError

_UNAVAILABLE = text(UNAVAILABLE)


class ChangePlace(NamedTuple):
    """The position of a change in the database's write-ahead log.

    `commit` is the LSN of its transaction's commit record, and `number` its number in that transaction, counted from 1.
    """

    commit: int = 0
    number: int = 0

    @staticmethod
    def of_record(value: bytes) -> ChangePlace | None:
        """Return the position in a record, None for a row of the snapshot.

        Raise ValueError or KeyError for other records.
        """
        transaction = json.loads(value)["transaction"]
        if transaction is None:
            return None
        return ChangePlace(int(transaction["id"].rpartition(":")[2]), int(transaction["total_order"]))


class ChangeRecord(NamedTuple):
    """A change: its position (0, 0 for a row of the snapshot), its time in milliseconds, and its value, a JSON object.

    `key_columns` and `key_values` belong to the columns that identify the row. They are empty for a truncation. In the
    log of several tables, `more` says whether more changes of the same transaction follow.
    """

    place: ChangePlace
    time: int
    value: str
    key_columns: Sequence[tuple[str, ToJson]] = ()
    key_values: Sequence[str | Unchanged | None] = ()
    more: bool = False

    @property
    def is_truncation(self) -> bool:
        """Whether the change removes all rows of the table."""
        return not self.key_columns

    @property
    def key(self) -> str:
        """The columns that identify the row, as a JSON object. Only topics use it."""
        return _object(self.key_columns, self.key_values)

    @property
    def line(self) -> str:
        more = f'"{m.MORE}": true, ' if self.more else ""
        return f'{{"_log_time": {self.time}, {more}{self.value[1:]}\n'


class Numbers:
    """The number of the last change in a transaction, which the writers of several tables share."""

    def __init__(self) -> None:
        self.last = 0


class RecordWriter:
    """Converts the changes of a table to records. `key` lists the columns that identify a row."""

    def __init__(self, database: str, schema: str, table: str, key: Sequence[str], numbers: Numbers) -> None:
        self._names = f'"db": {text(database)}, "schema": {text(schema)}, "table": {text(table)}'
        self._called = f"{schema}.{table}"
        self._name = text(database)
        self._key_names = tuple(key)
        self._numbers = numbers
        self._columns: tuple[tuple[str, ToJson], ...] = ()
        self._key: tuple[int, ...] = ()
        self._key_columns: tuple[tuple[str, ToJson], ...] = ()
        self._source = ""
        self._transaction = ""
        self._commit = self._lsn = self._millis = 0

    def relate(self, columns: Sequence[tuple[str, int]], types: TypeCatalog) -> None:
        """Set the columns of the rows that follow; raise SourceError if a key column is missing."""
        names = [name for name, _ in columns]
        if missing := [name for name in self._key_names if name not in names]:
            msg = (
                f"the table {self._called} no longer has a published column {missing[0]!r}, which is in its key: "
                "give the source another `key`, and copy the table again, with windrow run --recopy"
            )
            raise SourceError(msg)
        self._columns = types.encoders(columns)
        self._key = tuple(names.index(name) for name in self._key_names)
        self._key_columns = tuple(self._columns[at] for at in self._key)

    def begin(self, begin: Begin) -> None:
        """Start a transaction, to which the following changes belong."""
        self._commit, self._numbers.last = begin.commit, 0
        self._transaction = f'"{begin.xid}:{begin.commit}"'
        self._start(begin.time, "false", begin.xid)

    def snapshot_rows(self, rows: Iterator[Sequence[str | None]], lsn: int, micros: int) -> Iterator[ChangeRecord]:
        """Convert the rows of a snapshot, taken at LSN `lsn` and time `micros` (microseconds), to records."""
        self._start(micros, "true", None)
        for row in rows:
            value = self._value("r", "null", self._row(row), lsn, "null")
            yield ChangeRecord(ChangePlace(), self._millis, value, self._key_columns, self._key_of(row))

    @property
    def mark(self) -> bytes:
        """Bytes that are in each record of the table, and in no record of another one."""
        return f', {self._names}, "txId": '.encode()

    def rows(self, rows: Iterator[Sequence[str | None]]) -> Iterator[tuple[str, str]]:
        """Return the key and the columns of each row, as JSON objects."""
        for row in rows:
            yield _object(self._key_columns, self._key_of(row)), self._row(row)

    def begin_recopy(self, lsn: int, micros: int) -> None:
        """Start the changes between the log and a snapshot that was taken at LSN `lsn` and time `micros`.

        No transaction commits at ``lsn - 1``, because records of the WAL are aligned.
        """
        self._commit, self._numbers.last, self._lsn = lsn - 1, 0, lsn
        self._transaction = f'"recopy:{lsn - 1}"'
        self._start(micros, "incremental", None)

    def recopied(self, change: RowChange | None) -> ChangeRecord:
        """Convert a change between the log and a snapshot, None for a truncation.

        As with the default identity, an update has no old row.
        """
        if change is None:
            return self.truncation(self._lsn)
        key, before, after = change
        op = "d" if after is None else "c" if before is None else "u"
        record = self._record(op, [], None if op == "u" else before, after, self._lsn)
        return record._replace(key_columns=(("", str),), key_values=(key[1:-1],))

    def records(self, change: Change, lsn: int) -> Iterator[ChangeRecord]:
        """Convert a change at an LSN to one record, or to two records for an update that changes the key.

        As in Debezium, the two records are a deletion of the row with the old key and an insertion with the new key.
        """
        old, new = change.old, change.new
        if old is None or new is None:
            before, after = (None if row is None else self._row(row) for row in (old, new))
            yield self._record(change.op, self._key_of(new or old or ()), before, after, lsn)
            return
        if change.is_whole:
            new = [was if value is Unchanged.TOAST else value for was, value in zip(old, new, strict=True)]
        before, after = self._row(old), self._row(new)
        # an unchanged long value of the key is only logged in the old row
        key_row = [was if value is Unchanged.TOAST else value for was, value in zip(old, new, strict=True)]
        was, key = self._key_of(old), self._key_of(key_row)
        if was != key:
            yield self._record("d", was, before, None, lsn)
            yield self._record("c", key, None, after, lsn)
        else:
            yield self._record(change.op, key, before if change.is_whole else None, after, lsn)

    def truncation(self, lsn: int) -> ChangeRecord:
        """Return the record for a truncation of the table, which is for each partition of the log or topic."""
        record = self._record(TRUNCATE, [], None, None, lsn)
        return record._replace(value=f'{record.value[:-1]}, "{EACH_PARTITION}": true}}')

    def _start(self, micros: int, snapshot: str, xid: int | None) -> None:
        self._millis = micros // 1000
        self._source = (
            f'"source": {{"connector": "postgresql", "name": {self._name}, "ts_ms": {self._millis}, "ts_us": {micros}, '
            f'"snapshot": "{snapshot}", {self._names}, "txId": {"null" if xid is None else xid}, "lsn": '
        )

    def _record(self, op: str, key: Row, before: str | None, after: str | None, lsn: int) -> ChangeRecord:
        self._numbers.last += 1
        number = self._numbers.last
        transaction = f'{{"id": {self._transaction}, "total_order": {number}}}'
        value = self._value(op, before or "null", after or "null", lsn, transaction)
        columns = self._key_columns if key else ()
        return ChangeRecord(ChangePlace(self._commit, number), self._millis, value, columns, key)

    def _value(self, op: str, before: str, after: str, lsn: int, transaction: str) -> str:
        return (
            f'{{"before": {before}, "after": {after}, {self._source}{lsn}}}, "op": "{op}", "ts_ms": {self._millis}, '
            f'"transaction": {transaction}}}'
        )

    def _key_of(self, row: Sequence[str | Unchanged | None]) -> Row:
        return [row[at] for at in self._key]

    def _row(self, row: Sequence[str | Unchanged | None]) -> str:
        return _object(self._columns, row)


def _object(columns: Sequence[tuple[str, ToJson]], row: Sequence[str | Unchanged | None]) -> str:
    members = [
        name + ("null" if value is None else to_json(value) if isinstance(value, str) else _UNAVAILABLE)
        for (name, to_json), value in zip(columns, row, strict=True)
    ]
    return f"{{{', '.join(members)}}}"
