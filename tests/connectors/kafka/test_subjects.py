"""Schemas in a registry: which one the records of a topic get, and what is refused before one is written."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests.contracts.steps import change, pipeline, step
from tests.graphs import sink_spec_of
from tests.servers.registry import SchemaRegistry

from windrow.connectors.kafka.rows import KafkaRecords, RecordColumns
from windrow.connectors.kafka.subjects import _encoding, check_schemas, register_schemas
from windrow.errors import SourceError, SourceUnavailableError
from windrow.expressions import SinkSpec
from windrow.model import (
    Aggregate,
    AvroFormat,
    ChangeFormat,
    Count,
    JsonSchemaFormat,
    KafkaSink,
    ProtobufFormat,
    Registry,
    SchemaFormat,
    Sum,
)

ONCE = (("max.retries", "0"),)
Kind = type[AvroFormat | ProtobufFormat | JsonSchemaFormat]
KINDS: list[Kind] = [AvroFormat, ProtobufFormat, JsonSchemaFormat]
DENIALS = [(403, 40301), (422, 42205)]
"""What a registry answers to who may not register, and to all if it is read only."""


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry(is_strict=True) as found:
        yield found


def avro(registry: SchemaRegistry, *options: tuple[str, str]) -> AvroFormat:
    return AvroFormat(Registry(registry.url, (*ONCE, *options)))


def spec_of(encoding: SchemaFormat, format_: ChangeFormat = "json", *more: Aggregate) -> SinkSpec:
    sink = KafkaSink("127.0.0.1:1", "spend", format=format_, encoding=encoding)
    return sink_spec_of(pipeline(sink, aggregates=(Aggregate("total", Sum("amount")), *more)))


def ids(spec: SinkSpec, *more: object) -> list[int]:
    """The ids of the schemas with which a row is written: that of its value, and that of its key if it has one."""
    encoders = register_schemas(spec)
    assert encoders is not None
    output = step(spec, [change("insert", 0, "A", Decimal(1), *more)])
    (record,) = KafkaRecords(spec, encoders=encoders).of(output)
    parts = [part for part in (record.value, record.key) if part is not None and part[:1] == b"\0"]
    return [int.from_bytes(part[1:5]) for part in parts]


def names(schema: dict[str, Any]) -> list[str]:
    return [field["name"] for field in schema["fields"]]


FORMATS: list[ChangeFormat] = ["json", "upsert"]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_has_the_ids_of_the_first_run(registry: SchemaRegistry, kind: Kind, format_: ChangeFormat) -> None:
    encoding = kind(Registry(registry.url, ONCE))
    # a count is never null, and old records have none
    spec, wider = spec_of(encoding, format_), spec_of(encoding, format_, Aggregate("events", Count()))
    first = [1, 2][: 1 + (format_ == "upsert")]
    assert ids(spec) == ids(spec) == first
    check_schemas(wider)
    assert register_schemas(wider) is not None
    assert len(registry.versions("spend-value")) == 2
    assert ids(spec) == first
    restricted_ = kind(Registry(registry.url, (*ONCE, ("auto.register.schemas", "false"))))
    assert ids(spec_of(restricted_, format_)) == first
    # the wider rows fit the second version
    assert register_schemas(spec_of(restricted_, format_, Aggregate("events", Count()))) is not None


def test_readers_of_an_added_result_read_old_records(registry: SchemaRegistry) -> None:
    spec, wider = spec_of(avro(registry), "upsert"), spec_of(avro(registry), "upsert", Aggregate("events", Count()))
    encoders = register_schemas(spec)
    (record,) = KafkaRecords(spec, encoders=encoders).of(step(spec, [change("insert", 0, "A", Decimal(1))]))
    register_schemas(wider)
    old, new = registry.versions("spend-value")
    assert record.value is not None
    found = fastavro.schemaless_reader(io.BytesIO(record.value[5:]), old, new)
    assert isinstance(found, dict)
    assert (found["user"], found["total"], found["events"]) == ("A", Decimal(1), None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_whose_results_are_never_null_fits_rows_of_upserts(kind: Kind) -> None:
    # as a team that owns the schemas may have registered it
    settings = spec_of(kind(Registry("http://h:1", ONCE)), "upsert", Aggregate("events", Count()))
    value, _, results = RecordColumns.of(settings)
    assert isinstance(settings.sink, KafkaSink)
    assert settings.sink.encoding is not None
    own, theirs = (
        _encoding(settings.sink.encoding, "spend", value, results),
        _encoding(settings.sink.encoding, "spend", value),
    )
    assert own.derive() != theirs.derive()
    assert own.fits(own.derive())
    assert own.fits(theirs.derive())


@pytest.mark.parametrize("kind", [AvroFormat, JsonSchemaFormat])
def test_a_subject_that_takes_no_nullable_results_keeps_its_version(registry: SchemaRegistry, kind: Kind) -> None:
    # the compatibility is FULL or FORWARD, and the results of the last version are never null
    spec = spec_of(kind(Registry(registry.url, ONCE)), "upsert", Aggregate("events", Count()))
    assert isinstance(spec.sink, KafkaSink)
    assert spec.sink.encoding is not None
    theirs = _encoding(spec.sink.encoding, "spend", RecordColumns.of(spec).value)
    first = registry.register("spend-value", {"schema": theirs.derive(), "schemaType": theirs.kind})
    check_schemas(spec)
    assert ids(spec, 1) == [first, first + 1]
    assert len(registry.versions("spend-value")) == 1


def test_subjects_can_be_named(registry: SchemaRegistry) -> None:
    spec = spec_of(avro(registry), "upsert")
    assert isinstance(spec.sink, KafkaSink)
    spec = replace(spec, sink=replace(spec.sink, subject="acme.Spend", key_subject="acme.Key"))
    check_schemas(spec)
    assert ids(spec) == [1, 2]
    names_ = ("acme.Spend", "acme.Key", "spend-value", "spend-key")
    assert [len(registry.versions(name)) for name in names_] == [1, 1, 0, 0]


def test_a_record_has_the_columns_of_its_row(registry: SchemaRegistry) -> None:
    spec = spec_of(avro(registry), "upsert")
    assert ids(spec) == ids(spec) == [1, 2]
    (value,), (key,) = registry.versions("spend-value"), registry.versions("spend-key")
    assert (value["name"], names(value)) == (
        "spend",
        ["pane", "revision", "window_start", "window_end", "user", "total"],
    )
    assert (key["name"], names(key)) == ("spend_key", ["window_start", "window_end", "user"])


def test_only_upserts_have_keys_with_a_schema(registry: SchemaRegistry) -> None:
    assert ids(spec_of(avro(registry))) == [1]
    (value,) = registry.versions("spend-value")
    assert names(value)[0] == "op"
    assert registry.versions("spend-key") == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_incompatible_schema_is_refused(registry: SchemaRegistry, kind: Kind) -> None:
    encoding = kind(Registry(registry.url, ONCE))
    register_schemas(spec_of(encoding))
    other = sink_spec_of(
        pipeline(
            KafkaSink("127.0.0.1:1", "spend", encoding=encoding),
            aggregates=(Aggregate("total", Count()),),
        )
    )
    for call in (check_schemas, register_schemas):
        with pytest.raises(SourceError, match=r"refuses a schema for the subject spend-value: .*compatible") as caught:
            call(other)
        assert "write to another topic, or change the compatibility of the subject. The schema is " in str(caught.value)
        assert not caught.value.passes
    assert len(registry.versions("spend-value")) == 1


def test_a_registry_that_does_not_answer_is_a_fault_that_passes(registry: SchemaRegistry) -> None:
    spec = spec_of(avro(registry))
    registry.status = 503
    for call in (check_schemas, register_schemas):
        with pytest.raises(SourceUnavailableError, match="cannot answer now"):
            call(spec)
    registry.status = None
    assert ids(spec) == [1]


def test_a_wrong_password_is_refused(registry: SchemaRegistry) -> None:
    registry.login = "me:secret"
    for call in (check_schemas, register_schemas):
        with pytest.raises(SourceError, match="refuses these options"):
            call(spec_of(avro(registry, ("basic.auth.user.info", "me:wrong"))))
    assert ids(spec_of(avro(registry, ("basic.auth.user.info", "me:secret")))) == [1]


def test_check_registers_nothing(registry: SchemaRegistry) -> None:
    check_schemas(spec_of(avro(registry), "upsert"))
    assert registry.versions("spend-value") == []


def restricted(registry: SchemaRegistry, how: object, format_: ChangeFormat = "json") -> SinkSpec:
    """A sink that may not register."""
    if how == "option":
        return spec_of(avro(registry, ("auto.register.schemas", "false")), format_)
    registry.denial = how  # type: ignore[assignment]
    return spec_of(avro(registry), format_)


@pytest.mark.parametrize("how", ["option", *DENIALS])
def test_who_may_not_register_uses_the_first_version_that_fits(registry: SchemaRegistry, how: object) -> None:
    register_schemas(spec_of(avro(registry)))
    (own,) = registry.versions("spend-value")
    other = json.dumps({"type": "record", "name": "x", "fields": []})
    for subject in ("spend-value", "other"):
        registry.register(subject, {"schema": other})
    wider = own | {"name": "Spend", "fields": [*own["fields"], {"name": "region", "type": "string", "default": "eu"}]}
    second = SchemaRegistry(is_strict=True)
    with second:
        second.register("spend-value", {"schema": other})
        wider_id = second.register("spend-value", {"schema": json.dumps(wider)})
        second.register("spend-value", {"schema": json.dumps(own)})
        spec = restricted(second, how)
        check_schemas(spec)
        assert ids(spec) == [wider_id]
        # what is added later changes nothing
        second.register("spend-value", {"schema": json.dumps(wider | {"name": "Later"})})
        assert ids(spec) == [wider_id]
    spec = restricted(registry, how)
    assert ids(spec) == [1]


@pytest.mark.parametrize("how", ["option", *DENIALS])
def test_who_may_not_register_is_told_what_to_register(registry: SchemaRegistry, how: object) -> None:
    spec = restricted(registry, how, "upsert")
    with pytest.raises(SourceError, match="has no version of the subject spend-value that the records fit") as caught:
        register_schemas(spec)
    if how == "option":
        with pytest.raises(SourceError, match="has no version of the subject spend-value"):
            check_schemas(spec)
    said = str(caught.value)
    assert "this run may not register one; register this AVRO schema: {" in said
    registry.register("spend-value", {"schema": said[said.index("{") :]})
    with pytest.raises(SourceError, match="has no version of the subject spend-key") as caught:
        register_schemas(spec)
    said = str(caught.value)
    registry.register("spend-key", {"schema": said[said.index("{") :]})
    assert ids(spec) == [1, 2]


def test_a_deletion_without_values_can_be_written(registry: SchemaRegistry) -> None:
    # which follows a row that was refused
    spec = spec_of(avro(registry))
    encoders = register_schemas(spec)
    output = step(spec, [change("insert", 0, "A", Decimal(1)), change("delete", 0, "A", None, revision=1)])
    found = list(KafkaRecords(spec, encoders=encoders).of(output))
    assert len(found) == 2
    # and of upserts there is only the key
    spec = spec_of(avro(registry), "upsert").into("spend2")
    found = list(KafkaRecords(spec, encoders=register_schemas(spec)).of(output))
    assert [record.value is None for record in found] == [False, True]
    assert len({record.key for record in found}) == 1


def test_a_row_that_cannot_be_encoded_is_a_dead_letter(registry: SchemaRegistry) -> None:
    spec = spec_of(avro(registry), "upsert")
    encoders = register_schemas(spec)
    assert encoders is not None

    def encode(rows: pa.RecordBatch) -> list[bytes]:
        if "B" in rows.column("user").to_pylist():
            msg = "no"
            raise ValueError(msg)
        return encoders.value(rows)

    refused: list[pa.Table] = []
    output = step(spec, [change("insert", 0, user, Decimal(1)) for user in ("A", "B", "C")])
    found = list(KafkaRecords(spec, encoders=encoders._replace(value=encode)).of(output, refused))
    assert [record.topic for record in found] == ["spend", "spend", "spend.dead"]
    (letters,) = refused
    assert letters["reason"].to_pylist()[0].startswith("internal: write: ValueError: no: at window ")
