"""The keys `format` of a source and `encoding` of a sink, which declare how records are encoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from windrow import model as m
from windrow.declare.options import OPTIONS, mask_options
from windrow.declare.schema_files import BASE64, avro_schema, descriptor_set
from windrow.declare.spec import NAMES, NUMBER, TEXT, Key, Kind, OneOf, Scalar, Section, choice
from windrow.declare.yaml_node import YamlNode
from windrow.model.references import mask_url

T = TypeVar("T")


REGISTRY = Section(
    "wr.registry",
    m.Registry,
    (
        Key(
            "url", TEXT, "its URL, or several URLs separated by commas.", required=True, positional=True, mask=mask_url
        ),
        Key(
            "options",
            OPTIONS,
            "options of confluent-kafka's registry client, such as `basic.auth.user.info: ${REGISTRY_LOGIN}` "
            "(`USER:PASSWORD`) or `ssl.ca.location`. [Secrets](../guides/security.md) and files must exist on each "
            "machine that decodes records. A sink also has `auto.register.schemas`.",
            default=(),
            mask=mask_options,
        ),
        Key(
            "missing",
            Scalar(
                "list of whole numbers",
                lambda node: node.each(YamlNode.number),
                list,
                {"type": "array", "items": NUMBER.schema()},
            ),
            "ids that the registry does not have: their records are dead letters.",
            default=(),
        ),
    ),
    short=True,
    called="URL or mapping",
)
_REGISTRY = Key(
    "registry",
    REGISTRY,
    "a [schema registry](#schema-registry): records begin with a zero byte and the id of their schema.",
)


class _SchemaSection(Section[T]):
    """A format that has either its own schema or the schemas of a registry."""

    def mask(self, value: T) -> T:
        schema = getattr(value, "schema", None)
        return replace(value, schema=REGISTRY.mask(schema)) if isinstance(schema, m.Registry) else value  # type: ignore[type-var]


def _one_of_both(given: Mapping[str, Any]) -> str | None:
    return "has both a schema of its own and a `registry`; remove one of them" if "registry" in given else None


def _avro(schema: str | None, registry: m.Registry | None, reader: str | None) -> m.AvroFormat:
    return m.AvroFormat(registry or schema or "", reader)


def _avro_parts(value: m.AvroFormat) -> dict[str, Any]:
    is_registry = isinstance(value.schema, m.Registry)
    return {
        "schema": None if is_registry else value.schema,
        "registry": value.schema if is_registry else None,
        "reader": value.reader,
    }


def _avro_conflict(given: Mapping[str, Any]) -> str | None:
    if "schema" in given and "reader" in given:
        return "has a `reader`, whose defaults are for schemas of a `registry`; remove it"
    return _one_of_both(given) if "schema" in given else None


_AVRO = _SchemaSection(
    "wr.avro",
    _avro,
    (
        Key(
            "schema",
            Scalar("text", lambda node: node.parsed(avro_schema)),
            "the file with the schema of all records, or the schema itself as JSON.",
            unless="registry",
            hint="or 'registry'",
        ),
        _REGISTRY,
        Key(
            "reader",
            Scalar("text", lambda node: node.parsed(avro_schema)),
            "with a registry, the file with the reader's schema, or the schema itself: a field that the schema of a "
            "record lacks has its default there.",
        ),
    ),
    parts=_avro_parts,
    conflict=_avro_conflict,
)


def _protobuf(descriptor: str | None, message: str | None, registry: m.Registry | None) -> m.ProtobufFormat:
    return m.ProtobufFormat(registry or m.ProtobufMessage(descriptor or "", message or ""))


def _protobuf_parts(value: m.ProtobufFormat) -> dict[str, Any]:
    schema = value.schema
    if isinstance(schema, m.Registry):
        return {"descriptor": None, "message": None, "registry": schema}
    return {"descriptor": schema.descriptor, "message": schema.name, "registry": None}


_PROTOBUF = _SchemaSection(
    "wr.protobuf",
    _protobuf,
    (
        Key(
            "descriptor",
            Scalar("text", lambda node: node.parsed(descriptor_set), lambda text: f"{BASE64}{text}"),
            "the file with the descriptor set (`protoc --include_imports --descriptor_set_out=FILE`), or the "
            "set itself, `base64:...`.",
            unless="registry",
            hint="or 'registry'",
        ),
        Key("message", TEXT, "the full name of the message, such as `shop.Order`.", unless="registry"),
        _REGISTRY,
    ),
    parts=_protobuf_parts,
    conflict=lambda given: _one_of_both(given) if {"descriptor", "message"} & given.keys() else None,
)
_JSON_SCHEMA = _SchemaSection(
    "wr.json_schema",
    m.JsonSchemaFormat,
    (replace(_REGISTRY, required=True, field="schema"),),
)
_CSV = Section(
    "wr.csv",
    m.CsvFormat,
    (
        Key("columns", NAMES, "the names of the columns, in order.", required=True, positional=True),
        Key("delimiter", TEXT, "the character between values.", default=m.CsvFormat.delimiter),
    ),
)

TEXT_FORMAT = choice("json", "debezium")
_TEXT = Kind((str,), TEXT_FORMAT, lambda value: "row changes from Debezium" if value == "debezium" else "", "")
_LINES = Kind(
    (m.CsvFormat,),
    _CSV,
    lambda value: f"CSV with the columns {', '.join(value.columns)}",
    "a line of comma-separated values; in Kafka, without a header.",
)
_SCHEMA_KINDS: Mapping[str, Kind[Any]] = {
    "avro": Kind(
        (m.AvroFormat,),
        _AVRO,
        lambda value: f"Avro records{_by_registry(value.schema)}",
        "Avro's binary encoding.",
    ),
    "protobuf": Kind(
        (m.ProtobufFormat,),
        _PROTOBUF,
        lambda value: (
            f"Protobuf messages{_by_registry(value.schema)}"
            if isinstance(value.schema, m.Registry)
            else f"Protobuf messages {value.schema.name}"
        ),
        "Protobuf's binary encoding.",
    ),
    "json_schema": Kind(
        (m.JsonSchemaFormat,),
        _JSON_SCHEMA,
        lambda value: f"JSON objects{_by_registry(value.schema)}",
        "JSON objects with a JSON Schema.",
    ),
}
FORMAT: OneOf[m.RecordFormat] = OneOf("format", {**_SCHEMA_KINDS, "csv": _LINES}, _TEXT)
KEY_FORMAT: OneOf[m.KeyFormat] = OneOf(
    "key format",
    _SCHEMA_KINDS,
    Kind(
        (str,), choice("text", "json", "binary"), lambda value: "numbers in binary" if value == "binary" else value, ""
    ),
)
_REGISTERED = replace(_REGISTRY, doc="the registry.", required=True, field="schema")
ENCODING: OneOf[m.SchemaFormat] = OneOf(
    "encoding",
    {
        "avro": replace(_SCHEMA_KINDS["avro"], spec=Section("wr.avro", m.AvroFormat, (_REGISTERED,))),
        "protobuf": replace(_SCHEMA_KINDS["protobuf"], spec=Section("wr.protobuf", m.ProtobufFormat, (_REGISTERED,))),
        "json_schema": replace(_SCHEMA_KINDS["json_schema"], spec=_JSON_SCHEMA),
    },
)
FILES_FORMAT: OneOf[m.FilesFormat] = OneOf("format", {"csv": _LINES}, _TEXT)


def _by_registry(schema: object) -> str:
    return f" with the schemas of {mask_url(schema.url)}" if isinstance(schema, m.Registry) else ""
