"""A PostgreSQL database outside of a run: read its results, note a replay, promote one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any

import psycopg
import pyarrow as pa

from windrow import model as m
from windrow.connectors.database import Condition, Promoted, Replayed
from windrow.connectors.misfits import exact_array, fitted, with_misfits
from windrow.connectors.ownership import may_promote
from windrow.connectors.postgres.catalog import Catalog, sql_types
from windrow.connectors.postgres.client import Connection, connect, lock_table, qualified, schema_of, server, translated
from windrow.connectors.sink import Run
from windrow.connectors.tables import (
    EPOCHS,
    ORIGINS,
    OWNERS,
    REDRIVES,
    REPLAYS,
    Layout,
    Table,
    create_table,
    quote,
    quote_all,
    table_names,
    upsert,
)
from windrow.engine.schema import MICROS
from windrow.errors import SinkError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PostgresDatabase:
    """The first schema of the user's search path in a database. See `windrow.connectors.database.Database`."""

    def __init__(self, sink: m.PostgresSink) -> None:
        self._sink = sink

    @property
    def place(self) -> str:
        """Server and database, without user and password."""
        return server(self._sink.url).place

    @contextmanager
    def snapshot(self) -> Iterator[PostgresSnapshot]:
        """Read what is there now."""
        with self._connected() as (connection, schema), connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield PostgresSnapshot(connection, schema)

    def note(self, replayed: Replayed) -> None:
        """Write down what is replayed into a table."""
        begins, ends = replayed.texts()
        since = None if replayed.since is None else _EPOCH + timedelta(microseconds=replayed.since)
        row = (replayed.table, replayed.run.pipeline, replayed.run.id, begins, ends, since, replayed.finished)
        with self._connected() as (connection, schema), connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('windrow', 0))")
            if not _exists(connection, schema, REPLAYS.name):
                connection.execute(create_table(REPLAYS, sql_types(REPLAYS)))
            connection.execute(
                f"INSERT INTO {qualified(schema, REPLAYS.name)} ({quote_all(REPLAYS.columns)}) "
                f"VALUES ($1, $2, $3, $4, $5, $6, $7) {upsert(REPLAYS)}",
                row,
            )

    def note_redrives(self, rows: pa.Table) -> None:
        """Write down copies of dead letters; see `windrow.connectors.database.Database`."""
        marks = ", ".join(f"${number}" for number in range(1, len(REDRIVES.columns) + 1))
        with self._connected() as (connection, schema), connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('windrow', 0))")
            if not _exists(connection, schema, REDRIVES.name):
                connection.execute(create_table(REDRIVES, sql_types(REDRIVES)))
            with connection.cursor() as cursor:
                cursor.executemany(
                    f"INSERT INTO {qualified(schema, REDRIVES.name)} ({quote_all(REDRIVES.columns)}) "
                    f"VALUES ({marks}) ON CONFLICT DO NOTHING",
                    [tuple(row.values()) for row in rows.to_pylist()],
                )

    def replayed(self, table: str) -> Replayed | None:
        """Return what was replayed into a table by the run that it belongs to; None if it was no replay."""
        with self._connected() as (connection, schema):
            return _replayed(connection, schema, table)

    def stands(self, table: str) -> tuple[Run, int | None] | None:
        """Return whose a result table is and its last epoch; see `windrow.connectors.database.Database`."""
        with self._connected() as (connection, schema):
            if not all(_exists(connection, schema, one.name) for one in (OWNERS, EPOCHS)):
                return None
            owners, epochs = (qualified(schema, one.name) for one in (OWNERS, EPOCHS))
            row = connection.execute(
                f"SELECT pipeline, run, (SELECT max(epoch) FROM {epochs} AS e "
                f"WHERE e.pipeline = o.pipeline AND e.run = o.run) FROM {owners} AS o WHERE table_name = $1",
                (table,),
            ).fetchone()
        if row is None:
            return None
        pipeline, run, epoch = row
        return Run(str(pipeline), str(run)), None if epoch is None else int(str(epoch))

    def mismatches(self, layout: Layout) -> list[str]:
        """Return how tables that exist differ from a layout; see `windrow.connectors.database.Database`."""
        with self._connected() as (connection, schema):
            return [mismatch.what for mismatch in Catalog(connection, schema, layout).mismatches()]

    def promote(self, pipeline: str, tables: Sequence[tuple[str, str]]) -> list[Promoted]:
        """Put shadows in the place of the live tables; see `windrow.connectors.database.Database`."""
        with self._connected() as (connection, schema):
            promotions = [Promotion(connection, schema, *map(table_names, pair)) for pair in tables]
            for promotion in promotions:
                promotion.lock()
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('windrow', 0))")
                return [promotion.run(pipeline) for promotion in promotions]

    @contextmanager
    def _connected(self) -> Iterator[tuple[Connection, str]]:
        with connect(self._sink.url) as connection, translated(self.place):
            yield connection, schema_of(connection, self.place)


def _exists(connection: Connection, schema: str, table: str) -> bool:
    row = connection.execute("SELECT to_regclass($1) IS NOT NULL", (qualified(schema, table),)).fetchone()
    return row is not None and bool(row[0])


def _replayed(connection: Connection, schema: str, table: str) -> Replayed | None:
    if not all(_exists(connection, schema, one.name) for one in (REPLAYS, OWNERS)):
        return None
    replays, owners = (qualified(schema, one.name) for one in (REPLAYS, OWNERS))
    row = connection.execute(
        f"SELECT r.table_name, pipeline, run, begins, ends, (extract(epoch FROM since) * 1000000)::bigint, finished "
        f"FROM {replays} r JOIN {owners} o USING (pipeline, run) WHERE o.table_name = $1 "
        f"ORDER BY r.table_name <> o.table_name LIMIT 1",
        (table,),
    ).fetchone()
    if row is None:
        return None
    name, pipeline, run, begins, ends, since, finished = row
    return Replayed.read(
        str(name),
        Run(str(pipeline), str(run)),
        (None if begins is None else str(begins), str(ends)),
        None if since is None else int(str(since)),
        finished=bool(finished),
    )


RUN_SECONDS = 2.0
"""How long to wait for the lock of a run, which the server may hold a moment longer than the run lasted."""
LOCK_SECONDS = 5.0
"""How long to wait for readers and writers, who queue behind this statement meanwhile."""
_ASIDE = "windrow_promoted_aside"

_OWN = r"""(
c.relam = (SELECT oid FROM pg_am WHERE amname = 'brin') AND i.indnatts = 1
AND pg_get_indexdef(i.indexrelid, 1, true) = 'epoch'
AND EXISTS (SELECT FROM pg_class t WHERE t.oid = i.indrelid AND t.relname LIKE '%\_changes'))"""
"""The changelog's own index."""

_INDEXES = f"""
SELECT c.relname::text, pg_get_indexdef(i.indexrelid)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = ANY($1::oid[]) AND NOT {_OWN}
AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.indexrelid) ORDER BY 1"""

_KEY = f"""
SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = $1::oid AND (i.indisprimary OR {_OWN}) ORDER BY i.indisprimary DESC"""

_VIEWS = """
SELECT DISTINCT n.nspname::text, v.relname::text, pg_get_viewdef(v.oid), array_to_string(v.reloptions, ', ')
FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class v ON v.oid = r.ev_class
JOIN pg_namespace n ON n.oid = v.relnamespace
WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = ANY($1::oid[])
AND v.relkind = 'v'
ORDER BY 1, 2"""

_LEFT = """
SELECT 'materialized view ' || v.oid::regclass
FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class v ON v.oid = r.ev_class
WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = ANY($1::oid[])
AND v.relkind = 'm'
UNION SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgrelid = ANY($1::oid[]) AND NOT tgisinternal
UNION SELECT 'constraint ' || conname FROM pg_constraint
WHERE (conrelid = ANY($1::oid[]) AND contype IN ('c', 'u', 'f', 'x')) OR confrelid = ANY($1::oid[])
UNION SELECT 'policy ' || polname FROM pg_policy WHERE polrelid = ANY($1::oid[])
UNION SELECT 'publication ' || pubname FROM pg_publication_rel JOIN pg_publication p ON p.oid = prpubid
WHERE prrelid = ANY($1::oid[])
ORDER BY 1"""

_GRANTS = """
SELECT NULL, a.privilege_type, a.grantee, CASE WHEN a.grantee <> 0 THEN quote_ident(pg_get_userbyid(a.grantee)) END,
    a.is_grantable
FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = $1::oid AND a.grantee <> c.relowner
UNION ALL
SELECT quote_ident(attname), a.privilege_type, a.grantee,
    CASE WHEN a.grantee <> 0 THEN quote_ident(pg_get_userbyid(a.grantee)) END, a.is_grantable
FROM pg_class c JOIN pg_attribute ON attrelid = c.oid, aclexplode(attacl) a
WHERE c.oid = $1::oid AND a.grantee <> c.relowner AND NOT attisdropped"""


@dataclass(frozen=True)
class Promotion:
    """Swaps the names of tables of one schema, and their owners; the first of each is the result table.

    Indexes and views stay with the names that they were made on; the new live tables get the old ones' grants.
    """

    connection: Connection
    schema: str
    live: tuple[str, ...]
    shadow: tuple[str, ...]

    def run(self, pipeline: str) -> Promoted:
        """Do it in a transaction that is open; see `windrow.connectors.database.Database.promote`."""
        there = {name: oid for name in (*self.live, *self.shadow) if (oid := self._oid(name)) is not None}
        owners = (self._owner(self.live[0], there), self._owner(self.shadow[0], there))
        replayed = _replayed(self.connection, self.schema, self.shadow[0])
        may_promote(pipeline, (self.live[0], self.shadow[0]), owners, replayed)
        # first the owners' rows, which a step that is being written holds, and then the tables, as it does
        for shared in (OWNERS, *([ORIGINS] if self._oid(ORIGINS.name) is not None else [])):
            query = f"UPDATE {self._name(shared.name)} SET table_name = $2 WHERE table_name = $1"
            for table, to in _renames(self.live[0], self.shadow[0]):
                self.connection.execute(query, (table, to))
        self._exclude(list(there))
        oids = list(there.values())
        indexes, views = self._rows(_INDEXES, oids), self._rows(_VIEWS, oids)
        left = [str(row[0]) for row in self._rows(_LEFT, [there[name] for name in self.live if name in there])]
        for name, _ in indexes:
            self.connection.execute(f"DROP INDEX {self._name(str(name))}")
        for one, other in zip(self.live, self.shadow, strict=True):
            self._swap(one, other, there)
        for name, definition in indexes:
            self._make(f"index {name!r}", str(definition))
        for schema, name, definition, options in views:
            within = f" WITH ({options})" if options else ""
            statement = f"CREATE OR REPLACE VIEW {qualified(str(schema), str(name))}{within} AS {definition}"
            self._make(f"view {name!r}", statement)
        carried = [*(f"index {name}" for name, _ in indexes), *(f"view {name}" for _, name, *_ in views)]
        return Promoted(self.shadow[0] if self.live[0] in there else None, tuple(carried), tuple(left))

    def lock(self) -> None:
        """Acquire the locks that a run holds while it writes the tables; raise SinkError if one is held."""
        for table in (self.live[0], self.shadow[0]):
            if not lock_table(self.connection, self.schema, table, RUN_SECONDS):
                msg = f"a run that writes table {table!r} is still going: end that one (Ctrl-C), then promote"
                raise SinkError(msg)

    def _exclude(self, tables: Sequence[str]) -> None:
        names = ", ".join(self._name(table) for table in tables)
        self.connection.execute(f"SET LOCAL lock_timeout = '{round(LOCK_SECONDS * 1000)}ms'")
        try:
            self.connection.execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
        except psycopg.errors.LockNotAvailable as exc:
            msg = (
                f"another session has used table {self.live[0]!r} or {self.shadow[0]!r} for {LOCK_SECONDS:g} seconds: "
                f"end its transaction (pg_stat_activity names it), then promote; nothing was changed"
            )
            raise SinkError(msg) from exc

    def _swap(self, one: str, other: str, there: dict[str, int]) -> None:
        """Swap two tables' names and those of their own indexes; give the new one the old one's owner and grants."""
        both = one in there and other in there
        keys = [self._key(name, there) for name in (one, other)]
        grants = self._rows(_GRANTS, there[one]) if both else []
        others = self._rows(_GRANTS, there[other]) if both else []
        user = (
            self._rows("SELECT relowner::regrole::text FROM pg_class WHERE oid = $1::oid", there[one]) if both else []
        )
        for table, to in _renames(one, other):
            if table in there or (table == _ASIDE and one in there):
                self.connection.execute(f"ALTER TABLE {self._name(table)} RENAME TO {quote(to)}")
        if not both:
            return
        if keys[0] is not None and keys[1] is not None:
            for key, to in ((keys[0], _ASIDE), (keys[1], keys[0]), (_ASIDE, keys[1])):
                self.connection.execute(f"ALTER INDEX {self._name(key)} RENAME TO {quote(to)}")
        self._grant(one, [str(row[0]) for row in user], grants, others)

    def _grant(
        self,
        table: str,
        owner: Sequence[str],
        grants: Sequence[tuple[object, ...]],
        before: Sequence[tuple[object, ...]],
    ) -> None:
        name = self._name(table)
        rows = self._rows("SELECT relowner::regrole::text FROM pg_class WHERE oid = $1::regclass", name)
        if [str(row[0]) for row in rows] != list(owner):
            self.connection.execute(f"ALTER TABLE {name} OWNER TO {owner[0]}")
        for grantee in {str(to or "PUBLIC") for *_, to, _ in before}:
            self.connection.execute(f"REVOKE ALL ON {name} FROM {grantee}")
        for column, privilege, _, to, grantable in grants:
            what = str(privilege) if column is None else f"{privilege} ({column})"
            option = " WITH GRANT OPTION" if grantable else ""
            self._make(f"grant {what}", f"GRANT {what} ON {name} TO {to or 'PUBLIC'}{option}")

    def _make(self, what: str, statement: str) -> None:
        try:
            self.connection.execute(statement)
        except psycopg.Error as exc:
            msg = (
                f"{what} cannot be made on the tables that would take the place of {self.live[0]!r} "
                f"({exc.diag.message_primary}): drop it first; nothing was changed"
            )
            raise SinkError(msg) from exc

    def _rows(self, query: str, value: object) -> list[tuple[object, ...]]:
        return self.connection.execute(query, (value,)).fetchall()

    def _key(self, table: str, there: dict[str, int]) -> str | None:
        if table not in there:
            return None
        rows = self._rows(_KEY, there[table])
        return str(rows[0][0]) if rows else None

    def _oid(self, table: str) -> int | None:
        oid = self._rows("SELECT to_regclass($1)::oid::bigint", self._name(table))[0][0]
        return None if oid is None else int(str(oid))

    def _owner(self, table: str, there: dict[str, int]) -> Run | None:
        """Return whose the table is; None if it is not there. Raise SinkError if it is nobody's."""
        if table not in there:
            return None
        query = f"SELECT pipeline, run FROM {self._name(OWNERS.name)} WHERE table_name = $1"
        rows = self._rows(query, table) if self._oid(OWNERS.name) is not None else []
        if not rows:
            msg = f"table {table!r} is not windrow's: choose another table"
            raise SinkError(msg)
        return Run(str(rows[0][0]), str(rows[0][1]))

    def _name(self, table: str) -> str:
        return qualified(self.schema, table)


def _renames(one: str, other: str) -> tuple[tuple[str, str], ...]:
    return (one, _ASIDE), (other, one), (_ASIDE, other)


_ROWS = 50_000
"""Number of rows that are in memory at a time."""


class PostgresSnapshot:
    """The tables in a transaction that is open and repeats its reads; see `windrow.connectors.database.Snapshot`."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._schema = schema
        self._numbers = count()

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns; none if there is no such table."""
        rows = self._connection.execute(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 "
            "AND NOT attisdropped ORDER BY attnum",
            (qualified(self._schema, table),),
        )
        return [str(name) for (name,) in rows]

    def rows(
        self,
        table: Table,
        order: Sequence[str],
        where: Sequence[Condition] = (),
        *,
        descending: Collection[str] = (),
        limit: int | None = None,
        misfits: bool = False,
    ) -> Iterator[pa.Table]:
        """Read columns of a table, ordered; see `windrow.connectors.database.Snapshot`."""
        cursor = f"windrow_rows_{next(self._numbers)}"
        columns = ", ".join(_selected(field) for field in table.schema)
        by = ", ".join(_ordered(table.schema.field(name), name in descending) for name in order)
        # all rows are wanted, however soon the first come
        self._connection.execute("SET LOCAL cursor_tuple_fraction = 1")
        self._connection.execute(
            f"DECLARE {cursor} NO SCROLL CURSOR FOR SELECT {columns} FROM {qualified(self._schema, table.name)} AS r "
            f"WHERE {_within(table, where)} ORDER BY {by} LIMIT {'ALL' if limit is None else limit}",
            [one.value for one in where],
        )
        while rows := self._connection.execute(f"FETCH {_ROWS} FROM {cursor}").fetchall():
            found = [
                fitted(values, partial(_column, type_=field.type))
                for values, field in zip(zip(*rows, strict=True), table.schema, strict=True)
            ]
            yield with_misfits(table, found, keep=misfits)

    def count(self, table: Table, where: Sequence[Condition] = ()) -> int:
        """Return the number of rows that meet all conditions."""
        row = self._connection.execute(
            f"SELECT count(*) FROM {qualified(self._schema, table.name)} WHERE {_within(table, where)}",
            [one.value for one in where],
        ).fetchone()
        return 0 if row is None else int(str(row[0]))


def _within(table: Table, where: Sequence[Condition]) -> str:
    """Write conditions as SQL, the value of the first as parameter $1."""
    return " AND ".join(_condition(table, one, number) for number, one in enumerate(where, 1)) or "true"


def _condition(table: Table, one: Condition, number: int) -> str:
    value = f"${number}"
    if pa.types.is_timestamp(table.schema.field(one.column).type):
        # an interval is multiplied in double precision, which does not hold the microseconds of all years
        value = (
            f"timestamptz 'epoch' + (${number}::bigint / 1000000) * interval '1 second'"
            f" + (${number}::bigint % 1000000) * interval '1 microsecond'"
        )
    return f"{quote(one.column)} {one.operator} {value}"


def _selected(field: pa.Field) -> str:
    name = quote(field.name)
    if pa.types.is_timestamp(field.type):
        return f"(extract(epoch FROM {name}) * 1000000)::bigint"
    return f"{name}::text" if pa.types.is_decimal(field.type) else name


def _ordered(field: pa.Field, descending: bool) -> str:  # noqa: FBT001 - a column of a list
    # without the table, the name of a decimal would be that of its text
    name = f"r.{quote(field.name)}" + (' COLLATE "C"' if pa.types.is_string(field.type) else "")
    return f"{name} DESC NULLS LAST" if descending else name


def _column(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Read the values of a column; raise an error as `windrow.connectors.misfits.fitted` has it."""
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(MICROS)
    if not pa.types.is_decimal(type_):
        return exact_array(values, type_)
    text = pa.array(values, pa.string())
    try:
        return text.cast(pa.decimal128(38, type_.scale))
    except pa.ArrowInvalid:  # more digits than the type says
        exact = [None if value is None else Decimal(value) for value in values]
        scale = max((-int(number.as_tuple().exponent) for number in exact if number is not None), default=0)
        return pa.array(exact, pa.decimal128(38, min(38, max(scale, type_.scale))))
