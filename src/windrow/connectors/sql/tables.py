"""Result tables in a database that is written with SQL: the sink, and access outside of a run."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from windrow.connectors import ownership, tables
from windrow.connectors.database import Condition, Database, Promoted, Replayed, Snapshot, read_replayed
from windrow.connectors.sink import Follows, Run, Sink
from windrow.connectors.sql.session import Column, Session, SqlServer
from windrow.connectors.tables import EPOCHS, OPENERS, ORIGINS, OWNERS, RELAYS, REPLAYS, SHARED, Layout, Table, quote
from windrow.connectors.unfit import late_letters, refused_rows, with_plain_reasons, without_unfit
from windrow.engine.changelog import StepOutput
from windrow.engine.schema import CLOCKS, NO_DEAD
from windrow.errors import SinkError
from windrow.expressions import SinkSpec


class SqlTables(Sink):
    """Result tables and their companions in a database.

    Exactly once: a step and its epoch are written in one transaction, which is on disk when `commit` returns. Neither a
    killed process nor a power failure undoes it, provided that the disk respects flushes. An interrupted transaction is
    rolled back; in a file, the next process that opens the file does this.
    """

    needs_rows = True
    is_even = True

    def __init__(self, server: SqlServer, *specs: SinkSpec) -> None:
        self._server = server
        self._tables = [SqlTable(spec) for spec in specs]
        for table in self._tables:
            server.refuse_names(table.layout)
        self._pipeline = specs[0].pipeline
        self._is_open = False
        self._run: Run | None = None
        self._id = str(uuid.uuid4())

    def open(self, run: Run, follows: Follows | None = None) -> int | None:
        self.close()
        try:
            with self._server.opening([table.name for table in self._tables]) as db:
                # all tables are checked before one is changed
                found = self._find(db, run)
                if self._run == run:
                    ownership.still_opened(self._id, _opener(db, run), self._tables[0].name)
                handed_over = [
                    ownership.authorize(run, table.layout.own, there, follows, table.origin)
                    for table, there in zip(self._tables, found, strict=True)
                ]
                for table in self._tables:
                    table.create(db)
                    table.claim(db, run)
                _note_left(db, run, [table.name for table in self._tables])
                if any(handed_over) and follows is not None:
                    _fence(db, run, follows.epoch)
                db.put(OPENERS, (run.pipeline, run.id, self._id))
                last = last_epoch(db, run)
        except BaseException:
            self.close()
            raise
        self._is_open, self._run = True, run
        return last

    def preflight(self, run: Run, follows: Follows | None = None) -> None:
        self._server.require_writable()
        if not self._server.exists():
            return
        with self._server.reading() as db:
            for table, found in zip(self._tables, self._find(db, run), strict=True):
                ownership.authorize(run, table.layout.own, found, follows, table.origin)
                table.check(db)

    def journal(self) -> pa.Table:
        table = self._tables[0].layout.clocks
        if not self._server.exists():
            return CLOCKS.empty_table()
        with self._server.reading() as db:
            if not db.has(table.name):
                return CLOCKS.empty_table()
            db.require_readable(table.name)
            order = ("epoch", "partition", "offset", "reason")
            rows = [part.select(CLOCKS.names).cast(CLOCKS) for part in db.snapshot().rows(table, order)]
        return pa.concat_tables([CLOCKS.empty_table(), *rows])

    def clear(self) -> None:
        if not self._server.exists():
            return
        self.close()
        self._run = None
        try:
            with self._server.opening([table.name for table in self._tables]) as db:
                found = self._find(db, Run(self._pipeline, ""))
                for table, there in zip(self._tables, found, strict=True):
                    ownership.may_clear(self._pipeline, table.name, there)
                for table, there in zip(self._tables, found, strict=True):
                    table.drop(db, there.owner)
        finally:
            self.close()

    def commit(self, epoch: int, *outputs: StepOutput) -> list[pa.Table]:
        if not self._is_open or self._run is None:
            msg = "the sink is not open: call open() before commit()"
            raise SinkError(msg)
        if not self._server.exists():
            msg = (
                f"{self._server.place} was removed while a run was writing to it: "
                f"restore it, or start over with --fresh"
            )
            raise SinkError(msg)
        try:
            return self._commit(self._run, epoch, outputs)
        except Exception as exc:
            if self._server.reason(exc) is None:
                raise
            with self._server.writing() as db:
                for table in self._tables:
                    # if a user has altered a column since the run began, that is no fault of the rows
                    table.refuse_mismatches(db)
            fitting = [self._without_refused(*step, epoch) for step in zip(self._tables, outputs, strict=True)]
            if not any(refused.num_rows for _, refused in fitting):
                raise
        self._commit(self._run, epoch, [output for output, _ in fitting])
        return [refused for _, refused in fitting]

    def _commit(self, run: Run, epoch: int, outputs: Sequence[StepOutput]) -> list[pa.Table]:
        """Write a step in one transaction; return the dead letters of rows that do not fit into the tables."""
        with self._server.writing() as db:
            for table in self._tables:
                ownership.still_owned(run, owner_of(db, table.name, db.share), table.name)
            ownership.still_opened(self._id, _opener(db, run), self._tables[0].name)
            fitting = [table.fit(db, output) for table, output in zip(self._tables, outputs, strict=True)]
            refused = [dead for _, dead in fitting]
            if ownership.is_new(epoch, last_epoch(db, run), self._tables[0].name):
                _fence(db, run, epoch)
                for table, (output, _) in zip(self._tables, fitting, strict=True):
                    table.write(db, epoch, output)
        return refused

    def _without_refused(self, table: SqlTable, output: StepOutput, epoch: int) -> tuple[StepOutput, pa.Table]:
        """Return a step without the rows that cannot be written or do not fit, and the dead letters of these rows."""

        def refused(write: Callable[[Session, pa.Table], None], rows: pa.Table) -> pa.Array:
            def attempt(some: pa.Table) -> None:
                transaction = self._server.writing_anew() if some.num_rows == 1 else self._server.writing()
                with suppress(_RolledBackError), transaction as db:
                    write(db, some)
                    raise _RolledBackError

            return refused_rows(attempt, rows, self._server.reason)

        def stored(where: Sequence[Condition]) -> pa.Table:
            try:
                with self._server.writing() as db:
                    return table.stored(db, where)
            except Exception as exc:
                if self._server.reason(exc) is None:
                    raise
                # a key that the database cannot hold
                return table.layout.result.schema.empty_table()

        reasons = refused(lambda db, changes: table.write_rows(db, epoch, changes), output.changes)
        with self._server.writing() as db:
            unfit = table.unfit(db, output)
        reasons = reasons if unfit is None else pc.coalesce(unfit, reasons)
        late = late_letters(output.late, refused(table.write_late, output.late))
        output, of_changes = without_unfit(table.layout.result, output, reasons, stored, table.origin.stream)
        letters = pa.concat_tables([of_changes, late.letters])
        dead = pa.concat_tables([output.dead, late.letters])
        dead = with_plain_reasons(dead, refused(table.write_dead, dead).is_valid())
        return replace(output, late=late.rows, dead=dead), letters

    def close(self) -> None:
        self._is_open = False
        self._server.close()

    def _find(self, db: Session, run: Run) -> list[ownership.FoundTables]:
        own = [table.name for table in self._tables]
        return [table.find(db, run, own) for table in self._tables]


class _RolledBackError(Exception):
    """Raised to roll a transaction back."""


class SqlTable:
    """A result table and its companions, accessed through a session."""

    def __init__(self, spec: SinkSpec) -> None:
        self.name = spec.sink.table
        self.layout = tables.layout(spec)
        self._changelog = spec.sink.changelog
        self.origin = ownership.Origin.of(spec)

    def find(self, db: Session, run: Run, own: Sequence[str]) -> ownership.FoundTables:
        """Describe the existing tables and their owners. `own` lists the run's result tables."""
        present = [table.name for table in self.layout.own if db.columns(table.name)]
        outbox = self.layout.outbox
        readable = [*present, *([outbox.name] if outbox is not None and db.has(outbox.name) else [])]
        for name in readable:
            db.require_readable(name)
        filled = [name for name in readable if db.execute(f"SELECT 1 FROM {db.name(name)} LIMIT 1")]
        owner = owner_of(db, self.name)
        return ownership.FoundTables(
            owner=owner,
            owner_last=last_epoch(db, owner) if owner is not None else None,
            last=last_epoch(db, run),
            elsewhere=self._elsewhere(db, run, own),
            present=present,
            filled=filled,
            origin=_origin(db, self.name),
        )

    def create(self, db: Session) -> None:
        """Check the existing tables, and create the missing ones."""
        existing, dead = self.check(db), self.layout.dead
        if columns := ownership.relaxable(dead, _required(db.columns(dead.name))):
            db.relax(dead, columns)
        for table in self.layout.all:
            if table.name not in existing:
                db.create(table)

    def claim(self, db: Session, run: Run) -> None:
        """Record the owner of the table and its origin.

        On a server, this waits for a commit in progress by another process of the run.
        """
        owner = (self.name, run.pipeline, run.id)
        db.put(OWNERS, owner)
        db.put(ORIGINS, (*owner, self.origin.stream, self.origin.changelog, None))

    def drop(self, db: Session, owner: Run | None) -> None:
        """Drop the tables, and delete the epochs of the run that wrote them."""
        outbox = self.layout.outbox
        for table in (*self.layout.own, *(() if outbox is None else (outbox,))):
            if db.has(table.name):
                db.execute(f"DROP TABLE {db.name(table.name)}")
        if outbox is not None and db.has(RELAYS.name):
            db.execute(f"DELETE FROM {db.name(RELAYS.name)} WHERE outbox = ?", (outbox.name,))
        for shared in SHARED if owner is not None else ():
            if owner is not None and db.has(shared.name):
                query = f"DELETE FROM {db.name(shared.name)} WHERE pipeline = ? AND run = ?"
                db.execute(query, (owner.pipeline, owner.id))

    def fit(self, db: Session, output: StepOutput) -> tuple[StepOutput, pa.Table]:
        """Return a step without the rows that do not fit into the tables, and the dead letters of these rows."""
        reasons = self.unfit(db, output)
        if reasons is None:
            return output, NO_DEAD
        return without_unfit(self.layout.result, output, reasons, partial(self.stored, db), self.origin.stream)

    def unfit(self, db: Session, output: StepOutput) -> pa.Array | None:
        """Return the reason why the row of each change does not fit into the tables; None if all rows fit."""
        return db.unfit([self.layout.result, *([self.layout.changes] if self._changelog else [])], output.changes)

    def stored(self, db: Session, where: Sequence[Condition]) -> pa.Table:
        """Return the rows of the result table that satisfy all conditions."""
        return db.snapshot().stored(self.layout.result, where)

    def write(self, db: Session, epoch: int, output: StepOutput) -> None:
        """Write a step to the tables."""
        self.write_late(db, output.late)
        self.write_dead(db, output.dead)
        db.insert(self.layout.clocks, tables.of_epoch(epoch, output.clocks))
        self._write_changes(db, epoch, output.changes)

    def write_late(self, db: Session, late: pa.Table) -> None:
        """Write rows of the late output."""
        db.insert(self.layout.late, late)

    def write_dead(self, db: Session, dead: pa.Table) -> None:
        """Write dead letters."""
        db.insert(self.layout.dead, tables.storable_dead(dead))

    def write_rows(self, db: Session, epoch: int, changes: pa.Table) -> None:
        """Write the rows of changes, including those that the changes delete, as if they were inserted."""
        at = changes.schema.get_field_index("op")
        inserts = pa.repeat(pa.scalar("insert", changes.schema.field(at).type), changes.num_rows)
        self._write_changes(db, epoch, changes.set_column(at, changes.schema.field(at), inserts))

    def _write_changes(self, db: Session, epoch: int, changes: pa.Table) -> None:
        for first, piece in tables.pieces(changes):
            db.write_changes(self.layout, epoch, first, piece, changelog=self._changelog)

    def check(self, db: Session) -> set[str]:
        """Return the names of existing tables; raise SinkError if they have other columns or may not be written."""
        self.refuse_mismatches(db)
        existing = {table.name for table in self.layout.all if db.has(table.name)}
        db.require_writable(self.layout, existing)
        return existing

    def refuse_mismatches(self, db: Session) -> None:
        """Raise SinkError if existing tables have other columns."""
        ownership.refuse(table_mismatches(db, self.layout.all))

    def _elsewhere(self, db: Session, run: Run, own: Sequence[str]) -> str | None:
        if not db.has(OWNERS.name):
            return None
        query = f"SELECT table_name FROM {db.name(OWNERS.name)} WHERE pipeline = ? AND run = ? ORDER BY table_name"
        names = (str(name) for (name,) in db.execute(query, (run.pipeline, run.id)))
        known = set(map(db.fold, own))
        return next((name for name in names if db.fold(name) not in known), None)


def owner_of(db: Session, table: str, lock: str = "") -> Run | None:
    """Return the run that owns a result table, in any spelling of its name; None if there is no owner.

    `lock` is the SQL clause that locks the owner's row.
    """
    if not db.has(OWNERS.name):
        return None
    query = f"SELECT pipeline, run FROM {db.name(OWNERS.name)} WHERE {db.same.format('table_name', '?')}{lock}"
    return next((Run(*row) for row in db.execute(query, (table,))), None)


def _origin(db: Session, table: str) -> ownership.Origin | None:
    """Return the origin of a result table, in any spelling of its name; None if it was not recorded."""
    if not db.has(ORIGINS.name):
        return None
    same = db.same.format("table_name", "?")
    query = f"SELECT stream, changelog, left_after FROM {db.name(ORIGINS.name)} WHERE {same}"
    rows = db.execute(query, (table,))
    return next((ownership.Origin(stream, bool(changelog), left_after) for stream, changelog, left_after in rows), None)


def _note_left(db: Session, run: Run, kept: Sequence[str]) -> None:
    """Record the epoch after which a run continues without tables that it wrote before."""
    is_left = " AND NOT ".join(("pipeline = ? AND run = ?", *(db.same.format("table_name", "?") for _ in kept)))
    last = last_epoch(db, run)
    given = (-1 if last is None else last, run.pipeline, run.id, *kept)
    origins = db.name(ORIGINS.name)
    db.execute(f"UPDATE {origins} SET left_after = ? WHERE left_after IS NULL AND {is_left}", given)
    db.execute(
        f"INSERT INTO {origins} ({tables.quote_all(ORIGINS.columns)}) SELECT table_name, pipeline, run, '', TRUE, ? "
        f"FROM {db.name(OWNERS.name)} WHERE table_name NOT IN (SELECT table_name FROM {origins}) AND {is_left}",
        given,
    )


def last_epoch(db: Session, run: Run) -> int | None:
    """Return the last epoch that a run has committed, or None."""
    if not db.has(EPOCHS.name):
        return None
    query = f"SELECT max(epoch) FROM {db.name(EPOCHS.name)} WHERE pipeline = ? AND run = ?"
    [(last,)] = db.execute(query, (run.pipeline, run.id))
    return None if last is None else int(last)


def table_mismatches(db: Session, expected: Sequence[Table]) -> list[ownership.SchemaMismatch]:
    """Return the differences between existing tables and the expected ones."""
    found: list[ownership.SchemaMismatch] = []
    for table in expected:
        if columns := db.columns(table.name):
            key = [column.name for column in columns if column.in_key]
            types = {column.name: column.type for column in columns}
            required = _required(columns)
            if (relaxed := ownership.relaxable(table, required)) and db.may_relax(table):
                required -= set(relaxed)
            filled = {column.name for column in columns if column.is_filled}
            existing = ownership.Existing(types, key, required, filled, db.alter)
            found += ownership.schema_mismatches(db.as_stored(table), db.types(table), existing)
    return found


def _required(columns: Sequence[Column]) -> set[str]:
    return {column.name for column in columns if column.required}


def _fence(db: Session, run: Run, epoch: int) -> None:
    """Record an epoch in the transaction that commits it, and occasionally delete old epochs.

    If the user may not delete them, all epochs are kept.
    """
    db.execute(
        f"INSERT INTO {db.name(EPOCHS.name)} ({tables.quote_all(EPOCHS.columns)}) VALUES (?, ?, ?, {db.now})",
        (run.pipeline, run.id, epoch),
    )
    if (last := ownership.last_to_forget(epoch)) is not None and db.may_delete(EPOCHS):
        query = f"DELETE FROM {db.name(EPOCHS.name)} WHERE pipeline = ? AND run = ? AND epoch <= ?"
        db.execute(query, (run.pipeline, run.id, last))


def _opener(db: Session, run: Run) -> str | None:
    """Return the id of the sink that opened a run's tables last."""
    query = f"SELECT opener FROM {db.name(OPENERS.name)} WHERE pipeline = ? AND run = ?"
    rows = db.execute(query, (run.pipeline, run.id)) if db.has(OPENERS.name) else []
    return str(rows[0][0]) if rows else None


class SqlDatabase(Database):
    """The database of a sink, accessed outside of a run."""

    def __init__(self, server: SqlServer) -> None:
        self._server = server

    @property
    def place(self) -> str:
        return self._server.place

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with self._reading() as db:
            yield db.snapshot()

    def note(self, replayed: Replayed) -> None:
        self._note(REPLAYS, replayed.row(), tables.upsert(REPLAYS))

    def note_redrives(self, rows: pa.Table) -> None:
        self._note(tables.REDRIVES, rows, "ON CONFLICT DO NOTHING")

    def replayed(self, table: str) -> Replayed | None:
        with self._reading() as db:
            return replayed_into(db, table)

    def stands(self, table: str) -> tuple[Run, int | None] | None:
        if not self._server.exists():
            return None
        with self._reading() as db:
            owner = owner_of(db, table)
            return None if owner is None else (owner, last_epoch(db, owner))

    def mismatches(self, layout: Layout) -> list[str]:
        with self._reading() as db:
            return [mismatch.what for mismatch in table_mismatches(db, layout.all)]

    def promote(self, pipeline: str, tables: Sequence[tuple[str, str]]) -> list[Promoted]:
        self._server.refuse_missing("")
        with closing(self._server), self._server.writing() as db:
            return [_promote(db, pipeline, live, shadow) for live, shadow in tables]

    def _note(self, table: Table, rows: pa.Table, else_: str) -> None:
        with closing(self._server), self._server.writing() as db:
            if not db.has(table.name):
                db.create(table)
            db.insert(table, rows, else_)

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        self._server.refuse_missing("run the pipeline first, or ")
        with self._server.reading() as db:
            yield db


def replayed_into(db: Session, table: str) -> Replayed | None:
    """Return the replay that wrote a table, or None if the run that owns the table was not a replay."""
    owner = owner_of(db, table)
    return None if owner is None else read_replayed(db.snapshot(), table, owner)


ASIDE = "windrow_promoted_aside"


def _promote(db: Session, pipeline: str, live_table: str, shadow_table: str) -> Promoted:
    """Swap the names and owners of live and shadow tables.

    Indexes, triggers, views and foreign keys stay with the table names for which they were created, as these databases
    find tables by name.
    """
    live, shadow = tables.table_names(live_table), tables.table_names(shadow_table)
    there = {name for name in (*live, *shadow) if db.columns(name)}
    require_promotable(db, pipeline, live[0], shadow[0], there)
    dependents = db.dependents((*live, *shadow))
    for dependent in dependents:
        db.execute(f"DROP {dependent.kind} {quote(dependent.name)}")
    for pair in zip(live, shadow, strict=True):
        for table, to in renames(*pair):
            if (pair[0] if table == ASIDE else table) in there:
                db.execute(f"ALTER TABLE {quote(table)} RENAME TO {quote(to)}")
    for dependent in dependents:
        try:
            db.execute(dependent.sql)
        except db.error as exc:
            msg = (
                f"{dependent.kind} {dependent.name!r} cannot be created on the tables that would replace "
                f"{live[0]!r} ({str(exc).partition(chr(10))[0]}): drop it first; nothing was changed"
            )
            raise SinkError(msg) from exc
    swap_owners(db, live[0], shadow[0])
    carried = tuple(f"{dependent.kind} {dependent.name}" for dependent in dependents)
    return Promoted(shadow[0] if live[0] in there else None, carried, ())


def renames(live: str, shadow: str) -> tuple[tuple[str, str], ...]:
    """Return the (from, to) pairs of the three renames that swap two names."""
    return (live, ASIDE), (shadow, live), (ASIDE, shadow)


def swap_owners(db: Session, live: str, shadow: str) -> None:
    """Swap the owners and origins of two result tables."""
    for shared in (OWNERS, *([ORIGINS] if db.has(ORIGINS.name) else [])):
        query = f"UPDATE {db.name(shared.name)} SET table_name = ? WHERE {db.same.format('table_name', '?')}"
        for table, to in renames(live, shadow):
            db.execute(query, (to, table))


def require_promotable(db: Session, pipeline: str, live: str, shadow: str, there: Collection[str]) -> None:
    """Raise SinkError or InputError unless a shadow may replace a live table. `there` has the existing tables."""
    owners = [owner_of(db, table) if table in there else None for table in (live, shadow)]
    for table, owner in zip((live, shadow), owners, strict=True):
        if table in there and owner is None:
            msg = f"table {table!r} is not windrow's: choose another table"
            raise SinkError(msg)
    ownership.may_promote(pipeline, (live, shadow), (owners[0], owners[1]), replayed_into(db, shadow))
