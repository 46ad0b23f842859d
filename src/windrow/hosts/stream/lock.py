"""One run at a time on a checkpoint."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windrow.errors import CheckpointError

LOCK = "lock"
"""The file in a checkpoint that the run holds which uses it."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other runs away from a checkpoint, which is there; the kernel lets go for a run that is killed.

    Raise CheckpointError if another run uses it, or the lock cannot be written.
    """
    try:
        file = (folder / LOCK).open("ab")
    except OSError as exc:
        msg = f"the checkpoint {folder} cannot be written: {exc.strerror}"
        raise CheckpointError(msg) from exc
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = f"another run is using the checkpoint {folder}: end that one, or name another --checkpoint"
            raise CheckpointError(msg) from None
        yield
