"""Lookups: the fields of a table's row are added to each record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from windrow import model as m
from windrow.authoring.checks.places import at, is_typed
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
from windrow.authoring.sections.nodes.table import are_changes
from windrow.declare.findings import Finding, error, too_long, warning
from windrow.declare.spec import DURATION, FLAG, TEXT, Key, Section, choice
from windrow.expressions import ROWS_OF, Stream, join_sides, revise_of, stream_of

_KEYS = settings(
    Key("table", TEXT, "the table.", required=True),
    Key(
        "by",
        Pairs(),
        "the fields that hold the key of the table; a mapping if they have other names there: `{currency: code}`.",
        required=True,
    ),
    Key(
        "as_of",
        choice("event_time", "order"),
        "with `event_time` a record gets the row that was valid at its event time; with `order` the row that is "
        "current when it is processed, in watermark order.",
        default="event_time",
    ),
    Key(
        "revise",
        DURATION,
        "with `as_of: event_time`, how far the watermark may be past a record while a late row can still replace the "
        "record's row. By default, the `lateness` of the table's source, or else of the record's source.",
    ),
    Key(
        "how",
        choice("inner", "left"),
        "with `left` a record without a row has null in the table's fields; with `inner` it is dropped.",
        default="inner",
    ),
    Key(
        "broadcast",
        FLAG,
        "whether every key group has the whole table, for a small table in which many records look up the same row "
        "([broadcast](../guides/tables.md#broadcast)).",
        default=False,
    ),
)


def _findings(graph: m.Graph, node: m.LookupNode, given: Stream) -> Iterator[Finding]:
    if not is_typed(graph, node.table):
        return
    table = stream_of(graph, node.table)
    if given.is_changelog:
        yield error(at(node, "from"), f"{ROWS_OF[given.rows_of]} change; look up rows for records")
    if set(node.right_key) != set(table.key):
        yield error(
            at(node, "lookup.by"),
            f"the key of the table {node.table!r} is {', '.join(table.key)}: give the fields that hold it",
        )
    yield from pair_findings(graph, node, "lookup")
    if node.as_of == "order" and node.revise is not None:
        yield error(
            at(node, "lookup.revise"), "applies to `as_of: event_time`; as of order no row is replaced: remove it"
        )
    if node.revise is not None and node.revise < 0:
        yield error(at(node, "lookup.revise"), "must not be negative")
    yield from too_long(at(node, "lookup.revise"), node.revise or 0)
    if node.broadcast:
        yield from _broadcast(graph, node)


def _broadcast(graph: m.Graph, node: m.LookupNode) -> Iterator[Finding]:
    """Warn if broadcasting the table does not spread the work, or copies as many records as it spreads."""
    if graph.key_groups == 1:
        yield warning(at(node, "lookup.broadcast"), "there is only one key group, so nothing is spread; remove it")
    elif not _selected_from_all(graph, node.left).isdisjoint(_contained_in(graph, node.table)):
        yield warning(
            at(node, "lookup.broadcast"),
            f"{node.table!r} is made of all records of {node.left!r}, so each record would be sent to all "
            f"{graph.key_groups} key groups; remove it",
        )


def _selected_from_all(graph: m.Graph, stream: str) -> set[str]:
    """Return a stream, and each upstream stream from which its records are selected."""
    node = graph.producer(stream)
    is_part = isinstance(node, m.SelectNode | m.FilterNode) and len(node.inputs) == 1
    return {stream, *(_selected_from_all(graph, node.inputs[0]) if is_part else ())}


def _contained_in(graph: m.Graph, stream: str) -> set[str]:
    """Return a stream, and each upstream stream whose records it contains completely."""
    node = graph.producer(stream)
    has_all = isinstance(node, m.TableNode) or (isinstance(node, m.SelectNode) and node.where is None)
    return {stream}.union(*(_contained_in(graph, name) for name in node.inputs if has_all))


def _words(graph: m.Graph, node: m.LookupNode) -> Mapping[str, str]:
    lines = [f"the row of {node.table} with {pair_words(node)}"]
    if node.as_of == "order":
        lines.append(
            "the row that is current when the record is processed, in watermark order; no later row replaces it"
        )
    else:
        lines.append("the row that was valid at the record's event time")
        revise = revise_of(graph, node)
        past = f"is {m.format_duration(revise)} past the record" if revise else "has reached the record's time"
        lines.append(f"a row that arrives before the watermark {past} replaces it")
    alone = "has null in the fields of the table" if node.how == "left" else "is dropped"
    lines.append(f"a record without a row {alone}")
    if node.broadcast:
        lines.append(f"broadcast: each of {graph.key_groups} key groups has the whole table and a part of the records")
    return {"lookup": "\n".join(lines)}


def _keeps(graph: m.Graph, node: m.LookupNode) -> str:
    each = "in each key group " if node.broadcast else ""
    if node.as_of == "order":
        return f"{each}the row of each key of {node.table}"
    revise = revise_of(graph, node)
    past = m.format_duration(max(revise, stream_of(graph, node.left).bound or 0))
    lines = [f"{each}the rows of each key of {node.table} until the watermark is {past} past their end"]
    table = graph.producer(node.table)
    is_removed = isinstance(table, m.TableNode) and (table.deleted is not None or are_changes(graph, table))
    if is_removed and join_sides(graph, node)[1].stream.bound is None:
        lines.append(f"{each}each removed key forever, because its versions have no lateness")
    lines.append(f"a record of {node.left} until the watermark is {m.format_duration(revise)} past it")
    return "\n".join(lines)


def _label(node: m.LookupNode) -> str:
    broadcast = ", broadcast" if node.broadcast else ""
    return f"look up in {node.table} by {', '.join(node.key)}, as of {node.as_of.replace('_', ' ')}{broadcast}"


def _python(node: m.LookupNode, streams: Sequence[str]) -> str:
    arguments = [streams[1], by_python(node)]
    arguments += [] if node.as_of == "event_time" else [f"as_of={node.as_of!r}"]
    arguments += [] if node.revise is None else [f"revise={DURATION.python(node.revise)}"]
    arguments += ["broadcast=True"] if node.broadcast else []
    arguments += [] if node.how == "inner" else [f"how={node.how!r}"]
    return f"{streams[0]}.lookup({', '.join(arguments)})"


def _node(left: str, lookup: Mapping[str, Any]) -> m.LookupNode:
    by = lookup["by"]
    options = {name: lookup[name] for name in ("how", "as_of", "revise", "broadcast")}
    return m.LookupNode("", left, lookup["table"], tuple(by), tuple(by.values()), **options)


LOOKUP: Final = NodeKind(
    m.LookupNode,
    ("lookup",),
    Section(
        "",
        _node,
        (
            from_key(field="left"),
            Key("lookup", _KEYS, "adds the fields of a table's row to each record.", required=True),
        ),
        parts=lambda node: {"lookup": pair_parts(node)},
    ),
    _findings,
    _words,
    _label,
    _python,
    _keeps,
)
