"""Formats of records: what the bytes of a record are.

A schema is part of the pipeline: it is kept as text, so that no machine needs the file that it was read from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

TextFormat = Literal["json", "debezium"]
"""A JSON object with the fields, or a change event of Debezium, whose row has the fields."""


@dataclass(frozen=True)
class Registry:
    """A schema registry with Confluent's REST interface; records begin with a zero byte and the id of their schema.

    `options` go to confluent-kafka's client as they are (``basic.auth.user.info`` ...). Records with the ids `missing`
    are dead letters; another id that the registry does not have stops a run.
    """

    url: str = field(repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class AvroFormat:
    """Avro's binary encoding, of the schema with this JSON text, or of those in a registry."""

    schema: str | Registry


@dataclass(frozen=True)
class CsvFormat:
    """Comma-separated values (RFC 4180), a line a record, of these columns in order."""

    columns: tuple[str, ...]
    delimiter: str = ","


@dataclass(frozen=True)
class ProtobufMessage:
    """The message with a full name in a descriptor set, which is kept in base64."""

    descriptor: str
    name: str


@dataclass(frozen=True)
class ProtobufFormat:
    """Protobuf's binary encoding, of a message, or of those in a registry."""

    schema: ProtobufMessage | Registry


RecordFormat = TextFormat | AvroFormat | CsvFormat | ProtobufFormat
FilesFormat = TextFormat | CsvFormat
"""The format of files, in which a record is a line."""
