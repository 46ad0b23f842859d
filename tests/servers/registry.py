"""A schema registry on loopback, as confluent-kafka's client asks for it: the calls that register and read schemas."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.servers.http import HttpServer, Reply, Request

_ID = re.compile(r"/schemas/ids/(\d+)(?:\?|$)")
_VERSION = re.compile(r"/subjects/([^/]+)/versions/(\d+)(?:\?|$)")
_SUBJECT = re.compile(r"/subjects/([^/]+)/versions(?:\?|$)")


@dataclass
class SchemaRegistry(HttpServer):
    """Gives each new schema the next id; `asked` has the paths that were asked for.

    With a `login` (USER:PASSWORD) it refuses all others, with a `status` it answers all requests by that.
    """

    login: str | None = None
    status: int | None = None
    asked: list[str] = field(default_factory=list)
    _schemas: list[dict[str, Any]] = field(default_factory=list)
    _subjects: dict[str, list[int]] = field(default_factory=dict)

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

    def reply(self, request: Request) -> Reply:
        given = request.headers.get("Authorization")
        status, found = self.answer(request.method, request.path, json.loads(request.body or b"{}"), given)
        return Reply(status, json.dumps(found).encode(), {"Content-Type": "application/vnd.schemaregistry.v1+json"})
