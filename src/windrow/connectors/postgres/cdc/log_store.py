"""An embedded log that contains the changes of a table in one partition, in commit order.

The table is first copied into a draft file, which becomes the partition with one rename. Lines are appended durably,
and the last line determines the position of the log (`windrow.connectors.postgres.cdc.records`). The state in
``postgres.json`` may be older than the log. In this case, changes that the database sends again are skipped if they are
not after that position; lost lines are written again, byte for byte. An incomplete line, which readers ignore, is
removed before appending. A lock ensures that only one process at a time follows a table into the log.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace

from windrow.connectors.log.append import write_lines
from windrow.connectors.log.folder import LogFolder
from windrow.connectors.log.segments import Position, replace_durably, sync_path
from windrow.connectors.postgres.cdc.records import ChangePlace, ChangeRecord
from windrow.connectors.postgres.cdc.store import ChangeStore, FollowState
from windrow.connectors.postgres.client import Connection
from windrow.errors import InputError, SourceError, SourceUnavailableError

_STATE, _LOCK, _DRAFT = "postgres.json", "postgres.lock", ".partition-0.jsonl.draft"
_CHUNK = 1 << 20


class LogStore(ChangeStore):
    """A store for the changes of a table that is an embedded log."""

    def __init__(self, path: str, table: str) -> None:
        self._folder = LogFolder(path)
        self._table = table
        self._file = self._folder.file(0)
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
    def opened(self, sql: Connection) -> Iterator[None]:  # noqa: ARG002 - see `ChangeStore`
        """Create the folder and hold its lock for the block."""
        path = self._folder.path / _LOCK
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
                    f"another run follows the table {self._table} into {self.name}: end that run, give this pipeline "
                    "a log of its own, or let it read that log: log: {path, format: debezium}"
                )
                raise SourceUnavailableError(msg) from exc
            yield

    def state(self) -> FollowState | None:
        """Return the state recorded in ``postgres.json``; None if there is none."""
        noted = self._read_state()
        if noted is None and self._file.exists():
            msg = f"the log {self._folder.path} does not contain the changes of a table: use another folder in `log`"
            raise InputError(msg)
        return None if noted is None else noted[0]

    def is_copied(self) -> bool:
        """Whether the partition's file exists."""
        return self._file.exists()

    def note(self, state: FollowState) -> None:
        """Durably replace ``postgres.json``."""
        replace_durably(self._folder.path / _STATE, {**asdict(state), "line": self._at.line, "byte": self._at.byte})

    def copy(self, rows: Iterator[ChangeRecord], state: FollowState) -> None:
        """Write the partition with the rows of the table."""
        draft, lines, size = self._folder.path / _DRAFT, 0, 0
        with draft.open("wb", buffering=_CHUNK) as out:
            for row in rows:
                lines += 1
                size += out.write(_line(row).encode())
            out.flush()
            os.fsync(out.fileno())
        draft.rename(self._file)
        sync_path(self._folder.path)
        self._at = Position(lines, size)
        self.note(state)

    def resume(self) -> FollowState:
        """Find the end of the log, remove an incomplete line, and return the state at that position."""
        noted = self._read_state()
        if noted is None:
            msg = (
                f"{self._folder.path / _STATE} was removed: restore it, or {self.removal}, and start over with --fresh"
            )
            raise SourceError(msg)
        state, start = noted
        self._at = self._folder.scan(0, start)
        last = b""
        for batch in self._folder.read(0, start, self._at):
            last = batch.column("value")[-1].as_py()
        try:
            place = (ChangePlace.of_record(last) if last else None) or state.place
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            msg = (
                f"the last record of {self._file} is not a change of the table {state.table}: no other program may "
                "append to the log of a table; give the source a log of its own"
            )
            raise SourceError(msg) from exc
        if self._file.stat().st_size > self._at.byte:
            os.truncate(self._file, self._at.byte)
        self._log = os.open(self._file, os.O_RDWR | os.O_CLOEXEC)
        self._open.callback(os.close, self._log)
        return replace(state, commit=place.commit, number=place.number)

    def append(self, records: Sequence[ChangeRecord], state: FollowState) -> None:  # noqa: ARG002 - recorded later
        """Append lines durably."""
        lines = "".join(map(_line, records)).encode()
        write_lines(self._file, self._log, self._at.byte, lines)
        self._at = Position(self._at.line + len(records), self._at.byte + len(lines))

    def _read_state(self) -> tuple[FollowState, Position] | None:
        """Return the recorded state and the position in the log at which it was recorded."""
        path = self._folder.path / _STATE
        try:
            noted = json.loads(path.read_bytes())
            at = Position(noted.pop("line"), noted.pop("byte"))
            return FollowState.read(noted), at
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as exc:
            msg = f"{path} is damaged: restore it, or remove the log {self._folder.path}, and start over with --fresh"
            raise SourceError(msg) from exc


def _line(record: ChangeRecord) -> str:
    return f'{{"_log_time": {record.time}, {record.value[1:]}\n'
