"""Checks of the streams of a graph: their inputs, expressions, fields and keys."""

from __future__ import annotations

from collections.abc import Iterator

from windrow import model as m
from windrow.authoring.checks.places import at, is_typed
from windrow.declare.findings import Finding, error
from windrow.errors import PipelineError
from windrow.expressions import (
    ROWS_OF,
    Stream,
    aggregate_inputs,
    stream_of,
    united,
)


def stream_findings(graph: m.Graph, node: m.StreamNode) -> Iterator[Finding]:
    """Check the expressions, fields and inputs of a stream."""
    try:
        given = united(graph, node) if isinstance(node, m.SelectNode) else stream_of(graph, node.inputs[0])
    except PipelineError as exc:
        if isinstance(node, m.SelectNode) and all(is_typed(graph, name) for name in node.inputs):
            yield error(at(node, "from"), exc.message)
        return
    if isinstance(node, m.ResultNode):
        yield from _arrays(node, given)
        yield from _chained(graph, node, given)
    else:
        from windrow.authoring.sections.nodes import kind_of  # noqa: PLC0415 - it reads YAML, which is slow to import

        yield from kind_of(node).findings(graph, node, given)


def _arrays(node: m.ResultNode, given: Stream) -> Iterator[Finding]:
    """Find arrays in the key or aggregates of a window, process or rules; only `flat_map` takes arrays."""
    arrays = {field.name for field in given.fields if isinstance(field.type, m.ArrayType)}
    used = [(f"key.{index}", name) for index, name in enumerate(node.key)]
    if isinstance(node, m.WindowNode):
        used += [
            (f"aggregate.{aggregate.name}", text)
            for aggregate in node.aggregates
            for text in aggregate_inputs(aggregate.function)
        ]
    for part, name in used:
        if name in arrays:
            yield error(at(node, part), f"{name!r} is an array, and only flat_map accepts arrays")


def _chained(graph: m.Graph, node: m.ResultNode, given: Stream) -> Iterator[Finding]:
    """Check a window, process or rules whose input is a changelog, or whose rows other streams read."""
    is_running, rows = isinstance(node, m.WindowNode) and isinstance(node.window, m.Global), ROWS_OF[given.rows_of]
    if given.rows_of == "tables" and not is_running:
        message = "the rows of a table have no event time, so no window contains them; use window: {global: {}}"
        yield error(at(node, "from"), message)
        return
    if given.is_changelog:
        if not isinstance(node, m.WindowNode) or isinstance(node.window, m.Session):
            kind = type(node.window).__name__.lower() if isinstance(node, m.WindowNode) else "process"
            part = "window" if isinstance(node, m.WindowNode) else "from"
            yield error(at(node, part), f"a {kind} cannot read {rows}, which can be retracted; use tumbling")
            return
        if node.emit.lateness:
            yield error(at(node, "emit.lateness"), f"a window accepts every revision of {rows}; remove it")
        if isinstance(node.emit.late, m.Records):
            yield error(at(node, "emit.late"), f"a window over {rows} has no counts of late records; use each")
        yield from _plain(node, f"over {rows}")
    if graph.is_read(node) and not isinstance(node, m.RulesNode):
        yield from _read_by_streams(node)


def _read_by_streams(node: m.WindowNode | m.ProcessNode) -> Iterator[Finding]:
    """Check a window or process whose rows other streams read."""
    if isinstance(node, m.ProcessNode):
        if node.process.on_processing_timer is not None:
            message = "other streams read the rows, but timers of processing time differ in each run; use on_timer"
            yield error(at(node, "process.on_processing_timer"), message)
        return
    yield from _plain(node, "whose rows other streams read")
    if node.emit.late != "each":
        yield error(at(node, "emit.late"), "other streams read each revision; use each")
    if node.emit.mode != "retract":
        yield error(at(node, "emit.mode"), "other streams need the row that a revision replaces; use retract")


def _plain(node: m.WindowNode, which: str) -> Iterator[Finding]:
    if node.emit.early is not None:
        yield error(at(node, "emit.early"), f"a window {which} has no early panes; remove it")
    if node.salt != 1:
        yield error(at(node, "salt"), f"a window {which} cannot be salted; remove it")
    if node.emit.mode == "discard":
        yield error(at(node, "emit.mode"), f"a window {which} cannot discard; use retract")
