"""Queries of PostgreSQL's catalog: tables, columns, indexes and permissions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from windrow.connectors import ownership, tables
from windrow.connectors.postgres.client import Connection, first_value, qualified
from windrow.connectors.sink import Run
from windrow.connectors.tables import EPOCHS, OPENERS, ORIGINS, OWNERS, RELAYS, SHARED, Layout, Table, quote
from windrow.engine.schema import CLOCKS
from windrow.errors import PipelineError, SinkError

NAME_BYTES = 63
"""Bytes of a name that PostgreSQL keeps (NAMEDATALEN - 1); it truncates longer names without an error."""


def sql_types(table: Table) -> dict[str, str]:
    """Return PostgreSQL's type of each column, as format_type() spells it."""
    return {field.name: _sql_type(field.type) for field in table.schema}


def _sql_type(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return "numeric"
    if pa.types.is_timestamp(type_):
        return "timestamp with time zone"
    names = {pa.bool_(): "boolean", pa.int32(): "integer", pa.int64(): "bigint", pa.float64(): "double precision"}
    return names.get(type_, "bytea" if pa.types.is_binary(type_) else "text")


def _alter(table: Table, column: str, type_: str) -> str:
    statement = f"ALTER TABLE {quote(table.name)} ALTER COLUMN {quote(column)} TYPE {type_}"
    nullable = table.schema.field(column).nullable
    return f"{statement}, ALTER COLUMN {quote(column)} DROP NOT NULL" if nullable else statement


def check_names(layout: Layout) -> None:
    """Raise PipelineError for a name that PostgreSQL would truncate."""
    for table in layout.all:
        for name in (table.name, *table.columns):
            if len(name.encode()) > NAME_BYTES:
                msg = f"{name!r} is longer than the {NAME_BYTES} bytes of a PostgreSQL name: choose a shorter one"
                raise PipelineError(msg)
            quote(name)


def last_epoch(connection: Connection, schema: str, run: Run) -> int | None:
    """Return the last epoch that a run has committed."""
    query = f"SELECT max(epoch) FROM {qualified(schema, EPOCHS.name)} WHERE pipeline = $1 AND run = $2"
    epoch: int | None = first_value(connection, query, run.pipeline, run.id)
    return epoch


class Catalog:
    """The tables of one pipeline in one schema of one database."""

    def __init__(self, connection: Connection, schema: str, layout: Layout) -> None:
        self._connection = connection
        self._schema = schema
        self._layout = layout

    def missing(self) -> list[Table]:
        """Check the existing tables, return the missing ones; raise SinkError if they cannot be written or created."""
        existing = self._existing()
        there = [table for table in self._layout.all if table.name in existing]
        ownership.refuse(self.mismatches())
        for table in there:
            self._check_privileges(table)
        missing = [table for table in self._layout.all if table.name not in existing]
        if missing and not self._may("has_schema_privilege(current_schema(), 'CREATE')"):
            msg = (
                f"table {missing[0].name!r} does not exist, and user {self._user()!r} may not create it: "
                f"GRANT CREATE ON SCHEMA {quote(self._schema)} TO {quote(self._user())}"
            )
            raise SinkError(msg)
        if not self._may("has_database_privilege(current_database(), 'TEMPORARY')"):
            database = first_value(self._connection, "SELECT current_database()")
            msg = (
                f"user {self._user()!r} may not create temporary tables, through which rows are changed: "
                f"GRANT TEMPORARY ON DATABASE {quote(database)} TO {quote(self._user())}"
            )
            raise SinkError(msg)
        return missing

    def create(self) -> None:
        """Check the existing tables, and create the missing ones; raise SinkError if that is not possible."""
        missing, dead = self.missing(), self._layout.dead
        if dead not in missing:
            for name in ownership.relaxed(dead, {name for name, _, required in self._columns(dead) if required}):
                self._connection.execute(f"ALTER TABLE {self.name(dead.name)} ALTER COLUMN {quote(name)} DROP NOT NULL")
        for table in missing:
            self._connection.execute(tables.create_table(self._as_stored(table), sql_types(table)))
            if table == self._layout.changes:
                self._connection.execute(f"CREATE INDEX ON {quote(table.name)} USING brin (epoch) WITH (autosummarize)")
            if table == self._layout.outbox:
                self._connection.execute(
                    f"ALTER TABLE {quote(table.name)} ALTER id ADD GENERATED ALWAYS AS IDENTITY, "
                    "ALTER committed_at SET DEFAULT clock_timestamp()"
                )

    def find(self, run: Run, own: Sequence[str]) -> ownership.FoundTables:
        """Return which tables exist and their owners; `own` are the result tables of the run."""
        existing = self._existing()
        present = [table.name for table in self._layout.own if table.name in existing]
        outbox = self._layout.outbox
        filled = []
        for name in [*present, *([outbox.name] if outbox is not None and outbox.name in existing else [])]:
            self._demand(name, "SELECT")
            if self._may(f"EXISTS (SELECT FROM {self.name(name)})"):
                filled.append(name)
        owner = self._owner() if OWNERS.name in existing else None
        fenced = EPOCHS.name in existing
        return ownership.FoundTables(
            owner=owner,
            owner_last=self.last(owner) if owner is not None and fenced else None,
            last=self.last(run) if fenced else None,
            elsewhere=self._elsewhere(run, own) if OWNERS.name in existing else None,
            present=present,
            filled=filled,
            origin=self._origin() if ORIGINS.name in existing else None,
        )

    def claim(self, run: Run) -> None:
        """Record the owner of these tables, after a commit of another process of the run that is under way."""
        if self._owner(" FOR UPDATE") != run:
            self._connection.execute(
                f"INSERT INTO {self.name(OWNERS.name)} (table_name, pipeline, run) VALUES ($1, $2, $3) "
                f"ON CONFLICT (table_name) DO UPDATE SET pipeline = excluded.pipeline, run = excluded.run",
                (self._layout.result.name, run.pipeline, run.id),
            )

    def note_origin(self, run: Run, origin: ownership.Origin) -> None:
        """Record the origin of the result table."""
        self._connection.execute(
            f"INSERT INTO {self.name(ORIGINS.name)} (table_name, pipeline, run, stream, changelog) "
            "VALUES ($1, $2, $3, $4, $5) ON CONFLICT (table_name) DO UPDATE SET pipeline = excluded.pipeline, "
            "run = excluded.run, stream = excluded.stream, changelog = excluded.changelog, left_after = NULL",
            (self._layout.result.name, run.pipeline, run.id, origin.stream, origin.changelog),
        )

    def note_left(self, run: Run, tables: Sequence[str]) -> None:
        """Record the epoch at which a run continues without tables that it has written before."""
        is_left = "pipeline = $2 AND run = $3 AND table_name <> ALL($4::text[])"
        last = self.last(run)
        given = (-1 if last is None else last, run.pipeline, run.id, list(tables))
        origins = self.name(ORIGINS.name)
        self._connection.execute(f"UPDATE {origins} SET left_after = $1 WHERE left_after IS NULL AND {is_left}", given)
        self._connection.execute(
            f"INSERT INTO {origins} (table_name, pipeline, run, stream, changelog, left_after) "
            f"SELECT table_name, pipeline, run, '', TRUE, $1 FROM {self.name(OWNERS.name)} "
            f"WHERE table_name NOT IN (SELECT table_name FROM {origins}) AND {is_left}",
            given,
        )

    def _origin(self) -> ownership.Origin | None:
        query = f"SELECT stream, changelog, left_after FROM {self.name(ORIGINS.name)} WHERE table_name = $1"
        row = self._connection.execute(query, (self._layout.result.name,)).fetchone()
        return None if row is None else ownership.Origin(*row)

    def mismatches(self) -> list[ownership.SchemaMismatch]:
        """Return how existing tables differ from the layout."""
        existing = self._existing()
        there = [table for table in self._layout.all if table.name in existing]
        return [mismatch for table in there for mismatch in self._mismatches_of(table)]

    def drop(self, owner: Run | None) -> None:
        """Drop the pipeline's tables, and the epochs of the run that wrote them."""
        existing = self._existing()
        for table in self._layout.all:
            if table.name in existing and table not in SHARED:
                self._connection.execute(f"DROP TABLE {self.name(table.name)}")
        if self._layout.outbox is not None and RELAYS.name in existing:
            query = f"DELETE FROM {self.name(RELAYS.name)} WHERE outbox = $1"
            self._connection.execute(query, (self._layout.outbox.name,))
        if owner is not None:
            for shared in SHARED:
                if shared.name in existing:
                    query = f"DELETE FROM {self.name(shared.name)} WHERE pipeline = $1 AND run = $2"
                    self._connection.execute(query, (owner.pipeline, owner.id))

    def owner(self) -> Run | None:
        """Return the owner of the result table, and lock it until the end of the transaction."""
        return self._owner(" FOR SHARE")

    def _owner(self, lock: str = "") -> Run | None:
        query = f"SELECT pipeline, run FROM {self.name(OWNERS.name)} WHERE table_name = $1{lock}"
        row = self._connection.execute(query, (self._layout.result.name,)).fetchone()
        return None if row is None else Run(*row)

    def opener(self, run: Run) -> str | None:
        """Return the id of the sink that opened the tables of a run last."""
        query = f"SELECT opener FROM {self.name(OPENERS.name)} WHERE pipeline = $1 AND run = $2"
        return first_value(self._connection, query, run.pipeline, run.id)  # type: ignore[no-any-return] # a text

    def note_opener(self, run: Run, opener: str) -> None:
        """Record the id of the sink that opens the tables of a run."""
        self._connection.execute(
            f"INSERT INTO {self.name(OPENERS.name)} (pipeline, run, opener) VALUES ($1, $2, $3) "
            "ON CONFLICT (pipeline, run) DO UPDATE SET opener = excluded.opener",
            (run.pipeline, run.id, opener),
        )

    def last(self, run: Run) -> int | None:
        """Return the last epoch that a run has committed."""
        return last_epoch(self._connection, self._schema, run)

    def journal(self) -> pa.Table:
        """Return the clock journal, by epoch."""
        table = self._layout.clocks
        if table.name not in self._existing():
            return CLOCKS.empty_table()
        self._demand(table.name, "SELECT")
        columns = [
            f"(extract(epoch FROM {quote(field.name)}) * 1000000)::bigint"
            if pa.types.is_timestamp(field.type)
            else quote(field.name)
            for field in CLOCKS
        ]
        rows = self._connection.execute(
            f'SELECT {", ".join(columns)} FROM {self.name(table.name)} ORDER BY epoch, partition, "offset", reason'
        ).fetchall()
        values = list(zip(*rows, strict=True)) or [()] * len(CLOCKS)
        return pa.table([pa.array(v, f.type) for v, f in zip(values, CLOCKS, strict=True)], schema=CLOCKS)

    def _elsewhere(self, run: Run, own: Sequence[str]) -> str | None:
        query = (
            f"SELECT table_name FROM {self.name(OWNERS.name)} WHERE pipeline = $1 AND run = $2 "
            f"AND table_name <> ALL($3::text[]) ORDER BY table_name"
        )
        return first_value(self._connection, query, run.pipeline, run.id, list(own))  # type: ignore[no-any-return] # a text

    def fence(self, run: Run, epoch: int) -> None:
        """Record that an epoch is committed, in the transaction that commits it; delete old epochs now and then.

        For a user who may not delete them they stay.
        """
        query = f"INSERT INTO {self.name(EPOCHS.name)} (pipeline, run, epoch, committed_at) VALUES ($1, $2, $3, now())"
        self._connection.execute(query, (run.pipeline, run.id, epoch))
        last = ownership.last_to_forget(epoch)
        if last is not None and self._may("has_table_privilege($1, 'DELETE')", self.name(EPOCHS.name)):
            query = f"DELETE FROM {self.name(EPOCHS.name)} WHERE pipeline = $1 AND run = $2 AND epoch <= $3"
            self._connection.execute(query, (run.pipeline, run.id, last))

    def name(self, table: str) -> str:
        """Return a table's name with its schema."""
        return qualified(self._schema, table)

    def _as_stored(self, table: Table) -> Table:
        """Return a table as it is in PostgreSQL: the changelog has an index on the epoch instead of a key.

        Its rows are in that order on disk, so finding them costs the same, and writing them half.
        """
        return replace(table, key=()) if table == self._layout.changes else table

    def _existing(self) -> set[str]:
        names = [table.name for table in (*self._layout.all, RELAYS)]
        rows = self._connection.execute(
            "SELECT relname, relkind::text FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE nspname = $1 AND relname = ANY($2::text[])",
            (self._schema, names),
        ).fetchall()
        for name, kind in rows:
            if kind not in {"r", "p"}:
                msg = f"{name!r} in schema {self._schema!r} exists and is not a table: choose another table"
                raise SinkError(msg)
        return {name for name, _ in rows}

    def _columns(self, table: Table) -> list[tuple[str, str, bool]]:
        """Return the names of a table's columns, their types, and whether they are NOT NULL."""
        return self._connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute "
            "WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (self.name(table.name),),
        ).fetchall()

    def _mismatches_of(self, table: Table) -> Iterator[ownership.SchemaMismatch]:
        columns = self._columns(table)
        key = self._connection.execute(
            "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey) "
            "WHERE indrelid = $1::regclass AND indisprimary",
            (self.name(table.name),),
        ).fetchall()
        types = {name: type_ for name, type_, _ in columns}
        required = {name for name, _, required in columns if required}
        if self._may("pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = $1::regclass", self.name(table.name)):
            required -= set(ownership.relaxed(table, required))
        existing = ownership.Existing(types, [name for (name,) in key], required, _alter)
        return ownership.schema_mismatches(self._as_stored(table), sql_types(table), existing)

    def _check_privileges(self, table: Table) -> None:
        needs: tuple[str, ...] = ("SELECT", "INSERT")
        if table == self._layout.result:
            needs = (*needs, "UPDATE", "DELETE")
        elif table in (OWNERS, OPENERS, ORIGINS):
            needs = (*needs, "UPDATE")
        for privilege in needs:
            self._demand(table.name, privilege)
        if table not in SHARED and self._may("row_security_active($1)", self.name(table.name)):
            msg = (
                f"row-level security of table {table.name!r} holds for user {self._user()!r}, and PostgreSQL's COPY "
                f"does not go with that: write as the table's owner, or as a role with BYPASSRLS"
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
        return bool(first_value(self._connection, f"SELECT {condition}", *values))

    def _user(self) -> str:
        return first_value(self._connection, "SELECT current_user")  # type: ignore[no-any-return] # a text
