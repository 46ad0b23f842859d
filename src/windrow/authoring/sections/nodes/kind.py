"""The interface of a kind of stream: its syntax, checks and descriptions; and keys that several kinds share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any

from windrow import model as m
from windrow.authoring.checks.places import at, key_problems, named_streams
from windrow.declare.findings import Finding, error
from windrow.declare.spec import NAMES, TEXT, TEXT_SCHEMA, Key, Schema, Section, Spec, each_item, mapping_schema
from windrow.declare.yaml_node import YamlNode, read_texts
from windrow.expressions import Stream, is_same_type, join_sides, stream_of


@dataclass(frozen=True)
class NodeKind:
    """A kind of stream that is not a result.

    The `section` has its keys in a file; `marks` are the keys that no other kind has. `findings` checks a node, given
    the stream that it reads. `words` maps each noun that `windrow explain` prints to a description of the settings, and
    `keeps` says how long state is kept, if there is any. `label` returns the text of the node in a flowchart, and
    `python` the expression that builds the stream, given the expressions of its inputs.
    """

    node: type[Any] | UnionType
    marks: tuple[str, ...]
    section: Section[Any]
    findings: Callable[[m.Graph, Any, Stream], Iterator[Finding]]
    words: Callable[[m.Graph, Any], Mapping[str, str]]
    label: Callable[[Any], str]
    python: Callable[[Any, Sequence[str]], str]
    keeps: Callable[[m.Graph, Any], str] = lambda _, __: ""


def from_key(doc: str = "the source or stream that it reads.", field: str = "input") -> Key:
    """Return the key `from`, whose value is the name of an input."""
    return Key("from", TEXT, doc, required=True, field=field)


def settings(*keys: Key) -> Section[Mapping[str, Any]]:
    """Return a section with the settings that are nested under the key of a kind."""
    return Section("", dict, keys)


class Pairs(Spec[dict[str, str]]):
    """Fields that must be equal in two streams: their common names, or a mapping of left names to right names."""

    called = "name, list of names, or mapping of names"

    def read(self, node: YamlNode) -> dict[str, str]:
        if node.is_mapping:
            return dict(read_texts(node, str))
        return {name: name for name in each_item(node, YamlNode.text)}

    def plain(self, value: dict[str, str]) -> Any:  # noqa: ANN401 - plain YAML
        return list(value) if all(left == right for left, right in value.items()) else value

    def python(self, value: dict[str, str]) -> str:
        return repr(value)

    def schema(self) -> Schema:
        return {"anyOf": [NAMES.schema(), mapping_schema(TEXT_SCHEMA)]}


def pair_findings(graph: m.Graph, node: m.AnyJoinNode, section: str) -> Iterator[Finding]:
    """Check the key fields of both sides of a join, and that the names of its fields are unique."""
    if not node.key:
        yield error(at(node, f"{section}.by"), "is empty; list the fields that are equal in a pair")
    left, right = ({field.name: field for field in stream_of(graph, name).fields} for name in named_streams(node))
    for stream, names, fields in ((node.left, node.key, left), (node.right, node.right_key, right)):
        for index, name in enumerate(names):
            for problem in key_problems(name, names[:index], fields):
                yield error(at(node, f"{section}.by"), f"in {stream!r}: {problem}")
    for name, other in zip(node.key, node.right_key, strict=True):
        if name in left and other in right and not is_same_type(left[name].type, right[other].type):
            yield error(
                at(node, f"{section}.by"),
                f"{name!r} in {node.left!r} is {left[name].type}, but {other!r} in {node.right!r} is "
                f"{right[other].type}: derive a field of the same type, such as CAST({other} AS ...)",
            )
    taken = {name.lower() for name in (*left, *right)}
    for name, renamed in join_sides(graph, node)[1].names.items():
        if name not in node.right_key and renamed != name and renamed.lower() in taken:
            message = (
                f"both have {name!r}, and a field {renamed!r} already exists: select or derive other fields before"
            )
            yield error(at(node, section), message)


def pair_words(node: m.AnyJoinNode) -> str:
    """Describe which fields are equal in a pair."""
    pairs = zip(node.key, node.right_key, strict=True)
    return ", ".join(f"the same {left}" if left == right else f"{left} = {right}" for left, right in pairs)


def pair_parts(node: m.AnyJoinNode) -> dict[str, Any]:
    """Return the settings of a join, with the pairs of equal fields as `by`."""
    return vars(node) | {"by": dict(zip(node.key, node.right_key, strict=True))}


def by_python(node: m.AnyJoinNode) -> str:
    """Return the argument `by` of the join or lookup in Python."""
    by = node.key if node.key == node.right_key else dict(zip(node.key, node.right_key, strict=True))
    return f"by={by!r}"
