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


class Made(NamedTuple):
    """An index or a trigger that a user has created on a table, with the statement that creates it."""

    kind: str
    name: str
    sql: str


class Session(ABC):
    """A transaction in an embedded database: its statements, and what SQL has in different words there."""

    now: ClassVar[str]
    """The time of now, in SQL."""
    same: ClassVar[str]
    """Whether two names of tables, ``{}`` and ``{}``, are one to the database: it ignores the case of A to Z alone."""
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
        """Return the type of each column that a table is made with."""

    @abstractmethod
    def create(self, table: Table) -> None:
        """Create a table."""

    @abstractmethod
    def alter(self, table: Table, column: str, type_: str) -> str:
        """Write the statements that give a column another type and let it be null, empty if there are none."""

    @abstractmethod
    def relax(self, table: Table, columns: Sequence[str]) -> None:
        """Let columns of a table be null."""

    def unfit(self, tables: Sequence[Table], rows: pa.Table) -> pa.Array | None:  # noqa: ARG002 - of a database that holds all
        """Return why rows cannot be in all tables, null of those that can; None if all can."""
        return None

    @abstractmethod
    def insert(self, table: Table, rows: pa.Table, else_: str = "") -> None:
        """Insert rows; `else_` is the clause that says what is done where a key is there."""

    @abstractmethod
    def apply(self, layout: Layout, epoch: int, first: int, changes: pa.Table, *, changelog: bool) -> None:
        """Apply changes of a step to the result table; with `changelog` they are in it from the place `first` on."""

    @abstractmethod
    def made(self, tables: Sequence[str]) -> list[Made]:
        """Return what users have made on tables and would hold up or follow a new name, in the order of creation."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return a reader of the tables."""


class EmbeddedFile(ABC):
    """The file of an embedded database; another process that holds it is waited for `busy` seconds.

    Within `writing` and `reading` the database's errors are raised as SinkError. A relative path is one of the folder
    that this process works in now, and stays that file if it works in another one later.
    """

    system: ClassVar[str]

    def __init__(self, path: str, busy: float) -> None:
        self.path = path
        self.file = Path(path).absolute()
        self.busy = busy

    @abstractmethod
    def writing(self) -> AbstractContextManager[Session]:
        """Open the file, which is made if need be, and write all that is within, or nothing.

        Raise SinkAddressError if no database can be there.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Session]:
        """Open a read-only transaction on a file that exists."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the file; more than once does no harm."""

    def exists(self) -> bool:
        """Whether the file is there."""
        return self.file.is_file()

    def refuse_missing(self, advice: str) -> None:
        """Raise InputError if the file is not there."""
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
