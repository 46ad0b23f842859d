"""SQLite's errors as ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from windrow.errors import SinkError, SinkUnavailableError

_ADVICE = {
    "SQLITE_NOTADB": "is not an SQLite database: give the sink another path",
    "SQLITE_CORRUPT": "is damaged: restore it from a copy, or move it away and start over with --fresh",
    "SQLITE_CANTOPEN": "cannot be opened: check that the path is a file in a folder that may be written",
    "SQLITE_READONLY": "may not be written: give write permission on the file and its folder",
    "SQLITE_PERM": "may not be written: give write permission on the file and its folder",
    "SQLITE_BUSY": "is locked by another writer: end that one, then start again",
    "SQLITE_LOCKED": "is locked by another writer: end that one, then start again",
    "SQLITE_FULL": "cannot grow, the disk is full: make room, then start again",
    "SQLITE_IOERR": "could not be read or written: check the disk, then start again",
    "SQLITE_CONSTRAINT": "refused a row",
}
_PASSING = ("SQLITE_BUSY", "SQLITE_LOCKED")


def translate(error: sqlite3.Error, path: str) -> SinkError:
    """Return the SinkError that says what happened to the file and what to do."""
    name = getattr(error, "sqlite_errorname", "") or ""
    for prefix, advice in _ADVICE.items():
        if name.startswith(prefix):
            kind = SinkUnavailableError if prefix in _PASSING else SinkError
            return kind(f"{path} {advice} ({error}); what was committed before stays")
    return SinkError(f"{path}: SQLite says: {error}; what was committed before stays")


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise SinkError for SQLite's errors within."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error
