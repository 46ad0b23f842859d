"""A pipeline as YAML."""

from __future__ import annotations

from typing import Any

import yaml

from windrow.api.printing.in_python import refuse_code
from windrow.api.printing.to_dict import to_dict
from windrow.model import AnyPipeline

_WIDTH = 120


def to_yaml(pipeline: AnyPipeline) -> str:
    """Return the canonical YAML of a pipeline, one noun a line; it reads back as the same pipeline, but for ***.

    A section that is longer than a line has a line for each of its parts.

    Raise PipelineError if there is Python code in it.
    """
    refuse_code(pipeline, "YAML")
    root = _node(to_dict(pipeline))
    root.flow_style = False
    for key, section in root.value:
        if len(key.value) + len(": ") + len(_text(section)) > _WIDTH:
            section.flow_style = False
    return _text(root)


def _text(node: yaml.Node) -> str:
    text: str = yaml.serialize(node, Dumper=yaml.SafeDumper, width=float("inf"), allow_unicode=True)
    return text


def _node(value: Any) -> Any:  # noqa: ANN401 plain values to nodes, as PyYAML has them
    match value:
        case dict():
            pairs = [(_node(key), _node(item)) for key, item in value.items()]
            return yaml.MappingNode("tag:yaml.org,2002:map", pairs, flow_style=True)
        case list():
            return yaml.SequenceNode("tag:yaml.org,2002:seq", [_node(item) for item in value], flow_style=True)
        case bool():
            return yaml.ScalarNode("tag:yaml.org,2002:bool", str(value).lower())
        case int():
            return yaml.ScalarNode("tag:yaml.org,2002:int", str(value))
        case float():
            # YAML's floats have a point
            text = repr(value) if "." in repr(value) else repr(value).replace("e", ".0e")
            return yaml.ScalarNode("tag:yaml.org,2002:float", text)
        case _:
            # PyYAML's other styles lose some line ends, such as U+0085
            style = None if value.isprintable() else '"'
            return yaml.ScalarNode("tag:yaml.org,2002:str", value, style=style)
