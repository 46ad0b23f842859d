"""A table of a PostgreSQL database, whose changes are appended to an embedded log by logical replication.

Everything else reads the log alone, so a replay needs no database. The log has one partition, in which changes are in
the order of their commits: its last record then says what is in it, and a row whose key changes keeps its order.

Nothing is lost or twice in it, wherever a crash comes:

- The table is copied into a draft, which becomes the partition by one rename. Without the partition the copy had not
  ended: the slot is dropped, and both begin anew.
- Lines are appended, then made durable, then the position is noted in ``postgres.json``, and only then is the slot
  told that the database may forget them. After a crash the database sends all that it was not told of. What is in the
  log already is left out, by the place of its last record (`windrow.sources.postgres_cdc.records`), and what was lost
  of the log is written again, byte for byte. A part of a line, which no reader takes for a record, is removed first.
- A lock lets one process at a time follow a table into a log.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event

from windrow.errors import InputError, SourceError, SourceUnavailableError
from windrow.model import PostgresCdcSource
from windrow.postgresql import Connection, Server
from windrow.sources.base import SlotLag
from windrow.sources.log.folder import LogFolder
from windrow.sources.log.kept import sync_path
from windrow.sources.postgres_cdc import server as db
from windrow.sources.postgres_cdc.records import RecordWriter
from windrow.sources.postgres_cdc.stream import ChangeStream, FollowState
from windrow.sources.postgres_cdc.values import TypeCatalog

_LOCK, _DRAFT = "postgres.lock", ".partition-0.jsonl.draft"
_CHUNK = 1 << 20


class FollowedTable:
    """The table of a source, and the log that has its changes; see `windrow.sources.base.Follower`."""

    def __init__(self, source: PostgresCdcSource) -> None:
        self._source = source
        self._server = Server(source.url, "source")
        self._folder = LogFolder(source.log)
        self.lag: SlotLag | None = None

    def update(self) -> None:
        """Append what was committed before now, at first the rows of the table.

        Raise InputError for a log of something else, SourceError if the database cannot be followed, which leaves the
        log whole.
        """
        self._run(Event(), to_end=True)

    def follow(self, stop: Event, warn: Callable[[str], None]) -> None:  # noqa: ARG002 - see `Follower`
        """Append changes as they are committed, until `stop` is set; raise as `update` does."""
        try:
            self._run(stop, to_end=False)
        finally:
            self.lag = None if self.lag is None else replace(self.lag, bytes=None, seconds=None)

    def _run(self, stop: Event, *, to_end: bool) -> None:
        with (
            self._locked(),
            db.connected(self._server) as sql,
            db.connected(self._server, replication="database") as replication,
        ):
            db.refuse_unready(sql, self._server.place)
            table = db.find_table(sql, self._source.table, self._server.place)
            writer = RecordWriter(sql.info.dbname, table.schema, table.name, db.key_of(table, self._source.key))
            state = self._own_state(sql, table)
            if self._folder.file(0).exists():
                self._require_slot(sql, state)
                db.published_columns(sql, state.publication, table)
            else:
                state = self._copied(sql, replication, state, table, writer)
            stream = ChangeStream(sql, replication, self._folder, writer, self._server.place)
            stream.open(state)
            stream.run(stop, db.mark_end(sql) if to_end else None, self._set_lag)

    def _set_lag(self, lag: SlotLag) -> None:
        self.lag = lag

    def _own_state(self, sql: Connection, table: db.TableFacts) -> FollowState:
        """Return what is noted of the log, which is new if it is; raise InputError if it is of something else."""
        source, folder, called = self._source, self._folder.path, f"{table.schema}.{table.name}"
        state = FollowState.read(folder)
        if state is None:
            if self._folder.file(0).exists():
                msg = f"the log {folder} is not of a table: name another folder in `log`"
                raise InputError(msg)
            name = f"windrow_{re.sub('[^a-z0-9]', '_', table.name.lower())[:32]}_{os.urandom(4).hex()}"
            state = FollowState(source.slot or name, source.publication or source.slot or name, called)
            if db.find_slot(sql, state.slot) is not None:
                msg = (
                    f"the slot {state.slot} is there already, and is not of the log {folder}: name another one, or "
                    f"drop it if nothing needs it: SELECT pg_drop_replication_slot('{state.slot}')"
                )
                raise InputError(msg)
            state.write(folder)
        elif (source.slot or state.slot, source.publication or state.publication, called) != (
            state.slot,
            state.publication,
            state.table,
        ):
            msg = (
                f"the log {folder} is of the table {state.table}, by the slot {state.slot} and the publication "
                f"{state.publication}: give the source a log of its own"
            )
            raise InputError(msg)
        return state

    def _require_slot(self, sql: Connection, state: FollowState) -> None:
        """Raise SourceError if the slot cannot continue where the log ends."""
        slot = db.find_slot(sql, state.slot)
        over = f"remove the log {self._folder.path} to copy the table anew, and start over with --fresh"
        if slot is None:
            msg = f"{self._server.place} has no slot {state.slot} any more, so changes are lost: {over}"
            raise SourceError(msg)
        if slot.is_lost:
            msg = (
                f"{self._server.place} has removed what the slot {state.slot} still needed, as it was more than "
                f"max_slot_wal_keep_size, so changes are lost: drop the slot, {over}"
            )
            raise SourceError(msg)
        if state.confirmed and slot.confirmed > state.confirmed:
            msg = (
                f"the log {self._folder.path} is older than the slot {state.slot}, so changes are lost: bring back the "
                f"newest log, or drop the slot, {over}"
            )
            raise SourceError(msg)

    def _copied(
        self, sql: Connection, replication: Connection, state: FollowState, table: db.TableFacts, writer: RecordWriter
    ) -> FollowState:
        """Create the slot, and copy the table as it was just before into the log; return what is noted then."""
        folder = self._folder.path
        db.drop_slot(sql, state.slot)  # of a copy that did not end
        db.make_publication(sql, state.publication, table, may_create=self._source.publication is None)
        columns, only = db.published_columns(sql, state.publication, table)
        types = TypeCatalog()
        types.learn(sql, [oid for _, oid in columns])
        writer.relate(columns, types)
        lsn, snapshot = db.create_slot(sql, replication, state.slot, self._server.place)
        lines = size = 0
        with (folder / _DRAFT).open("wb", buffering=_CHUNK) as out:
            rows = db.copy_rows(sql, snapshot, table, columns, only)
            for line in writer.snapshot_rows(rows, lsn, db.now_micros(sql)):
                lines += 1
                size += out.write(line.encode())
            out.flush()
            os.fsync(out.fileno())
        (folder / _DRAFT).rename(self._folder.file(0))
        sync_path(folder)
        slot = db.find_slot(sql, state.slot)
        state = replace(state, line=lines, byte=size, confirmed=lsn if slot is None else max(lsn, slot.confirmed))
        state.write(folder)
        return state

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Create the folder of the log, and keep other processes from following into it."""
        path = self._folder.path / _LOCK
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as exc:
            msg = f"cannot write the log {self._folder.path}: {exc.strerror}"
            raise SourceError(msg) from exc
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as exc:
                msg = (
                    f"another run follows the table {self._source.table} into the log {self._folder.path}: end that "
                    "one, give this pipeline a log of its own, or let it read that one: log: {path, format: debezium}"
                )
                raise SourceUnavailableError(msg) from exc
            yield
        finally:
            os.close(lock)
