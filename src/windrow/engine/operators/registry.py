"""Registry of operators: the function that builds the operator for each kind of node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

from windrow import model as m
from windrow.engine.operators.base import Operator

OPERATORS: Final[Mapping[type[m.KeyedNode | m.SinkNode], str]] = {
    m.WindowNode: "windrow.engine.operators.window.build:build_windows",
    m.ProcessNode: "windrow.engine.operators.process.operator:build_process",
    m.RulesNode: "windrow.engine.operators.rules.operator:build_rules",
    m.DeduplicateNode: "windrow.engine.operators.records:build_deduplicate",
    m.SampleNode: "windrow.engine.operators.sample:build_sample",
    m.TableNode: "windrow.engine.operators.table:build_table",
    m.LookupNode: "windrow.engine.operators.table:build_lookup",
    m.JoinNode: "windrow.engine.operators.join:build_join",
    m.TableJoinNode: "windrow.engine.operators.join:build_join",
    m.SinkNode: "windrow.engine.operators.records:build_rows",
}
"""Maps each kind of node to the function that builds its operator from the graph and the node, as `module:name`.

The module is imported when a pipeline has such a node.
"""


def build_operator(graph: m.Graph, node: m.KeyedNode | m.SinkNode) -> Operator:
    """Return the operator for a node."""
    module, _, name = OPERATORS[type(node)].partition(":")
    build: Callable[[m.Graph, m.KeyedNode | m.SinkNode], Operator] = getattr(import_module(module), name)
    return build(graph, node)
