"""Server processes that stop when the process that started them ends."""

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
from typing import ClassVar

from windrow.errors import RunError

_START_SECONDS = 90.0
_POLL_SECONDS = 0.05
_STOP_SECONDS = 30.0
_TAIL_LINES = 30

# Below the range of ports that the kernel assigns to clients, so that no client can take the port of a stopped server.
_PORTS = range(20_000, 32_000)


class ServerError(RunError):
    """Raised if a server fails. The message includes the end of its log."""


def free_port() -> int:
    """Return a free port on loopback."""
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
    """A running server in its own session, so that Ctrl-C reaches only this process, which then stops the server.

    However this process ends, the server is killed (if `setpriv` exists, as on any Linux). Start it from the main
    thread, because the kernel considers the thread that started it its parent.
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
        """The process ID."""
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until the server is ready; raise ServerError if it ends first, or is not ready after `seconds`."""
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
        """Wait for `seconds`; raise ServerError if the server ends during that time."""
        with suppress(subprocess.TimeoutExpired):
            failed = f"ended with status {self._process.wait(seconds)}"
            raise self._error(failed)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ask the server to stop. If it does not, kill it and raise ServerError."""
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
        """Kill the server and all its child processes."""
        with suppress(ProcessLookupError):  # none is left
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        atexit.unregister(self._kill_if_mine)

    def _kill_if_mine(self) -> None:
        if os.getpid() == self._starter:  # a forked child runs exit handlers too
            self.kill()

    def _error(self, what: str) -> ServerError:
        lines = self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return ServerError(f"{self._log.name} {what}; the end of {self._log}:\n" + "\n".join(lines))


class Server:
    """A server with its own port, which it keeps when it is restarted. `name` is used in errors."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, port: int | None) -> None:
        self._port = free_port() if port is None else port
        self._process: ServerProcess | None = None

    @property
    def port(self) -> int:
        """The port of the server on 127.0.0.1."""
        return self._port

    def _launch(self) -> ServerProcess:
        """Start the process and return it."""
        raise NotImplementedError

    def _is_ready(self) -> bool:
        """Return True if the server accepts requests."""
        raise NotImplementedError

    @property
    def _running(self) -> ServerProcess:
        """The process. Raise ServerError if the server is not running."""
        if self._process is None:
            message = f"{self.name} is not running"
            raise ServerError(message)
        return self._process

    def start(self) -> None:
        """Start the server and wait until it is ready. Call this in the main thread."""
        if self._process is not None:
            message = f"{self.name} has already been started"
            raise ServerError(message)
        self._process = self._launch()
        self._process.wait_until(self._is_ready, _START_SECONDS)

    def watch(self, seconds: float) -> None:
        """Wait for `seconds`; raise ServerError if the server ends during that time."""
        self._running.watch(seconds)

    def stop(self) -> None:
        """Shut the server down cleanly; open connections are closed."""
        if self._process is not None:
            self._process.stop(self.stop_signal)
            self._process = None

    def kill(self) -> None:
        """Kill the server immediately, like `kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process = None
