"""Panes after a count of records have the same records in every cut, also where several of these have one place."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE
from tests.examples import examples
from tests.properties.graph_oracle import Values
from tests.properties.test_graphs import FIRST, LINES, ORDERS, Case, Run, group_of

from windrow.model import (
    AllOf,
    AnyOf,
    DeduplicateNode,
    Derive,
    Emit,
    Graph,
    Hopping,
    JoinNode,
    Node,
    Records,
    SelectNode,
    Session,
    SinkNode,
    SqliteSink,
    Trigger,
    Tumbling,
    Window,
    WindowNode,
)

BRANCHES: list[Node] = [SelectNode("some", ("lines",), "v > 3"), SelectNode("few", ("lines",), "v > 6")]
STREAMS: dict[str, list[Node]] = {
    "lines": [],
    "overlap": [*BRANCHES, SelectNode("overlap", ("some", "few", "lines"))],
    # the other way about: other branches are first by name
    "again": [
        SelectNode("b", ("lines",), derive=(Derive("w", "v"),), select=("user", "id", "v")),
        SelectNode("a", ("lines",), "v > 3", select=("user", "id", "v")),
        SelectNode("again", ("b", "a")),
    ],
    "pairs": [JoinNode("pairs", "lines", "lines", ("user",), ("user",), MINUTE, MINUTE)],
    "mixed": [DeduplicateNode("unique", "lines", ("user", "id"), 2 * MINUTE), SelectNode("mixed", ("lines", "unique"))],
    "unique": [DeduplicateNode("unique", "lines", ("user", "id"), 2 * MINUTE)],
}
WINDOWS: list[Window] = [Tumbling(4 * MINUTE), Hopping(6 * MINUTE, 2 * MINUTE)]
EARLY: list[Trigger | None] = [None, Records(2), AnyOf((Records(3), Records(2))), AllOf((Records(2), Records(3)))]
LATE: list[Literal["each"] | Records] = ["each", Records(2), Records(3), Records(5)]
MODES: list[Literal["retract", "accumulate", "discard"]] = ["retract", "accumulate", "discard"]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A window over records of which several have one place; all records of a key are in one partition."""
    name = draw(st.sampled_from(list(STREAMS)))
    kind, emit = draw(st.sampled_from(WINDOWS)), Emit(lateness=12 * MINUTE, early=draw(st.sampled_from(EARLY)))
    if emit.early == Records(2) and draw(st.booleans()):
        kind = Session(3 * MINUTE)
    else:
        emit = replace(emit, mode=draw(st.sampled_from(MODES)), late=draw(st.sampled_from(LATE)))
    nodes = (ORDERS, LINES, *STREAMS[name], WindowNode("counts", name, ("user",), kind, FIRST, emit))
    # a branch that waits for another partition comes some time after one that does not
    partitions = tuple(range(1 if name == "mixed" else draw(st.integers(1, 3))))
    chance, size = Random(draw(st.integers(0, 2**32))), draw(st.integers(0, 50))
    records: list[tuple[int, int, Values]] = []
    for number in range(size):
        partition = chance.choice(partitions)
        elements = range(chance.choice([0, 1, 2, 3, 12]))
        items = [{"id": chance.choice("abcd"), "v": chance.randint(0, 9)} for _ in elements]
        values = {"user": f"{partition}{chance.choice('AB')}", "items": items}
        records.append((partition, max(0, number + chance.randint(-12, 3)) * MINUTE, values))
    ends = st.lists(st.integers(0, size), max_size=8).map(sorted)
    graph = Graph("graph", (*nodes, SinkNode("to counts", "counts", SqliteSink("unused.db", "counts"))), 3)
    return Case(graph, records, partitions, (draw(ends), draw(ends)))


def changelog(run: Run) -> list[dict[str, Any]]:
    """Return the changes of the window; those of different windows and keys are in no order."""
    node = run.graph.producer("counts")
    assert isinstance(node, WindowNode)
    return sorted(run.changes("counts"), key=lambda row: repr(group_of(row, node)))


@examples(8)
@given(cases())
def test_panes_after_a_count_are_the_same_in_every_cut(case: Case) -> None:
    found = []
    for cuts, groups in zip(case.cuts, (3, 1), strict=True):
        run = Run(replace(case, graph=replace(case.graph, key_groups=groups)), cuts)
        run.end()
        found.append(changelog(run))
    assert found[0] == found[1]
