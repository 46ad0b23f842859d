"""Splits: each record is sent to the first output whose condition is true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from windrow import model as m
from windrow.authoring.checks.places import at, condition_findings
from windrow.authoring.sections.nodes.kind import NodeKind, from_key
from windrow.authoring.sections.records import DERIVE
from windrow.declare.findings import Finding
from windrow.declare.spec import FIELD_NAME, Key, Section
from windrow.expressions import Stream


def _findings(graph: m.Graph, node: m.SplitNode, given: Stream) -> Iterator[Finding]:  # noqa: ARG001 - as others
    for output in node.outputs:
        yield from condition_findings(given, output.sql, at(node, f"split.{output.name}"))


def _words(graph: m.Graph, node: m.SplitNode) -> Mapping[str, str]:  # noqa: ARG001 - as others
    split = [f"{node.name}.{output.name}: where {output.sql}, and no condition before" for output in node.outputs]
    split += [f"{node.name}.{node.other}: all others"] if node.other else []
    return {"split": "\n".join(split)}


def _python(node: m.SplitNode, streams: Sequence[str]) -> str:
    conditions = {output.name: output.sql for output in node.outputs}
    other = "" if node.other is None else f", other={node.other!r}"
    return f"{streams[0]}.split({conditions!r}{other})"


_KEYS = (
    from_key(),
    Key(
        "split",
        DERIVE,
        "the condition of each output. A record goes to the first output whose condition is true, the stream "
        "`NAME.OUTPUT`.",
        required=True,
        field="outputs",
    ),
    Key("other", FIELD_NAME, "the output for all other records."),
)

SPLIT: Final = NodeKind(
    m.SplitNode,
    ("split", "other"),
    Section("", partial(m.SplitNode, ""), _KEYS),
    _findings,
    _words,
    lambda _: "split",
    _python,
)
