"""The contract of an embedded database: its file, and a session in it, which is one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from windrow.connectors.database import Snapshot
from windrow.connectors.tables import Layout, Table
from windrow.errors import InputError, SinkAddressError


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
    """A transaction in an embedded database: its statements, in the SQL of the database."""

    now: ClassVar[str]
    """The current time in SQL."""
    same: ClassVar[str]
    """The condition that ``{}`` and ``{}`` name the same table: the database ignores the case of A to Z."""
    error: ClassVar[type[Exception]]
    """The class of the errors that `execute` raises."""

    @abstractmethod
    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement, with a value for each ``?``; return its rows."""

    @abstractmethod
    def has(self, table: str) -> bool:
        """Whether there is a table of that name."""

    @abstractmethod
    def columns(self, table: str) -> list[Column]:
        """Return the columns of a table, none without a table; raise SinkError for a view."""

    @abstractmethod
    def types(self, table: Table) -> dict[str, str]:
        """Return the type of each column for a new table."""

    @abstractmethod
    def create(self, table: Table) -> None:
        """Create a table."""

    @abstractmethod
    def alter(self, table: Table, column: str, type_: str) -> str:
        """Return the statements that give a column another type and let it be null, empty if there are none."""

    @abstractmethod
    def relax(self, table: Table, columns: Sequence[str]) -> None:
        """Let columns of a table be null."""

    def unfit(self, tables: Sequence[Table], rows: pa.Table) -> pa.Array | None:  # noqa: ARG002 - for a database that cannot hold all
        """Return why rows do not fit into all tables, null for rows that fit; None if all fit."""
        return None

    @abstractmethod
    def insert(self, table: Table, rows: pa.Table, else_: str = "") -> None:
        """Insert rows; `else_` is the clause for keys that exist."""

    @abstractmethod
    def apply(self, layout: Layout, epoch: int, first: int, changes: pa.Table, *, changelog: bool) -> None:
        """Apply changes of a step to the result table; with `changelog` the changelog has them from `first` on."""

    @abstractmethod
    def dependents(self, tables: Sequence[str]) -> list[Dependent]:
        """Return the objects of users on tables that would prevent or follow a rename, in the order of creation."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return a reader of the tables."""


class EmbeddedFile(ABC):
    """The file of an embedded database; opening it waits at most `busy` seconds for other processes.

    Within `writing` and `reading` the database's errors are raised as SinkError. A relative path is resolved once, so a
    later change of the working directory does not matter.
    """

    system: ClassVar[str]

    def __init__(self, path: str, busy: float) -> None:
        self.path = path
        self.file = Path(path).absolute()
        self.busy = busy

    @abstractmethod
    def writing(self) -> AbstractContextManager[Session]:
        """Open the file, which is created if missing, for a transaction.

        Raise SinkAddressError if no database can be there.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Session]:
        """Open a read-only transaction on a file that exists."""

    @abstractmethod
    def close(self) -> None:
        """Close the file; may be called more than once."""

    def exists(self) -> bool:
        """Whether the file exists."""
        return self.file.is_file()

    def refuse_missing(self, advice: str) -> None:
        """Raise InputError if the file does not exist."""
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
