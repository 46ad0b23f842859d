"""The stream of a replication slot into the log: what is appended, noted, and confirmed, in that order."""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Event

from psycopg import errors, pq
from psycopg.sql import Identifier, Literal

from windrow.errors import SourceError, SourceUnavailableError
from windrow.postgresql import Connection
from windrow.sources.base import SlotLag
from windrow.sources.log.append import write_lines
from windrow.sources.log.folder import LogFolder
from windrow.sources.log.kept import Position, replace_durably
from windrow.sources.postgres_cdc import server as db
from windrow.sources.postgres_cdc.pgoutput import Begin, Change, Commit, Relation, Truncate, parse_message
from windrow.sources.postgres_cdc.records import ChangePlace, RecordWriter
from windrow.sources.postgres_cdc.values import TypeCatalog

_STATE = "postgres.json"
_GATHER_SECONDS = 0.02
"""Between two writes at least, so that one makes many changes durable."""
_BUFFER_LINES = 5_000
_CONFIRM_SECONDS = 1.0
_EPOCH = 946_684_800_000_000
_WAL, _KEEPALIVE, _STATUS = struct.Struct(">xQ"), struct.Struct(">xQ"), struct.Struct(">cQQQqB")
_WAL_HEADER = 25


@dataclass(frozen=True)
class FollowState:
    """The state of following, kept beside the log: slot, publication and table, and how far the log has come.

    The change at `commit` and `number` is before the record `line`, which begins at the byte `byte`; the slot was told
    of no LSN after `confirmed`.
    """

    slot: str
    publication: str
    table: str
    commit: int = 0
    number: int = 0
    line: int = 0
    byte: int = 0
    confirmed: int = 0

    @staticmethod
    def read(folder: Path) -> FollowState | None:
        """Read it; None if there is none. Raise SourceError if it is damaged."""
        path = folder / _STATE
        try:
            return FollowState(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as exc:
            msg = f"{path} is damaged: restore it, or remove the log {folder}, and start over with --fresh"
            raise SourceError(msg) from exc

    def write(self, folder: Path) -> None:
        """Replace it durably."""
        replace_durably(folder / _STATE, asdict(self))


class ChangeStream:
    """Appends the changes of a slot to partition 0 of a log, which is there."""

    def __init__(
        self, sql: Connection, replication: Connection, folder: LogFolder, writer: RecordWriter, place: str
    ) -> None:
        self._sql = sql
        self._replication = replication
        self._folder = folder
        self._writer = writer
        self._place = place
        self._types = TypeCatalog()
        self._state = FollowState("", "", "")
        self._at = Position()
        self._relation: int | None = None
        self._is_skipped = False
        self._in_transaction = False
        self._lines: list[str] = []
        self._last = self._written = ChangePlace()
        self._commit_time = 0
        self._received = self._durable = self._durable_time = 0
        self._probe_time = self._probe_end = 0

    def open(self, state: FollowState) -> None:
        """Find the end of the log, and remove what a crash has left of a line.

        Raise SourceError if the log is shorter than is noted, or its last record is none of a table.
        """
        folder, noted = self._folder, Position(state.line, state.byte)
        self._state, self._last = state, ChangePlace(state.commit, state.number)
        self._at = folder.scan(0, noted)
        last = b""
        for batch in folder.read(0, noted, self._at):
            last = batch.column("value")[-1].as_py()
        try:
            self._last = (ChangePlace.of_line(last) if last else None) or self._last
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            msg = (
                f"the last record of {folder.file(0)} is none of the table {state.table}: nobody else may append to "
                "the log of a table; give the source a log of its own"
            )
            raise SourceError(msg) from exc
        self._written, path = self._last, folder.file(0)
        if path.stat().st_size > self._at.byte:
            os.truncate(path, self._at.byte)

    def run(self, stop: Event, until: int | None, on_lag: Callable[[SlotLag], None]) -> None:
        """Append until `stop` is set, or all that was committed before the LSN `until` is in the log.

        `on_lag` is called with how far the log is behind, every second or so. Raise SourceError.
        """
        with db.translated(self._place):
            self._start(stop)
            log = os.open(self._folder.file(0), os.O_RDWR | os.O_CLOEXEC)
            try:
                self._run(log, stop, until, on_lag)
            finally:
                os.close(log)

    def _run(self, log: int, stop: Event, until: int | None, on_lag: Callable[[SlotLag], None]) -> None:
        wrote = confirmed = 0.0
        while not stop.is_set() and (until is None or self._received < until):
            message = self._next_message()
            if message is not None:
                self._take(message)
                if len(self._lines) < _BUFFER_LINES:
                    continue
            now = time.monotonic()
            if now - wrote >= _GATHER_SECONDS or len(self._lines) >= _BUFFER_LINES:
                self._write(log)
                wrote = now
            if now - confirmed >= _CONFIRM_SECONDS:
                self._confirm()
                confirmed = now
                if until is None:
                    on_lag(self._lag())
            elif until is not None:
                self._send_status(is_asking=True)  # the server answers with how far it is
            if message is None:
                self._wait(_GATHER_SECONDS if self._lines or until is not None else db.WAIT_SECONDS)
        self._write(log)
        self._confirm()

    def _start(self, stop: Event) -> None:
        """Start the replication; wait if the slot is still held by a process that has ended."""
        state, deadline = self._state, time.monotonic() + db.BUSY_SECONDS
        slot = Identifier(state.slot).as_string(None)
        publication = Literal(Identifier(state.publication).as_string(None)).as_string(None)
        command = (
            f"START_REPLICATION SLOT {slot} LOGICAL 0/0 (proto_version '1', publication_names {publication})"
        ).encode()
        while (result := self._replication.pgconn.exec_(command)).status != pq.ExecStatus.COPY_BOTH:
            error = errors.error_from_result(result)
            if not isinstance(error, errors.ObjectInUse) or time.monotonic() > deadline or stop.wait(db.WAIT_SECONDS):
                raise error

    def _next_message(self) -> bytes | None:
        """Return a message that has arrived, None if none has."""
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

    def _wait(self, seconds: float) -> None:
        select.select([self._replication.pgconn.socket], [], [], seconds)
        self._replication.pgconn.consume_input()

    def _take(self, data: bytes) -> None:
        if data[0] == ord("k"):
            (end,) = _KEEPALIVE.unpack_from(data)
            if not self._in_transaction:
                self._received = max(self._received, end)
            return
        (lsn,) = _WAL.unpack_from(data)
        match parse_message(data[_WAL_HEADER:]):
            case Change() as change if change.relation == self._relation and not self._is_skipped:
                for place, line in self._writer.lines(change, lsn):
                    self._put(place, line)
            case Begin() as begin:
                self._in_transaction, self._commit_time = True, begin.time
                self._is_skipped = begin.commit < self._last.commit
                self._writer.begin(begin)
            case Commit(end=end):
                self._in_transaction = False
                self._received = max(self._received, end)
            case Relation() as relation if self._writer.is_of(relation):
                self._types.learn(self._sql, [oid for _, oid in relation.columns])
                self._writer.relate(relation.columns, self._types)
                self._relation = relation.oid
            case Truncate(relations=relations) if self._relation in relations and not self._is_skipped:
                self._put(*self._writer.truncation(lsn))
            case _:
                pass

    def _put(self, place: ChangePlace, line: str) -> None:
        if place > self._last:
            self._last = place
            self._lines.append(line)

    def _write(self, log: int) -> None:
        if self._lines:
            lines = "".join(self._lines).encode()
            write_lines(self._folder.file(0), log, self._at.byte, lines)
            self._at = Position(self._at.line + len(self._lines), self._at.byte + len(lines))
            self._lines, self._written = [], self._last
        self._durable = self._received
        self._durable_time = max(self._durable_time, 0 if self._in_transaction else self._commit_time)

    def _confirm(self) -> None:
        """Note what is durable, and then tell the server that it may forget it."""
        if self._durable > self._state.confirmed:
            self._state = replace(
                self._state,
                commit=self._written.commit,
                number=self._written.number,
                line=self._at.line,
                byte=self._at.byte,
                confirmed=self._durable,
            )
            self._state.write(self._folder.path)
        self._send_status(is_asking=True)

    def _send_status(self, *, is_asking: bool) -> None:
        lsn, clock = self._state.confirmed, time.time_ns() // 1000 - _EPOCH
        pgconn = self._replication.pgconn
        pgconn.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, clock, is_asking))
        pgconn.flush()

    def _lag(self) -> SlotLag:
        """Ask the server; raise SourceError if it has lost the slot."""
        slot, now, end = db.find_slot(self._sql, self._state.slot), *db.now_and_end(self._sql)
        if self._durable >= self._probe_end:
            self._durable_time = max(self._durable_time, now if self._durable >= end else self._probe_time)
        self._probe_time, self._probe_end = now, end
        return SlotLag(
            self._state.slot,
            None if slot is None else max(0, slot.behind),
            max(0.0, (now - self._durable_time) / 1_000_000) if self._durable_time else None,
        )
