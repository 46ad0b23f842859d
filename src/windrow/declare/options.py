"""Options for a client library: a mapping of names to texts, printed with secrets masked."""

from __future__ import annotations

from windrow.declare.spec import TEXT_SCHEMA, Scalar, mapping_schema
from windrow.declare.yaml_node import YamlMapping, YamlNode
from windrow.model.references import mask_option


def read_options(node: YamlNode) -> tuple[tuple[str, str], ...]:
    """Read a mapping of names to texts."""
    fields = YamlMapping(node)
    options = [(name, fields.attempt(YamlNode.text, entry)) for name, entry in fields]
    fields.check()
    return tuple((name, option.value) for name, option in options)


OPTIONS = Scalar("mapping of texts", read_options, dict, mapping_schema(TEXT_SCHEMA))


def mask_options(options: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return options with their secrets replaced by ***."""
    return tuple((name, mask_option(name, value)) for name, value in options)
