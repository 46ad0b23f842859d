"""The interface of a store for the changes of a table, implemented by embedded logs and Kafka topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from windrow.connectors.postgres.cdc.records import ChangePlace, ChangeRecord
from windrow.connectors.postgres.client import Connection


@dataclass(frozen=True)
class FollowState:
    """The state of following a table: the slot, publication and table, and the position of the store.

    `commit` and `number` are the position of the last change in the store, both 0 if there is none after the copy. No
    LSN after `confirmed` has been confirmed to the slot. It is 0 until the table is copied.

    `relation` is the table's oid, `key` the columns that identify its rows, and `published` the version of the
    publication's definition, all as of the copy. They are empty in an older state.
    """

    slot: str
    publication: str
    table: str
    commit: int = 0
    number: int = 0
    confirmed: int = 0
    relation: int = 0
    key: tuple[str, ...] = ()
    published: str = ""

    @staticmethod
    def read(plain: dict[str, Any]) -> FollowState:
        """Return the state of a JSON object; raise TypeError if it is not one of a state."""
        return FollowState(**{**plain, "key": tuple(plain.get("key", ()))})

    @property
    def place(self) -> ChangePlace:
        """The position of the last change in the store."""
        return ChangePlace(self.commit, self.number)


class ChangeStore(Protocol):
    """Durably stores the changes of a table and the state of following it.

    Each change is stored once, even after an interruption. `copy` writes all rows and the state, or nothing that is
    visible to readers. After records were appended, `resume` finds the position of the last one.
    """

    @property
    def name(self) -> str:
        """What messages call the store: `the log FOLDER` or `the topic NAME`."""
        ...

    @property
    def removal(self) -> str:
        """An instruction to remove the store in order to start over, for use in messages."""
        ...

    def opened(self, sql: Connection) -> AbstractContextManager[None]:
        """Keep other processes from following a table into the store for the block.

        Raise SourceUnavailableError if another process does so, and SourceError or InputError if the store cannot be
        written.
        """
        ...

    def state(self) -> FollowState | None:
        """Return the recorded state, or None if no state is recorded.

        Raise InputError if the store contains other data, and SourceError if it is damaged or was replaced.
        """
        ...

    def is_copied(self) -> bool:
        """Whether the store contains the copy of the table."""
        ...

    def note(self, state: FollowState) -> None:
        """Record a state whose changes are already in the store."""
        ...

    def copy(self, rows: Iterator[ChangeRecord], state: FollowState) -> None:
        """Write the rows of the table and record the state."""
        ...

    def resume(self) -> FollowState:
        """Prepare for appending; return the state with the position of the last change in the store.

        Raise SourceError if the store has lost changes.
        """
        ...

    def append(self, records: Sequence[ChangeRecord], state: FollowState) -> None:
        """Append changes. The position in `state` is that of the last change."""
        ...
