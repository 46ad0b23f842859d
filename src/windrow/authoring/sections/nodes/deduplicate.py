"""Deduplications: the first record of those with the same fields, within a span of event time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from windrow import model as m
from windrow.authoring.checks.places import at, key_problems
from windrow.authoring.sections.nodes.kind import STREAM, NodeKind, from_key
from windrow.declare.findings import Finding, error
from windrow.declare.spec import DURATION, NAMES, Key, Section, choice
from windrow.expressions import ROWS_OF, Stream, stream_of

_KEYS: Section[Mapping[str, Any]] = Section(
    "",
    dict,
    (
        Key("by", NAMES, "the fields that copies of a record have in common: an id.", required=True, field="key"),
        Key(
            "within",
            DURATION,
            "how far apart in event time copies can be: a record is a duplicate if the event time of an accepted one "
            "with the same fields is less than this before or after its own.",
            required=True,
        ),
        Key(
            "scope",
            choice("stream", "partition"),
            "with `partition` all copies of a record are in the same partition of the log; then no record waits for "
            "other partitions.",
            default="stream",
        ),
    ),
    parts=lambda settings: {"by": settings["key"], "within": settings["within"], "scope": settings["scope"]},
)


def _findings(graph: m.Graph, node: m.DeduplicateNode, given: Stream) -> Iterator[Finding]:  # noqa: ARG001 - as others
    fields = {field.name: field for field in given.fields}
    if not node.key:
        yield error(at(node, "deduplicate.by"), "is empty; name the fields that copies have in common")
    for index, name in enumerate(node.key):
        for problem in key_problems(name, node.key[:index], fields):
            yield error(at(node, f"deduplicate.by.{index}"), problem)
    if node.within <= 0:
        yield error(at(node, "deduplicate.within"), "must be longer than 0, such as 1h")
    if given.is_changelog:
        yield error(
            at(node, "from"), f"{ROWS_OF[given.rows_of]} change, so there are no duplicates; deduplicate records"
        )


def _words(graph: m.Graph, node: m.DeduplicateNode) -> Mapping[str, str]:  # noqa: ARG001 - as others
    return {
        "unique by": f"{', '.join(node.key)}, within {m.format_duration(node.within)} of event time",
        "duplicates": f"{node.name}.duplicates",
    }


def _keeps(graph: m.Graph, node: m.DeduplicateNode) -> str:
    bound = stream_of(graph, node.input).bound
    if bound is None:
        return "every key, for ever"
    return f"a key until the watermark is {m.format_duration(node.within + bound)} past its record"


def _python(node: m.DeduplicateNode, streams: Sequence[str]) -> str:
    by = ", ".join(map(repr, node.key))
    scope = "" if node.scope == "stream" else f", scope={node.scope!r}"
    return f"{streams[0]}.deduplicate({by}, within={DURATION.python(node.within)}{scope})"


def _node(input: str, deduplicate: Mapping[str, Any]) -> m.DeduplicateNode:  # noqa: A002 - the model's name
    return m.DeduplicateNode("", input, **deduplicate)


def _parts(node: m.DeduplicateNode) -> Mapping[str, Any]:
    settings = {"key": node.key, "within": node.within, "scope": node.scope}
    return dict(vars(node)) | {"from": node.input, "deduplicate": settings}


DEDUPLICATE: Final = NodeKind(
    m.DeduplicateNode,
    ("deduplicate",),
    Section(
        "",
        _node,
        (from_key(STREAM), Key("deduplicate", _KEYS, "leaves out copies of a record.", required=True)),
        parts=_parts,
    ),
    _findings,
    _words,
    lambda node: f"deduplicate by {', '.join(node.key)} within {m.format_duration(node.within)}",
    _python,
    _keeps,
)
