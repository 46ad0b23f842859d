"""Schemas from a registry with Confluent's REST interface, each requested only once by its id.

The schema of an id never changes, so the meaning of a record is fixed when the record is written, no matter when the
registry is asked. If the registry does not answer, or does not know the id, this says nothing about the record: an
error stops the step, which is run again. A record becomes a dead letter only for lasting reasons: the pipeline lists
its id as missing, or the id belongs to another kind of schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.deadline import TimeLimit
from windrow.engine.decode.cursors import Cursors, Rows
from windrow.engine.decode.values import MalformedError
from windrow.errors import SourceError, SourceUnavailableError, needs_extra
from windrow.model.references import mask_url, redact, resolve_references

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

T = TypeVar("T")
A = TypeVar("A")

MAGIC: Final = 0
PREFIX: Final = 5
"""Number of bytes before the data: a zero byte, and the id in big-endian order."""
_NUMBERS: Final = ("timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity")
_DEFAULTS: Final = {"timeout": "10", "max.retries": "2", "retries.wait.ms": "200"}
_REQUESTS: Final[TimeLimit[Any]] = TimeLimit(unfinished=8)
_UNAUTHORIZED, FORBIDDEN, NOT_FOUND, _TOO_MANY, _SERVER = 401, 403, 404, 429, 500


class UnknownSchemaError(SourceError):
    """The registry has no schema with this `id`."""

    def __init__(self, message: str, id_: int) -> None:
        super().__init__(message)
        self.id = id_

    def first_of(self, source: str, raw: pa.RecordBatch) -> SourceError:
        """Return the error with the place of the first record with the id, given a source's records (`schema.RAW`)."""
        prefix = bytes([MAGIC]) + self.id.to_bytes(4)
        own = [pc.fill_null(pc.starts_with(raw.column(name), prefix), fill_value=False) for name in ("value", "key")]
        at = pc.index(pc.or_(*own), pa.scalar(value=True)).as_py()
        return SourceError(
            f"{source}, partition {raw.column('partition')[at]}, offset {raw.column('offset')[at]}: {self}"
        )


class RefusedRequestError(SourceError):
    """The registry answers a request with an error; `status` is the HTTP status, `code` the registry's own."""

    def __init__(self, message: str, status: int, code: int) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class RegistryClient:
    """Asks a registry, whose URL is `url` in messages; `given` are its settings."""

    def __init__(self, given: m.Registry) -> None:
        self._given = given
        self._client: SchemaRegistryClient | None = None
        self._seconds = 0.0
        self.url = mask_url(given.url)

    def ask(self, request: Callable[[SchemaRegistryClient], T]) -> T:
        """Return the answer to a request.

        Raise SourceUnavailableError if the registry does not answer now, SourceError if it refuses the options, and
        RefusedRequestError for any other error.
        """
        if self._client is None:
            self._client, self._seconds = _client_of(self._given)
        client = self._client
        from confluent_kafka.schema_registry.error import SchemaRegistryError  # noqa: PLC0415 - an extra

        try:
            return _REQUESTS.call(self._seconds, lambda: request(client))  # type: ignore[no-any-return]
        except SchemaRegistryError as exc:
            status = exc.http_status_code
            if status == _UNAUTHORIZED:
                raise self.denied(exc) from exc
            if status == _TOO_MANY or status >= _SERVER:
                msg = f"the schema registry {self.url} cannot answer now: {exc}"
                raise SourceUnavailableError(msg) from exc
            raise RefusedRequestError(str(exc), status, exc.error_code) from exc
        except Exception as exc:
            # even an answer that the client cannot read says nothing about the record
            msg = f"the schema registry {self.url} cannot be reached: {exc}; is it running, and are the options right?"
            raise SourceUnavailableError(msg) from exc

    def denied(self, exc: Exception) -> SourceError:
        """Return the error for options with which the registry refuses a request."""
        return SourceError(
            f"the schema registry {self.url} refuses these options: {exc}; correct `options` of the registry"
        )


@dataclass(frozen=True)
class RegisteredSchema:
    """The text of a schema, the names and texts of the schemas it refers to, in order, and its name in messages."""

    text: str
    references: tuple[tuple[str, str], ...]
    called: str


class Schemas(Generic[T]):
    """Parsed schemas of one kind (`AVRO` or `PROTOBUF`); `form` is the requested format of their texts.

    The function `parse` raises InputError for a malformed schema.
    """

    def __init__(
        self, registry: m.Registry, kind: str, parse: Callable[[RegisteredSchema], T], form: str | None = None
    ) -> None:
        self._registry = RegistryClient(registry)
        self._kind = kind
        self._parse = parse
        self._form = form
        self._known: dict[int, T | MalformedError] = {
            id_: MalformedError(f"no schema: the pipeline says that the registry has none with the id {id_}")
            for id_ in registry.missing
        }

    def of(self, raw: bytes) -> T:
        """Return the schema of a record; raise MalformedError if it has none, and SourceError if it is unknown."""
        if len(raw) < PREFIX or raw[0] != MAGIC:
            problem = f"the first byte is {raw[0]}, not 0" if raw else "the record is empty"
            problem = f"the record has {len(raw)} bytes" if raw and raw[0] == MAGIC else problem
            msg = f"malformed: no schema id: {problem}"
            raise MalformedError(msg)
        found = self._with_id(int.from_bytes(raw[1:PREFIX]))
        if isinstance(found, MalformedError):
            raise found
        return found

    def groups(self, values: pa.Array) -> Iterator[tuple[Rows, T]]:
        """Yield (rows, schema) for each schema, with rows in ascending order; raise SourceError as `of` does."""
        cursors = Cursors(values.fill_null(b"") if values.null_count else values)
        words = cursors.words(cursors.at)
        has_id = (cursors.end - cursors.at >= PREFIX) & (words & np.uint64(0xFF) == MAGIC)
        ids = (words >> np.uint64(8)).astype(np.uint32).byteswap()
        for id_ in np.unique(ids[has_id]).tolist():
            found = self._with_id(id_)
            if not isinstance(found, MalformedError):
                yield np.flatnonzero(has_id & (ids == id_)), found

    def reach(self) -> None:
        """Check the connection; raise SourceError if the registry cannot be reached or refuses the request."""
        with suppress(UnknownSchemaError):
            self._answer(lambda client: client.get_latest_version("windrow"), 0)

    def _with_id(self, id_: int) -> T | MalformedError:
        if id_ not in self._known:
            self._known[id_] = self._ask(id_)
        return self._known[id_]

    def _ask(self, id_: int) -> T | MalformedError:
        schema = self._answer(lambda client: client.get_schema(id_, fmt=self._form), id_)
        kind = schema.schema_type or "AVRO"
        if kind != self._kind:
            return MalformedError(f"malformed: the schema {id_} is {kind}, and the source reads {self._kind}")
        called = f"the schema {id_} of {self._registry.url}"
        return self._parse(RegisteredSchema(schema.schema_str or "", tuple(self._references(schema, id_)), called))

    def _references(self, schema: Schema, id_: int) -> Iterator[tuple[str, str]]:
        """Yield (name, text) for each schema that a schema refers to, after the schema's own references."""
        for reference in schema.references or ():
            subject, version = reference.subject or "", reference.version or 0
            # a schema refers to a fixed version of a subject
            found = self._answer(lambda client: client.get_version(subject, version, True, self._form), id_)  # noqa: B023, FBT003 - called at once; deleted ones too
            yield from self._references(found.schema, id_)
            yield reference.name or "", found.schema.schema_str or ""

    def _answer(self, request: Callable[[SchemaRegistryClient], A], id_: int) -> A:
        try:
            return self._registry.ask(request)
        except RefusedRequestError as exc:
            at = self._registry.url
            if exc.status == NOT_FOUND:
                msg = (
                    f"the schema registry {at} has no schema with the id {id_}; register it, or list the id under "
                    "`missing` to make its records dead letters"
                )
                raise UnknownSchemaError(msg, id_) from exc
            if exc.status == FORBIDDEN:
                raise self._registry.denied(exc) from exc
            msg = f"the schema registry {at} refuses to return the schema {id_}: {exc}"
            raise SourceError(msg) from exc


def _client_of(registry: m.Registry) -> tuple[SchemaRegistryClient, float]:
    """Return a client for the registry, and the seconds of a request in all: `timeout` for each attempt at each URL.

    Raise SetupError if its package is missing, and InputError or SourceError if an option is wrong.
    """
    with needs_extra("registry", "a schema registry"):
        from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415 - an extra
    options: dict[str, Any] = {}
    url = resolve_references(registry.url, "the registry's url", str)
    if not all(map(_is_url, url.split(","))):
        msg = "the registry's url cannot be read: write http://HOST:PORT, and percent-encode special characters"
        raise SourceError(msg)
    for name, value in (_DEFAULTS | dict(registry.options)).items():
        text = resolve_references(value, f"the registry's option {name}", str)
        try:
            options[name] = float(text) if name in _NUMBERS else text
        except ValueError as exc:
            msg = f"the registry's option {name} is not a number"
            raise SourceError(msg) from exc
    try:
        client = SchemaRegistryClient({"url": url, **options})
    except (ValueError, TypeError, OSError) as exc:
        msg = f"the options of the schema registry are wrong: {redact(str(exc), map(str, options.values()))}"
        raise SourceError(msg) from None
    return client, options["timeout"] * (int(options["max.retries"]) + 1) * len(url.split(","))


def _is_url(text: str) -> bool:
    """Return True if the client can read the text as a URL; a password in it must be percent-encoded."""
    try:
        parts = urlsplit(text.strip())
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return is_url and parts.netloc.count("@") < 2  # noqa: PLR2004 - user and host have one between them
