"""Selections: a condition, derived fields, the fields to keep, and the union of several streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from windrow import model as m
from windrow.authoring.checks.base import name_problems
from windrow.authoring.checks.places import at, condition_findings
from windrow.authoring.sections.nodes.kind import NodeKind
from windrow.authoring.sections.pipeline import DERIVED
from windrow.authoring.sections.records import DERIVE
from windrow.declare.findings import Finding, error
from windrow.declare.spec import NAMES, TEXT, Key, Section
from windrow.errors import PipelineError, did_you_mean
from windrow.expressions import Stream, analyse


def _findings(graph: m.Graph, node: m.SelectNode, given: Stream) -> Iterator[Finding]:  # noqa: ARG001 - as others
    if node.where is not None:
        yield from condition_findings(given, node.where, at(node, "where"))
    nullable = frozenset(field.name for field in given.fields if field.optional)
    names = {field.name.lower() for field in given.fields}
    for derived in node.derive:
        where = at(node, f"derive.{derived.name}")
        try:
            analyse(derived.sql, given.fields, nullable)
        except PipelineError as exc:
            yield error(where, exc.message)
        if derived.name.lower() in names:
            yield error(where, f"there is a field {derived.name!r} already (SQL ignores case)")
        yield from (error(where, problem) for problem in name_problems(derived.name))
        names.add(derived.name.lower())
    known = [*(field.name for field in given.fields), *(derived.name for derived in node.derive)]
    selected = node.select or ()
    for index, name in enumerate(selected):
        if name not in known:
            hint = did_you_mean(name, known) or f"; it has {', '.join(known)}"
            yield error(at(node, f"select.{index}"), f"there is no field {name!r}{hint}")
        if name in selected[:index]:
            yield error(at(node, f"select.{index}"), f"{name!r} is given twice")
    if len(set(node.inputs)) != len(node.inputs):
        yield error(at(node, "from"), "a stream is given twice")


def _words(graph: m.Graph, node: m.SelectNode) -> Mapping[str, str]:
    by_branch = "a row of several streams is in the union once for each stream, identified by the stream's name"
    return {
        "union": by_branch if m.is_by_branch(graph, node) else "",
        "where": node.where or "",
        "derive": "\n".join(f"{derived.name} = {derived.sql}" for derived in node.derive),
        "select": ", ".join(node.select or ()),
    }


def _label(node: m.SelectNode) -> str:
    parts = [] if node.where is None else [f"where {node.where}"]
    if node.derive or node.select is not None:
        parts.append("select " + ", ".join(node.select or ("*", *(derived.name for derived in node.derive))))
    return "; ".join(parts)


def _python(node: m.SelectNode, streams: Sequence[str]) -> str:
    first, *others = streams
    steps = [f".where({node.where!r})"] if node.where is not None else []
    if others:
        condition = [] if node.where is None else [f"where={node.where!r}"]
        steps = [f".union({', '.join([*others, *condition])})"]
    steps += [DERIVE.python(node.derive)] if node.derive else []
    steps += [f".select({', '.join(map(repr, node.select))})"] if node.select is not None else []
    return first + "".join(steps or [".union()"])


_KEYS = (
    Key(
        "from",
        NAMES,
        "the source or stream that it reads, or a list for their union.",
        required=True,
        field="inputs",
    ),
    Key("where", TEXT, "a condition; other records are dropped."),
    DERIVED,
    Key("select", NAMES, "the fields to keep; by default all."),
)

SELECTION: Final = NodeKind(
    m.SelectNode, (), Section("", partial(m.SelectNode, ""), _KEYS), _findings, _words, _label, _python
)
