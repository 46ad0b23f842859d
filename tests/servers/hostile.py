"""Peers that keep connections open: servers that do not answer, or slowly, and clients that do not ask."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from types import TracebackType
from typing import Literal

from tests.servers.listener import LOOPBACK, Listener

Manner = Literal["silent", "dripping", "closing"]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{" + b" " * 999


class HostileServer(Listener):
    """Accepts connections, and never answers, sends an answer byte by byte, or closes after a part of it."""

    def __init__(self, manner: Manner, answer: bytes = ANSWER, pause: float = 0.1) -> None:
        super().__init__()
        self._manner = manner
        self._answer = answer
        self._pause = pause
        self._over = threading.Event()
        self._clients: list[socket.socket] = []
        self.accepted = 0

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def serve(self, client: socket.socket) -> None:
        self.accepted += 1
        self._clients.append(client)
        if self._manner == "dripping":
            threading.Thread(target=self._drip, args=(client,), daemon=True).start()
        elif self._manner == "closing":
            with suppress(OSError), client:
                client.recv(1)
                client.sendall(self._answer[:20])

    def _drip(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            for byte in self._answer:
                if self._over.wait(self._pause):
                    return
                client.sendall(bytes([byte]))

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._over.set()
        super().__exit__(kind, value, stack)
        for client in self._clients:
            client.close()


@contextmanager
def half_open(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Keep so many connections to a port of this machine, or attempts to connect, without sending anything."""
    clients = []
    try:
        for _ in range(count):
            client = socket.socket()
            clients.append(client)
            client.settimeout(0)
            with suppress(BlockingIOError):
                client.connect((LOOPBACK, port))
        yield clients
    finally:
        for client in clients:
            client.close()


def is_closed(client: socket.socket) -> bool:
    """Whether the server has closed the connection of a client that does not wait."""
    try:
        return client.recv(65_536) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def sending_slowly(client: socket.socket, start: bytes) -> Callable[[], bool]:
    """Return what sends a further byte of a request without an end, and returns whether the server has closed."""
    unsent = chain(start, repeat(ord("x")))

    def send() -> bool:
        with suppress(OSError):
            client.send(bytes([next(unsent)]))
        return is_closed(client)

    return send
