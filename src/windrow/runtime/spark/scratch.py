"""The folder of a process and its Spark for temporary files."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

_PREFIX = "windrow-scratch-"


@lru_cache(maxsize=1)
def scratch_folder() -> Path:
    """Make a folder for the temporary files of this process and its Spark, which is removed when the process ends.

    Those of processes that were killed are removed first. A process holds a lock in its folder, which the kernel lets
    go of when it dies; the folder has its name only once it is locked.
    """
    root = Path(tempfile.gettempdir())
    for folder in root.glob(f"{_PREFIX}*"):
        _remove_stale(folder)
    made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=root))
    lock = os.open(made / "lock", os.O_CREAT | os.O_RDWR, 0o600)  # to the end of the process
    fcntl.flock(lock, fcntl.LOCK_EX)
    # systemd-tmpfiles removes what was not read for 10 days, such as what Spark starts Python by, but not below a lock
    fcntl.flock(os.open(made, os.O_RDONLY), fcntl.LOCK_SH)
    folder = made.rename(root / made.name[1:])
    atexit.register(_remove_own, folder, os.getpid())
    return folder


def _remove_own(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child ends too
        shutil.rmtree(folder, ignore_errors=True)


def _remove_stale(folder: Path) -> None:
    """Remove the folder of a process of this user that has ended; leave any other."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:  # another process removes it too
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        os.close(lock)
