"""Deduplications: only the first of several records with the same key fields within a span of event time is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from windrow import model as m
from windrow.authoring.checks.places import at, key_findings
from windrow.authoring.sections.nodes.kind import NodeKind, from_key, settings
from windrow.declare.findings import Finding, error
from windrow.declare.spec import DURATION, NAMES, Key, Section, choice
from windrow.expressions import ROWS_OF, Stream, stream_of

_KEYS = settings(
    Key("by", NAMES, "the fields that identify copies of a record.", required=True, field="key"),
    Key(
        "within",
        DURATION,
        "the maximum distance in event time between copies: a duplicate is less than this earlier or later than an "
        "accepted record.",
        required=True,
    ),
    Key(
        "scope",
        choice("stream", "partition"),
        "`partition` if all copies of a record are in the same partition: no record then waits for other partitions.",
        default="stream",
    ),
)


def _findings(graph: m.Graph, node: m.DeduplicateNode, given: Stream) -> Iterator[Finding]:  # noqa: ARG001 - as others
    fields = {field.name: field for field in given.fields}
    yield from key_findings(fields, node.key, at(node, "deduplicate.by"), "that identify copies")
    if node.within <= 0:
        yield error(at(node, "deduplicate.within"), "must be longer than 0, such as 1h")
    if given.is_changelog:
        yield error(
            at(node, "from"), f"{ROWS_OF[given.rows_of]} change, so they have no duplicates; deduplicate records"
        )


def _words(graph: m.Graph, node: m.DeduplicateNode) -> Mapping[str, str]:  # noqa: ARG001 - as others
    return {
        "unique by": f"{', '.join(node.key)}, within {m.format_duration(node.within)} of event time",
        "duplicates": f"{node.name}.duplicates",
    }


def _keeps(graph: m.Graph, node: m.DeduplicateNode) -> str:
    bound = stream_of(graph, node.input).bound
    if bound is None:
        return "every key, forever"
    return f"a key until the watermark is {m.format_duration(node.within + bound)} past its record"


def _python(node: m.DeduplicateNode, streams: Sequence[str]) -> str:
    by = ", ".join(map(repr, node.key))
    scope = "" if node.scope == "stream" else f", scope={node.scope!r}"
    return f"{streams[0]}.deduplicate({by}, within={DURATION.python(node.within)}{scope})"


DEDUPLICATE: Final = NodeKind(
    m.DeduplicateNode,
    ("deduplicate",),
    Section(
        "",
        lambda deduplicate, **given: m.DeduplicateNode("", **given, **deduplicate),
        (from_key(), Key("deduplicate", _KEYS, "removes copies of records.", required=True)),
        parts=lambda node: {"deduplicate": vars(node)},
    ),
    _findings,
    _words,
    lambda node: f"deduplicate by {', '.join(node.key)} within {m.format_duration(node.within)}",
    _python,
    _keeps,
)
