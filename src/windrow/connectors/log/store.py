"""An embedded log that a follower writes: one partition, with the changes in the order of their system.

The partition begins with the copy, which is first written to a draft file that becomes the partition with one rename.
Lines are appended durably, and the last line determines the position of the log. The state in a file of JSON may be
older than the log. In this case, changes that the system sends again are skipped if they are not after that position;
lost lines are written again, byte for byte. An incomplete line, which readers ignore, is removed before appending. A
lock ensures that only one process at a time writes the log.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic

from windrow.connectors.follower import FollowStore, Place, R, S
from windrow.connectors.log.append import write_lines
from windrow.connectors.log.folder import LogFolder
from windrow.connectors.log.segments import Position, replace_durably, sync_path
from windrow.errors import InputError, SourceError, SourceUnavailableError

_DRAFT = ".partition-0.jsonl.draft"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Followed(Generic[S]):
    """The system whose changes a log has.

    `what` is its name in messages (`the table orders`), and `format` the format of the log for other pipelines. The
    state is in ``FILES.json``, the lock ``FILES.lock``. `read` returns the state of a JSON object, and `place_of` the
    place of a record, None if it belongs to the copy. They raise ValueError, LookupError, TypeError or AttributeError
    for other objects and records.
    """

    what: str
    format: str
    files: str
    read: Callable[[dict[str, Any]], S]
    place_of: Callable[[bytes], Place | None]


class LogStore(FollowStore[S, R]):
    """A store for the changes of a system that is an embedded log."""

    def __init__(self, path: str, followed: Followed[S]) -> None:
        self._folder = LogFolder(path)
        self._followed = followed
        self._file = self._folder.file(0)
        self._state = self._folder.path / f"{followed.files}.json"
        self._at = Position()
        self._log = -1
        self._open = ExitStack()

    @property
    def name(self) -> str:
        return f"the log {self._folder.path}"

    @property
    def removal(self) -> str:
        return f"remove {self.name}"

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Create the folder and hold its lock for the block."""
        path = self._folder.path / f"{self._followed.files}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as exc:
            msg = f"cannot write the log {self._folder.path}: {exc.strerror}"
            raise SourceError(msg) from exc
        with self._open:
            self._open.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as exc:
                msg = (
                    f"another run follows {self._followed.what} into {self.name}: end that run, give this pipeline "
                    f"a log of its own, or let it read that log: log: {{path, format: {self._followed.format}}}"
                )
                raise SourceUnavailableError(msg) from exc
            yield

    def state(self) -> S | None:
        """Return the state recorded in ``FILES.json``, or None without that file."""
        noted = self._read_state()
        if noted is None and self._file.exists():
            msg = (
                f"the log {self._folder.path} does not contain the changes of {self._followed.what}: use another "
                "folder in `log`"
            )
            raise InputError(msg)
        return None if noted is None else noted[0]

    def is_copied(self) -> bool:
        """Whether the partition's file exists."""
        return self._file.exists()

    def note(self, state: S) -> None:
        """Durably replace ``FILES.json``."""
        replace_durably(self._state, {**state.as_json(), "line": self._at.line, "byte": self._at.byte})

    def copy(self, records: Iterator[R], state: S) -> None:
        """Write the partition with the copy."""
        draft, lines, size = self._folder.path / _DRAFT, 0, 0
        with draft.open("wb", buffering=_CHUNK) as out:
            for record in records:
                lines += 1
                size += out.write(record.line.encode())
            out.flush()
            os.fsync(out.fileno())
        draft.rename(self._file)
        sync_path(self._folder.path)
        self._at = Position(lines, size)
        self.note(state)

    def resume(self) -> S:
        """Find the end of the log, remove an incomplete line, and return the state at that position."""
        noted = self._read_state()
        if noted is None:
            msg = f"{self._state} was removed: restore it, or {self.removal}, and start over with --fresh"
            raise SourceError(msg)
        state, start = noted
        self._at = self._folder.scan(0, start)
        last = b""
        for batch in self._folder.read(0, start, self._at):
            last = batch.column("value")[-1].as_py()
        try:
            place = (self._followed.place_of(last) if last else None) or state.place
        except (ValueError, LookupError, TypeError, AttributeError) as exc:
            msg = (
                f"the last record of {self._file} is not a change of {self._followed.what}: no other program may "
                "append to this log; give the source a log of its own"
            )
            raise SourceError(msg) from exc
        if self._file.stat().st_size > self._at.byte:
            os.truncate(self._file, self._at.byte)
        self._log = os.open(self._file, os.O_RDWR | os.O_CLOEXEC)
        self._open.callback(os.close, self._log)
        return state.reached(place, state.confirmed)

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield the records of the log, which are all in partition 0."""
        for batch in self._folder.read(0):
            yield from ((0, value) for value in batch.column("value").to_pylist())

    def trimmed(self) -> Collection[int]:
        """Return partition 0 if its first records were removed."""
        return [0] if self._folder.first(0).line > 0 else []

    def append(self, records: Sequence[R], state: S) -> None:  # noqa: ARG002 - recorded later
        """Append lines durably."""
        lines = "".join([record.line for record in records]).encode()
        write_lines(self._file, self._log, self._at.byte, lines)
        self._at = Position(self._at.line + len(records), self._at.byte + len(lines))

    def _read_state(self) -> tuple[S, Position] | None:
        """Return the recorded state and the position in the log at which it was recorded."""
        try:
            noted = json.loads(self._state.read_bytes())
            at = Position(noted.pop("line"), noted.pop("byte"))
            return self._followed.read(noted), at
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as exc:
            msg = (
                f"{self._state} is damaged: restore it, or remove the log {self._folder.path}, and start over with "
                "--fresh"
            )
            raise SourceError(msg) from exc
