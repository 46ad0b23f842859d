"""Samples: every nth record of each key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from windrow import model as m
from windrow.authoring.checks.places import at, key_findings
from windrow.authoring.sections.nodes.kind import NodeKind, from_key, settings
from windrow.declare.findings import Finding, error
from windrow.declare.spec import NAMES, NUMBER, Key, Section
from windrow.expressions import ROWS_OF, Stream

_MOST_SAMPLED: Final = 1_000_000_000
_KEYS = settings(
    Key("by", NAMES, "the fields whose records are counted together.", required=True, field="key"),
    Key(
        "every",
        NUMBER,
        "with `10`, the 10th, 20th, 30th and so on of each key, in watermark order.",
        required=True,
    ),
)


def _findings(graph: m.Graph, node: m.SampleNode, given: Stream) -> Iterator[Finding]:  # noqa: ARG001 - as others
    fields = {field.name: field for field in given.fields}
    yield from key_findings(fields, node.key, at(node, "sample.by"), "whose records are counted together")
    if not 1 <= node.every <= _MOST_SAMPLED:
        yield error(at(node, "sample.every"), f"must be from 1 to {_MOST_SAMPLED:,}, such as 10")
    if given.is_changelog:
        yield error(at(node, "from"), f"{ROWS_OF[given.rows_of]} change, so they cannot be counted; sample records")


def _words(graph: m.Graph, node: m.SampleNode) -> Mapping[str, str]:  # noqa: ARG001 - as others
    first = ", ".join(str(number * node.every) for number in (1, 2, 3))
    return {"sample": f"records {first} and so on of each {', '.join(node.key)}"}


def _python(node: m.SampleNode, streams: Sequence[str]) -> str:
    return f"{streams[0]}.sample({', '.join(map(repr, node.key))}, every={node.every})"


SAMPLE: Final = NodeKind(
    m.SampleNode,
    ("sample",),
    Section(
        "",
        lambda sample, **given: m.SampleNode("", **given, **sample),
        (from_key(), Key("sample", _KEYS, "takes every nth record of each key.", required=True)),
        parts=lambda node: {"sample": vars(node)},
    ),
    _findings,
    _words,
    lambda node: f"sample by {', '.join(node.key)}, 1 in {node.every}",
    _python,
    lambda _, __: "the number of records of each key, forever",
)
