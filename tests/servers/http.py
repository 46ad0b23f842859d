"""HTTP servers of this process, on loopback."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from tests.waiting import join


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Message
    body: bytes


@dataclass(frozen=True)
class Reply:
    status: int
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpServer(ABC):
    """Answers requests within a `with`, on a free port."""

    @abstractmethod
    def reply(self, request: Request) -> Reply:
        """Answer a GET or a POST."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                reply = server.reply(Request(self.command, self.path, self.headers, body))
                self.send_response(reply.status)
                for name, value in {**reply.headers, "Content-Length": str(len(reply.content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.content)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        join(self._thread)
