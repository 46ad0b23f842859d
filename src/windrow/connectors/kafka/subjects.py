"""Registers the schemas of a topic's records, by default as `TOPIC-value` and `TOPIC-key`, before the first record.

A schema has the same id whenever it is registered again, so the records of a step that is repeated are the same bytes.
If a run may not register (the option `auto.register.schemas` is false, or the registry refuses it), or the schema is
not compatible with earlier ones, the records get the first version of the subject that they fit, which remains the
first when others are added.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

import pyarrow as pa

from windrow import model as m
from windrow.connectors.kafka.encoding import AvroEncoding, JsonSchemaEncoding, RowEncoding
from windrow.connectors.kafka.rows import Encode, Encoders, RecordColumns
from windrow.engine.decode.registry import FORBIDDEN, NOT_FOUND, RefusedRequestError, RegistryClient
from windrow.errors import SourceError
from windrow.expressions import SinkSpec

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

_READ_ONLY: Final = 42205
"""The registry's code for a subject whose mode allows no registration."""
_INCOMPATIBLE: Final = 409
"""The status of a schema that is not compatible with earlier versions."""


def register_schemas(spec: SinkSpec) -> Encoders | None:
    """Register the schemas of a sink's records, and return their encoders; None if the sink has no encoding.

    Raise SourceUnavailableError if the registry does not answer, and SourceError if it refuses the schemas.
    """
    subjects = _subjects(spec)
    if subjects is None:
        return None
    return Encoders(subjects.value.register(), None if subjects.key is None else subjects.key.register())


def check_schemas(spec: SinkSpec) -> None:
    """Raise the errors of `register_schemas` that can be detected without registering."""
    for subject in _listed(spec):
        subject.check()


def schema_statements(specs: Sequence[SinkSpec]) -> list[str]:
    """Return comments of SQL with the schemas of sinks and their subjects; an empty list if no sink has a schema.

    The registry is not connected to: in Protobuf, fields are numbered as in the first version of a subject.
    """
    return [
        line
        for spec in specs
        for subject in _listed(spec)
        for line in (
            f"-- {subject.encoding.kind} schema for the subject {subject.name} at {subject.registry.url}:",
            f"-- {subject.encoding.derive()}",
        )
    ]


class _Subjects(NamedTuple):
    value: _Subject
    key: _Subject | None


def _subjects(spec: SinkSpec) -> _Subjects | None:
    """Return the subjects of values and, for upserts, of keys; None without an encoding."""
    sink = spec.sink
    if not isinstance(sink, m.KafkaSink) or sink.encoding is None:
        return None
    (registry,) = sink.registries.values()
    options = dict(registry.options)
    may_register = options.pop(m.AUTO_REGISTER, "true") == "true"
    client = RegistryClient(replace(registry, options=tuple(options.items())))
    columns, (name, key_name) = RecordColumns.of(spec), sink.subjects
    encoding = _encoding(sink.encoding, sink.topic, columns.value, columns.results)
    value = _Subject(client, name, encoding, may_register)
    if sink.format != "upsert":
        return _Subjects(value, None)
    key = _encoding(sink.encoding, f"{sink.topic}_key", columns.key)
    return _Subjects(value, _Subject(client, key_name, key, may_register))


def _listed(spec: SinkSpec) -> list[_Subject]:
    """Return the subjects of a sink; an empty list without an encoding."""
    return [subject for subject in _subjects(spec) or () if subject is not None]


def _encoding(
    given: m.SchemaFormat, topic: str, columns: Sequence[pa.Field], results: Container[str] = ()
) -> RowEncoding:
    """Return the encoding of rows that a sink has chosen."""
    match given:
        case m.AvroFormat():
            return AvroEncoding(topic, columns, results)
        case m.JsonSchemaFormat():
            return JsonSchemaEncoding(topic, columns, results)
        case m.ProtobufFormat():
            from windrow.connectors.kafka.protobuf_rows import ProtobufEncoding  # noqa: PLC0415 - its runtime only here

            return ProtobufEncoding(topic, columns, results)
        case _:
            assert_never(given)


@dataclass(frozen=True)
class _Subject:
    """A subject of a registry, and the encoding of the rows that its schemas describe."""

    registry: RegistryClient
    name: str
    encoding: RowEncoding
    may_register: bool

    def register(self) -> Encode:
        """Register the derived schema, or find one that fits, and return its encoder."""
        derived = self._derived()
        if self.may_register:
            try:
                id_ = self.registry.ask(lambda client: client.register_schema(self.name, self._schema(derived)))
            except RefusedRequestError as exc:
                if exc.status == _INCOMPATIBLE and (encode := self._fitting()) is not None:
                    return encode
                if not _is_denied(exc):
                    raise self._refused(str(exc), derived) from exc
            else:
                return self.encoding.encoder(id_, derived)
        return self._existing(derived)

    def check(self) -> None:
        """Raise the errors of `register` that can be detected without registering."""
        derived = self._derived()
        if self.may_register:
            try:
                is_compatible = self.registry.ask(
                    lambda client: client.test_compatibility(self.name, self._schema(derived))
                )
            except RefusedRequestError as exc:
                if exc.status == NOT_FOUND:  # the run will register the first version
                    return
                if not _is_denied(exc):
                    raise self._refused(str(exc), derived) from exc
            else:
                if is_compatible or self._fitting() is not None:
                    return
                msg = "it is not compatible with the last version"
                raise self._refused(msg, derived)
        self._existing(derived)

    def _derived(self) -> str:
        versions = self._versions() if self.encoding.is_numbered else ()
        return self.encoding.derive([text for _, text in versions])

    def _schema(self, text: str) -> Schema:
        from confluent_kafka.schema_registry import Schema  # noqa: PLC0415 - an extra

        return Schema(text, self.encoding.kind)

    def _existing(self, derived: str) -> Encode:
        """Return the encoder for the first version that all rows fit; raise SourceError if they fit no version."""
        if (encode := self._fitting()) is not None:
            return encode
        msg = (
            f"the schema registry {self.registry.url} has no version of the subject {self.name} that the records fit, "
            f"and this run may not register one; register this {self.encoding.kind} schema: {derived}"
        )
        raise SourceError(msg)

    def _fitting(self) -> Encode | None:
        """Return the encoder for the first version that all rows fit, or None."""
        fitting = ((id_, text) for id_, text in self._versions() if self.encoding.fits(text))
        found = next(fitting, None)
        return None if found is None else self.encoding.encoder(*found)

    def _versions(self) -> Iterator[tuple[int, str]]:
        """Yield the id and the text of each version that is a schema of the encoding and refers to no others."""
        form = self.encoding.form
        try:
            for number in sorted(self.registry.ask(lambda client: client.get_versions(self.name))):
                found = self.registry.ask(lambda client: client.get_version(self.name, number))  # noqa: B023 - called at once
                schema, id_ = found.schema, found.schema_id or 0
                if (schema.schema_type or "AVRO") != self.encoding.kind or schema.references:
                    continue
                if form is not None:
                    schema = self.registry.ask(lambda client: client.get_schema(id_, fmt=form))  # noqa: B023 - the same
                yield id_, schema.schema_str or ""
        except RefusedRequestError as exc:
            if exc.status != NOT_FOUND:
                msg = f"the schema registry {self.registry.url} refuses to read the subject {self.name}: {exc}"
                raise SourceError(msg) from exc

    def _refused(self, why: str, schema: str) -> SourceError:
        return SourceError(
            f"the schema registry {self.registry.url} refuses a schema for the subject {self.name}: {why}; write to "
            f"another topic, or change the compatibility of the subject. The schema is {schema}"
        )


def _is_denied(exc: RefusedRequestError) -> bool:
    return exc.status == FORBIDDEN or exc.code == _READ_ONLY
