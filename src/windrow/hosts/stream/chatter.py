"""What Spark and its workers say, kept short."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

_NOISE = re.compile(
    # one line a step and key group, from Spark's own worker of stateful processing
    rb"^\s*$|^Streaming TransformWithStateInPandas |^Starting Streaming TransformWithStateInPandas "
)
_STDERR = 2
_LIMIT = 4 << 20
"""A file of more bytes is begun anew."""


@contextmanager
def stderr_to(log: Path) -> Iterator[None]:
    """Give the processes that are started meanwhile a stderr that goes to a file, for as long as this process lives.

    What this process itself writes goes on to its own stderr: a line of progress is not to stand still. The file
    stays small however long they live: what is said in every step is left out, and a file that is full makes room.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    readable, writable = os.pipe()
    threading.Thread(target=_drain, args=(readable, log), name="spark-log", daemon=True).start()
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    os.dup2(writable, _STDERR)
    os.close(writable)
    ours = sys.stderr
    try:
        with open(kept, "w", buffering=1, closefd=False, encoding="utf-8") as own:
            if _is_stderr(ours):
                sys.stderr = own
            yield
    finally:
        sys.stderr = ours
        os.dup2(kept, _STDERR)
        os.close(kept)


def _is_stderr(stream: TextIO) -> bool:
    """Return whether a stream is the process's stderr, and not what a test or a notebook put in its place."""
    try:
        return stream.fileno() == _STDERR
    except (OSError, ValueError, AttributeError):
        return False


def _drain(readable: int, log: Path) -> None:
    # unbuffered, so that what a full disk refuses is forgotten
    with os.fdopen(readable, "rb") as lines, log.open("ab", buffering=0) as file:
        for line in lines:
            if _NOISE.match(line):
                continue
            with suppress(OSError):  # nobody may wait for a log that cannot be written
                if file.tell() > _LIMIT:
                    file.truncate(0)
                file.write(line)
