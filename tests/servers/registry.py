"""A schema registry on loopback, as confluent-kafka's client asks for it: the calls that register and read schemas."""

from __future__ import annotations

import base64
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

_ID = re.compile(r"/schemas/ids/(\d+)(?:\?|$)")
_VERSION = re.compile(r"/subjects/([^/]+)/versions/(\d+)(?:\?|$)")
_SUBJECT = re.compile(r"/subjects/([^/]+)/versions(?:\?|$)")


@dataclass
class SchemaRegistry:
    """Gives each new schema the next id; `asked` has the paths that were asked for.

    With a `login` (USER:PASSWORD) it refuses all others, with a `status` it answers all requests by that.
    """

    login: str | None = None
    status: int | None = None
    asked: list[str] = field(default_factory=list)
    _schemas: list[dict[str, Any]] = field(default_factory=list)
    _subjects: dict[str, list[int]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, method: str, path: str, body: dict[str, Any], given: str | None) -> tuple[int, dict[str, Any]]:
        self.asked.append(path)
        if self.status is not None:
            return self.status, {"error_code": self.status * 100 + 1, "message": "not now"}
        if self.login is not None and given != f"Basic {base64.b64encode(self.login.encode()).decode()}":
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if method == "POST" and (match := _SUBJECT.search(path)):
            kept = {"schemaType": "AVRO", **{name: one for name, one in body.items() if name != "normalize"}}
            if kept not in self._schemas:
                self._schemas.append(kept)
            id_ = self._schemas.index(kept) + 1
            self._subjects.setdefault(match[1], []).append(id_)
            return 200, {"id": id_}
        if (match := _ID.search(path)) and 0 < int(match[1]) <= len(self._schemas):
            return 200, self._schemas[int(match[1]) - 1]
        if (match := _VERSION.search(path)) and 0 < int(match[2]) <= len(self._subjects.get(match[1], ())):
            id_ = self._subjects[match[1]][int(match[2]) - 1]
            return 200, {"subject": match[1], "version": int(match[2]), "id": id_, **self._schemas[id_ - 1]}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def __enter__(self) -> Self:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def _reply(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                given = self.headers.get("Authorization")
                status, found = registry.answer(self.command, self.path, json.loads(body or b"{}"), given)
                content = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = _reply  # noqa: N815 - the names that the server calls

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
        self._thread.join()
