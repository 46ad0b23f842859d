"""Runs the script of an engine and measures it, with all processes of its session."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bench.peers.job import DONE, READY
from bench.processes import cpu, members, memory, shares

_LISTEN = 0.25
"""Seconds that a line is waited for."""
_EVERY = 1.0
"""Seconds between looks at the memory: each takes the cores some milliseconds a process."""
_STOP_SECONDS = 30.0
_TAIL = 3


class FailedError(Exception):
    """An engine failed or took too long; the message has the end of what it said."""


@dataclass(frozen=True)
class Figures:
    """Seconds from ready to done, CPU seconds in that time, and MiB at the most (what so many share counts once)."""

    seconds: float
    cpu: float
    memory: float


def watch(command: list[str], environment: dict[str, str], log: Path, limit: float) -> Figures:
    """Run a script in a session of its own, to its end; raise FailedError."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            env=environment,
            cwd=log.parent,
            start_new_session=True,
        )
        try:
            figures = _watched(process, said, time.monotonic() + limit)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
        except FailedError as exc:
            message = f"{exc}: {_last_words(log)}"
            raise FailedError(message) from exc
        finally:
            _end(process)
    return figures


def _watched(process: subprocess.Popen[bytes], said: BinaryIO, deadline: float) -> Figures:
    if process.stdout is None:
        message = "it has no output"
        raise FailedError(message)
    output, rest, peak = process.stdout.fileno(), b"", 0.0
    began: tuple[float, float] | None = None
    looked = 0.0
    while True:
        found = select.select([output], [], [], _LISTEN)[0]
        now = time.monotonic()
        if now > deadline:
            message = "it was not done in time"
            raise FailedError(message)
        if found:
            chunk = os.read(output, 1 << 16)
            if not chunk:
                message = f"it ended with {process.wait()} before it was done"
                raise FailedError(message)
            *lines, rest = (rest + chunk).split(b"\n")
            said.writelines(line + b"\n" for line in lines)
            said.flush()
            if READY.encode() in lines:
                began = now, cpu(process.pid)
            if DONE.encode() in lines and began is not None:
                used = cpu(process.pid) - began[1]
                return Figures(now - began[0], used, _peak(process.pid, peak))
        if now - looked >= _EVERY:
            peak, looked = _peak(process.pid, peak), now


def _peak(leader: int, peak: float) -> float:
    """Return the higher one of the memory now and a peak; the costly look only if it can be higher."""
    return max(peak, shares(leader)) if sum(memory(leader)) > peak else peak


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of its session."""
    if process.stdout is not None:
        process.stdout.close()
    for pid in members(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return " / ".join((errors or lines)[-_TAIL:])[-600:]
