"""Truncations empty tables as the oracle does, in every cut of the log, and through all that reads a table."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE
from tests.examples import examples, many
from tests.properties.graph_oracle import Values
from tests.properties.test_graphs import OTHER, RENAMED, SOURCE, Case, resumed_runs
from tests.properties.test_tables import FOUND, IN_ORDER, MANY, OWN, PAIRS, PRICES, RESULTS, SUMS, changelog, compare

from windrow.model import (
    MAX_PARTITIONS,
    Graph,
    LogSource,
    LookupNode,
    Node,
    SelectNode,
    SinkNode,
    SqliteSink,
    TableNode,
)

SOURCES = [replace(one, source=LogSource(f"data/{one.name}", "debezium")) for one in (SOURCE, OTHER)]
USERS = TableNode("users", "log", ("id",))
KEPT = TableNode("kept", "renamed", ("u",))
BOTH = SelectNode("both", ("log", "other"))
GRAPHS: dict[str, list[Node]] = {
    "table": [USERS],
    "table with a condition": [replace(USERS, deleted="v > 6")],
    "table of two databases": [BOTH, replace(USERS, input="both")],
    "two tables of one database": [USERS, TableNode("last", "log", ("user",)), SelectNode("some", ("users", "last"))],
    "sums": [RENAMED, USERS, replace(PRICES, deleted=None), replace(MANY, right="prices", right_key=("u",)), SUMS],
    "full": [RENAMED, USERS, PAIRS, replace(MANY, how="full")],
    "lookup": [RENAMED, KEPT, FOUND],
    "lookup, inner": [RENAMED, KEPT, replace(FOUND, how="inner")],
    "lookup, revised within the lateness": [RENAMED, KEPT, replace(FOUND, revise=None)],
    "lookup, not revised": [RENAMED, KEPT, replace(FOUND, revise=0)],
    "lookup as of the order": [RENAMED, KEPT, IN_ORDER],
    "lookup of records in themselves": [OWN, replace(KEPT, input="own"), FOUND],
    "lookup in two databases": [replace(RENAMED, inputs=("log", "other")), KEPT, FOUND],
    "lookup as of the order in two databases": [replace(RENAMED, inputs=("log", "other")), KEPT, IN_ORDER],
    "table of a lookup": [RENAMED, KEPT, IN_ORDER, TableNode("last", "found", ("id",), "v > 6")],
}


@st.composite
def cases(draw: st.DrawFn, most_ends: int = 0) -> Case:
    """A graph of tables, each with a sink, and the changes of two databases, in one partition each or in several."""
    nodes = [
        replace(node, broadcast=draw(st.booleans())) if isinstance(node, LookupNode) else node
        for node in GRAPHS[draw(st.sampled_from(list(GRAPHS)))]
    ]
    chance, size = Random(draw(st.integers(0, 2**32))), draw(st.integers(0, 50))
    lateness = st.sampled_from([None, 4 * MINUTE, 9 * MINUTE])
    sources = [replace(one, lateness=draw(lateness)) for one in SOURCES]
    sources = sources[: 2 if any("other" in node.inputs for node in nodes) else 1]
    tables = [node for node in nodes if isinstance(node, RESULTS) or node.name == "some"]
    sinks = [SinkNode(f"to {node.name}", node.name, SqliteSink("unused.db", node.name)) for node in tables]
    partitions = [
        number * MAX_PARTITIONS + one for number in range(len(sources)) for one in range(draw(st.integers(1, 2)))
    ]
    lags = {partition: chance.choice([0, 0, 6, 20]) for partition in partitions}
    often = chance.choice([0.05, 0.2, 0.5])
    records: list[tuple[int, int, Values]] = []
    for number in range(size):
        partition, at = chance.choice(partitions), number
        op = "t" if chance.random() < often else chance.choice("ccud")
        values: Values = {"op": op}
        if op != "t":
            values |= {"id": chance.choice("abc"), "user": chance.choice("AB"), "v": chance.randint(0, 9)}
        records.append((partition, max(0, at - lags[partition] + chance.randint(-8, 3)) * MINUTE, values))
    ends = st.lists(st.integers(0, size), max_size=8).map(sorted)
    graph = Graph("graph", (*sources, *nodes, *sinks), 3)
    resumed = tuple(sorted(draw(st.lists(st.integers(0, size), max_size=most_ends))))
    return Case(graph, records, tuple(partitions), (draw(ends), draw(ends)), ends=resumed)


@examples(25)
@given(cases())
def test_tables_are_the_oracles_in_every_cut(case: Case) -> None:
    compare(case)


@examples(15)
@given(cases(most_ends=3))
def test_tables_are_the_oracles_wherever_a_run_resumes_after_the_end_of_its_input(case: Case) -> None:
    compare(case)


@examples(10)
@given(cases(), st.integers(0, 30))
def test_a_run_that_resumes_with_other_key_groups_gives_the_same(case: Case, at: int) -> None:
    straight, resumed = resumed_runs(case, at)
    for sink in case.graph.sinks:
        assert changelog(straight, sink) == changelog(resumed, sink), sink.name


@pytest.mark.long
@many(2000)
@given(cases(most_ends=2))
def test_many_truncations(case: Case) -> None:
    compare(case)
