"""Stream changes from a replication slot to a store: append them, record the position, then confirm it."""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from threading import Event

from psycopg import errors, generators, pq
from psycopg.pq.abc import PGresult
from psycopg.sql import Identifier, Literal

from windrow.connectors.postgres import client
from windrow.connectors.postgres.cdc import server as db
from windrow.connectors.postgres.cdc.pgoutput import Begin, Change, Commit, Relation, Truncate, parse_message
from windrow.connectors.postgres.cdc.records import ChangeRecord, RecordWriter
from windrow.connectors.postgres.cdc.store import ChangeStore, FollowState
from windrow.connectors.postgres.cdc.values import TypeCatalog
from windrow.connectors.postgres.client import Connection
from windrow.connectors.source import SlotLag
from windrow.errors import SourceUnavailableError

_GATHER_SECONDS = 0.02
"""Minimum seconds between writes, so that each write covers many changes."""
_BUFFER_RECORDS = 5_000
_CONFIRM_SECONDS = 1.0
_EPOCH = 946_684_800_000_000
_WAL, _KEEPALIVE, _STATUS = struct.Struct(">xQ"), struct.Struct(">xQ"), struct.Struct(">cQQQqB")
_WAL_HEADER = 25


class ChangeStream:
    """Appends the changes of a slot to a store, starting at the position in the store's state.

    `verify` is called with the definition of each table that has changes, as of these changes. It raises SourceError if
    the table can no longer be followed.
    """

    def __init__(
        self,
        sql: Connection,
        replication: Connection,
        store: ChangeStore,
        writer: RecordWriter,
        *,
        place: str,
        state: FollowState,
        verify: Callable[[Relation], None],
    ) -> None:
        self._sql = sql
        self._replication = replication
        self._store = store
        self._writer = writer
        self._place = place
        self._types = TypeCatalog()
        self._noted = self._stored = state
        self._last = state.place
        self._verify = verify
        self._is_skipped = False
        self._in_transaction = False
        self._records: list[ChangeRecord] = []
        self._commit_time = 0
        self._received = self._durable_time = 0
        self._probe_time = self._probe_end = 0

    def run(self, stop: Event, until: int | None, on_lag: Callable[[SlotLag], None]) -> None:
        """Append changes until `stop` is set or the store contains all commits before the LSN `until`.

        `on_lag` is called with the lag of the store about once per second. Raise SourceError if the stream fails.
        """
        with db.translate_errors(self._place):
            self._start(stop)
            self._run(stop, until, on_lag)

    def _run(self, stop: Event, until: int | None, on_lag: Callable[[SlotLag], None]) -> None:
        wrote = confirmed = 0.0
        heard = time.monotonic()
        while not stop.is_set() and (until is None or self._received < until):
            message = self._next_message()
            if message is not None:
                heard = time.monotonic()
                self._take(message)
                if len(self._records) < _BUFFER_RECORDS:
                    continue
            now = time.monotonic()
            if now - wrote >= _GATHER_SECONDS or len(self._records) >= _BUFFER_RECORDS:
                self._write()
                wrote = now
            if now - confirmed >= _CONFIRM_SECONDS:
                self._confirm()
                confirmed = now
                if until is None:
                    on_lag(self._lag())
            elif until is not None:
                self._send_status(is_asking=True)  # the server answers with its position
            if message is None:
                wait = _GATHER_SECONDS if self._records or until is not None else db.WAIT_SECONDS
                select.select([self._replication.pgconn.socket], [], [], wait)
                self._replication.pgconn.consume_input()
                if time.monotonic() - heard > client.SILENCE:  # it was asked each second
                    self._replication.require_answer()
                    heard = time.monotonic()
        self._write()
        self._confirm()

    def _start(self, stop: Event) -> None:
        """Start the replication, waiting if the server still assigns the slot to a process that has ended."""
        state, deadline = self._noted, time.monotonic() + db.BUSY_SECONDS
        slot = Identifier(state.slot).as_string(None)
        publication = Literal(Identifier(state.publication).as_string(None)).as_string(None)
        command = (
            f"START_REPLICATION SLOT {slot} LOGICAL 0/0 (proto_version '1', publication_names {publication})"
        ).encode()
        while (result := self._result_of(command)).status != pq.ExecStatus.COPY_BOTH:
            error = errors.error_from_result(result)
            if not isinstance(error, errors.ObjectInUse) or time.monotonic() > deadline or stop.wait(db.WAIT_SECONDS):
                raise error

    def _result_of(self, command: bytes) -> PGresult:
        """Execute a replication command, for whose answer psycopg has no cursor."""
        pgconn = self._replication.pgconn
        results: list[PGresult] = []
        pgconn.send_query(command)
        while (result := self._replication.wait(generators.fetch(pgconn))) is not None:
            results.append(result)
            if result.status == pq.ExecStatus.COPY_BOTH:
                break
        return results[-1]

    def _next_message(self) -> bytes | None:
        """Return the next message that has arrived, or None."""
        size, data = self._replication.pgconn.get_copy_data(1)
        if size > 0:
            return bytes(data)
        if size < 0:
            result = self._replication.pgconn.get_result()
            if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
                raise errors.error_from_result(result)
            msg = f"{self._place}: the server has ended the replication; start again when it is back"
            raise SourceUnavailableError(msg)
        return None

    def _take(self, data: bytes) -> None:
        if data[0] == ord("k"):
            (end,) = _KEEPALIVE.unpack_from(data)
            if not self._in_transaction:
                self._received = max(self._received, end)
            return
        (lsn,) = _WAL.unpack_from(data)
        match parse_message(data[_WAL_HEADER:]):
            case Change() as change if change.relation == self._noted.relation and not self._is_skipped:
                for record in self._writer.records(change, lsn):
                    self._put(record)
            case Begin() as begin:
                self._in_transaction, self._commit_time = True, begin.time
                self._is_skipped = begin.commit < self._last.commit
                self._writer.begin(begin)
            case Commit(end=end):
                self._in_transaction = False
                self._received = max(self._received, end)
            case Relation() as relation:
                self._verify(relation)
                if relation.oid == self._noted.relation:
                    self._types.learn(self._sql, [oid for _, oid in relation.columns])
                    self._writer.relate(relation.columns, self._types)
            case Truncate(relations=relations) if self._noted.relation in relations and not self._is_skipped:
                self._put(self._writer.truncation(lsn))
            case _:
                pass

    def _put(self, record: ChangeRecord) -> None:
        if record.place > self._last:
            self._last = record.place
            self._records.append(record)

    def _write(self) -> None:
        state = replace(
            self._stored,
            commit=self._last.commit,
            number=self._last.number,
            confirmed=max(self._stored.confirmed, self._received),
        )
        if self._records:
            self._store.append(self._records, state)
            self._records = []
        self._stored = state
        self._durable_time = max(self._durable_time, 0 if self._in_transaction else self._commit_time)

    def _confirm(self) -> None:
        """Record the durable position, and then confirm it to the server, which may now delete the changes."""
        if self._stored.confirmed > self._noted.confirmed:
            self._store.note(self._stored)
            self._noted = self._stored
        self._send_status(is_asking=True)

    def _send_status(self, *, is_asking: bool) -> None:
        lsn, clock = self._noted.confirmed, time.time_ns() // 1000 - _EPOCH
        pgconn = self._replication.pgconn
        pgconn.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, clock, is_asking))
        pgconn.flush()

    def _lag(self) -> SlotLag:
        """Ask the server for the current lag of the store."""
        slot, now, end = db.find_slot(self._sql, self._noted.slot), *db.now_and_end(self._sql)
        durable = self._stored.confirmed
        if durable >= self._probe_end:
            self._durable_time = max(self._durable_time, now if durable >= end else self._probe_time)
        self._probe_time, self._probe_end = now, end
        return SlotLag(
            self._noted.slot,
            None if slot is None else max(0, slot.behind),
            max(0.0, (now - self._durable_time) / 1_000_000) if self._durable_time else None,
        )
