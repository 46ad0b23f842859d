"""From the staging tables to the tables that people read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from psycopg import errors

from windrow.errors import SinkUnavailableError
from windrow.sinks.layout import Layout, Table
from windrow.sinks.postgres.session import Connection
from windrow.sinks.postgres.staging import LAST, POSITION, TOKEN, Staging, Token
from windrow.sinks.quote import quote, quote_all

Values = tuple[list[str], list[int]]


@dataclass(frozen=True)
class Merge:
    """Writes staged rows within the transaction that is open; `name` writes a table's name with its schema.

    Each statement takes as $1 the attempts that are merged, and as $2 how many changes come before those of each.
    """

    connection: Connection
    name: Callable[[str], str]
    layout: Layout
    stages: Staging

    def write(self, epoch: int, tokens: Sequence[Token]) -> None:
        """Write what was staged under the tokens, in their order; raise SinkError if staged rows are gone."""
        before = accumulate((token.changes for token in tokens[:-1]), initial=0)
        values = ([token.attempt for token in tokens], list(before) if tokens else [])
        targets = (self.layout.changes, self.layout.late, self.layout.dead, self.layout.clocks)
        for position, (table, stage) in enumerate(zip(targets, self.stages.all, strict=True)):
            if count := sum(token.counts[position] for token in tokens):
                self._append(table, stage, count, epoch, values)
        if any(token.changes for token in tokens):
            self._bring_up(values)
        if any(token.deletes for token in tokens):
            self._delete(values)

    def _append(self, table: Table, stage: Table, count: int, epoch: int, values: Values) -> None:
        """Insert the rows of a stage, and check that all are there."""
        special = {"epoch": "$3::bigint", "seq": f"t.before + s.{quote(POSITION.name)}"}
        columns = ", ".join(special.get(column) or f"s.{quote(column)}" for column in table.columns)
        written = self.connection.execute(
            f"INSERT INTO {self.name(table.name)} ({quote_all(table.columns)}) "
            f"SELECT {columns} FROM {self._staged(stage)}",
            (*values, epoch) if "epoch" in table.columns else values,
        ).rowcount
        if written != count:
            msg = (
                f"{count - written} of {count} rows that were staged for table {table.name!r} are gone (PostgreSQL "
                f"empties staging tables when it recovers from a crash): nothing of this step was written; start again"
            )
            raise SinkUnavailableError(msg)

    def _bring_up(self, values: Values) -> None:
        """Write the rows whose last change leaves them in the table.

        An insert says that its row is not there, and costs half if that is not looked up. Where it is there all the
        same, all rows are written over what is there.
        """
        table = self.layout.result
        columns = ", ".join(f"s.{quote(column)}" for column in table.columns)
        try:
            with self.connection.transaction():
                self.connection.execute(
                    f"INSERT INTO {self.name(table.name)} ({quote_all(table.columns)}) SELECT {columns} "
                    f"FROM {self._staged(self.stages.changes)} WHERE s.{quote(LAST.name)} AND s.op = 'insert' "
                    f"ORDER BY {self._key}",
                    values,
                )
        except errors.UniqueViolation:
            self._upsert(self._last("insert", "update_after"), values)
        else:
            # the staging tables have no statistics: their rows might be taken for so few that each is held to each
            self.connection.execute("SET LOCAL enable_nestloop = off")
            self._upsert(self._last_updates(), values)
            self.connection.execute("SET LOCAL enable_nestloop TO DEFAULT")

    def _upsert(self, rows: str, values: Values) -> None:
        table = self.layout.result
        columns = quote_all(table.columns)
        updates = ", ".join(f"{quote(c)} = excluded.{quote(c)}" for c in table.columns if c not in table.key)
        self.connection.execute(
            f"INSERT INTO {self.name(table.name)} ({columns}) SELECT {columns} FROM {rows} "
            f"ON CONFLICT ({quote_all(table.key)}) DO UPDATE SET {updates}",
            values,
        )

    def _delete(self, values: Values) -> None:
        """Delete the rows whose last change takes them away."""
        table = self.layout.result
        same = " AND ".join(f"r.{quote(column)} = f.{quote(column)}" for column in table.key)
        last = self._last("insert", "update_after", "delete")
        self.connection.execute(
            f"DELETE FROM {self.name(table.name)} r USING {last} WHERE f.op = 'delete' AND {same}", values
        )

    def _last(self, *ops: str, among: str = "true") -> str:
        """Select the last change of each key among those of some kinds."""
        kinds = ", ".join(f"'{op}'" for op in ops)
        return (
            f"(SELECT DISTINCT ON ({self._key}) s.* FROM {self._staged(self.stages.changes)} "
            f"WHERE s.{quote(LAST.name)} AND s.op IN ({kinds}) AND {among} ORDER BY {self._key}, t.before DESC) f"
        )

    @property
    def _key(self) -> str:
        """The columns of the key; rows in this order write the index from left to right."""
        return ", ".join(f"s.{quote(column)}" for column in self.layout.result.key)

    def _last_updates(self) -> str:
        """Select the last change of each key that is an update, if no part has an insert behind it."""
        updated = f"SELECT {self._key} FROM {self._staged(self.stages.changes)} WHERE s.op = 'update_after'"
        return (
            f"(SELECT * FROM {self._last('insert', 'update_after', among=f'({self._key}) IN ({updated})')} "
            f"WHERE f.op = 'update_after') g"
        )

    def _staged(self, stage: Table) -> str:
        return (
            f"{self.name(stage.name)} s JOIN unnest($1::text[], $2::bigint[]) AS t (token, before) "
            f"ON t.token = s.{quote(TOKEN.name)}"
        )
