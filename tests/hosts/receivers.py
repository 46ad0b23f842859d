"""Who alerts are sent to: a webhook on loopback, and a command that appends to a file."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Webhook:
    """Answers a POST with the next of some codes, in the end with 200, and keeps the bodies that it has taken."""

    def __init__(self, codes: list[int]) -> None:
        self.codes = codes
        self.bodies: list[dict[str, Any]] = []
        self.asked = 0
        self.held = threading.Event()
        self.held.set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/hooks/secret"


def _handler(hook: Webhook) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.held.wait(60)
            hook.asked += 1
            code = hook.codes.pop(0) if hook.codes else 200
            if code == 200:
                assert self.headers["Content-Type"] == "application/json"
                hook.bodies.append(json.loads(body))
            self.send_response(code)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    return Handler


@contextmanager
def webhook(*codes: int) -> Iterator[Webhook]:
    """Serve a webhook on loopback."""
    hook = Webhook(list(codes))
    thread = threading.Thread(target=hook.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        hook.held.set()
        hook.server.shutdown()
        hook.server.server_close()


def appending(file: Path) -> list[str]:
    """A command that appends what is on stdin to a file, as a line."""
    code = f"import sys; open({str(file)!r}, 'a').write(sys.stdin.read())"
    return [sys.executable, "-c", code]


def lines(file: Path) -> list[dict[str, Any]]:
    """What the command has appended."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
