"""The contract of a database that is written by SQL: its server or file, and a session, which is a transaction."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from windrow.connectors.database import Snapshot
from windrow.connectors.tables import Layout, Table, quote, quote_all, upsert
from windrow.errors import InputError, PipelineError, SinkAddressError, SinkError


class Column(NamedTuple):
    """A column of a table, its type as the database spells it."""

    name: str
    type: str
    in_key: bool
    required: bool


class Dependent(NamedTuple):
    """An index or a trigger that a user has created on a table, with the statement that creates it."""

    kind: str
    name: str
    sql: str


class Session(ABC):
    """A transaction in a database: its statements, in the SQL of the database."""

    now: ClassVar[str]
    """The current time in SQL."""
    same: ClassVar[str] = "{} = {}"
    """The condition that ``{}`` and ``{}`` name the same table; embedded databases ignore the case of A to Z."""
    share: ClassVar[str] = ""
    """The clause of a SELECT that locks a row until the end of the transaction, if other sessions can change it."""
    error: ClassVar[type[Exception]]
    """The class of the errors that `execute` raises."""

    @abstractmethod
    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement, with a value for each ``?``; return its rows."""

    def name(self, table: str) -> str:
        """Return the name of a table for SQL."""
        return quote(table)

    def fold(self, table: str) -> str:
        """Return the name by which the database distinguishes a table from others."""
        return table.lower()

    @abstractmethod
    def has(self, table: str) -> bool:
        """Whether there is a table of that name."""

    @abstractmethod
    def columns(self, table: str) -> list[Column]:
        """Return the columns of a table, none without a table; raise SinkError for a view."""

    @abstractmethod
    def types(self, table: Table) -> dict[str, str]:
        """Return the type of each column for a new table."""

    def as_stored(self, table: Table) -> Table:
        """Return a table with the key that it has in the database."""
        return table

    @abstractmethod
    def create(self, table: Table) -> None:
        """Create a table."""

    @abstractmethod
    def alter(self, table: Table, column: str, type_: str) -> str:
        """Return the statements that give a column another type and let it be null, empty if there are none."""

    @abstractmethod
    def relax(self, table: Table, columns: Sequence[str]) -> None:
        """Let columns of a table be null."""

    def may_relax(self, table: Table) -> bool:  # noqa: ARG002 - for a database with users
        """Whether this user may let columns of a table be null."""
        return True

    def may_delete(self, table: Table) -> bool:  # noqa: ARG002 - the same
        """Whether this user may delete rows of a table."""
        return True

    def require_readable(self, table: str) -> None:  # noqa: ARG002 - the same
        """Raise SinkError if this user may not read a table."""
        return

    def require_writable(self, layout: Layout, existing: Collection[str]) -> None:  # noqa: ARG002 - the same
        """Raise SinkError if this user may not write the existing tables, or create the others."""
        return

    def unfit(self, tables: Sequence[Table], rows: pa.Table) -> pa.Array | None:  # noqa: ARG002 - for a database that cannot hold all
        """Return why rows do not fit into all tables, null for rows that fit; None if all fit."""
        return None

    @abstractmethod
    def insert(self, table: Table, rows: pa.Table, else_: str = "") -> None:
        """Insert rows; `else_` is the clause for keys that exist."""

    def put(self, table: Table, row: Sequence[object]) -> None:
        """Insert a row of a shared table, or replace the row with its key."""
        marks = ", ".join("?" * len(row))
        columns = quote_all(table.columns)
        self.execute(f"INSERT INTO {self.name(table.name)} ({columns}) VALUES ({marks}) {upsert(table)}", row)

    @abstractmethod
    def write_changes(self, layout: Layout, epoch: int, first: int, changes: pa.Table, *, changelog: bool) -> None:
        """Apply the changes of a step, whose first place is `first`, to the result table.

        With `changelog` they are appended to the changelog, too.
        """

    def dependents(self, tables: Sequence[str]) -> list[Dependent]:  # noqa: ARG002 - for databases that rename without them
        """Return the objects of users on tables that would prevent or follow a rename, in the order of creation."""
        return []

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return a reader of the tables."""


class EmbeddedSession(Session):
    """A transaction in the file of an embedded database, which ignores the case of A to Z in names."""

    def put(self, table: Table, row: Sequence[object]) -> None:
        """Insert a row of a shared table, or replace the row with its key; table names are of any spelling."""
        verb, marks = "INSERT OR REPLACE", ", ".join("?" * len(row))
        if table.key == ("table_name",):
            self.execute(f"DELETE FROM {quote(table.name)} WHERE {self.same.format('table_name', '?')}", row[:1])
            verb = "INSERT"
        self.execute(f"{verb} INTO {quote(table.name)} ({quote_all(table.columns)}) VALUES ({marks})", row)


class SqlServer(ABC):
    """A database, as a server or a file. Within its sessions, the database's errors are raised as SinkError."""

    system: ClassVar[str]

    @property
    @abstractmethod
    def place(self) -> str:
        """The location in messages."""

    def opening(self, tables: Sequence[str]) -> AbstractContextManager[Session]:  # noqa: ARG002 - for a database with locks
        """Open a transaction of a run that opens its result tables, and keep other runs from writing them."""
        return self.writing()

    @abstractmethod
    def writing(self) -> AbstractContextManager[Session]:
        """Open a transaction; a database is created if missing. Raise SinkAddressError if that is not possible."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Session]:
        """Open a read-only transaction on a database that exists."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect; may be called more than once."""

    def exists(self) -> bool:
        """Whether the database exists."""
        return True

    def refuse_missing(self, advice: str) -> None:  # noqa: ARG002 - for a file
        """Raise InputError if the database does not exist."""
        return

    def require_writable(self) -> None:
        """Raise SinkError if this user may not write to the database, as far as that is known without a session."""
        return

    @abstractmethod
    def refuse_names(self, layout: Layout) -> None:
        """Raise PipelineError for names of tables and columns that the database cannot have."""


class EmbeddedFile(SqlServer):
    """The file of an embedded database; opening it waits at most `busy` seconds for other processes.

    A relative path is resolved once, so a later change of the working directory does not matter.
    """

    def __init__(self, path: str, busy: float) -> None:
        self.path = path
        self.file = Path(path).absolute()
        self.busy = busy

    @property
    def place(self) -> str:
        """The path, as it was given."""
        return self.path

    def exists(self) -> bool:
        return self.file.is_file()

    def refuse_missing(self, advice: str) -> None:
        if not self.exists():
            msg = f"there is no database {self.path}: {advice}correct the sink's path"
            raise InputError(msg)

    def refuse_path(self) -> Path:
        """Return the file; raise SinkAddressError if no database can be there."""
        file = self.file
        if file.is_dir():
            msg = f"{self.path} is a folder: give the sink the path of a file in it"
            raise SinkAddressError(msg)
        blocking = next((above for above in file.parents if above.exists() and not above.is_dir()), None)
        if blocking is not None:
            msg = f"{blocking} in {self.path} is a file, not a folder: correct the sink's path"
            raise SinkAddressError(msg)
        if not file.parent.is_dir():
            msg = f"the folder {file.parent} of {self.path} does not exist: create it, or correct the sink's path"
            raise SinkAddressError(msg)
        return file

    def require_writable(self) -> None:
        file = self.refuse_path()
        if not all(os.access(path, os.W_OK) for path in (file, file.parent) if path.exists()):
            msg = f"{self.path} cannot be written: give this user write permission on it, and on its folder"
            raise SinkError(msg)

    def refuse_names(self, layout: Layout) -> None:
        """Raise PipelineError for two columns whose names the database does not distinguish."""
        for table in layout.own:
            seen: dict[str, str] = {}
            for name in table.columns:
                quote(name)
                other = seen.setdefault(name.lower(), name)
                if other != name:
                    msg = f"the columns {other!r} and {name!r} are one to {self.system}, which ignores case: rename one"
                    raise PipelineError(msg)
