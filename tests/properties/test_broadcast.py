"""A lookup whose table is broadcast gives what it gives by key, in each step, and after a change of key groups."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE
from tests.examples import examples, many
from tests.properties.test_graphs import (
    COUNTING,
    KEPT,
    LOOKUPS,
    OTHER,
    PRICED,
    RENAMED,
    SOURCE,
    SOURCES,
    Case,
    Run,
    cases,
    resumed_runs,
)

from windrow.model import Graph, LookupNode, Node, ProcessNode, SelectNode, SinkNode, SqliteSink, TableNode

PROCESSED: dict[str, list[Node]] = {
    name: [
        SOURCE,
        OTHER,
        RENAMED,
        KEPT,
        ProcessNode("timed", "log", ("user",), COUNTING),
        replace(one, name=name, left="timed"),
    ]
    for name, one in (("of processes", PRICED), ("of processes, in order", replace(PRICED, as_of="order")))
}
PROCESSED["in processes"] = [
    SOURCE,
    OTHER,
    ProcessNode("timed", "other", ("user",), COUNTING),
    SelectNode("emitted", ("timed",), select=("user", "id", "v", "n")),
    TableNode("kept", "emitted", ("user",), "v > 6"),
    replace(PRICED, name="in processes", right_key=("user",), revise=5 * MINUTE),
]
SOURCES |= PROCESSED
STARTS = (*LOOKUPS, "priced lines", *PROCESSED)


def lookups_of(graph: Graph, *, broadcast: bool) -> Graph:
    """Return a graph with a sink for each lookup, whose tables are all broadcast, or none."""
    nodes, sinks = [], list(graph.sinks)
    for node in graph.streams:
        nodes.append(replace(node, broadcast=broadcast) if isinstance(node, LookupNode) else node)
        if isinstance(node, LookupNode):
            sinks.append(SinkNode(f"to {node.name}", node.name, SqliteSink("unused.db", node.name)))
    return replace(graph, nodes=(*graph.sources, *nodes, *sinks))


def rows(run: Run) -> list[dict[str, list[Counter[str]]]]:
    """Return the changes, the late output and the dead letters of each sink in each step, in any order."""

    def counted(output: Any) -> list[Counter[str]]:  # noqa: ANN401 - StepOutput
        return [Counter(map(repr, table.to_pylist())) for table in (output.changes, output.late, output.dead)]

    return [{sink: counted(output) for sink, output in outputs.items()} for outputs in run.outputs]


def compare(case: Case) -> None:
    by_key, broadcast = (
        Run(replace(case, graph=lookups_of(case.graph, broadcast=one)), case.cuts[0]) for one in (False, True)
    )
    for run in (by_key, broadcast):
        run.end()
    assert rows(by_key) == rows(broadcast)


@examples(6)
@given(cases(*STARTS))
def test_a_broadcast_table_gives_what_it_gives_by_key(case: Case) -> None:
    compare(case)


@pytest.mark.long
@many(2000)
@given(cases(*STARTS))
def test_many_broadcast_tables(case: Case) -> None:
    compare(case)


@examples(5)
@given(cases(*STARTS), st.integers(0, 40), st.integers(1, 5), st.tuples(st.booleans(), st.booleans()))
def test_a_run_can_resume_with_other_key_groups_and_another_broadcast(
    case: Case, at: int, key_groups: int, broadcast: tuple[bool, bool]
) -> None:
    graph, other = (lookups_of(case.graph, broadcast=one) for one in broadcast)
    straight, resumed = resumed_runs(replace(case, graph=graph), at, replace(other, key_groups=key_groups))
    assert rows(straight)[1:] == rows(resumed)[1:]
