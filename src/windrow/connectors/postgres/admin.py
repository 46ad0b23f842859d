"""A PostgreSQL database outside of a run, including the promotion of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from windrow import model as m
from windrow.connectors.database import Promoted
from windrow.connectors.postgres.client import first_value, lock_shared_tables, lock_table, qualified
from windrow.connectors.postgres.session import PostgresSession
from windrow.connectors.postgres.sink import PostgresServer
from windrow.connectors.sql.tables import ASIDE, SqlDatabase, renames, require_promotable, swap_owners
from windrow.connectors.tables import quote, table_names
from windrow.errors import SinkError


class PostgresDatabase(SqlDatabase):
    """The schema of a sink in a PostgreSQL database."""

    def __init__(self, sink: m.PostgresSink) -> None:
        self._postgres = PostgresServer(sink.url, sink.schema)
        super().__init__(self._postgres)

    def promote(self, pipeline: str, tables: Sequence[tuple[str, str]]) -> list[Promoted]:
        with self._postgres.connected() as session:
            promotions = [Promotion(session, *map(table_names, pair)) for pair in tables]
            for promotion in promotions:
                promotion.lock()
            with session.connection.transaction():
                lock_shared_tables(session.connection)
                return [promotion.run(pipeline) for promotion in promotions]


RUN_SECONDS = 2.0
"""Seconds to wait for the lock of a run, since the server may hold it a moment longer than the run lasts."""
LOCK_SECONDS = 5.0
"""Seconds to wait for other sessions to finish; meanwhile, new readers and writers queue behind this statement."""
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
SELECT DISTINCT n.nspname::text, v.relname::text, pg_get_viewdef(v.oid), array_to_string(v.reloptions, ', '),
    CASE WHEN NOT pg_has_role(v.relowner, 'USAGE') THEN v.relowner::regrole::text END,
    has_schema_privilege(n.oid, 'CREATE')
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
    """Swaps the names and owners of live and shadow tables in one schema. The first name of each is the result table.

    Indexes and views keep referring to the table names on which they were created, and the new live tables get the
    grants of the old ones.
    """

    session: PostgresSession
    live: tuple[str, ...]
    shadow: tuple[str, ...]

    def run(self, pipeline: str) -> Promoted:
        """Promote the tables within an open transaction; see `windrow.connectors.database.Database.promote`."""
        there = {name: oid for name in (*self.live, *self.shadow) if (oid := self._oid(name)) is not None}
        require_promotable(self.session, pipeline, self.live[0], self.shadow[0], there)
        views = self._views(list(there.values()))
        # first the owners' rows, which a step that is being written has locked, and then the tables, as a step does
        swap_owners(self.session, self.live[0], self.shadow[0])
        self._exclude(list(there))
        oids = list(there.values())
        indexes = self._rows(_INDEXES, oids)
        left = [row[0] for row in self._rows(_LEFT, [there[name] for name in self.live if name in there])]
        for name, _ in indexes:
            self.session.connection.execute(f"DROP INDEX {self._name(name)}")
        if views:
            self._keep_types(there)
        for live, shadow in zip(self.live, self.shadow, strict=True):
            self._swap(live, shadow, there)
        for name, definition in indexes:
            self._make(f"index {name!r}", definition)
        for schema, name, definition, options, *_ in views:
            within = f" WITH ({options})" if options else ""
            statement = f"CREATE OR REPLACE VIEW {qualified(schema, name)}{within} AS {definition}"
            self._make(f"view {name!r}", statement)
        carried = [*(f"index {name}" for name, _ in indexes), *(f"view {name}" for _, name, *_ in views)]
        return Promoted(self.shadow[0] if self.live[0] in there else None, tuple(carried), tuple(left))

    def lock(self) -> None:
        """Acquire the locks that a run holds while it writes the tables; raise SinkError if a run holds one."""
        for table in (self.live[0], self.shadow[0]):
            if not lock_table(self.session.connection, self.session.schema, table, RUN_SECONDS):
                msg = f"a run that writes table {table!r} is still running: stop it (Ctrl-C), then promote"
                raise SinkError(msg)

    def _views(self, oids: Sequence[int]) -> list[tuple[Any, ...]]:
        """Return the views on tables; raise SinkError if this user may not replace one of them."""
        views = self._rows(_VIEWS, oids)
        for schema, name, _, _, owner, may_create in views:
            if owner is None and may_create:
                continue
            user = first_value(self.session.connection, "SELECT quote_ident(current_user)")
            grant = f"GRANT CREATE ON SCHEMA {quote(schema)}" if owner is None else f"GRANT {owner}"
            whose = f"is in schema {schema!r}" if owner is None else f"belongs to role {owner}"
            msg = (
                f"view {schema}.{name} {whose}, and user {user} may not recreate it on the tables that would replace "
                f"{self.live[0]!r}: {grant} TO {user}, promote as a superuser, or drop the view first; "
                f"nothing was changed"
            )
            raise SinkError(msg)
        return views

    def _keep_types(self, there: dict[str, int]) -> None:
        """Give decimals of the shadow tables the type `numeric` that earlier versions gave those of the live ones.

        PostgreSQL cannot create a view again if the type of a column, including its digits, has changed.
        """
        for pair in zip(self.live, self.shadow, strict=True):
            if not all(name in there for name in pair):
                continue
            before, after = ({column.name: column.type for column in self.session.columns(name)} for name in pair)
            for column, type_ in after.items():
                if before.get(column) == "numeric" != type_ and type_.startswith("numeric("):
                    alter = f"ALTER TABLE {self._name(pair[1])} ALTER COLUMN {quote(column)} TYPE numeric"
                    self.session.connection.execute(alter)

    def _exclude(self, tables: Sequence[str]) -> None:
        names = ", ".join(self._name(table) for table in tables)
        self.session.connection.execute(f"SET LOCAL lock_timeout = '{round(LOCK_SECONDS * 1000)}ms'")
        try:
            self.session.connection.execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
        except psycopg.errors.LockNotAvailable as exc:
            msg = (
                f"another session has used table {self.live[0]!r} or {self.shadow[0]!r} for {LOCK_SECONDS:g} seconds: "
                f"end its transaction (see pg_stat_activity), then promote; nothing was changed"
            )
            raise SinkError(msg) from exc

    def _swap(self, live: str, shadow: str, there: dict[str, int]) -> None:
        """Swap the names of two tables and of their own indexes. The live name keeps its owner and grants."""
        both = live in there and shadow in there
        grants, others = (self._rows(_GRANTS, there[name]) if both else [] for name in (live, shadow))
        user = self._user_of(live) if both else ""
        for table, to in renames(live, shadow):
            if table in there or (table == ASIDE and live in there):
                self.session.connection.execute(f"ALTER TABLE {self._name(table)} RENAME TO {quote(to)}")
        if not both:
            return
        keys = [first_value(self.session.connection, _KEY, there[name]) for name in (live, shadow)]
        if None not in keys:
            for key, to in renames(*keys):
                self.session.connection.execute(f"ALTER INDEX {self._name(key)} RENAME TO {quote(to)}")
        self._grant(live, user, grants, others)

    def _user_of(self, table: str) -> str:
        query = "SELECT relowner::regrole::text FROM pg_class WHERE oid = $1::regclass"
        return str(first_value(self.session.connection, query, self._name(table)))

    def _grant(
        self, table: str, owner: str, grants: Sequence[tuple[Any, ...]], before: Sequence[tuple[Any, ...]]
    ) -> None:
        name = self._name(table)
        if self._user_of(table) != owner:
            self.session.connection.execute(f"ALTER TABLE {name} OWNER TO {owner}")
        for grantee in {to or "PUBLIC" for *_, to, _ in before}:
            self.session.connection.execute(f"REVOKE ALL ON {name} FROM {grantee}")
        for column, privilege, _, to, grantable in grants:
            what = privilege if column is None else f"{privilege} ({column})"
            option = " WITH GRANT OPTION" if grantable else ""
            self._make(f"grant {what}", f"GRANT {what} ON {name} TO {to or 'PUBLIC'}{option}")

    def _make(self, what: str, statement: str) -> None:
        try:
            self.session.connection.execute(statement)
        except psycopg.Error as exc:
            msg = (
                f"{what} cannot be created on the tables that would replace {self.live[0]!r} "
                f"({exc.diag.message_primary}): drop it first; nothing was changed"
            )
            raise SinkError(msg) from exc

    def _rows(self, query: str, value: object) -> list[tuple[Any, ...]]:
        return self.session.connection.execute(query, (value,)).fetchall()

    def _oid(self, table: str) -> int | None:
        oid: int | None = first_value(self.session.connection, "SELECT to_regclass($1)::oid::bigint", self._name(table))
        return oid

    def _name(self, table: str) -> str:
        return qualified(self.session.schema, table)
