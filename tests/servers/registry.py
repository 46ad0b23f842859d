"""A schema registry on loopback, as confluent-kafka's client asks for it: the calls that register and read schemas."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.json_format import MessageToDict
from tests.servers.http import HttpServer, Reply, Request

_ID = re.compile(r"/schemas/ids/(\d+)(?:\?|$)")
_VERSION = re.compile(r"/subjects/([^/]+)/versions/(\d+)(?:\?|$)")
_SUBJECT = re.compile(r"/subjects/([^/]+)/versions(?:\?|$)")
_COMPATIBILITY = re.compile(r"/compatibility/subjects/([^/]+)/versions/latest(?:\?|$)")


def _parsed(schema: str) -> dict[str, Any]:
    if schema.startswith("{"):
        return json.loads(schema)  # type: ignore[no-any-return]
    return MessageToDict(FileDescriptorProto.FromString(base64.b64decode(schema)))  # type: ignore[no-any-return]


@dataclass
class SchemaRegistry(HttpServer):
    """Gives each new schema the next id; `asked` has the paths that were asked for.

    With a `login` (USER:PASSWORD) it refuses all others, with a `status` it answers all requests by that. With a
    `denial` (an HTTP status and a code) it registers nothing. If it `is_strict`, a record's schema must be able to read
    the records of the last version: fields keep their types, and new ones have a default.
    """

    login: str | None = None
    status: int | None = None
    denial: tuple[int, int] | None = None
    is_strict: bool = False
    asked: list[str] = field(default_factory=list)
    _schemas: list[dict[str, Any]] = field(default_factory=list)
    _subjects: dict[str, list[int]] = field(default_factory=dict)

    def answer(self, method: str, path: str, body: dict[str, Any], given: str | None) -> tuple[int, Any]:
        self.asked.append(path)
        if self.status is not None:
            return self.status, {"error_code": self.status * 100 + 1, "message": "not now"}
        if self.login is not None and given != f"Basic {base64.b64encode(self.login.encode()).decode()}":
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if (match := _SUBJECT.search(path)) or (match := _COMPATIBILITY.search(path)):
            return self._of_subject(match[1], body if method == "POST" else None, is_test="/compatibility/" in path)
        if (match := _ID.search(path)) and 0 < int(match[1]) <= len(self._schemas):
            return 200, self._schemas[int(match[1]) - 1]
        if (match := _VERSION.search(path)) and 0 < int(match[2]) <= len(self._subjects.get(match[1], ())):
            id_ = self._subjects[match[1]][int(match[2]) - 1]
            return 200, {"subject": match[1], "version": int(match[2]), "id": id_, **self._schemas[id_ - 1]}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _of_subject(self, subject: str, schema: dict[str, Any] | None, *, is_test: bool) -> tuple[int, Any]:
        """Register a schema, or only test whether it could be; without a schema, list the versions."""
        if (schema is None or is_test) and subject not in self._subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if schema is None:
            return 200, list(range(1, len(self._subjects[subject]) + 1))
        if is_test:
            return 200, {"is_compatible": self._is_compatible(subject, schema)}
        if self.denial is not None:
            return self.denial[0], {"error_code": self.denial[1], "message": "not permitted"}
        if not self._is_compatible(subject, schema):
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        return 200, {"id": self.register(subject, schema)}

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Add a version to a subject, and return the id of its schema."""
        kept = {"schemaType": "AVRO", **{name: one for name, one in schema.items() if name != "normalize"}}
        if kept not in self._schemas:
            self._schemas.append(kept)
        id_ = self._schemas.index(kept) + 1
        versions = self._subjects.setdefault(subject, [])
        if not self.is_strict or id_ not in versions:
            versions.append(id_)
        return id_

    def versions(self, subject: str) -> list[dict[str, Any]]:
        """Return the schemas of a subject; those of Protobuf are descriptors in base64."""
        return [_parsed(self._schemas[id_ - 1]["schema"]) for id_ in self._subjects.get(subject, ())]

    def _is_compatible(self, subject: str, schema: dict[str, Any]) -> bool:
        if not self.is_strict or subject not in self._subjects:
            return True
        new, last = _parsed(schema["schema"]), self.versions(subject)[-1]
        if "messageType" in new:
            numbers = {field["number"]: field["type"] for field in last["messageType"][0]["field"]}
            fields = new["messageType"][0]["field"]
            return all(numbers.get(field["number"], field["type"]) == field["type"] for field in fields)
        if new["type"] != "record":
            known = last["properties"]
            of_both = all(type_ == known.get(name, type_) for name, type_ in new["properties"].items())
            return of_both and set(new["required"]) <= known.keys()
        types = {field["name"]: field["type"] for field in last["fields"]}
        return all(
            types[field["name"]] == field["type"] if field["name"] in types else "default" in field
            for field in new["fields"]
        )

    def reply(self, request: Request) -> Reply:
        given = request.headers.get("Authorization")
        status, found = self.answer(request.method, request.path, json.loads(request.body or b"{}"), given)
        return Reply(status, json.dumps(found).encode(), {"Content-Type": "application/vnd.schemaregistry.v1+json"})
