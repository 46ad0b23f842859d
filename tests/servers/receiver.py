"""A server that keeps what is posted to it, for exporters."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import TracebackType

from tests.servers.http import HttpServer, Reply, Request


@dataclass(frozen=True)
class Post:
    path: str
    body: bytes


@dataclass
class Receiver(HttpServer):
    """Answers each request with 200, or none of them before the block ends if it `hangs`."""

    hangs: bool = False
    posts: list[Post] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def reply(self, request: Request) -> Reply:
        self.posts.append(Post(request.path, request.body))
        if self.hangs:
            self._over.wait()
        return Reply(200)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._over.set()
        super().__exit__(kind, value, stack)
