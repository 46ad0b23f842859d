"""A connection as the sink needs it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windrow.errors import SinkError

BUSY_SECONDS = 10.0
CACHE_KIB = 65_536
"""Room for the pages that a large step writes: without it, they go to disk and come back within the step."""


def connect(path: str, busy: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open a file, which is made if need be, in WAL mode; another writer is waited for `busy` seconds.

    Raise SinkError where there can be no such file.
    """
    file = Path(path).absolute()
    if file.is_dir():
        msg = f"{path} is a folder: give the sink the path of a file in it"
        raise SinkError(msg)
    blocking = next((above for above in file.parents if above.exists() and not above.is_dir()), None)
    if blocking is not None:
        msg = f"{blocking} in {path} is a file, not a folder: correct the sink's path"
        raise SinkError(msg)
    if not file.parent.is_dir():
        msg = f"the folder {file.parent} of {path} does not exist: create it, or correct the sink's path"
        raise SinkError(msg)
    # A host may commit from another thread than it opened in, though never from two at once.
    db = sqlite3.connect(file, timeout=busy, isolation_level=None, check_same_thread=False)
    try:
        mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    except BaseException:
        db.close()
        raise
    if mode != "wal":
        db.close()
        msg = f"{path} cannot be read while it is written there (SQLite's WAL): put it on a local disk"
        raise SinkError(msg)
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Write all that is within, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
