"""The PostgreSQL sink: each step in one transaction, written through binary COPY."""

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
from windrow.connectors.kafka.rows import KafkaRecords
from windrow.connectors.ownership import FoundTables, Origin, authorize, is_new, may_clear, still_opened, still_owned
from windrow.connectors.postgres.catalog import Catalog, check_names
from windrow.connectors.postgres.client import Connection, connect, lock_table, schema_of, server, translated
from windrow.connectors.sink import Follows, Run
from windrow.connectors.tables import (
    Layout,
    NetChanges,
    Table,
    in_order,
    layout,
    net_changes,
    of_epoch,
    pieces,
    quote,
    quote_all,
    storable_dead,
    upsert,
)
from windrow.engine.changelog import StepOutput
from windrow.engine.columns import nullable
from windrow.errors import SinkError, SinkUnavailableError
from windrow.expressions import SinkSpec

LOCK_SECONDS = 15.0


class PostgresTables:
    """Result tables and their companions in a PostgreSQL database, in the first schema of the user's search path.

    Exactly once: a step and its epoch are one transaction.

    An advisory lock of the session on each table keeps a second run away for as long as this one is open;
    `lock_seconds` is how long to wait for it, since the server takes a moment to notice that a killed client is gone.
    (So the url must lead to the server itself, or to a pooler that keeps sessions.)
    """

    needs_rows = True
    is_even = True

    def __init__(self, *specs: SinkSpec, lock_seconds: float = LOCK_SECONDS) -> None:
        sinks = [spec.sink for spec in specs if isinstance(spec.sink, m.PostgresSink)]
        self._url = server(sinks[0].url).address
        self._name = specs[0].pipeline
        self._changelogs = [sink.changelog for sink in sinks]
        self._records = [KafkaRecords(spec) if sink.outbox else None for spec, sink in zip(specs, sinks, strict=True)]
        self._layouts = [layout(spec) for spec in specs]
        self._origins = [Origin.of(spec) for spec in specs]
        self._lock_seconds = lock_seconds
        self._connection: Connection | None = None
        self._catalogs: list[Catalog] = []
        self._run: Run | None = None
        self._opened: Run | None = None
        self._id = str(uuid.uuid4())
        for one in self._layouts:
            check_names(one.all)

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        """Create what is missing; return the last epoch that this run committed, or None.

        A run that `follows` another one is given its tables. Raise SinkError if the database cannot be reached or
        written, holds other tables or another run's rows, or if a run that writes a table is still going.
        """
        self.close()
        with self._locked() as (connection, catalogs), connection.transaction():
            # Two pipelines that begin at once would both create the tables that all share.
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('windrow', 0))")
            # all are looked at before one is changed
            all_found = self._find(catalogs, run)
            if self._opened == run:
                still_opened(self._id, catalogs[0].opener(run), self._layouts[0].result.name)
            handed_over = [
                authorize(run, one.own, found, follows, origin)
                for one, found, origin in zip(self._layouts, all_found, self._origins, strict=True)
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
        place = server(self._url).place
        with connect(self._url) as connection, translated(place):
            schema = schema_of(connection, place)
            catalogs = [Catalog(connection, schema, layout) for layout in self._layouts]
            parts = zip(self._layouts, catalogs, self._find(catalogs, run), self._origins, strict=True)
            for one, catalog, found, origin in parts:
                authorize(run, one.own, found, follows, origin)
                catalog.missing()

    def journal(self) -> pa.Table:
        """Return the clock journal in the database, by epoch; empty if there is none."""
        place = server(self._url).place
        with connect(self._url) as connection, translated(place):
            return Catalog(connection, schema_of(connection, place), self._layouts[0]).journal()

    def clear(self) -> None:
        """Drop the pipeline's tables and their epochs in one transaction; raise SinkError if they are not its own."""
        self.close()
        self._opened = None
        with self._locked() as (connection, catalogs), connection.transaction():
            found = self._find(catalogs, Run(self._name, ""))
            for one, there in zip(self._layouts, found, strict=True):
                may_clear(self._name, one.result.name, there)
            for catalog, there in zip(catalogs, found, strict=True):
                catalog.drop(there.owner)
        connection.close()

    def commit(self, epoch: int, *outputs: StepOutput) -> None:
        """Write a step in one transaction; an epoch that is already there changes nothing.

        Raise SinkError if steps are missing before it, or if PostgreSQL fails.
        """
        # one connection to the end, whoever opens the sink anew meanwhile
        connection, catalogs, run = self._connection, self._catalogs, self._run
        if connection is None or run is None:
            msg = "the sink is not open: call open() before commit()"
            raise SinkError(msg)
        with translated(server(self._url).place), connection.transaction():
            for one, catalog in zip(self._layouts, catalogs, strict=True):
                still_owned(run, catalog.owner(), one.result.name)
            still_opened(self._id, catalogs[0].opener(run), self._layouts[0].result.name)
            if not is_new(epoch, catalogs[0].last(run), self._layouts[0].result.name):
                return
            catalogs[0].fence(run, epoch)
            parts = zip(self._layouts, self._changelogs, self._records, outputs, strict=True)
            for number, (one, changelog, records, output) in enumerate(parts):
                PostgresStep(connection, catalogs[0].name, one, changelog, records, number).write(epoch, output)

    def close(self) -> None:
        """Disconnect, which lets go of the locks; more than once does no harm."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._catalogs, self._run = None, [], None

    def _find(self, catalogs: Sequence[Catalog], run: Run) -> list[FoundTables]:
        own = [layout.result.name for layout in self._layouts]
        return [catalog.find(run, own) for catalog in catalogs]

    @contextmanager
    def _locked(self) -> Iterator[tuple[Connection, list[Catalog]]]:
        """Connect and take the tables' locks; disconnect if what follows fails."""
        place = server(self._url).place
        connection = connect(self._url)
        try:
            with translated(place):
                schema = schema_of(connection, place)
                # in the order of their names, or two runs could wait for each other
                for table in sorted(layout.result.name for layout in self._layouts):
                    self._lock(connection, schema, table)
                yield connection, [Catalog(connection, schema, layout) for layout in self._layouts]
        except BaseException:
            connection.close()
            raise

    def _lock(self, connection: Connection, schema: str, table: str) -> None:
        if not lock_table(connection, schema, table, self._lock_seconds):
            msg = f"a run that writes table {table!r} is still going: end that one, or choose another table"
            raise SinkUnavailableError(msg)


_ROWS = 50_000
"""Number of rows that are encoded at a time."""


@dataclass(frozen=True)
class PostgresStep:
    """Writes one result table's step within the open transaction; `name` writes a table's name with its schema.

    `records` makes those of the outbox, if there is one; `number` is that of the result table in the sink.
    """

    connection: Connection
    name: Callable[[str], str]
    layout: Layout
    changelog: bool
    records: KafkaRecords | None = None
    number: int = 0

    def write(self, epoch: int, output: StepOutput) -> None:
        """Write a step to all tables."""
        self._append(self.layout.late, output.late)
        self._append(self.layout.dead, storable_dead(output.dead))
        self._append(self.layout.clocks, of_epoch(epoch, output.clocks))
        for first, changes in pieces(output.changes):
            with ThreadPoolExecutor(1) as beside:  # the server is at work on the changelog meanwhile
                rows = beside.submit(net_changes, changes, self.layout.result.key)
                if self.changelog:
                    self._append(self.layout.changes, in_order(epoch, changes, first))
            if first:
                self._empty_asides()
            self._bring_up(rows.result())
            self._send(epoch, changes)

    def _send(self, epoch: int, changes: pa.Table) -> None:
        """Append changes to the outbox, each as the record of a topic: its key, and its value as JSON."""
        if self.layout.outbox is None or self.records is None:
            return
        sent = changes.filter(pc.not_equal(changes["op"], "update_before"))
        keys, values = [], []
        for record in self.records.of_changes(sent):
            keys.append((record.key or b"").decode())
            values.append((record.value or b"").decode())
        topic = pa.repeat(self.layout.result.name, len(keys))
        columns = {"aggregatetype": topic, "aggregateid": keys, "type": sent["op"], "payload": values}
        self._copy(self.name(self.layout.outbox.name), of_epoch(epoch, pa.table(columns)))

    def _append(self, table: Table, rows: pa.Table) -> None:
        self._copy(self.name(table.name), rows.select(list(table.columns)))

    def _bring_up(self, rows: NetChanges) -> None:
        """Write and delete rows of the result table.

        An insert says that its row is not there, and costs half if that is not looked up. Where it is there all the
        same, all rows are written over what is there.
        """
        try:
            with self.connection.transaction():
                self._append(self.layout.result, rows.inserts)
        except errors.UniqueViolation:
            self._touch(pa.concat_tables([rows.inserts, rows.updates]), rows.deletes)
        else:
            self._touch(rows.updates, rows.deletes)

    def _touch(self, changed: pa.Table, deletes: pa.Table) -> None:
        """Write rows over what is there, and delete others."""
        table = self.layout.result
        target, columns = self.name(table.name), quote_all(table.columns)
        if changed.num_rows:
            self.connection.execute(
                f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {self._aside('changed', changed)} "
                f"{upsert(table)}"
            )
        if deletes.num_rows:
            same = " AND ".join(f"r.{quote(column)} = g.{quote(column)}" for column in table.key)
            self.connection.execute(f"DELETE FROM {target} r USING {self._aside('gone', deletes)} g WHERE {same}")

    def _empty_asides(self) -> None:
        """Remove what a piece of the step has left in the temporary tables."""
        for name in ("changed", "gone"):
            aside = self._aside_name(name)
            [(found,)] = self.connection.execute("SELECT to_regclass($1)", (f"pg_temp.{aside}",)).fetchall()
            if found is not None:
                self.connection.execute(f"TRUNCATE pg_temp.{aside}")

    def _aside_name(self, name: str) -> str:
        return f"windrow_{name}{self.number or ''}"

    def _aside(self, name: str, rows: pa.Table) -> str:
        """Put rows of the result table into a temporary one, and return its name."""
        table, aside = self.layout.result, self._aside_name(name)
        self.connection.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {aside} ON COMMIT DELETE ROWS "
            f"AS SELECT {quote_all(table.columns)} FROM {self.name(table.name)} WITH NO DATA"
        )
        self._copy(f"pg_temp.{aside}", rows.select(list(table.columns)))
        return f"pg_temp.{aside}"

    def _copy(self, target: str, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        # a column that came to the table on the way can be null where it else is not
        schema = nullable(rows.schema)
        encoder = ArrowToPostgresBinaryEncoder(schema)
        statement = f"COPY {target} ({quote_all(rows.column_names)}) FROM STDIN (FORMAT binary)"
        with self.connection.cursor().copy(statement) as copy:
            copy.write(encoder.write_header())
            for batch in pa.table(rows.columns, schema=schema).to_batches(max_chunksize=_ROWS):
                copy.write(encoder.write_batch(batch))
            copy.write(encoder.finish())
