"""Follow a PostgreSQL table by logical replication, appending its changes to a log or a topic.

`windrow.connectors.follower` has the loop, and the reason why each change is in the log or topic exactly once. The
initial copy of the table is either complete or missing. If it is missing, copying was interrupted: the slot is dropped,
and both the slot and the copy are made again.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from threading import Event
from typing import NoReturn, assert_never

from windrow import model as m
from windrow.connectors.follower import FeedFollower, FollowStore
from windrow.connectors.postgres.cdc import server as db
from windrow.connectors.postgres.cdc.pgoutput import Relation
from windrow.connectors.postgres.cdc.recopy import row_changes
from windrow.connectors.postgres.cdc.records import ChangePlace, ChangeRecord, RecordWriter
from windrow.connectors.postgres.cdc.state import SlotState
from windrow.connectors.postgres.cdc.stream import ChangeStream
from windrow.connectors.postgres.cdc.values import TypeCatalog
from windrow.connectors.postgres.client import Connection, Server
from windrow.errors import InputError, SourceError

_Store = FollowStore[SlotState, ChangeRecord]


class FollowedTable(FeedFollower[SlotState, ChangeRecord]):
    """The table of a source.

    `known_by` has the columns that are part of the keys of the pipeline's tables, each with all of its names.
    """

    def __init__(self, source: m.PostgresCdcSource, known_by: Sequence[Sequence[str]] = ()) -> None:
        self._source = source
        self._known_by = known_by
        self._server = Server(source.url, "source")
        self._is_recopy = False

    @property
    def tables(self) -> tuple[str, ...]:
        return (self._source.table,)

    def recopy(self) -> None:
        self._is_recopy = True
        try:
            self.update()
        finally:
            self._is_recopy = False

    def preflight(self) -> None:
        """Raise SourceError if the role may not follow the table, or the table and its key cannot be followed."""
        place = self._server.place
        with db.connected(self._server) as sql, db.connected(self._server, replication="database"):
            db.refuse_unready(sql, place)
            table = db.find_table(sql, self._source.table, place)
            db.key_of(table, self._source.key)
            db.refuse_unlogged(table, self._known_by)
            db.refuse_unreadable(sql, place, table, self._source.publication)

    @contextmanager
    def opened(self, stop: Event) -> Iterator[tuple[ChangeStream, _Store, SlotState]]:
        with (
            db.connected(self._server) as sql,
            db.connected(self._server, replication="database") as replication,
        ):
            store = _open_store(self._source, sql)
            with store.opened():
                db.refuse_unready(sql, self._server.place)
                session = _Session(self._source, self._known_by, self._server.place, sql, store)
                stream, state = session.stream(replication, is_recopy=self._is_recopy)
                stream.start(stop)
                yield stream, store, state


class _Session:
    """A connection to the database of a followed table, `sql`, while its store is open."""

    def __init__(
        self,
        source: m.PostgresCdcSource,
        known_by: Sequence[Sequence[str]],
        place: str,
        sql: Connection,
        store: _Store,
    ) -> None:
        self._source = source
        self._known_by = known_by
        self._place = place
        self._sql = sql
        self._store = store

    def stream(self, replication: Connection, *, is_recopy: bool) -> tuple[ChangeStream, SlotState]:
        """Return the changes after the end of the store, and its state.

        The table is copied if the store has no copy, and again with `is_recopy` or if that was interrupted.
        """
        sql, store = self._sql, self._store
        table, key = self._find()
        writer = RecordWriter(sql.info.dbname, table.schema, table.name, key)
        state = self._own_state(table, key)
        if not store.is_copied():
            self._copy(replication, state, table, writer)
        elif is_recopy or state.is_recopied:
            self._recopy(replication, table, key, writer)
        else:
            self._require_slot(state)
            self._refuse_altered(state, table, key)
        state = store.resume()
        if not state.relation:
            published = db.find_publication(sql, state.publication, table).version
            state = replace(state, relation=table.oid, key=key, published=published)

        def verify(relation: Relation) -> None:
            if relation.oid == state.relation:
                logged = replace(table, identity=relation.identity)
                db.key_of(logged, state.key)
                db.refuse_unlogged(logged, self._known_by)
            elif f"{relation.schema}.{relation.table}" == state.table:
                self._refuse_other(state)

        def verify_now() -> None:
            self._refuse_altered(state, *self._find())

        stream = ChangeStream(
            sql, replication, writer, place=self._place, state=state, verify=verify, verify_now=verify_now
        )
        return stream, state

    def _find(self) -> tuple[db.TableFacts, tuple[str, ...]]:
        """Look up the table and the columns that identify a row."""
        table = db.find_table(self._sql, self._source.table, self._place)
        key = db.key_of(table, self._source.key)
        db.refuse_unlogged(table, self._known_by)
        return table, key

    def _refuse_altered(self, state: SlotState, table: db.TableFacts, key: tuple[str, ...]) -> None:
        """Raise SourceError if another table has the name, or the key or the publication has changed since the copy."""
        is_known = state.relation != 0  # not in a state of an older version
        if is_known and table.oid != state.relation:
            self._refuse_other(state)
        if is_known and key != state.key:
            msg = (
                f"the rows of the table {state.table} were identified by ({', '.join(state.key)}) when it was copied, "
                f"and are now identified by ({', '.join(key)}): {self._over}"
            )
            raise SourceError(msg)
        published = db.find_publication(self._sql, state.publication, table)
        if is_known and published.version != state.published:
            msg = (
                f"the publication {state.publication} was altered after the table {state.table} was copied, so changes "
                f"may be missing: {self._over}"
            )
            raise SourceError(msg)

    def _refuse_other(self, state: SlotState) -> NoReturn:
        msg = (
            f"{self._place} has another table under the name {state.table} than the one that was copied, so "
            f"rows are missing: give the copied table its name back, or {self._over}"
        )
        raise SourceError(msg)

    @property
    def _over(self) -> str:
        """The instruction to copy the table again, for use in messages."""
        return f"copy the table again, with windrow run --recopy {shlex.quote(self._source.table)}"

    def _own_state(self, table: db.TableFacts, key: tuple[str, ...]) -> SlotState:
        """Return the state in the store, or a new one; raise InputError if the store has the copy of another table."""
        source, store, called = self._source, self._store, f"{table.schema}.{table.name}"
        state = store.state()
        if state is None or not store.is_copied():
            slot = source.slot or f"windrow_{re.sub('[^a-z0-9]', '_', table.name.lower())[:32]}_{os.urandom(4).hex()}"
            if state is not None:  # of a copy that was interrupted or refused
                db.drop_slot(self._sql, state.slot)
                slot = source.slot or (state.slot if state.table == called else slot)
            state = SlotState(slot, source.publication or slot, called, relation=table.oid, key=key)
            if db.find_slot(self._sql, state.slot) is not None:
                msg = (
                    f"the slot {state.slot} already exists and does not belong to {store.name}: choose another slot, "
                    f"or drop this one if nothing needs it: SELECT pg_drop_replication_slot('{state.slot}')"
                )
                raise InputError(msg)
            store.note(state)
        elif (source.slot or state.slot, source.publication or state.publication, called) != (
            state.slot,
            state.publication,
            state.table,
        ):
            msg = (
                f"{store.name} belongs to the table {state.table}, with the slot {state.slot} and the publication "
                f"{state.publication}: give the source a log or a topic of its own"
            )
            raise InputError(msg)
        return state

    def _require_slot(self, state: SlotState) -> None:
        """Raise SourceError if the slot no longer has the changes that follow the end of the log."""
        slot = db.find_slot(self._sql, state.slot)
        if slot is None:
            msg = f"{self._place} no longer has the slot {state.slot}, so changes are lost: {self._over}"
            raise SourceError(msg)
        if slot.is_lost:
            msg = (
                f"{self._place} has removed WAL that the slot {state.slot} still needed, because it exceeded "
                f"max_slot_wal_keep_size, so changes are lost: {self._over}"
            )
            raise SourceError(msg)
        noted = (
            self._store.state() or state
        )  # read after the slot: a run that is ending may have confirmed more meanwhile
        if noted.confirmed and slot.confirmed > noted.confirmed:
            msg = (
                f"{self._store.name} is older than the slot {state.slot}, so changes are lost: restore its newest "
                f"state, or {self._over}"
            )
            raise SourceError(msg)

    def _copy(self, replication: Connection, state: SlotState, table: db.TableFacts, writer: RecordWriter) -> None:
        """Create the slot, and copy the table as of the slot's creation into the store."""
        published = self._publish(state, table, writer)
        state = replace(state, published=published.version)
        self._store.note(state)
        lsn, snapshot, confirmed = self._snapshot(replication, state)
        rows = db.copy_rows(self._sql, snapshot, table, published)
        copied = writer.snapshot_rows(rows, lsn, db.now_micros(self._sql))
        self._store.copy(copied, replace(state, confirmed=confirmed))

    def _recopy(
        self, replication: Connection, table: db.TableFacts, key: tuple[str, ...], writer: RecordWriter
    ) -> None:
        """Replace the slot, and append the differences between the store and the table as of the slot's creation."""
        sql, store = self._sql, self._store
        state = replace(store.resume(), is_recopied=True)
        records = store.records()
        first = next(records, None)  # raises before anything is changed, as does the next
        if self._source.publication is not None:
            db.find_publication(sql, state.publication, table)
        if db.now_and_end(sql)[1] <= state.commit:
            msg = (
                f"{self._place} has less WAL than {store.name} has changes of, so this is another server: "
                f"{store.removal} to copy the table of this one, and start over with --fresh"
            )
            raise SourceError(msg)
        store.note(state)
        db.drop_slot(sql, state.slot)
        if self._source.publication is None:
            db.drop_publication(sql, state.publication)
        published = self._publish(state, table, writer)
        lsn, snapshot, confirmed = self._snapshot(replication, state)
        writer.begin_recopy(lsn, db.now_micros(sql))
        changes = row_changes(
            records if first is None else chain([first], records),
            state.key or key,
            writer.rows(db.copy_rows(sql, snapshot, table, published)),
            # other columns than the key can be in the keys of tables only if their old values are logged
            is_split=table.identity is None or set(table.identity) != set(key),
        )
        while chunk := [writer.recopied(change) for change in islice(changes, _CHUNK)]:
            state = state.reached(chunk[-1].place, state.confirmed)
            store.append(chunk, state)
        state = replace(state, relation=table.oid, key=key, published=published.version, is_recopied=False)
        store.note(replace(state, confirmed=confirmed))

    def _publish(self, state: SlotState, table: db.TableFacts, writer: RecordWriter) -> db.Publication:
        """Return what the publication publishes of the table, for which `writer` is prepared; create it if need be."""
        if self._source.publication is None:
            db.make_publication(self._sql, state.publication, table)
        published = db.find_publication(self._sql, state.publication, table)
        types = TypeCatalog()
        types.learn(self._sql, [oid for _, oid in published.columns])
        writer.relate(published.columns, types)
        return published

    def _snapshot(self, replication: Connection, state: SlotState) -> tuple[int, str, int]:
        """Create the slot; return its first LSN, the snapshot as of that, and the LSN confirmed to the slot."""
        lsn, snapshot = db.create_slot(self._sql, replication, state.slot, self._place)
        slot = db.find_slot(self._sql, state.slot)
        return lsn, snapshot, lsn if slot is None else max(lsn, slot.confirmed)


_CHUNK = 5_000


def _open_store(source: m.PostgresCdcSource, sql: Connection) -> _Store:
    match source.records:
        case m.LogSource(path=path):
            from windrow.connectors.log.store import Followed, LogStore  # noqa: PLC0415 - Arrow only for a log

            what = Followed(
                f"the table {source.table}", source.format, "postgres", SlotState.read, ChangePlace.of_record
            )
            return LogStore(path, what)
        case m.KafkaSource() as topic:
            from windrow.connectors.postgres.cdc.topic_store import TopicStore  # noqa: PLC0415 - librdkafka for a topic

            return TopicStore(topic, source.table, sql)
        case unknown:
            assert_never(unknown)


def follow_table(node: m.SourceNode, keys: Collection[str]) -> FollowedTable:
    """Return the follower of a source's table; `keys` are the names of the tables' key fields."""
    if not isinstance(node.source, m.PostgresCdcSource):
        raise TypeError(node.source)
    key_fields = [field for field in node.decode.fields if field.name in keys and not field.path]
    return FollowedTable(node.source, [(field.name, *field.alias) for field in key_fields])
