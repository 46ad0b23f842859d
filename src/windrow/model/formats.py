"""Formats of records: how their bytes are encoded.

The text of a schema is part of the pipeline, so no machine needs the file from which it was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

TextFormat = Literal["json", "debezium"]
"""A JSON object with the fields, or a change event of Debezium, whose row has the fields."""


AUTO_REGISTER: Final = "auto.register.schemas"
"""The option of a registry, true or false, whether a sink registers the schemas of its records."""


@dataclass(frozen=True)
class Registry:
    """A schema registry with Confluent's REST interface; records begin with a zero byte and the id of their schema.

    `options` are passed to confluent-kafka's client unchanged (``basic.auth.user.info`` ...). Records with the ids
    `missing` are dead letters; any other unknown id stops a run.
    """

    url: str = field(repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class AvroFormat:
    """Avro's binary encoding, with a schema as JSON text, or with the schemas in a registry.

    With a registry, a field that the schema of a record lacks has its default in the schema `reader`, if there is one.
    """

    schema: str | Registry
    reader: str | None = None
    section: ClassVar[str] = "avro"


@dataclass(frozen=True)
class CsvFormat:
    """Comma-separated values (RFC 4180), one record per line, with these columns in order."""

    columns: tuple[str, ...]
    delimiter: str = ","


@dataclass(frozen=True)
class ProtobufMessage:
    """The message type with the full name `name` in the descriptor set `descriptor`, which is in base64."""

    descriptor: str
    name: str


@dataclass(frozen=True)
class ProtobufFormat:
    """Protobuf's binary encoding, with one message type, or with the schemas in a registry."""

    schema: ProtobufMessage | Registry
    section: ClassVar[str] = "protobuf"


@dataclass(frozen=True)
class JsonSchemaFormat:
    """JSON objects that begin with the id of their JSON Schema in a registry."""

    schema: Registry
    section: ClassVar[str] = "json_schema"


SchemaFormat = AvroFormat | ProtobufFormat | JsonSchemaFormat
KeyFormat = Literal["text", "json", "binary"] | SchemaFormat
"""The format of the keys in a topic; a binary key is a whole number in big-endian order."""
ChangeFormat = Literal["json", "debezium", "upsert"]
"""The format of a change in a topic: the row with its operation, Debezium's envelope, or the row, null if deleted."""
RecordFormat = TextFormat | CsvFormat | SchemaFormat
FilesFormat = TextFormat | CsvFormat
"""The format of text files, with one record per line."""
