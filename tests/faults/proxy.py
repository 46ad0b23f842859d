"""A way to a server that breaks when it is told to."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class Proxy:
    """Passes TCP connections on to a port of this machine; `cut_after` bytes more from its clients it cuts them all.

    The bytes are counted over all connections, so a cut comes anywhere: in a COPY, between two statements, in COMMIT.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._left: int | None = None
        self.cuts = 0

    @property
    def port(self) -> int:
        """Where clients connect to."""
        port: int = self._listener.getsockname()[1]
        return port

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut_after(self, count: int) -> None:
        """Cut all connections when their clients have sent so many bytes more."""
        with self._lock:
            self._left = count

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

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._to))
                with self._lock:
                    self._open += [client, server]
                threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counted: bool) -> None:  # noqa: FBT001 - a thread's
        with suppress(OSError), source:
            while part := source.recv(4096):
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
