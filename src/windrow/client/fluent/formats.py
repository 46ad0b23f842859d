"""Formats of records, for the argument `format` of `kafka`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath

from windrow import model as m
from windrow.client.arguments import checked
from windrow.declare.schema_files import avro_schema, descriptor_set
from windrow.errors import PipelineError


@checked
def registry(url: str, *, options: Mapping[str, str] | None = None, missing: Sequence[int] = ()) -> m.Registry:
    """Use a schema registry with Confluent's REST interface.

    `options` are passed to confluent-kafka's client unchanged (``{"basic.auth.user.info": "${REGISTRY_LOGIN}"}``). A
    schema id that the registry does not have stops the run, or is a dead letter if it is in `missing`.
    """
    return m.Registry(url, tuple((options or {}).items()), tuple(missing))


@checked
def avro(
    *,
    schema: str | PathLike[str] | None = None,
    registry: str | m.Registry | None = None,
    reader: str | PathLike[str] | None = None,
) -> m.AvroFormat:
    """Read Avro with a schema, which is the path of a file or JSON text, or with the schemas in a registry.

    With a registry, a field that the schema of a record lacks has its default in the schema `reader`. Raise
    PipelineError if a file cannot be read, or unless one of `schema` and `registry` is given.
    """
    if (schema is None) == (registry is None) or (reader is not None and registry is None):
        msg = "avro: give a schema, or a registry and perhaps the schema of the reader"
        raise PipelineError(msg)
    defaults = None if reader is None else avro_schema(fspath(reader))
    return m.AvroFormat(_registry(registry) or avro_schema(fspath(schema or "")), defaults)


@checked
def protobuf(
    *,
    descriptor: str | PathLike[str] | None = None,
    message: str | None = None,
    registry: str | m.Registry | None = None,
) -> m.ProtobufFormat:
    """Read Protobuf, with a message type from a descriptor set in a file, or with the schemas in a registry.

    ``protoc --include_imports --descriptor_set_out=FILE`` writes the file. The errors are those of `avro`.
    """
    if (descriptor is None) == (registry is None) or (descriptor is None) != (message is None):
        msg = "protobuf: give a descriptor and a message, or a registry"
        raise PipelineError(msg)
    return m.ProtobufFormat(
        _registry(registry) or m.ProtobufMessage(descriptor_set(fspath(descriptor or "")), message or "")
    )


@checked
def json_schema(*, registry: str | m.Registry) -> m.JsonSchemaFormat:
    """Read JSON objects that begin with the id of their JSON Schema in a registry."""
    return m.JsonSchemaFormat(m.Registry(registry) if isinstance(registry, str) else registry)


@checked
def csv(columns: Sequence[str], *, delimiter: str = ",") -> m.CsvFormat:
    """Read lines of comma-separated values with these columns, in order."""
    return m.CsvFormat((columns,) if isinstance(columns, str) else tuple(columns), delimiter)


def _registry(given: str | m.Registry | None) -> m.Registry | None:
    return m.Registry(given) if isinstance(given, str) else given
