"""Tables and joins of tables are the oracle's in every cut of the log, by one changelog, which fits what is there."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE
from tests.examples import examples, many
from tests.properties.graph_oracle import FOREVER, GraphOracle, Values
from tests.properties.test_graphs import EXPRESSIONS, FLAT, OTHER, RENAMED, SOURCE, Case, Run, resumed_runs

from windrow.engine import schema
from windrow.engine.columns import unpack
from windrow.engine.schema import row_key
from windrow.expressions import rows_of
from windrow.model import (
    MAX_PARTITIONS,
    Aggregate,
    Count,
    DeduplicateNode,
    Derive,
    Emit,
    Global,
    Graph,
    LookupNode,
    Max,
    Node,
    SelectNode,
    SinkNode,
    SqliteSink,
    StreamNode,
    Sum,
    TableJoinNode,
    TableNode,
    Tumbling,
    WindowNode,
)

SOURCES: list[Node] = [replace(SOURCE, lateness=None), replace(OTHER, lateness=None)]
USERS = TableNode("users", "log", ("id",), "v > 6")
PRICES = TableNode("prices", "renamed", ("u",), "w > 6")
PAIRS = TableNode("pairs", "renamed", ("u", "w"))
ONE = TableJoinNode("joined", "users", "prices", ("user",), ("u",))
MANY = TableJoinNode("joined", "users", "pairs", ("user",), ("u",))
OWN = replace(RENAMED, name="own", inputs=("log",))
KEPT = TableNode("kept", "renamed", ("u",), "w > 6")
FOUND = LookupNode("found", "log", "kept", ("user",), ("u",), "left", revise=5 * MINUTE)
IN_ORDER = replace(FOUND, as_of="order", revise=None)
AGAIN: list[Node] = [
    SelectNode("others", ("renamed",), derive=(Derive("x", "u"), Derive("y", "w")), select=("x", "y")),
    TableNode("last", "others", ("x",)),
    TableJoinNode("again", "joined", "last", ("user",), ("x",), "left"),
]
FIGURES = (Aggregate("total", Sum("v")), Aggregate("n", Count()), Aggregate("top", Max("v")))
SUMS = WindowNode("sums", "joined", ("user",), Global(), FIGURES, Emit())
SECOND = WindowNode(
    "second", "sums", ("n",), Global(), (Aggregate("users", Count()), Aggregate("sum", Sum("total"))), Emit()
)
MINUTES = WindowNode("minutes", "log", ("user",), Tumbling(4 * MINUTE), FIGURES, Emit(lateness=10 * MINUTE))
OVER = (Aggregate("total", Sum("total")), Aggregate("n", Count()), Aggregate("top", Max("top")))
HOURS = WindowNode("hours", "minutes", ("user",), Tumbling(12 * MINUTE), OVER, Emit())
GRAPHS: dict[str, list[Node]] = {
    "table": [USERS],
    "two tables of one log": [USERS, TableNode("last", "log", ("user",)), SelectNode("some", ("users", "last"))],
    "windows and windows over them": [MINUTES, HOURS, SelectNode("some", ("minutes", "hours"))],
    "table of records without copies": [
        DeduplicateNode("unique", "log", ("id", "user"), 5 * MINUTE),
        replace(USERS, input="unique"),
    ],
    **{how: [RENAMED, USERS, PRICES, replace(ONE, how=how)] for how in ("inner", "left", "right", "full")},
    **{f"many {how}": [RENAMED, USERS, PAIRS, replace(MANY, how=how)] for how in ("inner", "left", "right", "full")},
    "again": [RENAMED, USERS, PRICES, ONE, *AGAIN],
    "selected": [RENAMED, USERS, PRICES, ONE, SelectNode("some", ("joined",), "v > 3", (), ("id", "v"))],
    "sums": [RENAMED, USERS, PRICES, replace(ONE, how="left"), SUMS],
    "sums of sums": [RENAMED, USERS, PAIRS, MANY, SUMS, SECOND],
    "running": [replace(SUMS, input="log"), SECOND, TableJoinNode("joined", "sums", "second", ("n",), ("n",))],
    "lookup": [RENAMED, KEPT, FOUND],
    "lookup, inner": [RENAMED, KEPT, replace(FOUND, how="inner")],
    "lookup, revised within the lateness": [RENAMED, KEPT, replace(FOUND, revise=None)],
    "lookup, not revised": [RENAMED, KEPT, replace(FOUND, revise=0)],
    "lookup as of the order": [RENAMED, KEPT, IN_ORDER],
    "lookup as of the order, inner": [RENAMED, KEPT, replace(IN_ORDER, how="inner")],
    "table of a lookup": [RENAMED, KEPT, IN_ORDER, TableNode("last", "found", ("id",), "v > 6")],
    "lookup of records in themselves": [OWN, replace(KEPT, input="own"), FOUND],
    "itself": [USERS, TableJoinNode("joined", "users", "users", ("user",), ("user",))],
}


UNCOMPARED = {"row", "t", "t_right", "source", "partition", "offset"}
RESULTS = TableNode | TableJoinNode | LookupNode | WindowNode


@st.composite
def cases(draw: st.DrawFn, most_ends: int = 0) -> Case:
    """A graph of tables, each with a sink, and a log of both sources."""
    nodes = [
        replace(node, broadcast=draw(st.booleans())) if isinstance(node, LookupNode) else node
        for node in GRAPHS[draw(st.sampled_from(list(GRAPHS)))]
    ]
    chance, size = Random(draw(st.integers(0, 2**32))), draw(st.integers(0, 50))
    lateness = st.sampled_from([None, 4 * MINUTE, 9 * MINUTE])
    sources = [replace(one, lateness=draw(lateness)) for one in (SOURCE, OTHER)][: 2 if RENAMED in nodes else 1]
    tables = [node for node in nodes if isinstance(node, RESULTS) or node.name == "some"]
    sinks = [SinkNode(f"to {node.name}", node.name, SqliteSink("unused.db", node.name)) for node in tables]
    partitions = [
        number * MAX_PARTITIONS + one for number in range(len(sources)) for one in range(draw(st.integers(1, 3)))
    ]
    lags = {partition: chance.choice([0, 0, 6, 20]) for partition in partitions}
    records: list[tuple[int, int, Values]] = []
    for number in range(size):
        values = {"id": chance.choice("abc"), "user": chance.choice("AB"), "v": chance.randint(0, 9)}
        partition = chance.choice(partitions)
        records.append((partition, max(0, number - lags[partition] + chance.randint(-8, 3)) * MINUTE, values))
    ends = st.lists(st.integers(0, size), max_size=8).map(sorted)
    graph = Graph("graph", (*sources, *nodes, *sinks), 3)
    resumed = tuple(sorted(draw(st.lists(st.integers(0, size), max_size=most_ends))))
    return Case(graph, records, tuple(partitions), (draw(ends), draw(ends)), ends=resumed)


def changelog(run: Run, sink: SinkNode) -> list[dict[str, Any]]:
    """Return the changes of a sink; those of different keys are in no order."""
    table = pa.concat_tables([output[sink.name].changes for output in run.outputs])
    key = [field.name for field in row_key(rows_of(run.graph, sink))]
    rows = table.to_pylist()
    return sorted(rows, key=lambda row: [str(row[name]) for name in key])


def table_of(run: Run, sink: SinkNode) -> dict[Any, Values]:
    """Apply a changelog, which must fit what is there."""
    key = [field.name for field in row_key(rows_of(run.graph, sink))]
    table: dict[Any, Values] = {}
    for row in changelog(run, sink):
        place, values = tuple(row[name] for name in key), dict(list(row.items())[3:])
        match row["op"]:
            case "insert":
                assert place not in table, row
                table[place] = values
            case "update_before":
                assert table[place] == values, row
            case "update_after":
                assert place in table, row
                table[place] = values
            case "delete":
                assert table.pop(place) == values, row
    return table


def compare(case: Case) -> None:
    oracle = GraphOracle(case.graph, case.log, EXPRESSIONS, parts=case.parts)
    runs = [Run(case, cuts) for cuts in case.cuts]
    for run in runs:
        run.end()
    for sink in case.graph.sinks:
        names = [field.name for field in schema.changes(rows_of(case.graph, sink))][3:]
        names = [name for name in names if name not in UNCOMPARED and not name.startswith("window_")]
        expected = Counter(tuple(row.values[name] for name in names) for row in oracle.rows(sink.input, FOREVER))
        for run in runs:
            found = table_of(run, sink)
            assert Counter(tuple(row[name] for name in names) for row in found.values()) == expected, sink.name
        # where a run resumes after an end, a pair can have the place of a row that was read before it
        if not case.ends or not any(isinstance(node, TableJoinNode) for node in case.graph.nodes):
            assert changelog(runs[0], sink) == changelog(runs[1], sink), sink.name


@examples(12)
@given(cases())
def test_tables_are_the_oracles_in_every_cut(case: Case) -> None:
    compare(case)


@examples(12)
@given(cases(most_ends=3))
def test_tables_are_the_oracles_wherever_a_run_resumes_after_the_end_of_its_input(case: Case) -> None:
    compare(case)


def test_the_last_element_of_a_record_is_the_row_of_its_key() -> None:
    nodes = (*FLAT["lines"], TableNode("last", "lines", ("user",)))
    graph = Graph("graph", (*nodes, SinkNode("to last", "last", SqliteSink("unused.db", "last"))), 3)
    elements = [[{"id": "a", "v": number} for number in range(11)], [{"id": "b", "v": 99}]]
    records: list[tuple[int, int, Values]] = [(0, 0, {"user": "A", "items": items}) for items in elements]
    found = []
    for cuts in ([], [1]):
        run = Run(Case(graph, records, (0,), ([], [])), cuts)
        run.end()
        found.append([(row["op"], row["v"]) for row in changelog(run, graph.sinks[0])])
    assert found[0] == found[1] == [("insert", 10), ("update_before", 10), ("update_after", 99)]


def test_what_a_run_reads_after_the_end_of_its_input_is_before_what_came_later_in_event_time() -> None:
    table = TableNode("last", "log", ("user",))
    total = WindowNode("total", "last", (), Global(), FIGURES[:2], Emit())
    sinks = tuple(SinkNode(f"to {one}", one, SqliteSink("unused.db", one)) for one in ("last", "total"))
    graph = Graph("graph", (SOURCES[0], table, total, *sinks), 1)
    run = Run(Case(graph, [], (0, 1), ([], [])), [])
    steps = [[(0, 200, 99), (0, 201, 100)], [(1, 30, 7), (1, 31, 8)], [(0, 300, 1000)]]
    for records in steps:
        run.step([(at, minute * MINUTE, {"id": "a", "user": "A", "v": v, "items": []}) for at, minute, v in records])
        run.end()
    for sink, name in zip(sinks, ("v", "total"), strict=True):
        found = changelog(run, sink)
        assert [row[name] for row in found if row["op"] != "update_before"] == [99, 100, 1000]
        assert [row[name] for row in found if row["op"] == "update_before"] == [99, 100]


def test_a_window_that_an_end_has_fired_is_revised_by_the_first_record_of_a_partition() -> None:
    some = SelectNode("some", ("minutes",), "n > 0")
    sinks = tuple(SinkNode(f"to {one}", one, SqliteSink("unused.db", one)) for one in ("minutes", "some"))
    graph = Graph("graph", (SOURCES[0], MINUTES, some, *sinks), 1)
    run = Run(Case(graph, [], (0, 1, 2), ([], [])), [])
    for partition, minute, v in ((0, 10, 1), (1, 2, 3), (2, 0, 5)):
        # the two others have no watermark before it, and their window began before the end
        run.step([(partition, minute * MINUTE, {"id": "a", "user": "A", "v": v})])
        run.end()
    for sink in sinks:
        assert sorted(row["total"] for row in table_of(run, sink).values()) == [1, 8], sink.name


@pytest.mark.long
@many(2000)
@given(cases())
def test_many_tables(case: Case) -> None:
    compare(case)


@examples(10)
@given(cases(), st.integers(0, 30))
def test_a_run_that_resumes_with_other_key_groups_gives_the_same(case: Case, at: int) -> None:
    straight, resumed = resumed_runs(case, at)
    for sink in case.graph.sinks:
        assert changelog(straight, sink) == changelog(resumed, sink), sink.name


@examples(3)
@given(st.integers(0, 2**32), st.sampled_from(["table", "full", "many left"]))
def test_state_is_bounded_by_the_rows_of_the_tables(seed: int, name: str) -> None:
    chance = Random(seed)
    nodes = GRAPHS[name]
    sources = SOURCES if RENAMED in nodes else SOURCES[:1]
    tables: list[StreamNode] = [node for node in nodes if isinstance(node, TableNode | TableJoinNode)]
    sinks = [SinkNode(f"to {node.name}", node.name, SqliteSink("unused.db", node.name)) for node in tables]
    partitions = tuple(number * MAX_PARTITIONS for number in range(len(sources)))
    run = Run(Case(Graph("graph", (*sources, *nodes, *sinks), 1), [], partitions, ([], [])), [])
    for number in range(60):
        values = [
            {"id": chance.choice("abc"), "user": chance.choice("AB"), "v": chance.randint(0, 6)} for _ in range(20)
        ]
        run.step([(partition, number * MINUTE, row) for partition in partitions for row in values])
    # three users, up to two prices or fourteen pairs: a few times that many rows, of 1200 records of each source
    kept = sum(
        unpack(blob).num_rows
        for state in run.host.states
        for (kind, _), blob in state.items()
        if "unsettled" not in kind
    )
    assert kept < 200
