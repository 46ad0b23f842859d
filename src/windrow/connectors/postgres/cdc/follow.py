"""Follow tables of a PostgreSQL database by logical replication, appending their changes to a log or a topic.

`windrow.connectors.follower` has the loop, and the reason why each change is in the log or topic exactly once. The
initial copy of the tables is either complete or missing. If it is missing, copying was interrupted: the slot is
dropped, and both the slot and the copy are made again.

Several tables share a slot, a snapshot and a log, which has their changes in the order of the commits. Each record of
this log says whether more of its transaction follow, so that a run can end its steps between transactions.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from threading import Event
from types import MappingProxyType
from typing import NoReturn, assert_never

from windrow import model as m
from windrow.connectors.follower import FeedFollower, FollowStore, ReadColumns
from windrow.connectors.postgres.cdc import server as db
from windrow.connectors.postgres.cdc.pgoutput import Relation
from windrow.connectors.postgres.cdc.recopy import row_changes
from windrow.connectors.postgres.cdc.records import ChangePlace, ChangeRecord, Numbers, RecordWriter
from windrow.connectors.postgres.cdc.state import SlotState, TableState
from windrow.connectors.postgres.cdc.stream import ChangeStream
from windrow.connectors.postgres.cdc.unlogged import find_partitions, has_older_rows, has_older_values
from windrow.connectors.postgres.cdc.values import TypeCatalog
from windrow.connectors.postgres.client import Connection, Server
from windrow.errors import InputError, SourceError

_Store = FollowStore[SlotState, ChangeRecord]


class FollowedTables(FeedFollower[SlotState, ChangeRecord]):
    """The tables of a source.

    `read` has, for each of their names, the columns that the pipeline reads.
    """

    def __init__(self, source: m.PostgresCdcSource, read: Mapping[str, ReadColumns] = MappingProxyType({})) -> None:
        self._source = source
        self._read = read
        self._server = Server(source.url, "source")
        self._is_recopy = False

    @property
    def tables(self) -> tuple[str, ...]:
        return self._source.names

    def recopy(self) -> None:
        self._is_recopy = True
        try:
            self.update()
        finally:
            self._is_recopy = False

    def preflight(self) -> None:
        """Raise SourceError if the role may not follow the tables, or a table and its key cannot be followed."""
        place = self._server.place
        with db.connected(self._server) as sql, db.connected(self._server, replication="database"):
            db.refuse_unready(sql, place)
            tables = _find_tables(sql, place, self._source, self._read)
            publication = self._source.publication
            published = None if publication is None else [table.published(sql, publication) for table in tables]
            db.refuse_unreadable(sql, place, [table.facts for table in tables], published)

    @contextmanager
    def opened(self, stop: Event) -> Iterator[tuple[ChangeStream, _Store, SlotState]]:
        with (
            db.connected(self._server) as sql,
            db.connected(self._server, replication="database") as replication,
        ):
            store = _open_store(self._source, sql)
            with store.opened():
                db.refuse_unready(sql, self._server.place)
                session = _Session(self._source, self._read, self._server.place, sql, store)
                stream, state = session.stream(replication, is_recopy=self._is_recopy)
                stream.start(stop)
                yield stream, store, state


@dataclass(frozen=True)
class _Table:
    """A table as it is now, the columns that identify its rows, and those that the pipeline reads."""

    facts: db.TableFacts
    key: tuple[str, ...]
    read: ReadColumns

    @property
    def name(self) -> str:
        return f"{self.facts.schema}.{self.facts.name}"

    def refuse_unlogged(self, identity: tuple[str, ...] | None) -> None:
        """Raise SourceError if an identity does not log the columns that are needed."""
        logged = replace(self.facts, identity=identity)
        db.key_of(logged, self.key)
        db.refuse_unlogged(logged, self.read.keys)

    def published(self, sql: Connection, publication: str) -> db.Publication:
        """Look up what a publication publishes of the table; raise SourceError if it lacks a column that is needed."""
        found = db.find_publication(sql, publication, self.facts)
        for names in (*((name,) for name in self.key), *self.read.names):
            if not {name for name, _ in found.columns}.intersection(names) and found.others.intersection(names):
                msg = (
                    f"the publication {publication} does not publish the column {names[0]!r} of the table {self.name}, "
                    "which is in its key or decoded by the pipeline: add it to the publication (generated columns need "
                    "PostgreSQL 18, and publish_generated_columns = stored), or remove it from `decode`"
                )
                raise SourceError(msg)
        return found


def _find_tables(
    sql: Connection, place: str, source: m.PostgresCdcSource, read: Mapping[str, ReadColumns]
) -> list[_Table]:
    """Look up the tables of a source; raise SourceError if one of them cannot be followed."""
    found = []
    for name in source.names:
        facts = db.find_table(sql, name, place)
        table = _Table(facts, db.key_of(facts, source.key), read.get(name, ReadColumns()))
        table.refuse_unlogged(facts.identity)
        found.append(table)
    return found


class _Session:
    """A connection to the database of followed tables, `sql`, while their store is open."""

    def __init__(
        self,
        source: m.PostgresCdcSource,
        read: Mapping[str, ReadColumns],
        place: str,
        sql: Connection,
        store: _Store,
    ) -> None:
        self._source = source
        self._read = read
        self._place = place
        self._sql = sql
        self._store = store
        self._copies = ExitStack()
        self._checked: set[str] = set()

    def stream(self, replication: Connection, *, is_recopy: bool) -> tuple[ChangeStream, SlotState]:
        """Return the changes after the end of the store, and its state.

        The tables are copied if the store has no copy, and again with `is_recopy` or if that was interrupted.
        """
        store, tables, numbers = self._store, self._find(), Numbers()
        database = self._sql.info.dbname
        writers = {
            table.facts.oid: RecordWriter(database, table.facts.schema, table.facts.name, table.key, numbers)
            for table in tables
        }
        state, found = self._own_state(tables), None
        with self._copies:  # a copy that fails midway would keep the connection, which the store needs to close
            if not store.is_copied():
                self._copy(replication, state, tables, writers)
            elif not self._source.tables and (state.has_others or len(state.tables) > 1):
                msg = (
                    f"{store.name} also has changes of other tables, and a source with `table` reads all records of "
                    f"its log: write `tables: [{self._source.table}]` and a stream with `changes`, or choose another "
                    "`log`"
                )
                raise InputError(msg)
            elif is_recopy or state.is_recopied:
                self._recopy(replication, tables, writers)
            else:
                self._require_slot(state)
                found = self._unaltered(state, tables)
        state = store.resume()
        if found is not None:
            state = replace(state, tables=found)
        known = {each.relation: each for each in state.tables}
        relations = {oid: table for oid, each in known.items() for table in tables if table.name == each.table}

        def verify(relation: Relation) -> None:
            if relation.oid in relations:
                table = relations[relation.oid]
                try:
                    table.refuse_unlogged(relation.identity)
                except SourceError as exc:
                    msg = f"{exc}; as rows may have changed meanwhile, {self._over}"
                    raise SourceError(msg) from exc
                self._refuse_other_columns(table, known[relation.oid], dict.fromkeys(dict(relation.columns)))
            elif (name := f"{relation.schema}.{relation.table}") in state.names:
                self._refuse_other(name)

        stream = ChangeStream(
            self._sql,
            replication,
            {oid: writers[table.facts.oid] for oid, table in relations.items()},
            place=self._place,
            state=state,
            verify=verify,
            verify_now=lambda: self._unaltered(state, self._find()),
        )
        return stream, state

    def _find(self) -> list[_Table]:
        return _find_tables(self._sql, self._place, self._source, self._read)

    def _table_states(self, state: SlotState, tables: Iterable[_Table]) -> tuple[TableState, ...]:
        """Return the state of tables that are copied now."""
        return tuple(self._table_state(state, table) for table in tables)

    def _table_state(self, state: SlotState, table: _Table) -> TableState:
        published = table.published(self._sql, state.publication)
        partitions = tuple(each.version for each in find_partitions(self._sql, table.facts))
        return TableState(table.name, table.facts.oid, table.key, published.version, published.types, partitions)

    def _unaltered(self, state: SlotState, tables: Sequence[_Table]) -> tuple[TableState, ...]:
        """Return the state of tables, with the columns and partitions that were added since the copy without values.

        A state of an older version is completed. Raise SourceError if another table has the name, or if the key, the
        publication or a column that is read has changed since the copy, or a partition was attached with rows.
        """
        self._refuse_others(state, tables)
        now = {table.name: table for table in tables}
        return tuple(self._unaltered_table(state, known, now[known.table]) for known in state.tables)

    def _unaltered_table(self, state: SlotState, known: TableState, table: _Table) -> TableState:
        if not known.relation:  # the state is of an older version
            return self._table_state(state, table)
        if table.facts.oid != known.relation:
            self._refuse_other(known.table)
        if table.key != known.key:
            msg = (
                f"the rows of the table {known.table} were identified by ({', '.join(known.key)}) when it was "
                f"copied, and are now identified by ({', '.join(table.key)}): {self._over}"
            )
            raise SourceError(msg)
        published = table.published(self._sql, state.publication)
        if published.version != known.published:
            msg = (
                f"the publication {state.publication} was altered after the table {known.table} was copied, so "
                f"changes may be missing: {self._over}"
            )
            raise SourceError(msg)
        then = dict(known.columns)
        added = [(name, type_) for name, type_ in published.types if name not in then] if then else []
        filled = {
            name
            for name, type_ in added
            if name in published.filled
            or self._was_unlogged(f"{known.relation}.{type_}", partial(has_older_values, self._sql, table.facts, name))
        }
        self._refuse_other_columns(table, known, dict(published.types), filled)
        partitions = self._whole_partitions(table, known, published.only)
        empty = [(name, type_) for name, type_ in added if name not in filled]
        return replace(known, columns=(*known.columns, *empty), partitions=partitions)

    def _whole_partitions(self, table: _Table, known: TableState, only: str | None) -> tuple[str, ...]:
        """Return the versions of the partitions; raise SourceError if one was attached with rows since the copy."""
        partitions = find_partitions(self._sql, table.facts)
        versions = tuple(each.version for each in partitions)
        self._checked.update(versions if known.partitions is None else known.partitions)
        for each in partitions:
            if self._was_unlogged(each.version, partial(has_older_rows, self._sql, table.facts, each, only)):
                msg = (
                    f"the partition {each.name} was attached to the table {known.table} after it was copied, with "
                    f"rows, which PostgreSQL does not log: {self._over}"
                )
                raise SourceError(msg)
        return versions

    def _was_unlogged(self, version: str, look: Callable[[], bool]) -> bool:
        """Return what `look` finds of a new column or partition, which is not looked at again if that is False."""
        if version in self._checked:
            return False
        if look():
            return True
        self._checked.add(version)
        return False

    def _refuse_other_columns(
        self, table: _Table, known: TableState, now: Mapping[str, str | None], filled: Collection[str] = ()
    ) -> None:
        """Raise SourceError if a column that the pipeline reads was altered since the copy, which logs no rows.

        `now` has the columns and their types, None for types that are not compared. `filled` are those that had values
        when they were added.
        """
        then = dict(known.columns)
        for names in table.read.names if then else ():
            before, after = ([name for name in names if name in columns] for columns in (then, now))
            if before and not after:
                msg = (
                    f"the table {known.table} no longer has the column {before[0]!r}, which the pipeline decodes: "
                    f"decode it under its new name as well (`alias`), or no longer, and {self._over}"
                )
                raise SourceError(msg)
            if altered := [name for name in before if now.get(name) not in {None, then[name]}]:
                msg = (
                    f"the column {altered[0]!r} of the table {known.table} has another type than when it was copied, "
                    "or was dropped and added again, and PostgreSQL does not log what that makes of its rows: "
                    f"{self._over}"
                )
                raise SourceError(msg)
            if not before and (added := [name for name in after if name in filled]):
                msg = (
                    f"the column {added[0]!r} was added to the table {known.table} after it was copied, perhaps with a "
                    f"value in each row, which PostgreSQL does not log: {self._over}"
                )
                raise SourceError(msg)

    def _refuse_other(self, name: str) -> NoReturn:
        msg = (
            f"{self._place} has another table under the name {name} than the one that was copied, so "
            f"rows are missing: give the copied table its name back, or {self._over}"
        )
        raise SourceError(msg)

    def _refuse_others(self, state: SlotState, tables: Sequence[_Table]) -> None:
        """Raise SourceError if the store does not have exactly the tables of the source."""
        names = [table.name for table in tables]
        if set(names) != set(state.names):
            msg = (
                f"{self._store.name} has the changes of {', '.join(state.names)}, and the source has the tables "
                f"{', '.join(names)}: give each name its schema, or {self._over}"
            )
            raise SourceError(msg)

    @property
    def _over(self) -> str:
        """The instruction to copy the tables again, for use in messages."""
        return f"copy the table again, with windrow run --recopy {shlex.quote(self._source.names[0])}"

    def _own_state(self, tables: Sequence[_Table]) -> SlotState:
        """Return the state in the store, or a new one; raise InputError if the store has the copy of another table."""
        source, store, names = self._source, self._store, tuple(table.name for table in tables)
        state = store.state()
        if state is None or not store.is_copied():
            called = re.sub("[^a-z0-9]", "_", tables[0].facts.name.lower())[:32]
            slot = source.slot or f"windrow_{called}_{os.urandom(4).hex()}"
            if state is not None:  # of a copy that was interrupted or refused
                db.drop_slot(self._sql, state.slot)
                slot = source.slot or (state.slot if state.names == names else slot)
            made = tuple(TableState(table.name, table.facts.oid, table.key) for table in tables)
            state = SlotState(slot, source.publication or slot, made)
            if db.find_slot(self._sql, state.slot) is not None:
                msg = (
                    f"the slot {state.slot} already exists and does not belong to {store.name}: choose another slot, "
                    f"or drop this one if nothing needs it: SELECT pg_drop_replication_slot('{state.slot}')"
                )
                raise InputError(msg)
            store.note(state)
        elif (source.slot or state.slot, source.publication or state.publication) != (
            state.slot,
            state.publication,
        ) or not set(names).intersection(state.names):
            msg = (
                f"{store.name} belongs to {state.called}, with the slot {state.slot} and the publication "
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
        # read after the slot: a run that is ending may have confirmed more meanwhile
        noted = self._store.state() or state
        if noted.confirmed and slot.confirmed > noted.confirmed:
            msg = (
                f"{self._store.name} is older than the slot {state.slot}, so changes are lost: restore its newest "
                f"state, or {self._over}"
            )
            raise SourceError(msg)

    def _copy(
        self,
        replication: Connection,
        state: SlotState,
        tables: Sequence[_Table],
        writers: Mapping[int, RecordWriter],
    ) -> None:
        """Create the slot, and copy the tables as of the slot's creation into the store."""
        self._publish(state, tables, writers)
        state = replace(state, tables=self._table_states(state, tables))
        self._store.note(state)
        lsn, snapshot, confirmed = self._snapshot(replication, state)
        micros = db.now_micros(self._sql)
        copied = (
            record
            for table in tables
            for record in writers[table.facts.oid].snapshot_rows(self._rows(state, table, snapshot), lsn, micros)
        )
        self._store.copy(copied, replace(state, confirmed=confirmed))

    def _rows(self, state: SlotState, table: _Table, snapshot: str) -> Iterator[tuple[str | None, ...]]:
        rows = db.copy_rows(self._sql, snapshot, table.facts, table.published(self._sql, state.publication))
        return self._copies.enter_context(closing(rows))

    def _recopy(self, replication: Connection, tables: Sequence[_Table], writers: Mapping[int, RecordWriter]) -> None:
        """Replace the slot, and append the differences between the store and the tables as of the slot's creation."""
        sql, store = self._sql, self._store
        state = replace(store.resume(), is_recopied=True)
        if self._source.publication is not None:
            self._table_states(state, tables)  # raises before anything is changed, as does the next
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
        self._publish(state, tables, writers)
        made = self._table_states(state, tables)
        lsn, snapshot, confirmed = self._snapshot(replication, state)
        micros = db.now_micros(sql)
        for writer in writers.values():
            writer.begin_recopy(lsn, micros)
        records = self._differences(state, tables, writers, snapshot)
        if len(tables) > 1:
            records = _with_more(records)
        while chunk := list(islice(records, _CHUNK)):
            state = state.reached(chunk[-1].place, state.confirmed)
            store.append(chunk, state)
        has_others = state.has_others or not set(state.names) <= {table.table for table in made}
        store.note(replace(state, tables=made, confirmed=confirmed, is_recopied=False, has_others=has_others))

    def _differences(
        self, state: SlotState, tables: Sequence[_Table], writers: Mapping[int, RecordWriter], snapshot: str
    ) -> Iterator[ChangeRecord]:
        """Yield the differences between the store and the tables in a snapshot, one table after the other."""
        keys = {known.table: known.key for known in state.tables}
        for table in tables:
            writer, identity = writers[table.facts.oid], table.facts.identity
            changes = row_changes(
                # the log also has the records of tables that the source no longer follows
                ((at, value) for at, value in self._store.records() if writer.mark in value),
                self._store.trimmed,
                keys.get(table.name) or table.key,
                writer.rows(self._rows(state, table, snapshot)),
                # other columns than the key can be in the keys of tables only if their old values are logged
                is_split=identity is None or set(identity) != set(table.key),
            )
            yield from map(writer.recopied, changes)

    def _publish(self, state: SlotState, tables: Sequence[_Table], writers: Mapping[int, RecordWriter]) -> None:
        """Create the publication if need be, and prepare `writers` for what it publishes of the tables."""
        if self._source.publication is None:
            db.make_publication(self._sql, state.publication, [table.facts for table in tables])
        types = TypeCatalog()
        for table in tables:
            columns = table.published(self._sql, state.publication).columns
            types.learn(self._sql, [oid for _, oid in columns])
            writers[table.facts.oid].relate(columns, types)

    def _snapshot(self, replication: Connection, state: SlotState) -> tuple[int, str, int]:
        """Create the slot; return its first LSN, the snapshot as of that, and the LSN confirmed to the slot."""
        lsn, snapshot = db.create_slot(self._sql, replication, state.slot, self._place)
        slot = db.find_slot(self._sql, state.slot)
        return lsn, snapshot, lsn if slot is None else max(lsn, slot.confirmed)


_CHUNK = 5_000


def _with_more(records: Iterator[ChangeRecord]) -> Iterator[ChangeRecord]:
    """Mark all records of a transaction except the last."""
    held = next(records, None)
    for record in records:
        if held is not None:
            yield held._replace(more=True)
        held = record
    if held is not None:
        yield held


def _open_store(source: m.PostgresCdcSource, sql: Connection) -> _Store:
    what = ", ".join(source.names)
    match source.records:
        case m.LogSource(path=path):
            from windrow.connectors.log.store import Followed, LogStore  # noqa: PLC0415 - Arrow only for a log

            followed = Followed(
                f"the table{'s' * bool(source.tables)} {what}",
                source.format,
                "postgres",
                SlotState.read,
                ChangePlace.of_record,
            )
            return LogStore(path, followed)
        case m.KafkaSource() as topic:
            from windrow.connectors.postgres.cdc.topic_store import TopicStore  # noqa: PLC0415 - librdkafka for a topic

            return TopicStore(topic, what, sql)
        case unknown:
            assert_never(unknown)


def follow_tables(node: m.SourceNode, read: ReadColumns, of_tables: Mapping[str, ReadColumns]) -> FollowedTables:
    """Return the follower of a source's tables.

    `read` are the columns that the pipeline reads of each table, and `of_tables` those that it reads of some.
    """
    if not isinstance(node.source, m.PostgresCdcSource):
        raise TypeError(node.source)
    return FollowedTables(
        node.source, {name: sum(_of_table(name, of_tables), start=read) for name in node.source.names}
    )


def _of_table(name: str, of_tables: Mapping[str, ReadColumns]) -> Iterator[ReadColumns]:
    """Yield the columns of a table, which a pipeline can name without its schema."""
    schema, table = m.table_name(name)
    for other, columns in of_tables.items():
        other_schema, other_table = m.table_name(other)
        if other_table == table and (schema is None or other_schema in {None, schema}):
            yield columns
