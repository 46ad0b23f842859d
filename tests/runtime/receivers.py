"""Who alerts are sent to: a webhook on loopback, and a command that appends to a file."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.http import HttpServer, Reply, Request


class Webhook(HttpServer):
    """Answers a POST with the next of some codes, in the end with 200, and keeps the bodies that it has taken."""

    def __init__(self, codes: list[int]) -> None:
        self.codes = codes
        self.bodies: list[dict[str, Any]] = []
        self.asked = 0
        self.login: str | None = None
        self.held = threading.Event()
        self.held.set()

    @property
    def url(self) -> str:
        return f"{super().url}/hooks/secret"

    def reply(self, request: Request) -> Reply:
        if request.method == "GET":
            return Reply(200)
        self.held.wait(60)
        self.asked += 1
        code = self.codes.pop(0) if self.codes else 200
        if code == 200:
            assert request.headers["Content-Type"] == "application/json"
            self.login = request.headers.get("Authorization")
            self.bodies.append(json.loads(request.body))
        return Reply(code, headers={"Location": "/elsewhere"})


@contextmanager
def webhook(*codes: int) -> Iterator[Webhook]:
    """Serve a webhook on loopback."""
    with Webhook(list(codes)) as hook:
        try:
            yield hook
        finally:
            hook.held.set()


def appending(file: Path) -> list[str]:
    """A command that appends what is on stdin to a file, as a line."""
    code = f"import sys; open({str(file)!r}, 'a').write(sys.stdin.read())"
    return [sys.executable, "-c", code]


def lines(file: Path) -> list[dict[str, Any]]:
    """What the command has appended."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
