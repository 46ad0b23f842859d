"""The PostgreSQL sink: each step in one transaction, by binary COPY."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pgpq import ArrowToPostgresBinaryEncoder
from psycopg import errors

from windrow import model as m
from windrow.connectors import tables
from windrow.connectors.kafka.rows import KafkaRecords
from windrow.connectors.ownership import FoundTables, Origin, authorize, is_new, may_clear, still_opened, still_owned
from windrow.connectors.postgres import client
from windrow.connectors.postgres.catalog import Catalog, check_names
from windrow.connectors.postgres.client import Connection
from windrow.connectors.sink import Follows, Run, Sink
from windrow.connectors.tables import Layout, NetChanges, Table, quote
from windrow.engine.changelog import StepOutput
from windrow.engine.columns import nullable
from windrow.errors import SinkError, SinkUnavailableError
from windrow.expressions import SinkSpec

LOCK_SECONDS = 15.0


class PostgresTables(Sink):
    """Result tables and their companions in a PostgreSQL database, in the first schema of the user's search path.

    Exactly once: a step and its epoch are one transaction.

    An advisory lock of the session on each table excludes a second run while this one is open; `open` waits at most
    `lock_seconds` for it, since the server takes a moment to notice that a client was killed. (So the url must lead to
    the server itself, or to a pooler that keeps sessions.)
    """

    needs_rows = True
    is_even = True

    def __init__(self, *specs: SinkSpec, lock_seconds: float = LOCK_SECONDS) -> None:
        sinks = [spec.sink for spec in specs if isinstance(spec.sink, m.PostgresSink)]
        self._url = client.server(sinks[0].url).address
        self._name = specs[0].pipeline
        self._changelogs = [sink.changelog for sink in sinks]
        self._records = [KafkaRecords(spec) if sink.outbox else None for spec, sink in zip(specs, sinks, strict=True)]
        self._layouts = [tables.layout(spec) for spec in specs]
        self._origins = [Origin.of(spec) for spec in specs]
        self._lock_seconds = lock_seconds
        self._connection: Connection | None = None
        self._catalogs: list[Catalog] = []
        self._run: Run | None = None
        self._opened: Run | None = None
        self._id = str(uuid.uuid4())
        for layout in self._layouts:
            check_names(layout)

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        """Create missing tables; return the last epoch that this run committed, or None.

        See `windrow.connectors.sink.Sink`. Raise SinkError, too, if a run that writes a table is still going.
        """
        self.close()
        with self._locked() as (connection, catalogs), connection.transaction():
            client.lock_shared_tables(connection)
            # all tables are checked before one is changed
            all_found = self._find(catalogs, run)
            if self._opened == run:
                still_opened(self._id, catalogs[0].opener(run), self._layouts[0].result.name)
            handed_over = [
                authorize(run, layout.own, found, follows, origin)
                for layout, found, origin in zip(self._layouts, all_found, self._origins, strict=True)
            ]
            for catalog, origin in zip(catalogs, self._origins, strict=True):
                catalog.create()
                catalog.claim(run)
                catalog.note_origin(run, origin)
            catalogs[0].note_left(run, [layout.result.name for layout in self._layouts])
            if any(handed_over) and follows is not None:
                catalogs[0].fence(run, follows.epoch)
            catalogs[0].note_opener(run, self._id)
            last = catalogs[0].last(run)
        self._connection, self._catalogs, self._run = connection, catalogs, run
        self._opened = run
        return last

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        """Raise what `open` would raise, but for a run that is still going."""
        place = client.server(self._url).place
        with client.connect(self._url) as connection, client.translated(place):
            schema = client.schema_of(connection, place)
            catalogs = [Catalog(connection, schema, layout) for layout in self._layouts]
            parts = zip(self._layouts, catalogs, self._find(catalogs, run), self._origins, strict=True)
            for layout, catalog, found, origin in parts:
                authorize(run, layout.own, found, follows, origin)
                catalog.missing()

    def journal(self) -> pa.Table:
        place = client.server(self._url).place
        with client.connect(self._url) as connection, client.translated(place):
            return Catalog(connection, client.schema_of(connection, place), self._layouts[0]).journal()

    def clear(self) -> None:
        self.close()
        self._opened = None
        with self._locked() as (connection, catalogs), connection.transaction():
            found = self._find(catalogs, Run(self._name, ""))
            for layout, there in zip(self._layouts, found, strict=True):
                may_clear(self._name, layout.result.name, there)
            for catalog, there in zip(catalogs, found, strict=True):
                catalog.drop(there.owner)
        connection.close()

    def commit(self, epoch: int, *outputs: StepOutput) -> None:
        # the same connection to the end, even if the sink is opened again meanwhile
        connection, catalogs, run = self._connection, self._catalogs, self._run
        if connection is None or run is None:
            msg = "the sink is not open: call open() before commit()"
            raise SinkError(msg)
        with client.translated(client.server(self._url).place), connection.transaction():
            for layout, catalog in zip(self._layouts, catalogs, strict=True):
                still_owned(run, catalog.owner(), layout.result.name)
            still_opened(self._id, catalogs[0].opener(run), self._layouts[0].result.name)
            if not is_new(epoch, catalogs[0].last(run), self._layouts[0].result.name):
                return
            catalogs[0].fence(run, epoch)
            parts = zip(self._layouts, self._changelogs, self._records, outputs, strict=True)
            for number, (layout, changelog, records, output) in enumerate(parts):
                PostgresStep(connection, catalogs[0].name, layout, changelog, records, number).write(epoch, output)

    def close(self) -> None:
        """Disconnect, which releases the locks; may be called more than once."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._catalogs, self._run = None, [], None

    def _find(self, catalogs: Sequence[Catalog], run: Run) -> list[FoundTables]:
        own = [layout.result.name for layout in self._layouts]
        return [catalog.find(run, own) for catalog in catalogs]

    @contextmanager
    def _locked(self) -> Iterator[tuple[Connection, list[Catalog]]]:
        """Connect and lock the tables; disconnect if the block fails."""
        place = client.server(self._url).place
        connection = client.connect(self._url)
        try:
            with client.translated(place):
                schema = client.schema_of(connection, place)
                # in the order of their names, or two runs could wait for each other
                for table in sorted(layout.result.name for layout in self._layouts):
                    self._lock(connection, schema, table)
                yield connection, [Catalog(connection, schema, layout) for layout in self._layouts]
        except BaseException:
            connection.close()
            raise

    def _lock(self, connection: Connection, schema: str, table: str) -> None:
        if not client.lock_table(connection, schema, table, self._lock_seconds):
            msg = f"a run that writes table {table!r} is still going: end that one, or choose another table"
            raise SinkUnavailableError(msg)


_ROWS = 50_000
"""Number of rows that are encoded at a time."""


@dataclass(frozen=True)
class PostgresStep:
    """Writes a step of a result table in the open transaction; `name` returns a table's name with its schema.

    `records` makes the records of the outbox, if there is one; `number` is that of the result table in the sink.
    """

    connection: Connection
    name: Callable[[str], str]
    layout: Layout
    changelog: bool
    records: KafkaRecords | None = None
    number: int = 0

    def write(self, epoch: int, output: StepOutput) -> None:
        """Write a step to the result table and its companions."""
        self._append(self.layout.late, output.late)
        self._append(self.layout.dead, tables.storable_dead(output.dead))
        self._append(self.layout.clocks, tables.of_epoch(epoch, output.clocks))
        for first, changes in tables.pieces(output.changes):
            with ThreadPoolExecutor(1) as beside:  # while the server works on the changelog
                rows = beside.submit(tables.net_changes, changes, self.layout.result.key)
                if self.changelog:
                    self._append(self.layout.changes, tables.in_order(epoch, changes, first))
            if first:
                self._empty_asides()
            self._bring_up(rows.result())
            self._send(epoch, changes)

    def _send(self, epoch: int, changes: pa.Table) -> None:
        """Append changes to the outbox, each with the key and the value, as JSON, of its record in a topic."""
        if self.layout.outbox is None or self.records is None:
            return
        sent = changes.filter(pc.not_equal(changes["op"], "update_before"))
        keys, values = [], []
        for record in self.records.of_changes(sent):
            keys.append((record.key or b"").decode())
            values.append((record.value or b"").decode())
        topic = pa.repeat(self.layout.result.name, len(keys))
        columns = {"aggregatetype": topic, "aggregateid": keys, "type": sent["op"], "payload": values}
        self._copy(self.name(self.layout.outbox.name), tables.of_epoch(epoch, pa.table(columns)))

    def _append(self, table: Table, rows: pa.Table) -> None:
        self._copy(self.name(table.name), rows.select(list(table.columns)))

    def _bring_up(self, rows: NetChanges) -> None:
        """Write and delete rows of the result table.

        Inserts are of new keys, and cost half if that is not looked up. If a key exists all the same, all rows are
        upserted.
        """
        try:
            with self.connection.transaction():
                self._append(self.layout.result, rows.inserts)
        except errors.UniqueViolation:
            self._touch(pa.concat_tables([rows.inserts, rows.updates]), rows.deletes)
        else:
            self._touch(rows.updates, rows.deletes)

    def _touch(self, changed: pa.Table, deletes: pa.Table) -> None:
        """Upsert rows, and delete others."""
        table = self.layout.result
        target, columns = self.name(table.name), tables.quote_all(table.columns)
        if changed.num_rows:
            self.connection.execute(
                f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {self._aside('changed', changed)} "
                f"{tables.upsert(table)}"
            )
        if deletes.num_rows:
            same = " AND ".join(f"r.{quote(column)} = g.{quote(column)}" for column in table.key)
            self.connection.execute(f"DELETE FROM {target} r USING {self._aside('gone', deletes)} g WHERE {same}")

    def _empty_asides(self) -> None:
        """Empty the temporary tables after a piece of the step."""
        for name in ("changed", "gone"):
            aside = self._aside_name(name)
            if client.first_value(self.connection, "SELECT to_regclass($1)", f"pg_temp.{aside}") is not None:
                self.connection.execute(f"TRUNCATE pg_temp.{aside}")

    def _aside_name(self, name: str) -> str:
        return f"windrow_{name}{self.number or ''}"

    def _aside(self, name: str, rows: pa.Table) -> str:
        """Copy rows of the result table into a temporary one, and return its name."""
        table, aside = self.layout.result, self._aside_name(name)
        self.connection.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {aside} ON COMMIT DELETE ROWS "
            f"AS SELECT {tables.quote_all(table.columns)} FROM {self.name(table.name)} WITH NO DATA"
        )
        self._copy(f"pg_temp.{aside}", rows.select(list(table.columns)))
        return f"pg_temp.{aside}"

    def _copy(self, target: str, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        # a column that was added to the table later can be null, even if its field is not nullable
        schema = nullable(rows.schema)
        encoder = ArrowToPostgresBinaryEncoder(schema)
        statement = f"COPY {target} ({tables.quote_all(rows.column_names)}) FROM STDIN (FORMAT binary)"
        with self.connection.cursor().copy(statement) as copy:
            copy.write(encoder.write_header())
            for batch in pa.table(rows.columns, schema=schema).to_batches(max_chunksize=_ROWS):
                copy.write(encoder.write_batch(batch))
            copy.write(encoder.finish())
