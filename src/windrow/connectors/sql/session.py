"""The interface of a database that is written with SQL: its server or file, and its transactions."""

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
from windrow.connectors.unfit import write_reason
from windrow.errors import InputError, PipelineError, SinkAddressError, SinkError


class Column(NamedTuple):
    """A column of a table, with its type as the database spells it."""

    name: str
    type: str
    in_key: bool
    required: bool
    is_filled: bool
    """Whether the database has a value for it if none is given: a default, or an expression."""


class Dependent(NamedTuple):
    """An index or trigger that a user has created on a table, with the statement to recreate it."""

    kind: str
    name: str
    sql: str


class Session(ABC):
    """A transaction in a database. Statements are in the SQL dialect of the database."""

    now: ClassVar[str]
    """The SQL expression for the current time."""
    same: ClassVar[str] = "{} = {}"
    """The SQL condition that two names refer to the same table. Embedded databases ignore the case of A to Z."""
    share: ClassVar[str] = ""
    """The clause of a SELECT that locks a row until the end of the transaction, if other sessions can change it."""
    error: ClassVar[type[Exception]]
    """The class of the errors that `execute` raises."""

    @abstractmethod
    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement with a value for each ``?``, and return its rows."""

    def name(self, table: str) -> str:
        """Return the name of a table as written in SQL."""
        return quote(table)

    def fold(self, table: str) -> str:
        """Normalize a table's name, so that two spellings of the same table become equal."""
        return table.lower()

    @abstractmethod
    def has(self, table: str) -> bool:
        """Whether a table of this name exists."""

    @abstractmethod
    def columns(self, table: str) -> list[Column]:
        """Return the columns of a table, empty if it does not exist; raise SinkError if it is a view."""

    @abstractmethod
    def types(self, table: Table) -> dict[str, str]:
        """Map each column to its type in a new table."""

    def as_stored(self, table: Table) -> Table:
        """Return a table with the primary key that it has in the database."""
        return table

    @abstractmethod
    def create(self, table: Table) -> None:
        """Create a table."""

    @abstractmethod
    def alter(self, table: Table, column: str, type_: str) -> str:
        """Return the statements that change a column's type, and make it nullable if it should be; may be empty."""

    @abstractmethod
    def relax(self, table: Table, columns: Sequence[str]) -> None:
        """Make columns of a table nullable."""

    def may_relax(self, table: Table) -> bool:  # noqa: ARG002 - for a database with users
        """Whether this user may make columns of a table nullable."""
        return True

    def may_delete(self, table: Table) -> bool:  # noqa: ARG002 - the same
        """Whether this user may delete rows of a table."""
        return True

    def require_readable(self, table: str) -> None:  # noqa: ARG002 - the same
        """Raise SinkError if this user may not read a table."""
        return

    def require_writable(self, layout: Layout, existing: Collection[str]) -> None:  # noqa: ARG002 - the same
        """Raise SinkError if this user may not write to the existing tables or may not create the missing ones."""
        return

    def unfit(self, tables: Sequence[Table], rows: pa.Table) -> pa.Array | None:  # noqa: ARG002 - for a database that cannot hold all
        """Return the reason why each row does not fit into all tables, null for rows that fit; None if all rows fit."""
        return None

    @abstractmethod
    def insert(self, table: Table, rows: pa.Table, else_: str = "") -> None:
        """Insert rows into a table. `else_` is the SQL clause that handles existing keys."""

    def put(self, table: Table, row: Sequence[object]) -> None:
        """Insert a row into a shared table, replacing the row with the same key, if any."""
        marks = ", ".join("?" * len(row))
        columns = quote_all(table.columns)
        self.execute(f"INSERT INTO {self.name(table.name)} ({columns}) VALUES ({marks}) {upsert(table)}", row)

    @abstractmethod
    def write_changes(self, layout: Layout, epoch: int, first: int, changes: pa.Table, *, changelog: bool) -> None:
        """Apply changes of a step to the result table and, with `changelog`, append them to the changelog.

        `first` is the position of the first of these changes within the step. The error for a row that a table refuses
        is raised even if a later change of the step replaces the row, since another step may end before that change.
        """

    def dependents(self, tables: Sequence[str]) -> list[Dependent]:  # noqa: ARG002 - for databases that rename without them
        """Return the users' objects on tables that would prevent a rename or follow it, in order of creation."""
        return []

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return a snapshot that reads the tables within this transaction."""


class EmbeddedSession(Session):
    """A transaction in the file of an embedded database, which ignores the case of A to Z in table names."""

    def put(self, table: Table, row: Sequence[object]) -> None:
        """Insert a row into a shared table, replacing the row with the same key, in any spelling of a table's name."""
        verb, marks = "INSERT OR REPLACE", ", ".join("?" * len(row))
        if table.key == ("table_name",):
            self.execute(f"DELETE FROM {quote(table.name)} WHERE {self.same.format('table_name', '?')}", row[:1])
            verb = "INSERT"
        self.execute(f"{verb} INTO {quote(table.name)} ({quote_all(table.columns)}) VALUES ({marks})", row)


class SqlServer(ABC):
    """A database, either a server or a file. Within its sessions, errors of the database are raised as SinkError."""

    system: ClassVar[str]
    error: ClassVar[type[Exception]]
    """The class of the database's own errors."""

    @property
    @abstractmethod
    def place(self) -> str:
        """The location of the database, for messages."""

    def opening(self, tables: Sequence[str]) -> AbstractContextManager[Session]:  # noqa: ARG002 - for a database with locks
        """Open the transaction in which a run opens its result tables; other runs cannot write to them from then on."""
        return self.writing()

    @abstractmethod
    def writing(self) -> AbstractContextManager[Session]:
        """Open a transaction; create a missing database. Raise SinkAddressError if that is not possible."""

    def writing_anew(self) -> AbstractContextManager[Session]:
        """Open a transaction as `writing` does, in a new connection."""
        return self.writing()

    @abstractmethod
    def reading(self) -> AbstractContextManager[Session]:
        """Open a read-only transaction in an existing database."""

    @abstractmethod
    def refusal(self, error: Exception) -> str | None:
        """Return what the database says of a row that it refuses for its values; None for any other of its errors.

        Whether it refuses the row must not depend on other rows, on other sessions or on the machine.
        """

    def reason(self, error: Exception) -> str | None:
        """Return the reason of the dead letter for a row that cannot be written; None if no row causes the error."""
        cause = error.__cause__ if isinstance(error, SinkError) else error
        if isinstance(cause, self.error):
            said = self.refusal(cause)
            return None if said is None else f"refused: {self.system}: {said}"
        return write_reason(error)

    @abstractmethod
    def close(self) -> None:
        """Disconnect. May be called more than once."""

    def exists(self) -> bool:
        """Whether the database exists."""
        return True

    def refuse_missing(self, advice: str) -> None:  # noqa: ARG002 - for a file
        """Raise InputError if the database does not exist."""
        return

    def require_writable(self) -> None:
        """Raise SinkError if this user may not write to the database, as far as a check without a session can tell."""
        return

    @abstractmethod
    def refuse_names(self, layout: Layout) -> None:
        """Raise PipelineError for names of tables or columns that the database does not support."""


class EmbeddedFile(SqlServer):
    """The file of an embedded database. Opening it waits at most `busy` seconds for other processes.

    A relative path is resolved only once, so changing the working directory later has no effect.
    """

    def __init__(self, path: str, busy: float) -> None:
        self.path = path
        self.file = Path(path).absolute()
        self.busy = busy

    @property
    def place(self) -> str:
        """The path as the user wrote it."""
        return self.path

    def exists(self) -> bool:
        return self.file.is_file()

    def refuse_missing(self, advice: str) -> None:
        if not self.exists():
            msg = f"there is no database {self.path}: {advice}correct the sink's path"
            raise InputError(msg)

    def refuse_path(self) -> Path:
        """Return the absolute path; raise SinkAddressError if there can be no database at that path."""
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
        """Raise PipelineError for two columns whose names differ only in case, which the database ignores."""
        for table in layout.own:
            seen: dict[str, str] = {}
            for name in table.columns:
                quote(name)
                other = seen.setdefault(name.lower(), name)
                if other != name:
                    msg = (
                        f"the columns {other!r} and {name!r} are the same to {self.system}, "
                        f"which ignores case: rename one"
                    )
                    raise PipelineError(msg)
