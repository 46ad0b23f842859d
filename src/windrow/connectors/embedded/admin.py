"""An embedded database outside of a run: read its results, note a replay, promote one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pyarrow as pa

from windrow.connectors.database import Promoted, Replayed, Snapshot, read_replayed
from windrow.connectors.embedded.file import EmbeddedFile, Session
from windrow.connectors.embedded.tables import last_epoch, owner_of, table_mismatches
from windrow.connectors.ownership import may_promote
from windrow.connectors.sink import Run
from windrow.connectors.tables import ORIGINS, OWNERS, REDRIVES, REPLAYS, Layout, Table, quote, table_names, upsert
from windrow.errors import SinkError


class EmbeddedDatabase:
    """The file of a sink. See `windrow.connectors.database.Database`."""

    def __init__(self, file: EmbeddedFile) -> None:
        self._file = file

    @property
    def place(self) -> str:
        """The path, as it was given."""
        return self._file.path

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Yield a reader of the tables as they are now."""
        with self._reading() as db:
            yield db.snapshot()

    def note(self, replayed: Replayed) -> None:
        """Write down what is replayed into a table."""
        self._note(REPLAYS, replayed.row(), upsert(REPLAYS))

    def note_redrives(self, rows: pa.Table) -> None:
        """Write down copies of dead letters; see `windrow.connectors.database.Database`."""
        self._note(REDRIVES, rows, "ON CONFLICT DO NOTHING")

    def replayed(self, table: str) -> Replayed | None:
        """Return what was replayed into a table by the run that it belongs to; None if it was no replay."""
        with self._reading() as db:
            return _replayed(db, table)

    def stands(self, table: str) -> tuple[Run, int | None] | None:
        """Return whose a result table is and its last epoch; see `windrow.connectors.database.Database`."""
        if not self._file.exists():
            return None
        with self._reading() as db:
            owner = owner_of(db, table)
            return None if owner is None else (owner, last_epoch(db, owner))

    def mismatches(self, layout: Layout) -> list[str]:
        """Return how tables that exist differ from a layout; see `windrow.connectors.database.Database`."""
        with self._reading() as db:
            return [table_mismatch.what for table_mismatch in table_mismatches(db, layout.all)]

    def promote(self, pipeline: str, tables: Sequence[tuple[str, str]]) -> list[Promoted]:
        """Put shadows in the place of the live tables; see `windrow.connectors.database.Database`."""
        self._file.refuse_missing("")
        with closing(self._file), self._file.writing() as db:
            return [_promote(db, pipeline, table_names(live), table_names(shadow)) for live, shadow in tables]

    def _note(self, table: Table, rows: pa.Table, else_: str) -> None:
        with closing(self._file), self._file.writing() as db:
            if not db.has(table.name):
                db.create(table)
            db.insert(table, rows, else_)

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        self._file.refuse_missing("run the pipeline first, or ")
        with self._file.reading() as db:
            yield db


def _replayed(db: Session, table: str) -> Replayed | None:
    owner = owner_of(db, table)
    return None if owner is None else read_replayed(db.snapshot(), table, owner)


_ASIDE = "windrow_promoted_aside"


def _promote(db: Session, pipeline: str, live: Sequence[str], shadow: Sequence[str]) -> Promoted:
    """Swap the names of tables, and their owners. Indexes and triggers stay with the names that they were made on.

    So do views and foreign keys, as these databases find their tables by name.
    """
    there = {name for name in (*live, *shadow) if db.columns(name)}
    owners = (_owner(db, there, live[0]), _owner(db, there, shadow[0]))
    may_promote(pipeline, (live[0], shadow[0]), owners, _replayed(db, shadow[0]))
    made = db.made((*live, *shadow))
    for one in made:
        db.execute(f"DROP {one.kind} {quote(one.name)}")
    for name, other in zip(live, shadow, strict=True):
        _swap(db, name, other, there)
    for one in made:
        try:
            db.execute(one.sql)
        except db.error as exc:
            msg = (
                f"{one.kind} {one.name!r} cannot be made on the tables that would take the place of {live[0]!r} "
                f"({str(exc).partition(chr(10))[0]}): drop it first; nothing was changed"
            )
            raise SinkError(msg) from exc
    for shared in (OWNERS, *([ORIGINS] if db.has(ORIGINS.name) else [])):
        query = f"UPDATE {quote(shared.name)} SET table_name = ? WHERE {db.same.format('table_name', '?')}"
        for table, to in ((live[0], _ASIDE), (shadow[0], live[0]), (_ASIDE, shadow[0])):
            db.execute(query, (to, table))
    return Promoted(shadow[0] if live[0] in there else None, tuple(f"{one.kind} {one.name}" for one in made), ())


def _swap(db: Session, one: str, other: str, there: set[str]) -> None:
    renames = ((one, _ASIDE), (other, one), (_ASIDE, other))
    for table, to in renames:
        if (one if table == _ASIDE else table) in there:
            db.execute(f"ALTER TABLE {quote(table)} RENAME TO {quote(to)}")


def _owner(db: Session, there: set[str], table: str) -> Run | None:
    """Return whose the table is; None if it is not there. Raise SinkError if it is nobody's."""
    if table not in there:
        return None
    owner = owner_of(db, table)
    if owner is None:
        msg = f"table {table!r} is not windrow's: choose another table"
        raise SinkError(msg)
    return owner
