"""One run at a time on a checkpoint."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from windrow.errors import CheckpointError

LOCK = "lock"
"""The file in a checkpoint that the run holds which uses it."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other runs away from a checkpoint, whose folder is made; the kernel lets go for a run that is killed.

    Who could not begin leaves no lock where there was none, and no empty folder. Raise CheckpointError if another run
    uses it, or the lock cannot be written.
    """
    path = folder / LOCK
    is_new = not path.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as exc:
        msg = f"the checkpoint {folder} cannot be written: {exc.strerror}"
        raise CheckpointError(msg) from exc
    with file:
        # a lock that is not there any more was another's, who is just leaving or has removed the checkpoint
        if not (_taken(file) and _is_at(path, file)):
            msg = f"another run is using the checkpoint {folder}: end that one, or name another --checkpoint"
            raise CheckpointError(msg)
        try:
            yield
        except BaseException:
            if is_new and _is_at(path, file):
                with suppress(OSError):
                    path.unlink()
                    folder.rmdir()
            raise


def _taken(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return False
