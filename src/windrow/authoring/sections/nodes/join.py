"""Joins: pairs of records that are close to each other in event time, or pairs of rows of two tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from windrow import model as m
from windrow.authoring.checks.places import at, is_typed, selected_from
from windrow.authoring.sections.nodes.kind import (
    NodeKind,
    Pairs,
    by_python,
    from_key,
    pair_findings,
    pair_parts,
    pair_words,
    settings,
)
from windrow.declare.findings import Finding, error, too_long
from windrow.declare.spec import DURATION, TEXT, Key, Section, choice
from windrow.expressions import Stream, join_spans, stream_of

_KEYS = settings(
    Key("with", TEXT, "the right source or stream, or the right table.", required=True, field="right"),
    Key(
        "by",
        Pairs(),
        "the fields that are equal in a pair; a mapping if they have other names on the right: `{order_id: id}`.",
        required=True,
    ),
    Key("before", DURATION, "how much earlier than the left record the right record may be."),
    Key("after", DURATION, "how much later than the left record the right record may be."),
    Key(
        "how",
        choice("inner", "left", "right", "full"),
        "with `left`, `right` or `full`, records of that side (or both) without a partner appear with null in the "
        "fields of the other side.",
        default="inner",
    ),
)


def _findings(graph: m.Graph, node: m.JoinNode | m.TableJoinNode, given: Stream) -> Iterator[Finding]:  # noqa: ARG001 - as others
    if not is_typed(graph, node.right):
        return
    sides = [(stream_of(graph, name), part) for name, part in ((node.left, "from"), (node.right, "join.with"))]
    are_tables = [stream.rows_of == "tables" for stream, _ in sides]
    for stream, part in sides:
        if isinstance(node, m.JoinNode) and stream.rows_of == "tables":
            yield error(at(node, part), "a table has no event time: join it with a table, without before and after")
    if isinstance(node, m.TableJoinNode) and not all(are_tables):
        table = selected_from(graph, node.right)
        message = "every record would be kept forever: give the distance of partners in event time, such as after: 15m"
        if isinstance(graph.producer(table), m.TableNode) and not are_tables[0]:
            message += f"; or look rows up in {table!r}: lookup: {{table: {table}, by: ...}}"
        else:
            message += ", or join two tables"
        yield error(at(node, "join"), message)
    yield from pair_findings(graph, node, "join")
    if isinstance(node, m.JoinNode):
        yield from _interval(node)


def _interval(node: m.JoinNode) -> Iterator[Finding]:
    for part, span in (("before", node.before), ("after", node.after)):
        if span < 0:
            yield error(at(node, f"join.{part}"), "must not be negative")
        yield from too_long(at(node, f"join.{part}"), span)


def _words(graph: m.Graph, node: m.JoinNode | m.TableJoinNode) -> Mapping[str, str]:  # noqa: ARG001 - as others
    return {"join": _pairs(node)}


def _pairs(node: m.JoinNode | m.TableJoinNode) -> str:
    """Describe which records form pairs, and which are emitted without a partner."""
    outer = {"left": [node.left], "right": [node.right], "full": [node.left, node.right]}.get(node.how, [])
    if isinstance(node, m.TableJoinNode):
        alone = "a row of {} without a partner is emitted alone"
        lines = [f"pairs of rows of {node.left} and {node.right} with {pair_words(node)}"]
        return "\n".join([*lines, *(alone.format(name) for name in outer)])
    lines = [f"pairs of {node.left} and {node.right} with {pair_words(node)}"]
    spans = [f"up to {m.format_duration(node.before)} before"] if node.before else []
    spans += [f"up to {m.format_duration(node.after)} after"] if node.after else []
    near = f"{' or '.join(spans)} that" if spans else "the same as that"
    lines.append(f"the event time of {node.right} is {near} of {node.left}")
    alone = (
        "a record of {} without a partner is emitted alone once no partner can be on time; a late partner retracts it"
    )
    return "\n".join([*lines, *(alone.format(name) for name in outer)])


def _keeps(graph: m.Graph, node: m.JoinNode | m.TableJoinNode) -> str:
    if isinstance(node, m.TableJoinNode):
        return "the rows of both tables"
    kept = zip(node.inputs, join_spans(graph, node), strict=True)
    record = "a record of {} until the watermark is {} past it"
    return "\n".join(record.format(name, m.format_duration(span.kept)) for name, span in kept)


def _label(node: m.JoinNode | m.TableJoinNode) -> str:
    label = f"{node.how} join by {', '.join(node.key)}"
    if isinstance(node, m.TableJoinNode):
        return label
    return f"{label}; {m.format_duration(node.before)} before to {m.format_duration(node.after)} after"


def _python(node: m.JoinNode | m.TableJoinNode, streams: Sequence[str]) -> str:
    arguments = [streams[1], by_python(node)]
    if isinstance(node, m.JoinNode):
        spans = {"before": node.before, "after": node.after}
        spans = {name: span for name, span in spans.items() if span} or {"after": 0}
        arguments += [f"{name}={DURATION.python(span)}" for name, span in spans.items()]
    arguments += [] if node.how == "inner" else [f"how={node.how!r}"]
    return f"{streams[0]}.join({', '.join(arguments)})"


def _node(left: str, join: Mapping[str, Any]) -> m.JoinNode | m.TableJoinNode:
    by = join["by"]
    before, after = join["before"], join["after"]
    if before is None and after is None:
        return m.TableJoinNode("", left, join["right"], tuple(by), tuple(by.values()), join["how"])
    return m.JoinNode("", left, join["right"], tuple(by), tuple(by.values()), before or 0, after or 0, join["how"])


def _parts(node: m.JoinNode | m.TableJoinNode) -> Mapping[str, Any]:
    match node:
        case m.TableJoinNode():
            spans: dict[str, int | None] = {"before": None, "after": None}
        case m.JoinNode(before=before, after=after):
            spans = {"before": before or None, "after": after if after or not before else None}
    return {"join": pair_parts(node) | spans}


JOIN: Final = NodeKind(
    m.JoinNode | m.TableJoinNode,
    ("join",),
    Section(
        "",
        _node,
        (
            from_key("the left source, stream or table.", "left"),
            Key("join", _KEYS, "joins records of two streams, or rows of two tables.", required=True),
        ),
        parts=_parts,
    ),
    _findings,
    _words,
    _label,
    _python,
    _keeps,
)
