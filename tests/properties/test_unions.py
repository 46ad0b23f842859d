"""Unions have all rows of their branches, also where these overlap, in every cut and with any key groups."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from random import Random
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE
from tests.examples import examples, many
from tests.properties.graph_oracle import FOREVER, GraphOracle, Values
from tests.properties.test_graphs import COUNTING, EXPRESSIONS, ITEMS, OTHER, SOURCE, Case, Run, resumed_runs
from tests.properties.test_tables import changelog, table_of

from windrow.engine import schema
from windrow.expressions import rows_of
from windrow.model import (
    MAX_PARTITIONS,
    Aggregate,
    Count,
    Decode,
    DeduplicateNode,
    Derive,
    Emit,
    Field,
    FlatMapNode,
    Graph,
    JoinNode,
    LongType,
    LookupNode,
    Max,
    Node,
    ProcessNode,
    SampleNode,
    SelectNode,
    SinkNode,
    SplitNode,
    SqliteSink,
    StringType,
    Sum,
    TableJoinNode,
    TableNode,
    TimestampType,
    Tumbling,
    WindowNode,
)

FIELDS = ("user", "id", "v")
DECODE = Decode(
    (
        Field("user", StringType()),
        Field("name", StringType()),
        Field("w", LongType()),
        Field("t", TimestampType("micros")),
        Field("items", ITEMS),
        Field("more", ITEMS),
    )
)
START: list[Node] = [
    replace(SOURCE, decode=DECODE),
    replace(OTHER, decode=DECODE),
    SelectNode("plain", ("log",), derive=(Derive("id", "name"), Derive("v", "w")), select=FIELDS),
    SelectNode("others", ("other",), derive=(Derive("id", "name"), Derive("v", "w")), select=FIELDS),
    # the same records by another key
    SelectNode("turning", ("log",), derive=(Derive("b", "user"), Derive("c", "w")), select=("b", "c", "name")),
    SelectNode(
        "turned", ("turning",), derive=(Derive("user", "name"), Derive("id", "b"), Derive("v", "c")), select=FIELDS
    ),
    SelectNode("orders", ("log",), select=("user", "items", "more")),
    FlatMapNode("items", "orders", "items"),
    FlatMapNode("mores", "orders", "more"),
    SelectNode("item", ("items",), select=FIELDS),
    SelectNode("more", ("mores",), select=FIELDS),
]
KEPT = ("records", "elements", "pairs", "emitted")
"""Kinds of streams whose rows are not taken back."""
NEAR = JoinNode("", "", "", ("user",), ("user",), MINUTE, 2 * MINUTE)
HOW: list[Literal["inner", "left"]] = ["inner", "left"]
AS_OF: list[Literal["event_time", "order"]] = ["event_time", "order"]
COUNTS = (Aggregate("total", Sum("v")), Aggregate("n", Count()), Aggregate("top", Max("v")))


class Streams:
    """Nodes as they are added, and by kind the streams that can be united: they have the same fields."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.nodes = list(START)
        self.by_kind = defaultdict(list, records=["plain", "turned", "others"], elements=["item", "more"])

    def any_of(self, *kinds: str) -> tuple[str, str]:
        """Draw a stream, and return its kind."""
        kind = self.draw(st.sampled_from([one for one in kinds if self.by_kind[one]]))
        return kind, self.draw(st.sampled_from(self.by_kind[kind]))

    def add(self, what: str) -> None:  # noqa: C901 - a case for each kind
        """Add a stream of some kind over streams that are there."""
        name, all_kinds = f"{what} {len(self.nodes)}", [kind for kind, streams in self.by_kind.items() if streams]
        match what:
            case "filter":
                kind, stream = self.any_of(*all_kinds)
                self._put(kind, SelectNode(name, (stream,), "v > 3"))
            case "split":
                kind, stream = self.any_of(*all_kinds)
                self.nodes.append(SplitNode(name, stream, (Derive("high", "v > 6"),), "low"))
                self.by_kind[kind] += [f"{name}.high", f"{name}.low"]
            case "deduplicate":
                kind, stream = self.any_of(*KEPT)
                self._put(kind, DeduplicateNode(name, stream, ("user", "v"), 6 * MINUTE))
                self.by_kind[kind].append(f"{name}.duplicates")
            case "sample":
                kind, stream = self.any_of(*KEPT)
                self._put(kind, SampleNode(name, stream, ("user",), self.draw(st.integers(1, 3))))
            case "join":
                by, how = self.draw(st.sampled_from(["user", "id"])), self.draw(st.sampled_from(HOW))
                (one, left), (other, right) = (self.any_of(*KEPT, "changes") for _ in "lr")
                join = replace(NEAR, name=name, left=left, right=right, key=(by,), right_key=(by,), how=how)
                is_kept = how == "inner" and "changes" not in {one, other}
                self._put_fields("pairs" if is_kept else "changes", join)
            case "lookup":
                (kind, left), (_, of) = self.any_of(*KEPT), self.any_of(*KEPT)
                renamed = SelectNode(
                    f"{name} renamed", (of,), None, (Derive("u", "user"), Derive("w", "v")), ("u", "w")
                )
                self.nodes += [renamed, TableNode(f"{name} table", renamed.name, ("u",), "w > 6")]
                as_of = self.draw(st.sampled_from(AS_OF))
                revise = 5 * MINUTE if as_of == "event_time" else None
                how = self.draw(st.sampled_from(HOW))
                node = LookupNode(name, left, f"{name} table", ("user",), ("u",), how, as_of, revise)
                self._put_fields("changes" if as_of == "event_time" else kind, node)
            case "process":
                _, stream = self.any_of(*KEPT)
                self._put_fields("emitted", ProcessNode(name, stream, ("user",), COUNTING))
            case "table":
                _, stream = self.any_of(*KEPT)
                self._put("tables", TableNode(name, stream, (self.draw(st.sampled_from(["user", "id"])),), "v > 6"))
            case "join tables":
                (_, left), (_, right) = self.any_of("tables"), self.any_of("tables")
                how = self.draw(st.sampled_from(HOW))
                self._put_fields("tables", TableJoinNode(name, left, right, ("user",), ("user",), how))
            case "union":
                kind, stream = self.any_of(*all_kinds)
                others = st.lists(st.sampled_from(self.by_kind[kind]), min_size=1, max_size=2)
                self._put(kind, SelectNode(name, tuple(dict.fromkeys([stream, *self.draw(others)]))))

    def _put(self, kind: str, node: Node) -> None:
        self.nodes.append(node)
        self.by_kind[kind].append(node.name)

    def _put_fields(self, kind: str, node: Node) -> None:
        self.nodes.append(node)
        self._put(kind, SelectNode(f"{node.name} rows", (node.name,), select=FIELDS))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Streams over streams, most of them unions, with a sink of each that no other takes, and a window."""
    streams = Streams(draw)
    kinds = ["filter", "split", "deduplicate", "sample", "join", "lookup", "process", "table"]
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            streams.add(draw(st.sampled_from([*kinds, *(["join tables"] if streams.by_kind["tables"] else [])])))
        streams.add("union")
    _, of = streams.any_of(*KEPT, "changes")
    streams.nodes.append(WindowNode("counts", of, ("user",), Tumbling(4 * MINUTE), COUNTS, Emit()))
    taken = {name for node in streams.nodes for name in node.inputs}
    united = [node.name for node in streams.nodes if isinstance(node, SelectNode) and len(node.inputs) > 1]
    ends = [name for kind in streams.by_kind.values() for name in kind if name not in taken or name in united]
    sinks = [SinkNode(f"to {name}", name, SqliteSink("unused.db", name)) for name in (*ends, "counts")]
    return Graph("graph", (*streams.nodes, *sinks), 3)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A graph, and a log of both sources."""
    chance, size = Random(draw(st.integers(0, 2**32))), draw(st.integers(0, 30))
    partitions = [number * MAX_PARTITIONS + one for number in (0, 1) for one in range(draw(st.integers(1, 2)))]
    records: list[tuple[int, int, Values]] = []
    for number in range(size):
        values: Values = {"user": chance.choice("AB"), "name": chance.choice("AB"), "w": chance.randint(0, 9)}
        for array in ("items", "more"):
            elements = range(chance.choice([0, 1, 2, 11]))
            values[array] = [{"id": chance.choice("AB"), "v": chance.randint(0, 9)} for _ in elements]
        records.append((chance.choice(partitions), max(0, number + chance.randint(-14, 3)) * MINUTE, values))
    ends = st.lists(st.integers(0, size), max_size=6).map(sorted)
    return Case(draw(graphs()), records, tuple(partitions), (draw(ends), draw(ends)))


def late_output(run: Run, sink: SinkNode) -> Counter[str]:
    return Counter(repr(row) for output in run.outputs for row in output[sink.name].late.to_pylist())


def compare(case: Case) -> None:
    oracle = GraphOracle(case.graph, case.log, EXPRESSIONS)
    runs = [
        Run(replace(case, graph=replace(case.graph, key_groups=groups)), cuts)
        for cuts, groups in zip(case.cuts, (3, 1), strict=True)
    ]
    for run in runs:
        run.end()
    for sink in case.graph.sinks:
        names = [field.name for field in schema.changes(rows_of(case.graph, sink))][3:]
        names = [name for name in names if name in {*FIELDS, "total", "n", "top"}]
        expected = Counter(tuple(row.values[name] for name in names) for row in oracle.rows(sink.input, FOREVER))
        for run in runs:
            found = table_of(run, sink)
            assert Counter(tuple(row[name] for name in names) for row in found.values()) == expected, sink.name
        if sink.input != "counts":
            assert changelog(runs[0], sink) == changelog(runs[1], sink), sink.name
        assert late_output(runs[0], sink) == late_output(runs[1], sink), sink.name


@examples(15)
@given(cases())
def test_unions_have_the_oracles_rows_in_every_cut(case: Case) -> None:
    compare(case)


@pytest.mark.long
@many(3000)
@given(cases())
def test_many_unions(case: Case) -> None:
    compare(case)


@examples(6)
@given(cases(), st.integers(0, 30))
def test_a_run_that_resumes_with_other_key_groups_gives_the_same(case: Case, at: int) -> None:
    straight, resumed = resumed_runs(case, at)
    for sink in case.graph.sinks:
        assert changelog(straight, sink) == changelog(resumed, sink), sink.name


RIGHT = replace(NEAR, name="joined", left="log", right="other", how="right")
SLIM = SelectNode("slim", ("log",), select=("id", "user", "v"))


@pytest.mark.parametrize("nodes", [[RIGHT], [SLIM, replace(RIGHT, left="slim", how="left")]], ids=["right", "left"])
def test_a_field_of_the_other_side_can_be_called_like_the_event_time_and_be_null(nodes: list[Node]) -> None:
    graph = Graph("graph", (SOURCE, OTHER, *nodes, SinkNode("to", "joined", SqliteSink("unused.db", "joined"))), 3)
    records: list[tuple[int, int, Values]] = [
        (partition, minute * MINUTE, {"id": "a", "user": "A", "v": 1})
        for minute, partition in enumerate([0, MAX_PARTITIONS] * 10)
        if minute % 3
    ]
    compare(Case(graph, records, (0, MAX_PARTITIONS), ([], [5])))
