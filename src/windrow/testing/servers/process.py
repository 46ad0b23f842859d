"""Server processes that end with the process that started them."""

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

# Below the range that the kernel gives to clients, so that none can take the port of a stopped server.
_PORTS = range(20_000, 32_000)


class ServerError(RunError):
    """A server failed; the end of its log is in the message."""


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
    """One run of a server, in a session of its own: Ctrl-C reaches this process, which stops the server.

    The server is killed when this process ends in any way (if `setpriv` exists, as on any Linux). Start it from the
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
        """Wait until it is ready; raise ServerError if it ends before, or after `seconds`."""
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
        """Wait for `seconds`; raise ServerError if it ends meanwhile."""
        with suppress(subprocess.TimeoutExpired):
            failed = f"ended with status {self._process.wait(seconds)}"
            raise self._error(failed)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to stop, and kill it if it does not."""
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
        if os.getpid() == self._starter:  # a forked child runs exit handlers too
            self.kill()

    def _error(self, what: str) -> ServerError:
        lines = self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return ServerError(f"{self._log.name} {what}; the end of {self._log}:\n" + "\n".join(lines))


class Server:
    """A server with a port of its own, which it keeps from one start to the next; `name` is for errors."""

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
        """Start the process."""
        raise NotImplementedError

    def _is_ready(self) -> bool:
        """Whether it accepts requests."""
        raise NotImplementedError

    @property
    def _running(self) -> ServerProcess:
        """The process; raise ServerError if the server is not running."""
        if self._process is None:
            message = f"{self.name} is not running"
            raise ServerError(message)
        return self._process

    def start(self) -> None:
        """Start it and wait until it is ready. Call it in the main thread."""
        if self._process is not None:
            message = f"{self.name} has been started already"
            raise ServerError(message)
        self._process = self._launch()
        self._process.wait_until(self._is_ready, _START_SECONDS)

    def watch(self, seconds: float) -> None:
        """Wait for `seconds`; raise ServerError if it ends meanwhile."""
        self._running.watch(seconds)

    def stop(self) -> None:
        """Shut it down in order; open connections are cut."""
        if self._process is not None:
            self._process.stop(self.stop_signal)
            self._process = None

    def kill(self) -> None:
        """End it at once, as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process = None
