"""Formats of records, the argument `format` of `kafka`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath

from windrow.client.arguments import checked
from windrow.declare.schema_files import avro_schema, descriptor_set
from windrow.errors import PipelineError
from windrow.model import AvroFormat, CsvFormat, ProtobufFormat, ProtobufMessage, Registry


@checked
def registry(url: str, *, options: Mapping[str, str] | None = None, missing: Sequence[int] = ()) -> Registry:
    """Name a schema registry with Confluent's REST interface.

    `options` go to confluent-kafka's client as they are (``{"basic.auth.user.info": "${REGISTRY_LOGIN}"}``). Records
    whose schema has one of the ids `missing` are dead letters; another id that the registry does not have stops a run.
    """
    return Registry(url, tuple((options or {}).items()), tuple(missing))


@checked
def avro(*, schema: str | PathLike[str] | None = None, registry: str | Registry | None = None) -> AvroFormat:
    """Read Avro: of the schema in a file (or of its JSON), or of the schemas in a registry.

    Raises PipelineError if the file cannot be read, or if not one of both is given.
    """
    if (schema is None) == (registry is None):
        msg = "avro: give a schema, or a registry"
        raise PipelineError(msg)
    return AvroFormat(_registry(registry) or avro_schema(fspath(schema or "")))


@checked
def protobuf(
    *,
    descriptor: str | PathLike[str] | None = None,
    message: str | None = None,
    registry: str | Registry | None = None,
) -> ProtobufFormat:
    """Read Protobuf: a message of the descriptor set in a file, or the messages of a registry's schemas.

    The file is what ``protoc --include_imports --descriptor_set_out=FILE`` writes. Raises PipelineError if it cannot be
    read, or if not one of both is given.
    """
    if (descriptor is None) == (registry is None) or (descriptor is None) != (message is None):
        msg = "protobuf: give a descriptor and a message, or a registry"
        raise PipelineError(msg)
    return ProtobufFormat(
        _registry(registry) or ProtobufMessage(descriptor_set(fspath(descriptor or "")), message or "")
    )


@checked
def csv(columns: Sequence[str], *, delimiter: str = ",") -> CsvFormat:
    """Read a line of comma-separated values, of these columns in order."""
    return CsvFormat((columns,) if isinstance(columns, str) else tuple(columns), delimiter)


def _registry(given: str | Registry | None) -> Registry | None:
    return Registry(given) if isinstance(given, str) else given
