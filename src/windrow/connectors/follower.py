"""The interface of a follower, which appends the changes of another system to the log of its source.

Everything else reads only the log, so a replay does not need the system. `FeedFollower` is the loop of all followers of
systems that send their changes. The system is a `Feed`, and the log a `FollowStore`. The log contains each change
exactly once, wherever a crash occurs:

- Changes are first appended durably, then their position is recorded, and only then is it acknowledged, which allows
  the system to forget them. Changes that arrive within 20 ms are appended together.
- After a crash, the system sends all changes again that were not acknowledged. Those that were already appended are
  skipped, based on the place of the last change in the log. A system that does not number its changes has no places;
  after a crash, its last changes can be in the log twice.
- Only one process at a time follows a system into a log.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Generic, Protocol, Self, TypeVar

GATHER_SECONDS = 0.02
"""Minimum seconds between writes, so that each write covers many changes."""
ACKNOWLEDGE_SECONDS = 1.0
_WAIT_SECONDS = 0.2
_BUFFER_RECORDS = 5_000

Place = tuple[int, ...]
"""The place of a change in the order of its system. Later changes have greater places of the same length."""


@dataclass(frozen=True)
class SlotLag:
    """How far a log is behind the table that it follows.

    `bytes` is the amount of write-ahead log (WAL) retained by the replication slot `slot` that is not in the log yet.
    The log contains everything that was committed at least `seconds` ago. Both are None if the database does not
    answer.
    """

    slot: str
    bytes: int | None
    seconds: float | None


@dataclass(frozen=True)
class ReadColumns:
    """The columns of a table that a pipeline reads, each with all of its names; `keys` are in keys of its tables."""

    names: tuple[tuple[str, ...], ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()

    def __add__(self, other: ReadColumns) -> ReadColumns:
        return ReadColumns((*self.names, *other.names), (*self.keys, *other.keys))


class Follower(Protocol):
    """Appends the changes of a file or a table to the log of its source."""

    @property
    def lag(self) -> SlotLag | None:
        """The current lag behind the table; None for a file."""
        ...

    def preflight(self) -> None:
        """Raise InputError or SourceError if the file or table cannot be followed. Nothing is appended."""
        ...

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that `recopy` copies again."""
        return ()

    def update(self) -> None:
        """Append all changes made so far; raise InputError or SourceError if that fails."""
        ...

    def recopy(self) -> None:
        """Append the differences between the log and the tables, then all later changes; raise errors as `update`."""
        self.update()

    def follow(self, stop: Event, warn: Callable[[str], None]) -> None:
        """Append changes as they occur until `stop` is set; call `warn` for problems that may resolve themselves.

        Raise SourceError for other problems. Its attribute `passes` is True if the error may be transient.
        """
        ...


class FollowedRecord(Protocol):
    """A change as it is appended to a log. A change that is sent again has the same place and the same bytes."""

    @property
    def place(self) -> Place | None:
        """The place of the change; None if the system does not number its changes."""
        ...

    @property
    def line(self) -> str:
        """The record in an embedded log, with its newline."""
        ...


class FollowState(Protocol):
    """The followed system, and the position of the log: an immutable value that can be written as JSON."""

    @property
    def place(self) -> Place:
        """The place of the last change in the log; before the first change, a place less than all others."""
        ...

    @property
    def confirmed(self) -> int:
        """The position of the system up to which the log has everything; no later one was acknowledged."""
        ...

    def reached(self, place: Place, confirmed: int) -> Self:
        """Return the state of the log at a later position."""
        ...

    def as_json(self) -> dict[str, Any]:
        """Return the state as an object of JSON."""
        ...


S = TypeVar("S", bound=FollowState)
R = TypeVar("R", bound=FollowedRecord)
R_co = TypeVar("R_co", bound=FollowedRecord, covariant=True)
R_contra = TypeVar("R_contra", bound=FollowedRecord, contravariant=True)


class FollowStore(Protocol[S, R_contra]):
    """Durably stores the changes of a system and the state of following it.

    Each change is stored once, even after an interruption. `copy` writes all records and the state, or nothing that is
    visible to readers. After records were appended, `resume` finds the place of the last one.
    """

    @property
    def name(self) -> str:
        """The store's name in messages: `the log FOLDER` or `the topic NAME`."""
        ...

    @property
    def removal(self) -> str:
        """An instruction to remove the store in order to start over, for use in messages."""
        ...

    def opened(self) -> AbstractContextManager[None]:
        """Keep other processes from following a system into the store for the block.

        Raise SourceUnavailableError if another process does so, and SourceError or InputError if the store cannot be
        written.
        """
        ...

    def state(self) -> S | None:
        """Return the recorded state, or None if no state is recorded.

        Raise InputError if the store contains other data, and SourceError if it is damaged or was replaced.
        """
        ...

    def is_copied(self) -> bool:
        """Whether the store contains the copy with which it begins."""
        ...

    def note(self, state: S) -> None:
        """Record a state whose changes are already in the store."""
        ...

    def copy(self, records: Iterator[R_contra], state: S) -> None:
        """Write what the system has at the beginning, which may be nothing, and record the state."""
        ...

    def resume(self) -> S:
        """Prepare for appending; return the state with the place of the last change in the store.

        Raise SourceError if the store has lost changes.
        """
        ...

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield the partition and the value of each record, those of a partition in their order."""
        ...

    def trimmed(self) -> Collection[int]:
        """Return the partitions whose first records were removed."""
        ...

    def append(self, records: Sequence[R_contra], state: S) -> None:
        """Append changes durably. The place in `state` is that of the last change."""
        ...


class Feed(Protocol[R_co]):
    """The changes of a system in its order, from the last acknowledged position or an earlier one.

    Its methods raise SourceUnavailableError if the connection is lost, and SourceError if the changes can no longer be
    followed.
    """

    @property
    def received(self) -> int:
        """The position up to which all changes were received."""
        ...

    @property
    def silence(self) -> float:
        """Seconds without a message after which the system must prove that it still answers."""
        ...

    def end(self) -> int:
        """Return the position that `received` reaches with all changes made so far."""
        ...

    def receive(self) -> Iterable[R_co] | None:
        """Return the changes in the next message, or None if no message has arrived. Does not wait."""
        ...

    def acknowledge(self, position: int) -> None:
        """Tell the system that everything up to a position is durable, and ask it for a message."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until a message arrives, at most for some seconds."""
        ...

    def require_answer(self) -> None:
        """Raise SourceUnavailableError if the system does not answer."""
        ...

    def lag(self) -> SlotLag:
        """Return the lag of the log, which has everything received so far."""
        ...


class FeedFollower(Follower, ABC, Generic[S, R]):
    """A follower of a system that sends its changes."""

    lag: SlotLag | None = None

    @abstractmethod
    def opened(self, stop: Event) -> AbstractContextManager[tuple[Feed[R], FollowStore[S, R], S]]:
        """Connect to the system for the block; return its feed, the log, and the state that `resume` returned.

        On first use, the log is created with a copy of what the system has. The feed starts after the state, or
        earlier. Connecting ends early if `stop` is set. Raise InputError if the log belongs to something else, and
        SourceError if the system cannot be followed; the log stays intact in both cases.
        """
        ...

    def update(self) -> None:
        """Append all changes made so far; on first use, copy what the system has. Raise the errors of `opened`."""
        self._run(Event(), to_end=True)

    def follow(self, stop: Event, warn: Callable[[str], None]) -> None:  # noqa: ARG002 - see `Follower`
        """Append changes as they occur until `stop` is set; raise the errors of `opened`."""
        try:
            self._run(stop, to_end=False)
        finally:
            self.lag = None if self.lag is None else replace(self.lag, bytes=None, seconds=None)

    def _run(self, stop: Event, *, to_end: bool) -> None:
        def on_lag(lag: SlotLag) -> None:
            self.lag = lag

        with self.opened(stop) as (feed, store, state):
            _Appending(feed, store, state).run(stop, feed.end() if to_end else None, on_lag)


class _Appending(Generic[S, R]):
    """Appends the changes of a feed to a store, starting at the position in the store's state."""

    def __init__(self, feed: Feed[R], store: FollowStore[S, R], state: S) -> None:
        self._feed = feed
        self._store = store
        self._noted = self._stored = state
        self._last = state.place
        self._records: list[R] = []

    def run(self, stop: Event, until: int | None, on_lag: Callable[[SlotLag], None]) -> None:
        """Append changes until `stop` is set or the store contains all changes before the position `until`.

        `on_lag` is called with the lag of the store about once per second.
        """
        feed, wrote, acknowledged = self._feed, 0.0, 0.0
        heard = time.monotonic()
        while not stop.is_set() and (until is None or feed.received < until):
            records = feed.receive()
            if records is not None:
                heard = time.monotonic()
                self._gather(records)
                if len(self._records) < _BUFFER_RECORDS:
                    continue
            now = time.monotonic()
            is_due = now - acknowledged >= ACKNOWLEDGE_SECONDS
            if is_due or now - wrote >= GATHER_SECONDS or len(self._records) >= _BUFFER_RECORDS:
                self._write()
                wrote = now
            if is_due:
                self._acknowledge()
                acknowledged = now
                if until is None:
                    on_lag(feed.lag())
            elif until is not None:
                feed.acknowledge(self._noted.confirmed)  # the system answers with its position
            if records is None:
                feed.wait(GATHER_SECONDS if self._records or until is not None else _WAIT_SECONDS)
                if time.monotonic() - heard > feed.silence:  # it was asked each second
                    feed.require_answer()
                    heard = time.monotonic()
        self._write()
        self._acknowledge()

    def _gather(self, records: Iterable[R]) -> None:
        for record in records:
            if record.place is None:
                self._records.append(record)
            elif record.place > self._last:
                self._last = record.place
                self._records.append(record)

    def _write(self) -> None:
        self._stored = self._stored.reached(self._last, max(self._stored.confirmed, self._feed.received))
        if self._records:
            self._store.append(self._records, self._stored)
            self._records = []

    def _acknowledge(self) -> None:
        """Record the durable position, and then acknowledge it to the system, which may now forget the changes."""
        if self._stored.confirmed > self._noted.confirmed:
            self._store.note(self._stored)
            self._noted = self._stored
        self._feed.acknowledge(self._noted.confirmed)
