"""Checks of the format of records: its schema or columns have the decoded fields."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never

from windrow import model as m
from windrow.declare.findings import Finding, error, warning
from windrow.errors import InputError
from windrow.model.avro_schema import AvroMap, AvroRecord, AvroType, AvroUnion, parse_schema
from windrow.model.references import is_reference, with_placeholders


def record_format(node: m.SourceNode) -> Iterator[Finding]:
    """A schema has the decoded fields, a registry has a URL, and CSV has columns for the fields."""
    where = f"source.{node.source.section}.format"
    match node.source.format:
        case "json" | "debezium":
            pass
        case m.AvroFormat(schema):
            yield from (
                _registry(f"{where}.avro", schema)
                if isinstance(schema, m.Registry)
                else _avro(node, schema, f"{where}.avro.schema")
            )
        case m.ProtobufFormat(schema):
            yield from (
                _registry(f"{where}.protobuf", schema)
                if isinstance(schema, m.Registry)
                else _protobuf(node, schema, f"{where}.protobuf")
            )
        case m.CsvFormat() as given:
            yield from _csv(node, given, f"{where}.csv")
        case _:
            assert_never(node.source.format)


def _registry(where: str, given: m.Registry) -> Iterator[Finding]:
    # the URL is not quoted: it may hold a password
    if not is_reference(given.url) and not with_placeholders(given.url).startswith(("http://", "https://")):
        yield error(f"{where}.registry", "must be a URL such as http://localhost:8081")


def _avro(node: m.SourceNode, schema: str, where: str) -> Iterator[Finding]:
    try:
        type_ = parse_schema(schema, "it")
    except InputError as exc:
        yield error(where, f"{exc}")
        return
    records = [branch for branch in _branches(type_) if isinstance(branch, AvroRecord)]
    if not records:
        yield error(where, "is not the schema of a record; name a file whose schema has the type record")
        return
    names = [name for record in records for name, _ in record.fields]
    yield from _lacking(node, lambda path: _leads(type_, path), names, where, "the schema has no field")


def _branches(type_: AvroType) -> Sequence[AvroType]:
    return type_.branches if isinstance(type_, AvroUnion) else (type_,)


def _leads(type_: AvroType, path: Sequence[str]) -> bool:
    """Return whether a value of a type can have a path; a map can have any name."""
    if not path:
        return True
    for branch in _branches(type_):
        inner = dict(branch.fields).get(path[0]) if isinstance(branch, AvroRecord) else None
        if isinstance(branch, AvroMap) or (inner is not None and _leads(inner, path[1:])):
            return True
    return False


def _protobuf(node: m.SourceNode, schema: m.ProtobufMessage, where: str) -> Iterator[Finding]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415 - only where there are messages
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - the same

    try:
        files = FileDescriptorSet.FromString(base64.b64decode(schema.descriptor, validate=True)).file
    except (DecodeError, binascii.Error):
        yield error(
            f"{where}.descriptor", "is not a descriptor set; protoc --include_imports --descriptor_set_out writes it"
        )
        return
    messages = dict(pair for file in files for pair in _messages(file.package, file.message_type))
    if schema.name not in messages:
        known = ", ".join(messages) or "none"
        yield error(f"{where}.message", f"{schema.name!r} is not in the descriptor; its messages are {known}")
        return
    names = [field.name for field in messages[schema.name].field]

    def leads(name: str, path: Sequence[str]) -> bool:
        if not path or name not in messages or messages[name].options.map_entry:
            return True
        inner = [field.type_name.lstrip(".") for field in messages[name].field if field.name == path[0]]
        return any(leads(type_, path[1:]) if type_ else len(path) == 1 for type_ in inner)

    yield from _lacking(
        node, lambda path: leads(schema.name, path), names, f"{where}.message", f"{schema.name} has no field"
    )


def _messages(scope: str, given: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the full names and descriptors of messages, including nested ones."""
    for message in given:
        name = f"{scope}.{message.name}".lstrip(".")
        yield name, message
        yield from _messages(name, message.nested_type)


def _csv(node: m.SourceNode, given: m.CsvFormat, where: str) -> Iterator[Finding]:
    if not given.columns or "" in given.columns:
        yield error(f"{where}.columns", "must name each column, in the order of a line")
    for index, name in enumerate(given.columns):
        if name in given.columns[:index]:
            yield error(f"{where}.columns.{index}", f"{name!r} is given twice; give each column its own name")
    if len(given.delimiter) != 1 or given.delimiter in '"\r\n\0' or not given.delimiter.isascii():
        yield error(f"{where}.delimiter", f"{given.delimiter!r} must be one ASCII character, such as ';' or a tab")
    columns = given.columns
    nested = [field for field in node.decode.fields if len(field.path) > 1]
    for field in nested:
        message = "leads into an object, but a value of CSV is not an object; name the column, or remove the path"
        yield error(f"decode.{field.name}.path", message)
    if nested:
        return
    yield from _lacking(node, lambda path: path[0] in columns, columns, f"{where}.columns", "there is no column")


def _lacking(
    node: m.SourceNode, leads: Callable[[Sequence[str]], bool], names: Sequence[str], where: str, what: str
) -> Iterator[Finding]:
    """A decoded field that no record has is always null, or makes every record a dead letter."""
    for field in node.decode.fields:
        if not any(leads(path) for path in field.paths):
            name = ".".join(field.paths[0])
            report, result = (
                (warning, f"{field.name} is always null") if field.optional else (error, "all records are dead letters")
            )
            yield report(where, f"{what} {name!r}, so {result}; the names are {', '.join(names)}")
