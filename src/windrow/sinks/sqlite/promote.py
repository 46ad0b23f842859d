"""One table and its companions in the place of others, in an SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from windrow.errors import SinkError
from windrow.sinks.base import Run
from windrow.sinks.database import Promoted, Replayed
from windrow.sinks.layout import OWNERS
from windrow.sinks.promotion import may_promote
from windrow.sinks.quote import quote
from windrow.sinks.sqlite.session import transaction

_ASIDE = "windrow_promoted_aside"


def promote(
    db: sqlite3.Connection,
    pipeline: str,
    live: Sequence[str],
    shadow: Sequence[str],
    replayed: Callable[[], Replayed | None],
) -> Promoted:
    """Swap the names of tables, and their owners. Indexes and triggers stay with the names that they were made on.

    So do views and foreign keys, as SQLite finds their tables by name.
    """
    # without it, SQLite would let views and triggers follow a table to its new name
    db.execute("PRAGMA legacy_alter_table = ON")
    with transaction(db):
        there = {name.lower() for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        owners = (_owner(db, there, live[0]), _owner(db, there, shadow[0]))
        may_promote(pipeline, (live[0], shadow[0]), owners, replayed())
        is_live = live[0].lower() in there
        made = db.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql IS NOT NULL "
            f"AND lower(tbl_name) IN ({', '.join('?' * (len(live) + len(shadow)))})",
            [name.lower() for name in (*live, *shadow)],
        ).fetchall()
        for type_, name, _ in made:
            db.execute(f"DROP {type_} {quote(name)}")
        for one, other in zip(live, shadow, strict=True):
            _swap(db, one, other, there)
        for type_, name, sql in made:
            try:
                db.execute(sql)
            except sqlite3.Error as exc:
                msg = (
                    f"{type_} {name!r} cannot be made on the tables that would take the place of {live[0]!r} ({exc}): "
                    f"drop it first; nothing was changed"
                )
                raise SinkError(msg) from exc
        for table, to in ((live[0], _ASIDE), (shadow[0], live[0]), (_ASIDE, shadow[0])):
            query = f"UPDATE {quote(OWNERS.name)} SET table_name = ? WHERE table_name = ? COLLATE NOCASE"
            db.execute(query, (to, table))
    return Promoted(shadow[0] if is_live else None, tuple(f"{type_} {name}" for type_, name, _ in made), ())


def _swap(db: sqlite3.Connection, one: str, other: str, there: set[str]) -> None:
    renames = ((one, _ASIDE), (other, one), (_ASIDE, other))
    for table, to in renames:
        if table == _ASIDE and one.lower() not in there:
            continue
        if table == _ASIDE or table.lower() in there:
            db.execute(f"ALTER TABLE {quote(table)} RENAME TO {quote(to)}")


def _owner(db: sqlite3.Connection, there: set[str], table: str) -> Run | None:
    """Return whose the table is; None if it is not there. Raise SinkError if it is nobody's."""
    if table.lower() not in there:
        return None
    query = f"SELECT pipeline, run FROM {quote(OWNERS.name)} WHERE table_name = ? COLLATE NOCASE"
    row = db.execute(query, (table,)).fetchone() if OWNERS.name in there else None
    if row is None:
        msg = f"table {table!r} is not windrow's: choose another table"
        raise SinkError(msg)
    return Run(*row)
