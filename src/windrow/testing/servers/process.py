"""A server process that does not outlive the one that started it."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from windrow.errors import RunError

_POLL_SECONDS = 0.05
_STOP_SECONDS = 30.0
_TAIL_LINES = 30

# Below the range that the kernel gives to clients: while a server is stopped, none of them can take its port.
_PORTS = range(20_000, 32_000)


class ServerError(RunError):
    """A server failed; the end of its log is in the message."""


def free_port() -> int:
    """Return a port on loopback that nobody listens on."""
    random = Random()  # noqa: S311 - no secret; unseeded, as two runs at once must not try the same ports
    for _ in range(1000):
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    message = f"no free port in {_PORTS}"
    raise ServerError(message)


class ServerProcess:
    """One run of a server, in a session of its own: Ctrl-C reaches its starter, who stops it.

    It is killed when this process ends, however that ends (where `setpriv` is, which is any Linux). Start it from the
    main thread: to the kernel, the thread that started it is its parent.
    """

    def __init__(self, command: Sequence[str], log: Path, user: str | None = None) -> None:
        setpriv = shutil.which("setpriv")
        guard = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the command is the caller's
                [*guard, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
                extra_groups=[] if user else None,
                cwd=log.parent,
            )
        self._starter = os.getpid()
        atexit.register(self._kill_if_mine)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Return once it is ready; raise ServerError if it ended before, or has not become so in time."""
        deadline = time.monotonic() + seconds
        while not ready():
            try:
                status = self._process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                self.kill()
                failed = f"was not ready after {seconds:.0f} s"
            else:
                failed = f"ended with status {status}"
            raise self._error(failed)

    def watch(self, seconds: float) -> None:
        """Wait so long; raise ServerError if it ends meanwhile."""
        with suppress(subprocess.TimeoutExpired):
            failed = f"ended with status {self._process.wait(seconds)}"
            raise self._error(failed)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to stop, and kill it if it will not."""
        if self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                failed = f"did not stop in {_STOP_SECONDS:.0f} s"
                raise self._error(failed) from None
        self.kill()

    def kill(self) -> None:
        """End it and all its children at once."""
        with suppress(ProcessLookupError):  # none is left
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        atexit.unregister(self._kill_if_mine)

    def _kill_if_mine(self) -> None:
        if os.getpid() == self._starter:  # a forked child ends too
            self.kill()

    def _error(self, what: str) -> ServerError:
        lines = self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return ServerError(f"{self._log.name} {what}; the end of {self._log}:\n" + "\n".join(lines))
