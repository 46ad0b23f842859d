"""Selection of the operator for a window node by its window, its input, and whether other nodes read its rows."""

from __future__ import annotations

from windrow import model as m
from windrow.engine.operators.base import Operator
from windrow.engine.operators.formulas import FormulaOperator, has_formulas, inner_spec
from windrow.engine.operators.settled import NetOperator, settle
from windrow.engine.operators.window.changelog import ChangelogWindowOperator
from windrow.engine.operators.window.operator import WindowOperator
from windrow.engine.operators.window.running import open_running
from windrow.expressions import WindowSpec, spec_of, stream_of


def build_windows(graph: m.Graph, node: m.WindowNode) -> Operator:
    """Return the operator for a window node."""
    spec = spec_of(graph, node)
    operator, is_settled = _build(graph, inner_spec(spec))
    if has_formulas(spec):
        operator = FormulaOperator(graph, spec, operator)
    if isinstance(node.window, m.Session):
        operator = NetOperator(operator)
    return settle(graph, node, operator) if is_settled else operator


def _build(graph: m.Graph, spec: WindowSpec) -> tuple[Operator, bool]:
    """Return the operator without formulas, and whether its records must be settled first."""
    node = spec.node
    is_traced = graph.is_read(node)
    if isinstance(node.window, m.Session):
        from windrow.engine.operators.session.operator import SessionOperator  # noqa: PLC0415 - it is large

        return SessionOperator(spec, is_traced=is_traced), graph.is_ordered(node)
    stream, is_settled = stream_of(graph, node.input), graph.is_settled(node.input)
    if is_running(graph, node):
        return open_running(spec, is_changelog=stream.is_changelog, is_traced=is_traced), not is_settled
    if stream.is_changelog:
        return ChangelogWindowOperator(spec, stream.hold, is_traced=is_traced), not is_settled
    return WindowOperator(spec, is_traced=is_traced, has_id=stream.has_id, is_settled=is_settled), is_traced


def is_running(graph: m.Graph, node: m.WindowNode) -> bool:
    """Return True if a node aggregates all rows so far, without windows."""
    return isinstance(node.window, m.Global) and (graph.is_read(node) or stream_of(graph, node.input).is_changelog)
