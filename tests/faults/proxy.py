"""A way to a server that breaks when it is told to."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType

from tests.servers.listener import LOOPBACK, Listener


class Proxy(Listener):
    """Passes TCP connections on to a port of this machine; `cut_after` bytes more from its clients it cuts them all.

    The bytes are counted over all connections, so a cut comes anywhere: in a COPY, between two statements, in COMMIT.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self._to = port
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._left: int | None = None
        self._is_frozen = threading.Event()
        self.cuts = 0

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        super().__exit__(kind, value, stack)
        self.cut()

    def cut_after(self, count: int) -> None:
        """Cut all connections when their clients have sent so many bytes more."""
        with self._lock:
            self._left = count

    def freeze(self) -> None:
        """Accept further connections and bytes, and pass nothing on."""
        self._is_frozen.set()

    @property
    def is_armed(self) -> bool:
        """Whether a cut is to come."""
        with self._lock:
            return self._left is not None

    def cut(self) -> None:
        """Cut all connections."""
        with self._lock:
            self._cut()

    def _cut(self) -> None:
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()
        self._left = None

    def serve(self, client: socket.socket) -> None:
        server = socket.create_connection((LOOPBACK, self._to))
        with self._lock:
            self._open += [client, server]
        threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
        threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counted: bool) -> None:  # noqa: FBT001 - a thread's
        with suppress(OSError), source:
            while part := source.recv(4096):
                if self._is_frozen.is_set():
                    continue
                with self._lock:
                    if counted and self._left is not None:
                        self._left -= len(part)
                        if self._left < 0:
                            part = part[: self._left]
                            self.cuts += 1
                            with suppress(OSError):
                                target.sendall(part)
                            self._cut()
                            return
                target.sendall(part)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
