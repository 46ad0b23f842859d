"""The row changes of one table, among those of several tables in a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from windrow import model as m
from windrow.authoring.checks import fields
from windrow.authoring.checks.places import at
from windrow.authoring.sections.nodes.kind import NodeKind, from_key, settings
from windrow.authoring.sections.records import DECODE
from windrow.declare.findings import Finding, error
from windrow.declare.spec import TEXT, Key, Section
from windrow.errors import PipelineError, did_you_mean
from windrow.expressions import Stream, source_of

_KEYS = settings(
    Key("of", TEXT, "the table, as the source names it.", required=True, field="table"),
    Key("decode", DECODE, "its columns, as in a source. Records also have the fields of the source.", required=True),
)


def _findings(graph: m.Graph, node: m.ChangesNode, given: Stream) -> Iterator[Finding]:  # noqa: ARG001 - as others
    try:
        source = source_of(graph, node)
    except PipelineError as exc:
        yield error(at(node, "from"), exc.message)
        return
    if source.source.format != "debezium":
        yield error(at(node, "from"), f"{node.input!r} has no changes of rows: its source needs `format: debezium`")
        return
    try:
        m.table_name(node.table)
    except PipelineError as exc:
        yield error(at(node, "changes.of"), exc.message)
    tables = source.source.names if isinstance(source.source, m.PostgresCdcSource) else (node.table,)
    if node.table not in tables:
        hint = did_you_mean(node.table, tables) or f"; write one as the source does: {', '.join(tables)}"
        yield error(at(node, "changes.of"), f"{node.input!r} does not follow the table {node.table!r}{hint}")
    yield from _column_findings(node, source)


def _column_findings(node: m.ChangesNode, source: m.SourceNode) -> Iterator[Finding]:
    """Check the columns as those of a source that has them beside its own fields."""
    if source.decode.tombstone_fields:
        yield error(at(node, "from"), "a tombstone has no table: remove `tombstones` from the source")
    if not node.decode.fields:
        yield error(at(node, "changes.decode"), "is empty; list the columns that a row must have, with their types")
    derived = {field.name.lower() for field in source.derive}
    own = [f"decode.{field.name}" for field in node.decode.fields]
    decoded = node.decoded(replace(source, derive=()))
    for rule in (fields.decode_fields, fields.nested_fields, fields.tombstones):
        for finding in rule(decoded):
            if any(finding.where == name or finding.where.startswith(f"{name}.") for name in own):
                yield replace(finding, where=at(node, f"changes.{finding.where}"))
    for field in node.decode.fields:
        if field.name.lower() in derived:
            message = f"the source has a field {field.name!r} already (SQL ignores case)"
            yield error(at(node, f"changes.decode.{field.name}"), message)


def _words(graph: m.Graph, node: m.ChangesNode) -> Mapping[str, str]:  # noqa: ARG001 - as others
    columns = ", ".join(f"{field.name} {field.type_text}" for field in node.decode.fields)
    return {"changes": f"the changes of the table {node.table}\n{columns}"}


def _python(node: m.ChangesNode, streams: Sequence[str]) -> str:
    return streams[0] + DECODE.python(node.decode).replace(".decode(", f".changes({node.table!r}, ", 1)


CHANGES: Final = NodeKind(
    m.ChangesNode,
    ("changes",),
    Section(
        "",
        lambda changes, **given: m.ChangesNode("", **given, **changes),
        (
            from_key("a source with the changes of several tables."),
            Key("changes", _KEYS, "the changes of one table.", required=True),
        ),
        parts=lambda node: {"changes": {"table": node.table, "decode": node.decode}},
    ),
    _findings,
    _words,
    lambda node: f"changes of {node.table}",
    _python,
)
