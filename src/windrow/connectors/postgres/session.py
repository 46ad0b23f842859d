"""A session in a PostgreSQL database: its catalog, and writing a step with binary COPY."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pgpq import ArrowToPostgresBinaryEncoder
from psycopg import errors

from windrow.connectors import tables
from windrow.connectors.kafka.rows import KafkaRecords
from windrow.connectors.list_columns import stored_rows
from windrow.connectors.postgres.client import Connection, first_value, qualified, require_creatable
from windrow.connectors.postgres.snapshot import PostgresSnapshot
from windrow.connectors.sql.session import Column, Session
from windrow.connectors.tables import EPOCHS, OPENERS, ORIGINS, OWNERS, RELAYS, SHARED, Layout, NetChanges, Table, quote
from windrow.engine.columns import nullable
from windrow.errors import PipelineError, SinkError

_MARK = re.compile(r'"(?:[^"]|"")*"|[?]')
"""A parameter placeholder, or a quoted name, which may contain a question mark."""
_ROWS = 50_000
"""Number of rows that are encoded at a time."""
NAME_BYTES = 63
"""Maximum bytes of a name in PostgreSQL (NAMEDATALEN - 1), which silently truncates longer names."""


def sql_types(table: Table) -> dict[str, str]:
    """Map each column to its PostgreSQL type, as format_type() spells it."""
    return {field.name: _sql_type(field.type) for field in table.stored}


def _sql_type(type_: pa.DataType) -> str:
    if pa.types.is_list(type_):
        return f"{_sql_type(type_.value_type)}[]"
    if pa.types.is_decimal(type_):
        return f"numeric({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_):
        return "timestamp with time zone"
    names = {pa.bool_(): "boolean", pa.int32(): "integer", pa.int64(): "bigint", pa.float64(): "double precision"}
    return names.get(type_, "bytea" if pa.types.is_binary(type_) else "text")


def _as_stored(table: Table) -> Table:
    """Return a table as PostgreSQL stores it: the changelog has an index on the epoch instead of a primary key.

    Rows of the changelog are on disk in epoch order, so they are found as fast, and writing costs half as much.
    """
    return replace(table, key=()) if table.role == "changelog" else table


def table_statements(table: Table) -> list[str]:
    """Return the statements that create a table in the first schema of the search path, and its own index."""
    statements = [tables.create_table(_as_stored(table), sql_types(table))]
    if table.role == "changelog":
        statements.append(f"CREATE INDEX ON {quote(table.name)} USING brin (epoch) WITH (autosummarize)")
    if table.role == "outbox":
        statements.append(
            f"ALTER TABLE {quote(table.name)} ALTER id ADD GENERATED ALWAYS AS IDENTITY, "
            "ALTER committed_at SET DEFAULT clock_timestamp()"
        )
    return statements


def _privileges(table: Table, *, is_result: bool) -> tuple[str, ...]:
    """Return the privileges on a table that a run needs."""
    if is_result:
        return ("SELECT", "INSERT", "UPDATE", "DELETE")
    return ("SELECT", "INSERT", "UPDATE") if table in (OWNERS, OPENERS, ORIGINS) else ("SELECT", "INSERT")


def grant_statements(layout: Layout, role: str) -> list[str]:
    """Return the statements that give a role, written as in SQL, what a run needs on existing tables, and its relay."""
    found = []
    for table in layout.all:
        needs = _privileges(table, is_result=table == layout.result)
        more = ("DELETE",) if table == EPOCHS or table.role == "outbox" else ()
        found.append(f"GRANT {', '.join((*needs, *more))} ON {quote(table.name)} TO {role}")
    if layout.outbox is not None:
        found.append(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {quote(RELAYS.name)} TO {role}")
    return found


def check_names(layout: Layout) -> None:
    """Raise PipelineError for names that PostgreSQL would truncate."""
    for table in layout.all:
        for name in (table.name, *table.columns):
            if len(name.encode()) > NAME_BYTES:
                msg = f"{name!r} is longer than the {NAME_BYTES} bytes of a PostgreSQL name: choose a shorter one"
                raise PipelineError(msg)
            quote(name)


_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(a.attnum = ANY(i.indkey), false), a.attnotnull,
    a.atthasdef OR a.attidentity <> ''
FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""


class PostgresSession(Session):
    """A transaction in one schema of a PostgreSQL database.

    `results` are the sink's result tables. For those with an outbox, `outboxes` has the converter of their records.
    """

    now = "now()"
    share = " FOR SHARE"
    error = psycopg.Error

    def __init__(
        self,
        connection: Connection,
        schema: str,
        results: Sequence[str] = (),
        outboxes: Mapping[str, KafkaRecords] | None = None,
    ) -> None:
        self.connection = connection
        self.schema = schema
        self._results = results
        self._outboxes = outboxes or {}
        self._known: set[str] = set()

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        numbers = count(1)
        numbered = _MARK.sub(lambda mark: f"${next(numbers)}" if mark[0] == "?" else mark[0], sql)
        cursor = self.connection.execute(numbered, values)
        return cursor.fetchall() if cursor.description is not None else []

    def name(self, table: str) -> str:
        return qualified(self.schema, table)

    def fold(self, table: str) -> str:
        return table

    def has(self, table: str) -> bool:
        """Whether a table exists. Once a session has found a table, it does not look it up again."""
        if table not in self._known and self.columns(table):
            self._known.add(table)
        return table in self._known

    def columns(self, table: str) -> list[Column]:
        kind = first_value(
            self.connection, "SELECT relkind::text FROM pg_class WHERE oid = to_regclass($1)", self.name(table)
        )
        if kind not in {None, "r", "p"}:
            msg = f"{table!r} in schema {self.schema!r} exists and is not a table: choose another table"
            raise SinkError(msg)
        return [Column(*row) for row in self.connection.execute(_COLUMNS, (self.name(table),))]

    def types(self, table: Table) -> dict[str, str]:
        return sql_types(table)

    def as_stored(self, table: Table) -> Table:
        return _as_stored(table)

    def create(self, table: Table) -> None:
        """Create a table; the changelog gets its index, and an outbox columns whose values the server generates."""
        for statement in table_statements(table):
            self.connection.execute(statement)

    def alter(self, table: Table, column: str, type_: str) -> str:
        statement = f"ALTER TABLE {quote(table.name)} ALTER COLUMN {quote(column)} TYPE {type_}"
        nullable = table.schema.field(column).nullable
        return f"{statement}, ALTER COLUMN {quote(column)} DROP NOT NULL" if nullable else statement

    def relax(self, table: Table, columns: Sequence[str]) -> None:
        for name in columns:
            self.connection.execute(f"ALTER TABLE {self.name(table.name)} ALTER COLUMN {quote(name)} DROP NOT NULL")

    def may_relax(self, table: Table) -> bool:
        return self._may("pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = $1::regclass", self.name(table.name))

    def may_delete(self, table: Table) -> bool:
        return self._may("has_table_privilege($1, 'DELETE')", self.name(table.name))

    def require_readable(self, table: str) -> None:
        self._demand(table, "SELECT")

    def require_writable(self, layout: Layout, existing: Collection[str]) -> None:
        missing = [table for table in layout.all if table.name not in existing]
        for table in layout.all:
            if table not in missing:
                self._check_privileges(table, is_result=table == layout.result)
        if missing:
            require_creatable(self.connection, self.schema, missing[0].name)
        if not self._may("has_database_privilege(current_database(), 'TEMPORARY')"):
            database = first_value(self.connection, "SELECT current_database()")
            msg = (
                f"user {self._user()!r} may not create temporary tables, through which rows are changed: "
                f"GRANT TEMPORARY ON DATABASE {quote(database)} TO {quote(self._user())}"
            )
            raise SinkError(msg)

    def insert(self, table: Table, rows: pa.Table, else_: str = "") -> None:
        """Insert rows with COPY or, if there is a clause `else_` (which COPY does not support), with INSERT."""
        if not else_:
            self._copy(self.name(table.name), stored_rows(table, rows))
            return
        marks = ", ".join(f"${number}" for number in range(1, len(table.columns) + 1))
        columns = tables.quote_all(table.columns)
        with self.connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {self.name(table.name)} ({columns}) VALUES ({marks}) {else_}",
                [tuple(row.values()) for row in rows.to_pylist()],
            )

    def snapshot(self) -> PostgresSnapshot:
        return PostgresSnapshot(self.connection, self.schema)

    def write_changes(self, layout: Layout, epoch: int, first: int, changes: pa.Table, *, changelog: bool) -> None:
        with ThreadPoolExecutor(1) as beside:  # while the server works on the changelog
            rows = beside.submit(tables.net_changes, changes, layout.result.key)
            if changelog:
                self.insert(layout.changes, tables.in_order(epoch, changes, first))
        if first:
            self._empty_asides(layout.result)
        self._try_others(layout.result, changes, rows.result(), changelog=changelog)
        self._write_net(layout.result, rows.result())
        self._send(layout, epoch, changes)

    def _send(self, layout: Layout, epoch: int, changes: pa.Table) -> None:
        """Append changes to the outbox, with the same JSON key and value that their record in a topic would have."""
        records = self._outboxes.get(layout.result.name)
        if layout.outbox is None or records is None:
            return
        sent = changes.filter(pc.not_equal(changes["op"], "update_before"))
        keys, values = [], []
        for record in records.of_changes(sent):
            keys.append((record.key or b"").decode())
            values.append((record.value or b"").decode())
        topic = pa.repeat(layout.result.name, len(keys))
        columns = {"aggregatetype": topic, "aggregateid": keys, "type": sent["op"], "payload": values}
        self._copy(self.name(layout.outbox.name), tables.of_epoch(epoch, pa.table(columns)))

    def _try_others(self, table: Table, changes: pa.Table, net: NetChanges, *, changelog: bool) -> None:
        """Check the types and constraints of the result table for rows that are not written to it."""
        others = net.replaced
        if changelog:
            others = pa.concat_tables([others, tables.earlier_rows(changes)])
            query = "SELECT FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'c'"
            if not others.num_rows or not self._may(f"EXISTS ({query})", self.name(table.name)):
                return
        if others.num_rows:
            aside = self._aside_name(table, "others")
            self.connection.execute(
                f"CREATE TEMPORARY TABLE {aside} (LIKE {self.name(table.name)} INCLUDING CONSTRAINTS "
                "INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING IDENTITY) ON COMMIT DROP"
            )
            self._copy(f"pg_temp.{aside}", stored_rows(table, others))
            self.connection.execute(f"DROP TABLE pg_temp.{aside}")

    def _write_net(self, table: Table, rows: NetChanges) -> None:
        """Write and delete rows of the result table.

        The keys of inserts should be new, and not looking them up halves the cost. If a key exists nevertheless, all
        rows are upserted.
        """
        try:
            with self.connection.transaction():
                self.insert(table, rows.inserts)
        except errors.UniqueViolation:
            self._upsert(table, pa.concat_tables([rows.inserts, rows.updates]), rows.deletes)
        else:
            self._upsert(table, rows.updates, rows.deletes)

    def _upsert(self, table: Table, changed: pa.Table, deletes: pa.Table) -> None:
        """Upsert the rows `changed`, and delete the rows with the keys of `deletes`."""
        target, columns = self.name(table.name), tables.quote_all(table.columns)
        if changed.num_rows:
            self.connection.execute(
                f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {self._aside(table, 'changed', changed)} "
                f"{tables.upsert(table)}"
            )
        if deletes.num_rows:
            same = " AND ".join(f"r.{quote(column)} = g.{quote(column)}" for column in table.key)
            self.connection.execute(
                f"DELETE FROM {target} r USING {self._aside(table, 'gone', deletes)} g WHERE {same}"
            )

    def _empty_asides(self, table: Table) -> None:
        """Empty the temporary tables between two pieces of a step."""
        for name in ("changed", "gone"):
            aside = self._aside_name(table, name)
            if first_value(self.connection, "SELECT to_regclass($1)", f"pg_temp.{aside}") is not None:
                self.connection.execute(f"TRUNCATE pg_temp.{aside}")

    def _aside_name(self, table: Table, name: str) -> str:
        return f"windrow_{name}{self._results.index(table.name) or ''}"

    def _aside(self, table: Table, name: str, rows: pa.Table) -> str:
        """Copy rows for the result table into a temporary table, and return its name."""
        aside = self._aside_name(table, name)
        self.connection.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {aside} ON COMMIT DELETE ROWS "
            f"AS SELECT {tables.quote_all(table.columns)} FROM {self.name(table.name)} WITH NO DATA"
        )
        self._copy(f"pg_temp.{aside}", stored_rows(table, rows))
        return f"pg_temp.{aside}"

    def _copy(self, target: str, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        if any(pa.types.is_list(type_) and pa.types.is_timestamp(type_.value_type) for type_ in rows.schema.types):
            self._copy_times(target, rows)
        else:
            self._copy_binary(target, rows)

    def _copy_times(self, target: str, rows: pa.Table) -> None:
        """Copy rows with arrays of times, which pgpq writes without a time zone, through a temporary table."""
        names = {field.name: quote(field.name) for field in rows.schema}
        for field in rows.schema:
            if pa.types.is_list(field.type) and pa.types.is_timestamp(field.type.value_type):
                names[field.name] = f"{quote(field.name)}::timestamp[] AS {quote(field.name)}"
        columns = tables.quote_all(rows.column_names)
        self.connection.execute(
            f"CREATE TEMPORARY TABLE windrow_times ON COMMIT DROP AS SELECT {', '.join(names.values())} FROM {target} "
            "WITH NO DATA"
        )
        self._copy_binary("pg_temp.windrow_times", rows)
        self.connection.execute(f"INSERT INTO {target} ({columns}) SELECT {columns} FROM pg_temp.windrow_times")
        self.connection.execute("DROP TABLE pg_temp.windrow_times")

    def _copy_binary(self, target: str, rows: pa.Table) -> None:
        # a column that was added to the table later can be null, even if its field is not nullable
        schema = nullable(rows.schema)
        encoder = ArrowToPostgresBinaryEncoder(schema)
        statement = f"COPY {target} ({tables.quote_all(rows.column_names)}) FROM STDIN (FORMAT binary)"
        with self.connection.cursor().copy(statement) as copy:
            copy.write(encoder.write_header())
            for batch in pa.table(rows.columns, schema=schema).to_batches(max_chunksize=_ROWS):
                copy.write(encoder.write_batch(batch))
            copy.write(encoder.finish())

    def _check_privileges(self, table: Table, *, is_result: bool) -> None:
        for privilege in _privileges(table, is_result=is_result):
            self._demand(table.name, privilege)
        if table not in SHARED and self._may("row_security_active($1)", self.name(table.name)):
            msg = (
                f"row-level security of table {table.name!r} applies to user {self._user()!r}, and PostgreSQL's COPY "
                f"does not support that: write as the table's owner, or as a role with BYPASSRLS"
            )
            raise SinkError(msg)

    def _demand(self, table: str, privilege: str) -> None:
        if not self._may(f"has_table_privilege($1, '{privilege}')", self.name(table)):
            msg = (
                f"user {self._user()!r} has no {privilege} privilege on table {table!r}: "
                f"GRANT {privilege} ON {self.name(table)} TO {quote(self._user())}"
            )
            raise SinkError(msg)

    def _may(self, condition: str, *values: str) -> bool:
        return bool(first_value(self.connection, f"SELECT {condition}", *values))

    def _user(self) -> str:
        return first_value(self.connection, "SELECT current_user")  # type: ignore[no-any-return] # a text
