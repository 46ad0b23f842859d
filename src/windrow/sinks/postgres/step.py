"""From a step's rows to the tables that people read."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
from pgpq import ArrowToPostgresBinaryEncoder
from psycopg import errors

from windrow.core.changelog import StepOutput
from windrow.core.columns import nullable
from windrow.sinks.fold import Settled, settled
from windrow.sinks.layout import Layout, Table, in_order, of_epoch
from windrow.sinks.postgres.session import Connection
from windrow.sinks.quote import quote, quote_all
from windrow.sinks.text import with_plain_reasons

_ROWS = 50_000
"""How many are encoded at a time."""


@dataclass(frozen=True)
class Step:
    """Writes within the transaction that is open; `name` writes a table's name with its schema."""

    connection: Connection
    name: Callable[[str], str]
    layout: Layout
    changelog: bool

    def write(self, epoch: int, output: StepOutput) -> None:
        """Write a step to all tables."""
        self._append(self.layout.late, output.late)
        self._append(self.layout.dead, with_plain_reasons(output.dead))
        self._append(self.layout.clocks, of_epoch(epoch, output.clocks))
        if output.changes.num_rows:
            with ThreadPoolExecutor(1) as beside:  # the server is at work on the changelog meanwhile
                rows = beside.submit(settled, output.changes, self.layout.result.key)
                if self.changelog:
                    self._append(self.layout.changes, in_order(epoch, output.changes))
            self._bring_up(rows.result())

    def _append(self, table: Table, rows: pa.Table) -> None:
        self._copy(self.name(table.name), rows.select(list(table.columns)))

    def _bring_up(self, rows: Settled) -> None:
        """Write and delete rows of the result table.

        An insert says that its row is not there, and costs half if that is not looked up. Where it is there all the
        same, all rows are written over what is there.
        """
        try:
            with self.connection.transaction():
                self._append(self.layout.result, rows.new)
        except errors.UniqueViolation:
            self._touch(pa.concat_tables([rows.new, rows.changed]), rows.gone)
        else:
            self._touch(rows.changed, rows.gone)

    def _touch(self, changed: pa.Table, gone: pa.Table) -> None:
        """Write rows over what is there, and delete others."""
        table = self.layout.result
        target, columns = self.name(table.name), quote_all(table.columns)
        if changed.num_rows:
            updates = ", ".join(f"{quote(c)} = excluded.{quote(c)}" for c in table.columns if c not in table.key)
            self.connection.execute(
                f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {self._aside('changed', changed)} "
                f"ON CONFLICT ({quote_all(table.key)}) DO UPDATE SET {updates}"
            )
        if gone.num_rows:
            same = " AND ".join(f"r.{quote(column)} = g.{quote(column)}" for column in table.key)
            self.connection.execute(f"DELETE FROM {target} r USING {self._aside('gone', gone)} g WHERE {same}")

    def _aside(self, name: str, rows: pa.Table) -> str:
        """Put rows of the result table into a temporary one, and return its name."""
        table = self.layout.result
        aside = f"pg_temp.windrow_{name}"
        self.connection.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS windrow_{name} ON COMMIT DELETE ROWS "
            f"AS SELECT {quote_all(table.columns)} FROM {self.name(table.name)} WITH NO DATA"
        )
        self._copy(aside, rows.select(list(table.columns)))
        return aside

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
