"""Print a pipeline as plain values, as YAML or as JSON; all have the structure of its YAML file."""

from __future__ import annotations

import json
from typing import Any

import yaml

from windrow import model as m
from windrow.authoring.sections import mask_secrets, section_of
from windrow.authoring.variables import escape_variables
from windrow.declare.python_code import refuse_code
from windrow.errors import HIDDEN_VALUES

_WIDTH = 120

Plain = dict[str, Any]
"""Mappings, lists, texts and numbers."""


def to_dict(graph: m.Graph) -> Plain:
    """Return the pipeline as mappings, lists, texts and numbers, in canonical order; secrets are replaced by ***.

    Python code (a custom aggregate, trigger or process function) is printed by name, and cannot be read back.
    """
    plain: Plain = section_of(graph).plain(mask_secrets(graph))
    return plain


def to_yaml(graph: m.Graph) -> str:
    """Return the canonical YAML of a pipeline, with each section on one line if it fits.

    A longer section has a line for each of its parts. Secrets are replaced by ***; apart from them, the YAML reads back
    as the same pipeline. Raise PipelineError if the pipeline has Python code.
    """
    refuse_code(graph, "YAML")
    root = _yaml_node(_escape(to_dict(graph), ()))
    root.flow_style = False
    _unfold(root, 0, deepest=0 if graph.is_short else 2)
    return _yaml_text(root)


def yaml_text(value: Plain) -> str:
    """Return plain values as YAML, on one line."""
    return _yaml_text(_yaml_node(value))


def _escape(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - plain values
    """Escape texts so that they are not read as variables; hidden values are replaced by their ``${NAME}``."""
    match value:
        case dict():
            return {HIDDEN_VALUES.hide(key): _escape(item, (*path, key)) for key, item in value.items()}
        case list():
            return [_escape(item, path) for item in value]
        case str():
            return HIDDEN_VALUES.hide(escape_variables(value, path))
        case _:
            return value


def _unfold(node: yaml.MappingNode, depth: int, deepest: int) -> None:
    """Put each part of a section that is too long for one line on a line of its own, down to the depth `deepest`."""
    for key, section in node.value:
        if 2 * depth + len(key.value) + len(": ") + len(_yaml_text(section)) > _WIDTH:
            section.flow_style = False
            if depth < deepest and isinstance(section, yaml.MappingNode):
                _unfold(section, depth + 1, deepest)


def _yaml_text(node: yaml.Node) -> str:
    text: str = yaml.serialize(node, Dumper=yaml.SafeDumper, width=float("inf"), allow_unicode=True)
    return text


def _yaml_node(value: Any) -> Any:  # noqa: ANN401 - plain values to nodes of PyYAML
    match value:
        case dict():
            pairs = [(_yaml_node(key), _yaml_node(item)) for key, item in value.items()]
            return yaml.MappingNode("tag:yaml.org,2002:map", pairs, flow_style=True)
        case list():
            return yaml.SequenceNode("tag:yaml.org,2002:seq", [_yaml_node(item) for item in value], flow_style=True)
        case bool():
            return yaml.ScalarNode("tag:yaml.org,2002:bool", str(value).lower())
        case int():
            return yaml.ScalarNode("tag:yaml.org,2002:int", str(value))
        case float():
            # a float of YAML has a point
            text = repr(value) if "." in repr(value) else repr(value).replace("e", ".0e")
            return yaml.ScalarNode("tag:yaml.org,2002:float", text)
        case _:
            # other styles of PyYAML lose some line ends, such as U+0085
            style = None if value.isprintable() else '"'
            return yaml.ScalarNode("tag:yaml.org,2002:str", value, style=style)


def to_json(graph: m.Graph) -> str:
    """Return the pipeline as indented JSON with the structure of its YAML; secrets are replaced by ***."""
    return HIDDEN_VALUES.hide(json.dumps(to_dict(graph), indent=2, ensure_ascii=False)) + "\n"
