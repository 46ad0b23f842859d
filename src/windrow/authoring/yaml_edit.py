"""Edit a YAML file and preserve everything else in it: comments, order, quotes and line breaks."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from windrow.declare.yaml_node import YamlNode, compose
from windrow.errors import PipelineError, Place


def set_values(text: str, file: str, values: Mapping[str, str]) -> str:
    """Set plain values by path, such as ``emit.lateness``; missing keys are added to the deepest existing mapping.

    Raise PipelineError, with file:line, if a path does not lead to a single value, or if an alias shares the value.
    """
    for path, value in values.items():
        text = _set_value(text, compose(text, file), path, value)
    return text


def _set_value(text: str, root: YamlNode, path: str, value: str) -> str:
    node, rest = root.node, path.split(".")
    while rest and isinstance(node, yaml.MappingNode):
        below = next((value for key, value in node.value if key.value == rest[0]), None)
        if below is None:
            return _insert(text, root, node, rest, value)
        node, rest = below, rest[1:]
    place = Place(root.file, node.start_mark.line + 1)
    if rest or not isinstance(node, yaml.ScalarNode):
        msg = f"{path} is not a single value here: set it to {value} by hand"
        raise PipelineError(msg, place)
    if "${" in node.value:
        msg = f"{path} is {node.value} here: set the variable to {value}"
        raise PipelineError(msg, place)
    if _count(root.node, node) > 1:
        msg = f"{path} is shared with another key by an alias: set it to {value} by hand"
        raise PipelineError(msg, place)
    return f"{text[: _index(text, node.start_mark)]}{value}{text[_index(text, node.end_mark) :]}"


def _insert(text: str, root: YamlNode, node: yaml.MappingNode, keys: list[str], value: str) -> str:
    """Insert nested keys with a value at the end of a mapping."""
    if not node.value or _count(root.node, node) > 1:
        msg = f"{'.'.join(keys)}: {value} cannot be added to this mapping: write it by hand"
        raise PipelineError(msg, Place(root.file, node.start_mark.line + 1))
    entry = value
    for key in reversed(keys[1:]):
        entry = f"{{{key}: {entry}}}"
    last = _index(text, _end(node.value[-1][1]))
    if node.flow_style:
        return f"{text[:last]}, {keys[0]}: {entry}{text[last:]}"
    # after the line, with its comment, in which the last value ends
    newline = text.find("\n", last)
    end = len(text) if newline < 0 else newline
    if text[end - 1 : end] == "\r":
        end -= 1
    line_break = "\r\n" if "\r\n" in text else "\n"
    return f"{text[:end]}{line_break}{' ' * node.start_mark.column}{keys[0]}: {entry}{text[end:]}"


def _end(node: yaml.Node) -> yaml.Mark:
    """Return where the text of a node ends.

    The end mark of a block cannot be used, because it is where the next node starts.
    """
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node.end_mark


def _index(text: str, mark: yaml.Mark) -> int:
    """Return the index of a mark in the text; it counts the byte order mark, which `compose` removes."""
    index: int = mark.index
    return index + text.startswith("\ufeff")


def _count(root: yaml.Node, wanted: yaml.Node) -> int:
    """Count the paths to a node; there are several if the node, or a node above it, has an alias."""
    if root is wanted:
        return 1
    if isinstance(root, yaml.MappingNode):
        return sum(_count(below, wanted) for _, below in root.value)
    return sum(_count(below, wanted) for below in root.value) if isinstance(root, yaml.SequenceNode) else 0
