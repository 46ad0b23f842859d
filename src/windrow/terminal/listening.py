"""Listening sockets of windrow's HTTP servers, whose clients can take neither its descriptors nor its threads.

A server that takes every connection runs out of descriptors when clients connect and send nothing, and Spark can then
no longer call this process. Here at most `CONNECTIONS` are open at a time. When all are taken, the oldest that are
unanswered are shut down for the next ones, so a client that sends its request at once is answered, however many others
send nothing. A connection that is not answered within `SECONDS` of its beginning is shut down, too, so it does not help
to send a byte now and then.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from windrow.errors import InputError

CONNECTIONS: Final = 64
"""Maximum number of open connections of a server."""
SECONDS: Final = 10.0
"""Seconds within which a connection must have sent its request and read the answer."""
BACKLOG: Final = 1024
"""Number of connections that the kernel keeps until they are accepted."""
_ROOM: Final = CONNECTIONS // 2
"""Number of connections that are shut down when all are taken: one by one would take a flood of clients long."""
_LAST_PORT: Final = 65_535


def listen(host: str, port: int) -> BoundedListener:
    """Return a listening socket; raise InputError if the address of the option ``--listen`` cannot be used."""
    if port > _LAST_PORT:
        msg = f"cannot listen on --listen {host}:{port}: the highest port is {_LAST_PORT}"
        raise InputError(msg)
    try:
        listening = BoundedListener(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(BACKLOG)
        except BaseException:
            listening.close()
            raise
    except OSError as exc:
        msg = f"cannot listen on --listen {host}:{port}: {exc.strerror or exc}"
        raise InputError(msg) from exc
    return listening


@dataclass(eq=False)
class _Connection:
    """A connection: its deadline (None if its request may take as long as it needs), and whether it was shut down."""

    socket: socket.socket
    deadline: float | None
    is_ending: bool = False

    def end(self) -> None:
        """Shut the connection down; the thread or protocol that serves it notices, and closes the descriptor."""
        self.is_ending = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class BoundedListener(socket.socket):
    """A listening socket that limits the number of its connections and their time; only one thread may accept."""

    def __init__(self, family: int = -1) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._connections: dict[tuple[str, int], _Connection] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; raise BlockingIOError if one of the others must be closed first."""
        is_full = self._make_room()
        connection, address = super().accept()
        if is_full:
            connection.close()
            raise BlockingIOError
        self._connections[address[:2]] = _Connection(connection, time.monotonic() + SECONDS)
        return connection, address

    def _make_room(self) -> bool:
        """Shut down the oldest unanswered connections if all are taken; return True if none of them is unanswered.

        Raise BlockingIOError if the server has yet to close the descriptor of one that was shut down.
        """
        self._forget_closed()
        if len(self._connections) < CONNECTIONS:
            return False
        if not any(connection.is_ending for connection in self._connections.values()):
            unanswered = [other for other in self._connections.values() if other.deadline is not None]
            if not unanswered:
                return True
            for connection in unanswered[:_ROOM]:
                connection.end()
        raise BlockingIOError

    def limit(self, client: tuple[str, int] | None, seconds: float | None) -> None:
        """Shut a client's connection down in `seconds` from now; with None it may take as long as it needs."""
        connection = None if client is None else self._connections.get((client[0], client[1]))
        if connection is not None:
            connection.deadline = None if seconds is None else time.monotonic() + seconds

    def close_overdue(self) -> None:
        """Shut down connections whose time is over; the server calls this about twice a second."""
        self._forget_closed()
        now = time.monotonic()
        for connection in self._connections.values():
            if connection.deadline is not None and connection.deadline < now and not connection.is_ending:
                connection.end()

    def end_all(self) -> None:
        """Shut down all connections."""
        for connection in self._connections.values():
            connection.end()

    def _forget_closed(self) -> None:
        closed = [client for client, connection in self._connections.items() if connection.socket.fileno() < 0]
        for client in closed:
            del self._connections[client]
