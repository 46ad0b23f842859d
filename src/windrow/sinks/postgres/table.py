"""The PostgreSQL sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa

from windrow.core.output import StepOutput
from windrow.errors import SinkError, SinkUnavailableError
from windrow.model import AnyPipeline, PostgresSink
from windrow.sinks.base import Follows, Run
from windrow.sinks.fence import admit, is_new, may_clear, still_owned
from windrow.sinks.layout import Table, layout
from windrow.sinks.postgres.catalog import Catalog, check_names
from windrow.sinks.postgres.errors import address, translated, where
from windrow.sinks.postgres.merge import Merge
from windrow.sinks.postgres.session import LOCK_WAIT, Connection, connect, schema_of
from windrow.sinks.postgres.staging import Target, Token, staging

LOCK_SECONDS = 15.0


class PostgresTable:
    """The result table and its companions in a PostgreSQL database, in the first schema of the user's search path.

    Exactly once: each process copies its part of a step into unlogged staging tables, and `merge` writes all parts
    and the epoch in one transaction. What a crash leaves staged is never merged, and goes when the next run opens.

    An advisory lock of the session keeps a second run away for as long as this one is open; `lock_seconds` is how long
    to wait for it, since the server takes a moment to notice that a killed client is gone. (So the url must lead
    to the server itself, or to a pooler that keeps sessions.)

    It can be pickled: connections stay behind.
    """

    def __init__(self, pipeline: AnyPipeline, sink: PostgresSink, *, lock_seconds: float = LOCK_SECONDS) -> None:
        # here, as the processes that this is sent to may have another environment
        self._sink = replace(sink, url=address(sink.url))
        # and not the pipeline: it may have functions in it, which do not travel as the sink does
        self._name = pipeline.name
        self._empty = StepOutput.empty(pipeline)
        self._layout = layout(pipeline, sink)
        self._stages = staging(self._layout)
        self._lock_seconds = lock_seconds
        self._connection: Connection | None = None
        self._catalog: Catalog | None = None
        self._run: Run | None = None
        check_names([*self._layout.all, *self._staging])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None, "_catalog": None, "_run": None}

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        """Create what is missing; return the last epoch that this run committed, or None.

        A run that `follows` another one is given its tables. Raise SinkError if the database cannot be reached or
        written, holds other tables or another run's rows, or if a run that writes the table is still going.
        """
        self.close()
        with self._locked() as (connection, catalog):
            with connection.transaction():
                # Two pipelines that begin at once would both create the tables that all share.
                connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('windrow', 0))")
                found = catalog.find(run)
                handed_over = admit(run, self._layout.own, found, follows)
                catalog.create()
                catalog.claim(run)
                if handed_over and follows is not None:
                    catalog.fence(run, follows.epoch)
                last = catalog.last(run)
            catalog.sweep(self._staging)
        self._connection, self._catalog, self._run = connection, catalog, run
        return last

    def journal(self) -> pa.Table:
        """Return the clock journal in the database, by epoch; empty if there is none."""
        place = where(self._sink.url)
        with connect(self._sink.url) as connection, translated(place):
            return Catalog(connection, schema_of(connection, place), self._layout, self._staging).journal()

    def clear(self) -> None:
        """Drop the pipeline's tables and their epochs in one transaction; raise SinkError if they are not its own."""
        self.close()
        with self._locked() as (connection, catalog), connection.transaction():
            found = catalog.find(Run(self._name, ""))
            may_clear(self._name, self._sink.table, found)
            catalog.drop(found.owner)
        connection.close()

    def commit(self, epoch: int, output: StepOutput) -> None:
        """Write a step from this process; an epoch that is already there changes nothing."""
        self.merge(epoch, [self.stage(epoch, [output])])

    def stage(self, epoch: int, parts: Iterable[StepOutput]) -> str:
        """Copy parts of a step, joined in this order, to where `merge` finds them; return their token.

        The tables must have been opened by one process; this one connects by itself, for this call.
        """
        output = StepOutput.concat([self._empty, *parts])
        token = Token.new(output)
        if not any(token.counts):
            return str(token)
        place = where(self._sink.url)
        with connect(self._sink.url) as connection, translated(place):
            target = Target(connection, schema_of(connection, place), self._stages[epoch % 2], self._layout.result.key)
            target.copy_in(token, output)
        return str(token)

    def merge(self, epoch: int, tokens: Sequence[str]) -> None:
        """Write what was staged under the tokens, in their order, in one transaction.

        An epoch that is already there changes nothing. Raise SinkError if steps before it or staged rows are missing.
        """
        # one connection to the end, whoever opens the sink anew meanwhile
        connection, catalog, run = self._connection, self._catalog, self._run
        if connection is None or catalog is None or run is None:
            msg = "the sink is not open: call open() before commit() or merge()"
            raise SinkError(msg)
        staged, stages = [Token.parse(token) for token in tokens], self._stages[epoch % 2]
        with translated(where(self._sink.url)):
            with connection.transaction():
                still_owned(run, catalog.owner(), self._sink.table)
                if is_new(epoch, catalog.last(run), self._sink.table):
                    catalog.fence(run, epoch)
                    Merge(connection, catalog.name, self._layout, stages).write(epoch, staged)
            counts = zip(*(token.counts for token in staged), strict=True)
            used = [table for table, count in zip(stages.all, counts, strict=False) if any(count)]
            if used:
                catalog.sweep(used)

    def close(self) -> None:
        """Disconnect, which lets go of the lock; more than once does no harm."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._catalog = self._run = None

    @property
    def _staging(self) -> list[Table]:
        return [table for stages in self._stages for table in stages.all]

    @contextmanager
    def _locked(self) -> Iterator[tuple[Connection, Catalog]]:
        """Connect and take the table's lock; disconnect if what follows fails."""
        place = where(self._sink.url)
        connection = connect(self._sink.url)
        try:
            with translated(place):
                schema = schema_of(connection, place)
                self._lock(connection, schema)
                yield connection, Catalog(connection, schema, self._layout, self._staging)
        except BaseException:
            connection.close()
            raise

    def _lock(self, connection: Connection, schema: str) -> None:
        table = self._sink.table
        connection.execute("SELECT set_config('lock_timeout', $1, false)", (f"{round(self._lock_seconds * 1000)}ms",))
        try:
            connection.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", (f"windrow {schema} {table}",))
        except psycopg.errors.LockNotAvailable as error:
            msg = f"a run that writes table {table!r} is still going: end that one, or choose another table"
            raise SinkUnavailableError(msg) from error
        connection.execute(f"SET lock_timeout = '{LOCK_WAIT}'")
