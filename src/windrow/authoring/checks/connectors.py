"""Checks of sources and sinks: connector settings, the record format, and the sink's key and digits."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, assert_never

from windrow import model as m
from windrow.authoring.checks.base import ResultSpec, decoded_type, no_field, result_names, sink_path, type_of
from windrow.declare.findings import Finding, error, warning
from windrow.errors import InputError
from windrow.expressions import SinkSpec, WindowSpec
from windrow.model.avro_schema import AvroMap, AvroRecord, AvroType, AvroUnion, parse_schema


def source_settings(node: m.SourceNode) -> Iterator[Finding]:
    """Check the settings of a source with the rules of its connector."""
    from windrow.connectors.registry import source_connector  # noqa: PLC0415 - it loads YAML

    source = node.source
    for finding in source_connector(source).findings(source):
        yield replace(finding, where=f"source.{source.section}.{finding.where}")


def sink_settings(sink: m.Sink) -> Iterator[Finding]:
    """Check the settings of a sink with the rules of its connector."""
    from windrow.connectors.registry import sink_connector  # noqa: PLC0415 - as above

    for finding in sink_connector(sink).findings(sink):
        yield replace(finding, where=f"{sink_path(sink)}.{finding.where}")


def file_fields(node: m.SourceNode) -> Iterator[Finding]:
    """Check that a file source has a key of decoded fields; warn if it does not decode whether a row was deleted."""
    if not isinstance(node.source, m.FileSource):
        return
    if not node.source.key:
        yield error("source.file.key", "is empty; list the fields that identify a row of the file")
    for index, name in enumerate(node.source.key):
        if decoded_type(node, name) is None:
            yield error(f"source.file.key.{index}", no_field(node, name))
        elif node.decode.field(name).path:
            yield error(f"source.file.key.{index}", f"{name!r} is in a nested object; use a field without a path")
    deleted = decoded_type(node, m.DELETED)
    if deleted is None:
        message = (
            f"a row that is removed from the file is read once more, with {m.DELETED!r} true; "
            f"decode {m.DELETED}: boolean"
        )
        yield warning("decode", message)
    elif deleted != m.BooleanType():
        yield error(f"decode.{m.DELETED}", f"{m.DELETED!r} is a {deleted}, but in the log of a file it is a boolean")


def sink_key(spec: ResultSpec, sink: m.Sink) -> Iterator[Finding]:
    """Check that the sink's key is unique for each window and key, and that revisions do not change it."""
    key = sink.key
    if not key:
        return
    where = f"{sink_path(sink)}.key"
    if isinstance(spec.node, m.RulesNode):
        yield error(where, "applies to windows only: the table of alerts has the primary key alert_id; remove `key`")
        return
    # with mode discard each pane is a row
    revision = ("revision",) if isinstance(spec.node, m.WindowNode) and spec.node.emit.mode == "discard" else ()
    # cumulate windows share their starts
    is_cumulate = isinstance(spec.node, m.WindowNode) and isinstance(spec.node.window, m.Cumulate)
    bounds = m.WINDOW_BOUNDS if is_cumulate else m.WINDOW_BOUNDS[:1]
    missing = [name for name in (*bounds, *spec.key, *revision) if name not in key]
    if missing:
        yield error(where, f"lacks {', '.join(missing)}, so rows would overwrite each other; add it, or remove `key`")
    identity = (*m.WINDOW_BOUNDS, *spec.key, *revision)
    values = {name for _, name in result_names(spec)}
    for index, name in enumerate(key):
        if name in values:
            message = f"{name!r} is a result, which revisions change; a key can only contain {', '.join(identity)}"
            yield error(f"{where}.{index}", message)
        elif name not in identity:
            yield error(
                f"{where}.{index}", f"there is no column {name!r}; a key can only contain {', '.join(identity)}"
            )
        if name in key[:index]:
            yield error(f"{where}.{index}", f"{name!r} is given twice in the key; keep one of them")


def partition_columns(spec: SinkSpec) -> Iterator[Finding]:
    """Check that the files of a sink are partitioned by columns with few values that folders can be named by."""
    where = f"{sink_path(spec.sink)}.partition_by"
    columns = {field.name: field for field in (*spec.rows.key, *spec.rows.values)}
    possible = [
        name
        for name, field in columns.items()
        if isinstance(field.type, _PARTITION_TYPES) and not isinstance(field.type, m.JsonListType)
    ]
    for index, name in enumerate(spec.sink.partition_by):
        if name in spec.sink.partition_by[:index]:
            yield error(f"{where}.{index}", f"{name!r} is given twice; keep one of them")
        elif name not in possible:
            type_ = columns[name].type if name in columns else None
            kind = "list" if isinstance(type_, m.JsonListType) else type_
            what = f"{name!r} is a {kind}" if type_ is not None else f"there is no column {name!r}"
            yield error(f"{where}.{index}", f"{what}; files can be partitioned by {', '.join(possible) or 'no column'}")


def registered_schema(spec: SinkSpec, encoding: m.SchemaFormat) -> Iterator[Finding]:
    """Check that the columns of a sink have names that a schema can have, and the registry no settings of readers."""
    where = f"{sink_path(spec.sink)}.encoding"
    if isinstance(encoding.schema, m.Registry) and encoding.schema.missing:
        yield error(f"{where}.{encoding.section}.registry.missing", "is for records that are read; remove it")
    if isinstance(encoding, m.JsonSchemaFormat):
        return
    known = {_name_in_json(name): name for name in m.WINDOW_BOUNDS}
    for name in (field.name for field in (*spec.rows.key, *spec.rows.values)):
        if not _SCHEMA_NAME.fullmatch(name):
            message = (
                f"{name!r} is not a valid name in {encoding.section}; use letters from a to z, digits and '_', or use "
                "json_schema"
            )
            yield error(where, message)
        elif isinstance(encoding, m.ProtobufFormat) and (other := known.setdefault(_name_in_json(name), name)) != name:
            message = (
                f"{other!r} and {name!r} have one name in the JSON of protobuf, {_name_in_json(name)!r}; rename one"
            )
            yield error(where, message)


def _name_in_json(name: str) -> str:
    """Return the name that a field of a Protobuf message has in JSON, which must be unique."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


_SCHEMA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARTITION_TYPES = (m.StringType, m.LongType, m.BooleanType)
_SQLITE_DIGITS = 15


def sqlite_digits(spec: WindowSpec, sink: m.Sink) -> Iterator[Finding]:
    """Warn about decimals that may exceed the 15 digits of SQLite's NUMERIC.

    A sum is assumed to be at most a hundred times as large as its terms.
    """
    if not isinstance(sink, m.SqliteSink) or sink.decimals == "text":
        return
    for aggregate in spec.node.aggregates:
        type_, more = _digits_needed(spec, aggregate.function)
        if isinstance(type_, m.DecimalType) and type_.precision + more > _SQLITE_DIGITS:
            message = (
                f"over a {type_} can need more than {_SQLITE_DIGITS} digits, which NUMERIC rounds; set `decimals: text`"
            )
            yield warning(f"aggregate.{aggregate.name}", message)


def _digits_needed(spec: WindowSpec, function: m.Function) -> tuple[m.DataType | None, int]:
    """Return the type of an aggregate's argument, and how many more digits than the argument the result may have."""
    if isinstance(function, m.Count | m.Custom | m.Formula):
        return None, 0
    more = {"argument": 0, "sum": 2, "mean": 6}.get(m.function_spec(function).result)
    return (None, 0) if more is None else (type_of(spec, function.of), more)


def record_format(node: m.SourceNode) -> Iterator[Finding]:
    """Check that decoded fields exist in the schema or the CSV columns, and that a registry has a URL."""
    from windrow.connectors.settings import registry_findings  # noqa: PLC0415 - it loads YAML

    where = f"source.{node.source.section}.format"
    match node.source.format:
        case "json" | "debezium":
            pass
        case m.AvroFormat(schema, reader):
            if reader is not None:
                yield from _reader(reader, f"{where}.avro.reader")
            yield from (
                registry_findings(f"{where}.avro.registry", schema)
                if isinstance(schema, m.Registry)
                else _avro(node, schema, f"{where}.avro.schema")
            )
        case m.ProtobufFormat(schema):
            yield from (
                registry_findings(f"{where}.protobuf.registry", schema)
                if isinstance(schema, m.Registry)
                else _protobuf(node, schema, f"{where}.protobuf")
            )
        case m.JsonSchemaFormat(schema):
            yield from registry_findings(f"{where}.json_schema.registry", schema)
        case m.CsvFormat() as given:
            yield from _csv(node, given, f"{where}.csv")
        case _:
            assert_never(node.source.format)


def _reader(schema: str, where: str) -> Iterator[Finding]:
    try:
        type_ = parse_schema(schema, "it")
    except InputError as exc:
        yield error(where, f"{exc}")
        return
    if not any(record.defaults for record in _records(type_)):
        yield warning(where, "has no defaults of fields, so it has no effect")


def _avro(node: m.SourceNode, schema: str, where: str) -> Iterator[Finding]:
    try:
        type_ = parse_schema(schema, "it")
    except InputError as exc:
        yield error(where, f"{exc}")
        return
    records = _records(type_)
    if not records:
        yield error(where, "is not the schema of a record; give a file whose schema has the type record")
        return
    names = [name for record in records for name, _ in record.fields]
    yield from _lacking(node, lambda path: _leads(type_, path), names, where, "the schema has no field")


def _records(type_: AvroType) -> list[AvroRecord]:
    return [branch for branch in _branches(type_) if isinstance(branch, AvroRecord)]


def _branches(type_: AvroType) -> Sequence[AvroType]:
    return type_.branches if isinstance(type_, AvroUnion) else (type_,)


def _leads(type_: AvroType, path: Sequence[str]) -> bool:
    """Return True if the path can exist in values of this type; a map can have any key."""
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
            f"{where}.descriptor", "is not a descriptor set; protoc --include_imports --descriptor_set_out writes one"
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
    """Yield the full name and descriptor of each message, including nested messages."""
    for message in given:
        name = f"{scope}.{message.name}".lstrip(".")
        yield name, message
        yield from _messages(name, message.nested_type)


def _csv(node: m.SourceNode, given: m.CsvFormat, where: str) -> Iterator[Finding]:
    if not given.columns or "" in given.columns:
        yield error(f"{where}.columns", "must list the columns in the order in which a line has them")
    for index, name in enumerate(given.columns):
        if name in given.columns[:index]:
            yield error(f"{where}.columns.{index}", f"{name!r} is given twice; give each column its own name")
    if len(given.delimiter) != 1 or given.delimiter in '"\r\n\0' or not given.delimiter.isascii():
        yield error(f"{where}.delimiter", f"{given.delimiter!r} must be one ASCII character, such as ';' or a tab")
    columns = given.columns
    nested = [field for field in node.decode.fields if len(field.path) > 1 and field.path[0] not in node.source.outside]
    for field in nested:
        message = (
            "leads into an object, but values in CSV are not objects; give the name of a column, or remove the path"
        )
        yield error(f"decode.{field.name}.path", message)
    if nested:
        return
    folders: Collection[str] = ()
    if isinstance(node.source, m.FilesSource):
        from windrow.connectors.files.names import fields_of_folders  # noqa: PLC0415 - only where there are files

        folders = fields_of_folders(node.source)
    yield from _lacking(
        node, lambda path: path[0] in columns or path[0] in folders, columns, f"{where}.columns", "there is no column"
    )


def _lacking(
    node: m.SourceNode, leads: Callable[[Sequence[str]], bool], names: Sequence[str], where: str, what: str
) -> Iterator[Finding]:
    """Find decoded fields that no record can have.

    An optional field is then always null; a required field makes every record a dead letter.
    """
    for field in node.decode.fields:
        if not any(leads(path) or path[0] in node.source.outside for path in field.paths) and not field.tombstones:
            name = ".".join(field.paths[0])
            report, result = (
                (warning, f"{field.name} is always null") if field.optional else (error, "all records are dead letters")
            )
            yield report(where, f"{what} {name!r}, so {result}; the names are {', '.join(names)}")
