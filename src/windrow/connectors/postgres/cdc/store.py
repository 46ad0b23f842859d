"""The contract of a store for the changes of a table: an embedded log, or a Kafka topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from windrow.connectors.postgres.cdc.records import ChangePlace, ChangeRecord
from windrow.connectors.postgres.client import Connection


@dataclass(frozen=True)
class FollowState:
    """The state of following a table: slot, publication and table, and the position of the store.

    The last change in the store is at `commit` and `number`, both 0 if it has none after the copy. No LSN after
    `confirmed` was confirmed to the slot; it is 0 until the table is copied.
    """

    slot: str
    publication: str
    table: str
    commit: int = 0
    number: int = 0
    confirmed: int = 0

    @property
    def place(self) -> ChangePlace:
        """The position of the last change."""
        return ChangePlace(self.commit, self.number)


class ChangeStore(Protocol):
    """Keeps the changes of a table and the state of following it, both durably.

    Each change is in it once, whatever is interrupted: `copy` writes all rows and the state, or nothing that a reader
    sees; after `append` of records, `resume` finds the place of the last of them.
    """

    @property
    def name(self) -> str:
        """The name in messages: `the log FOLDER`, `the topic NAME`."""
        ...

    @property
    def removal(self) -> str:
        """What to remove to start over, as an imperative."""
        ...

    def opened(self, sql: Connection) -> AbstractContextManager[None]:
        """Keep other processes from following into the store; raise SourceUnavailableError if one does.

        Raise SourceError or InputError for a store that cannot be written.
        """
        ...

    def state(self) -> FollowState | None:
        """Return the recorded state; None if there is none. Raise InputError if the store has other data.

        Raise SourceError if it is damaged, or was replaced.
        """
        ...

    def is_copied(self) -> bool:
        """Whether the store has the copy of the table."""
        ...

    def note(self, state: FollowState) -> None:
        """Record a state, whose changes are in the store."""
        ...

    def copy(self, rows: Iterator[ChangeRecord], state: FollowState) -> None:
        """Write the rows of the table, and record the state."""
        ...

    def resume(self) -> FollowState:
        """Prepare to append; return the state with the place of the last change in the store.

        Raise SourceError for a store that has lost changes.
        """
        ...

    def append(self, records: Sequence[ChangeRecord], state: FollowState) -> None:
        """Append changes; the last is at the place of `state`."""
        ...
