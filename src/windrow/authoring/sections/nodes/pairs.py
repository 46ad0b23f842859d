"""Pairs: the fields that the two streams of a join or lookup have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windrow import model as m
from windrow.authoring.checks.places import at, key_problems, named_streams
from windrow.declare.findings import Finding, error
from windrow.declare.spec import NAMES, TEXT_SCHEMA, Schema, Spec, each_item, mapping_schema
from windrow.declare.yaml_node import YamlNode, read_texts
from windrow.expressions import is_same_type, join_sides, stream_of


class Pairs(Spec[dict[str, str]]):
    """Names of fields that are the same in two streams, or a mapping of those of the one to those of the other."""

    def form(self) -> str:
        return "name, list of names, or mapping of names"

    def read(self, node: YamlNode) -> dict[str, str]:
        if node.is_mapping:
            return dict(read_texts(node, str))
        return {name: name for name in each_item(node, YamlNode.text)}

    def plain(self, value: dict[str, str]) -> Any:  # noqa: ANN401 - plain YAML
        return list(value) if all(one == other for one, other in value.items()) else value

    def python(self, value: dict[str, str]) -> str:
        return repr(value)

    def schema(self) -> Schema:
        return {"anyOf": [NAMES.schema(), mapping_schema(TEXT_SCHEMA)]}


def pair_findings(graph: m.Graph, node: m.AnyJoinNode, section: str) -> Iterator[Finding]:
    """Yield what is wrong with the fields that both sides of a join have in common, and with the others."""
    if not node.key:
        yield error(at(node, f"{section}.by"), "is empty; name the fields that a pair has in common")
    left, right = ({field.name: field for field in stream_of(graph, name).fields} for name in named_streams(node))
    for called, names, fields in ((node.left, node.key, left), (node.right, node.right_key, right)):
        for index, name in enumerate(names):
            for problem in key_problems(name, names[:index], fields):
                yield error(at(node, f"{section}.by"), f"in {called!r}: {problem}")
    yield from _alike(graph, node, left, right)


def _alike(
    graph: m.Graph, node: m.AnyJoinNode, left: Mapping[str, m.Field], right: Mapping[str, m.Field]
) -> Iterator[Finding]:
    """Yield keys of unlike types, and fields whose names collide."""
    section = "lookup" if isinstance(node, m.LookupNode) else "join"
    for one, other in zip(node.key, node.right_key, strict=True):
        if one in left and other in right and not is_same_type(left[one].type, right[other].type):
            yield error(
                at(node, f"{section}.by"),
                f"{one!r} in {node.left!r} is {left[one].type}, but {other!r} in {node.right!r} is "
                f"{right[other].type}: derive a field of the same type, such as CAST({other} AS ...)",
            )
    taken = {name.lower() for name in (*left, *right)}
    for name, made in join_sides(graph, node)[1].names.items():
        if name not in node.right_key and made != name and made.lower() in taken:
            yield error(
                at(node, section),
                f"both have {name!r}, and there is a field {made!r} already: select or derive others before",
            )


def pair_words(node: m.AnyJoinNode) -> str:
    """Say which fields are the same in both."""
    pairs = zip(node.key, node.right_key, strict=True)
    return ", ".join(f"the same {one}" if one == other else f"{one} = {other}" for one, other in pairs)


def by_python(node: m.AnyJoinNode) -> str:
    """Return the argument `by` of the method that joins."""
    by = node.key if node.key == node.right_key else dict(zip(node.key, node.right_key, strict=True))
    return f"by={by!r}"
