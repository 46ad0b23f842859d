"""Selections: a condition, derived fields, the fields that stay, and the union of several streams."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from windrow import model as m
from windrow.authoring.checks.places import at, condition_findings
from windrow.authoring.sections.nodes.kind import NodeKind
from windrow.authoring.sections.pipeline import DERIVED
from windrow.authoring.sections.records import DERIVE
from windrow.declare.findings import Finding, error
from windrow.declare.spec import NAMES, TEXT, Key, Section
from windrow.errors import PipelineError
from windrow.expressions import Stream, analyse


def _findings(graph: m.Graph, node: m.SelectNode, given: Stream) -> Iterator[Finding]:  # noqa: ARG001 - as others
    if node.where is not None:
        yield from condition_findings(given, node.where, at(node, "where"))
    nullable = frozenset(field.name for field in given.fields if field.optional)
    names = {field.name.lower() for field in given.fields}
    for one in node.derive:
        try:
            analyse(one.sql, given.fields, nullable)
        except PipelineError as exc:
            yield error(at(node, f"derive.{one.name}"), exc.message)
        if one.name.lower() in names:
            yield error(at(node, f"derive.{one.name}"), f"there is a field {one.name!r} already (SQL ignores case)")
        if one.name.startswith("__"):
            yield error(at(node, f"derive.{one.name}"), "names that begin with two underscores are windrow's own")
        names.add(one.name.lower())
    yield from _selected(node, [*(field.name for field in given.fields), *(one.name for one in node.derive)])
    if len(set(node.inputs)) != len(node.inputs):
        yield error(at(node, "from"), "a stream is given twice")


def _selected(node: m.SelectNode, known: Sequence[str]) -> Iterator[Finding]:
    for index, name in enumerate(node.select or ()):
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
            yield error(at(node, f"select.{index}"), f"there is no field {name!r}; {hint}")
        if name in (node.select or ())[:index]:
            yield error(at(node, f"select.{index}"), f"{name!r} is given twice")


def _words(graph: m.Graph, node: m.SelectNode) -> Mapping[str, str]:
    by_branch = "a row that comes by several streams is there for each, known by their names"
    return {
        "union": by_branch if m.is_by_branch(graph, node) else "",
        "where": node.where or "",
        "derive": "\n".join(f"{derived.name} = {derived.sql}" for derived in node.derive),
        "select": ", ".join(node.select or ()),
    }


def _label(node: m.SelectNode) -> str:
    parts = [] if node.where is None else [f"where {node.where}"]
    if node.derive or node.select is not None:
        parts.append("select " + ", ".join(node.select or ("*", *(one.name for one in node.derive))))
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


def _node(**sections: Any) -> m.SelectNode:  # noqa: ANN401
    return m.SelectNode("", **sections)


def _parts(node: m.SelectNode) -> Mapping[str, Any]:
    return dict(vars(node)) | {"from": node.inputs}


SELECTION: Final = NodeKind(
    m.SelectNode,
    (),
    Section(
        "",
        _node,
        (
            Key(
                "from",
                NAMES,
                "of a selection, also a list of sources and streams: their union.",
                required=True,
                field="inputs",
            ),
            Key("where", TEXT, "a condition; records for which it is not true are left out."),
            DERIVED,
            Key("select", NAMES, "the fields that are kept; all if it is left out."),
        ),
        parts=_parts,
    ),
    _findings,
    _words,
    _label,
    _python,
)
