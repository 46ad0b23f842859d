"""Tables: the latest record of each key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from windrow import model as m
from windrow.authoring.checks.places import at, condition_findings, key_findings
from windrow.authoring.sections.nodes.kind import NodeKind, from_key, settings
from windrow.declare.findings import Finding, error, warning
from windrow.declare.spec import NAMES, TEXT, Key, Section
from windrow.expressions import ROWS_OF, Stream, stream_of

_KEYS = settings(
    Key(
        "key",
        NAMES,
        "the fields that identify a row. A record replaces the previous record with the same key, in watermark order.",
        required=True,
    ),
    Key("deleted", TEXT, "a condition; if it is true, the record removes the row."),
)


def _findings(graph: m.Graph, node: m.TableNode, given: Stream) -> Iterator[Finding]:
    fields = {field.name: field for field in stream_of(graph, node.name).fields}
    has_changes = any(source.source.format == "debezium" for source in given.sources)
    yield from key_findings(fields, node.key, at(node, "table.key"), "that identify a row")
    if node.deleted is not None:
        yield from condition_findings(given, node.deleted, at(node, "table.deleted"))
    elif has_changes and given.lacking is None:
        yield warning(
            at(node, "table"),
            "has no `deleted`, and is made of a selection of changes, so deleted rows can remain: make a table of the "
            "source, and select from its rows",
        )
    elif has_changes:
        pass
    elif any(field.tombstones for source in given.sources for field in source.decode.fields):
        yield warning(
            at(node, "table"),
            "has no `deleted`, so a tombstone becomes a row with null in its fields: give a condition for tombstones, "
            "such as deleted: amount IS NULL",
        )
    elif any(isinstance(source.source, m.FileSource) for source in given.sources):
        yield warning(
            at(node, "table"), "has no `deleted`, so rows that are removed from the file remain: deleted: _deleted"
        )
    if has_changes and _mixes_tables(graph, node.input):
        yield error(
            at(node, "from"),
            "has the rows of several tables of the database, whose keys can be equal: make a table of a stream with "
            "`changes` for each of them",
        )
    if given.is_changelog:
        yield error(at(node, "from"), f"a table is made of records, but {ROWS_OF[given.rows_of]} can be retracted")


def _mixes_tables(graph: m.Graph, name: str) -> bool:
    """Return True if a stream has row changes of several tables that a source follows."""
    match graph.producer(name):
        case m.SourceNode(source=m.PostgresCdcSource(names=tables)):
            return len(tables) > 1
        case m.ChangesNode():
            return False
        case node:
            return any(_mixes_tables(graph, given) for given in node.inputs)


def _words(graph: m.Graph, node: m.TableNode) -> Mapping[str, str]:
    deleted = f"\na record with {node.deleted} removes the row" if node.deleted else ""
    deleted += "\na deletion removes the row" if are_changes(graph, node) else ""
    return {"table": f"the last record of each {', '.join(node.key)}{deleted}"}


def are_changes(graph: m.Graph, node: m.TableNode) -> bool:
    """Return True if the input of a table consists of row changes from a database."""
    return stream_of(graph, node.input).lacking is not None


def _python(node: m.TableNode, streams: Sequence[str]) -> str:
    condition = [] if node.deleted is None else [f"deleted={node.deleted!r}"]
    return f"{streams[0]}.table({', '.join([*map(repr, node.key), *condition])})"


TABLE: Final = NodeKind(
    m.TableNode,
    ("table",),
    Section(
        "",
        lambda table, **given: m.TableNode("", **given, **table),
        (from_key(), Key("table", _KEYS, "keeps the newest row of each key.", required=True)),
        parts=lambda node: {"table": vars(node)},
    ),
    _findings,
    _words,
    lambda node: f"table by {', '.join(node.key)}",
    _python,
    lambda graph, node: "the row of each key" if node in graph.keyed else "",
)
