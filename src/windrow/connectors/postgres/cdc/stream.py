"""The changes of a replication slot, as PostgreSQL streams them."""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Event

from psycopg import errors, generators, pq
from psycopg.pq.abc import PGresult
from psycopg.sql import Identifier, Literal

from windrow.connectors.follower import Feed, SlotLag
from windrow.connectors.postgres import client
from windrow.connectors.postgres.cdc import server as db
from windrow.connectors.postgres.cdc.pgoutput import Begin, Change, Commit, Relation, Truncate, parse_message
from windrow.connectors.postgres.cdc.records import ChangeRecord, RecordWriter
from windrow.connectors.postgres.cdc.state import SlotState
from windrow.connectors.postgres.cdc.values import TypeCatalog
from windrow.connectors.postgres.client import Connection
from windrow.errors import SourceUnavailableError

_EPOCH = 946_684_800_000_000
_WAL, _KEEPALIVE, _STATUS = struct.Struct(">xQ"), struct.Struct(">xQ"), struct.Struct(">cQQQqB")
_WAL_HEADER = 25


class ChangeStream(Feed[ChangeRecord]):
    """The changes of a slot from its last confirmed LSN on. Positions are LSNs.

    `state` is that of the log: transactions before its last change are left out. The tables that are followed have
    `writers`, by oid. `verify` is called with the definition of each table that has changes, as of these changes, and
    `verify_now` about once per second. They raise SourceError if a table can no longer be followed.
    """

    def __init__(
        self,
        sql: Connection,
        replication: Connection,
        writers: Mapping[int, RecordWriter],
        *,
        place: str,
        state: SlotState,
        verify: Callable[[Relation], None],
        verify_now: Callable[[], object],
    ) -> None:
        self._sql = sql
        self._replication = replication
        self._writers = writers
        self._held: list[ChangeRecord] = []
        self._place = place
        self._state = state
        self._types = TypeCatalog()
        self._verify = verify
        self._verify_now = verify_now
        self._is_skipped = False
        self._in_transaction = False
        self._commit_time = 0
        self._received = self._confirmed = self._received_time = 0
        self._probe_time = self._probe_end = 0

    @property
    def received(self) -> int:
        return self._received

    @property
    def silence(self) -> float:
        return client.SILENCE

    def start(self, stop: Event) -> None:
        """Start the replication, waiting if the server still assigns the slot to a process that has ended."""
        deadline = time.monotonic() + db.BUSY_SECONDS
        slot = Identifier(self._state.slot).as_string(None)
        publication = Literal(Identifier(self._state.publication).as_string(None)).as_string(None)
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

    def end(self) -> int:
        return db.mark_end(self._sql)

    def receive(self) -> Iterable[ChangeRecord] | None:
        size, data = self._replication.pgconn.get_copy_data(1)
        if size > 0:
            return self._take(bytes(data))
        if size < 0:
            result = self._replication.pgconn.get_result()
            if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
                raise errors.error_from_result(result)
            msg = f"{self._place}: the server has ended the replication; start again when it is back"
            raise SourceUnavailableError(msg)
        return None

    def _take(self, data: bytes) -> Iterable[ChangeRecord]:
        if data[0] == ord("k"):
            (end,) = _KEEPALIVE.unpack_from(data)
            if not self._in_transaction:
                self._received = max(self._received, end)
            return ()
        (lsn,) = _WAL.unpack_from(data)
        match parse_message(data[_WAL_HEADER:]):
            case Change() as change if change.relation in self._writers and not self._is_skipped:
                return self._with_more(self._writers[change.relation].records(change, lsn))
            case Begin() as begin:
                self._in_transaction, self._commit_time = True, begin.time
                self._is_skipped = begin.commit < self._state.commit
                for writer in self._writers.values():
                    writer.begin(begin)
            case Commit(end=end):
                self._in_transaction = False
                self._received = max(self._received, end)
                self._received_time = max(self._received_time, self._commit_time)
                held, self._held = self._held, []
                return held
            case Relation() as relation:
                self._verify(relation)
                if relation.oid in self._writers:
                    self._types.learn(self._sql, [oid for _, oid in relation.columns])
                    self._writers[relation.oid].relate(relation.columns, self._types)
            case Truncate(relations=relations) if not self._is_skipped:
                writers = [self._writers[oid] for oid in relations if oid in self._writers]
                return self._with_more([writer.truncation(lsn) for writer in writers])
            case _:
                pass
        return ()

    def _with_more(self, records: Iterable[ChangeRecord]) -> Iterable[ChangeRecord]:
        """Return records, of several tables each only when it is known whether more follow in its transaction."""
        if len(self._writers) == 1:
            return records
        known = [*self._held, *records]
        self._held = known[-1:]
        return [record._replace(more=True) for record in known[:-1]]

    def acknowledge(self, position: int) -> None:
        self._confirmed = position
        clock, is_asking = time.time_ns() // 1000 - _EPOCH, True
        pgconn = self._replication.pgconn
        pgconn.put_copy_data(_STATUS.pack(b"r", position, position, position, clock, is_asking))
        pgconn.flush()

    def wait(self, seconds: float) -> None:
        select.select([self._replication.pgconn.socket], [], [], seconds)
        self._replication.pgconn.consume_input()

    def require_answer(self) -> None:
        self._replication.require_answer()

    def lag(self) -> SlotLag:
        """Ask the server for the current lag of the log."""
        with suppress(errors.LockNotAvailable):  # by VACUUM FULL, for example: the table is verified when it has ended
            self._verify_now()
        slot, now, end = db.find_slot(self._sql, self._state.slot), *db.now_and_end(self._sql)
        if self._confirmed >= self._probe_end:
            reached = now if self._confirmed >= end else self._probe_time
            self._received_time = max(self._received_time, reached)
        self._probe_time, self._probe_end = now, end
        return SlotLag(
            self._state.slot,
            None if slot is None else max(0, slot.behind),
            max(0.0, (now - self._received_time) / 1_000_000) if self._received_time else None,
        )
