"""What stands before a server on this machine."""

from __future__ import annotations

import socket
import threading
from abc import abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"


class Listener:
    """Takes connections on a port of its own, as long as it is open."""

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0))

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

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                self.serve(self._listener.accept()[0])

    @abstractmethod
    def serve(self, client: socket.socket) -> None:
        """Begin to serve a connection."""
