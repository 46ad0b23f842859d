"""`windrow run` as a person runs it: in a process, with Spark's and Python's workers below it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.faults.points import session_of

COMMAND = (sys.executable, "-c", "from windrow.cli import main; main()")
LAUNCHER = (sys.executable, "-m", "tests.faults.launcher")
ROOT = Path(__file__).parents[2]
FAULTS = "WINDROW_FAULTS"
"""Plans the faults of a process."""
STEP_SECONDS = 240.0


class WindrowProcess:
    """A command in a session of its own, which all that it starts belongs to; nothing of it outlives the `with`.

    The command is windrow, unless another one is given.
    """

    def __init__(
        self, arguments: Sequence[str | Path], folder: Path, command: Sequence[str] = COMMAND, **environment: str
    ) -> None:
        self._pause = threading.Event()
        self._output, self._errors = (folder / f"windrow.{name}" for name in ("out", "err"))
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*(LAUNCHER if FAULTS in environment else command), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=folder,
                env=os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"} | environment,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Its process id, which is that of its session."""
        return self._process.pid

    @property
    def output(self) -> str:
        """What it wrote to stdout."""
        return self._output.read_text()

    @property
    def errors(self) -> str:
        """What it wrote to stderr."""
        return self._errors.read_text()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def wait(self, seconds: float = STEP_SECONDS) -> int:
        """Wait until it has ended; return its exit code."""
        return self._process.wait(seconds)

    def wait_until(self, ready: Callable[[], bool], seconds: float = STEP_SECONDS) -> None:
        """Wait until something has come about, which must be before it ends."""
        deadline = time.monotonic() + seconds
        while not ready():
            assert not self.ended, f"it ended with {self._process.returncode}: {self.output}{self.errors}"
            assert time.monotonic() < deadline, f"it took too long: {self.output}{self.errors}"
            self.linger(0.002)

    def linger(self, seconds: float) -> None:
        """Let some time go by, unless it ends before."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def send(self, number: signal.Signals, *, to_group: bool = False) -> None:
        """Send a signal to the process, or as a terminal does to its whole group."""
        if to_group:
            os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)

    def wait_until_all_ended(self, seconds: float = STEP_SECONDS) -> None:
        """Wait until all that it started has ended too."""
        deadline = time.monotonic() + seconds
        while members := session_of(self._process.pid):
            assert time.monotonic() < deadline, f"some of it lives on: {members}"
            self._pause.wait(0.05)

    def kill(self) -> None:
        """End all of it at once: the driver, the JVM, and the Python workers, which have groups of their own."""
        deadline = time.monotonic() + 30
        while members := session_of(self._process.pid):
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
            assert time.monotonic() < deadline, f"some of it cannot be killed: {members}"
        self._process.wait(30)
