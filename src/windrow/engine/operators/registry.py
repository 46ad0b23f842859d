"""The operator of each kind of node, built from the graph and the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

from windrow.engine.operators.base import Operator
from windrow.model import (
    DeduplicateNode,
    Graph,
    JoinNode,
    KeyedNode,
    LookupNode,
    ProcessNode,
    RulesNode,
    SinkNode,
    TableJoinNode,
    TableNode,
    WindowNode,
)

OPERATORS: Final[Mapping[type[KeyedNode | SinkNode], str]] = {
    WindowNode: "windrow.engine.operators.window.build:build_windows",
    ProcessNode: "windrow.engine.operators.process.operator:build_process",
    RulesNode: "windrow.engine.operators.rules.operator:build_rules",
    DeduplicateNode: "windrow.engine.operators.records:build_deduplicate",
    TableNode: "windrow.engine.operators.table:build_table",
    LookupNode: "windrow.engine.operators.table:build_lookup",
    JoinNode: "windrow.engine.operators.join:build_join",
    TableJoinNode: "windrow.engine.operators.join:build_join",
    SinkNode: "windrow.engine.operators.records:build_rows",
}
"""By kind of node the module and the name of what builds its operator; it is imported when a pipeline has such a node.

Each is called with the graph and the node.
"""


def build_operator(graph: Graph, node: KeyedNode | SinkNode) -> Operator:
    """Return the operator of a node."""
    module, _, name = OPERATORS[type(node)].partition(":")
    build: Callable[[Graph, KeyedNode | SinkNode], Operator] = getattr(import_module(module), name)
    return build(graph, node)
