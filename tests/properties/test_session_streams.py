"""Streams behind sessions: what late, extending and merging records make of a session is the oracle's, in every cut."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE
from tests.examples import examples, many
from tests.properties.graph_oracle import FOREVER, GraphOracle, Values
from tests.properties.test_graphs import (
    COUNTED,
    EXPRESSIONS,
    FIRST,
    OTHER,
    OWN_GAP,
    SECOND,
    SOURCE,
    Case,
    Run,
    resumed_runs,
)
from tests.properties.test_tables import changelog, table_of

from windrow.engine import schema
from windrow.expressions import rows_of
from windrow.model import (
    MAX_PARTITIONS,
    Aggregate,
    Count,
    Cumulate,
    DeduplicateNode,
    Derive,
    Emit,
    Global,
    Graph,
    Hopping,
    JoinNode,
    Max,
    Node,
    SelectNode,
    Session,
    SinkNode,
    SourceNode,
    SplitNode,
    SqliteSink,
    Sum,
    TableJoinNode,
    Tumbling,
    Window,
    WindowNode,
)
from windrow.runtime.memory import MemoryHost

CONDITIONS = {**EXPRESSIONS, "n > 0": lambda row: row["n"] > 0, "n > 1": lambda row: row["n"] > 1}
WINDOWS: dict[str, Window] = {
    "tumbling": Tumbling(12 * MINUTE),
    "hopping": Hopping(12 * MINUTE, 4 * MINUTE),
    "cumulate": Cumulate(12 * MINUTE, 4 * MINUTE),
    "running": Global(),
}
OVER = {name: WindowNode(name, "sessions", ("user",), window, SECOND, Emit()) for name, window in WINDOWS.items()}
PAIRS = JoinNode("pairs", "sessions", "others", ("user",), ("user",), 6 * MINUTE, 6 * MINUTE)
BY_COUNT = WindowNode("by count", "running", ("n",), Global(), (Aggregate("users", Count()),), Emit())
TOTALS = (Aggregate("total", Sum("total")), Aggregate("pairs", Count()), Aggregate("top", Max("total_right")))
OTHERS = replace(COUNTED[1], name="others")
BEHIND: dict[str, list[Node]] = {
    "alone": [],
    "having": [SelectNode("having", ("sessions",), "n > 0")],
    "having some": [SelectNode("having some", ("sessions",), "total > 5")],
    "having few fields": [SelectNode("having few fields", ("sessions",), "n > 1", (), ("user", "top"))],
    "derived": [SelectNode("derived", ("sessions",), derive=(Derive("w", "total"),), select=("w", "n"))],
    "split": [SplitNode("split", "sessions", (Derive("large", "total > 5"), Derive("small", "n > 1")), "rest")],
    **{name: [node] for name, node in OVER.items()},
    "hopping over some": [
        SelectNode("some", ("sessions",), "total > 5"),
        replace(OVER["hopping"], name="hopping over some", input="some", key=()),
    ],
    "windows over windows": [
        OVER["tumbling"],
        replace(OVER["running"], name="windows over windows", input="tumbling"),
    ],
    "running of running": [OVER["running"], BY_COUNT],
    "tables": [
        OVER["running"],
        BY_COUNT,
        TableJoinNode("tables", "running", "by count", ("n",), ("n",), "left"),
    ],
    **{f"pairs, {how}": [OTHERS, replace(PAIRS, how=how)] for how in ("inner", "left", "right", "full")},
    "windows over pairs": [
        OTHERS,
        PAIRS,
        WindowNode("windows over pairs", "pairs", ("user",), Tumbling(15 * MINUTE), TOTALS, Emit()),
    ],
    "with records": [replace(PAIRS, name="with records", right="other", how="left")],
    "with sessions": [
        replace(PAIRS, name="with sessions", right="other sessions", how="full"),
    ],
    "union": [SelectNode("union", ("sessions", "other sessions"), "n > 0")],
}
OTHER_SESSIONS = WindowNode(
    "other sessions", "other", ("user",), Session(5 * MINUTE), FIRST, Emit(lateness=12 * MINUTE)
)


@st.composite
def cases(draw: st.DrawFn, most_ends: int = 0) -> Case:
    """Sessions with one to three streams behind them, each with a sink, and records that are late, extend and merge."""
    chance = Random(draw(st.integers(0, 2**32)))
    chosen = draw(st.lists(st.sampled_from(list(BEHIND)), min_size=1, max_size=3, unique=True))
    behind = list({node.name: node for name in chosen for node in BEHIND[name]}.values())
    before: list[Node] = []
    match draw(st.sampled_from(["log", "log", "some", "unique", "both"])):
        case "some":
            before = [SelectNode("before", ("log",), "v > 3")]
        case "unique":
            before = [DeduplicateNode("before", "log", ("id", "v"), 3 * MINUTE)]
        case "both":
            before = [SelectNode("before", ("log", "other"))]
    given_ = before[-1].name if before else "log"
    window = draw(st.sampled_from([Session(3 * MINUTE), Session(8 * MINUTE), Session(6 * MINUTE, OWN_GAP)]))
    key: tuple[str, ...] = ("user",)
    if not any(isinstance(node, JoinNode) for node in behind) and "union" not in chosen:
        key = draw(st.sampled_from([("user",), ("user", "id")]))
    lateness = draw(st.sampled_from([0, 5, 20, 60])) * MINUTE
    nodes: list[Node] = [*before, WindowNode("sessions", given_, key, window, FIRST, Emit(lateness=lateness))]
    inputs = {name for node in (*before, *behind) for name in node.inputs}
    nodes += [OTHER_SESSIONS] if "other sessions" in inputs else []
    has_other = bool(inputs & {"other", "other sessions"})
    limit = draw(st.sampled_from([20, 60])) * MINUTE
    sources: list[SourceNode] = [replace(SOURCE, lateness=limit)]
    sources += [replace(OTHER, lateness=limit)] if has_other else []
    return _with_log(draw, chance, [*sources, *nodes, *behind], len(sources), most_ends)


def _with_log(draw: st.DrawFn, chance: Random, nodes: list[Node], sources: int, most_ends: int) -> Case:
    partitions = [number * MAX_PARTITIONS + one for number in range(sources) for one in range(draw(st.integers(1, 3)))]
    size, spread = draw(st.integers(1, 24)), draw(st.sampled_from([6, 15, 40]))
    pace = draw(st.sampled_from([1, 2, 4]))
    lags = {partition: chance.choice([0, 0, 8, 25]) for partition in partitions}
    records: list[tuple[int, int, Values]] = []
    for number in range(size):
        values: Values = {"id": chance.choice("ab"), "user": chance.choice("AAB"), "v": chance.randint(0, 9)}
        partition = chance.choice(partitions)
        half_minutes = 2 * (number * pace - lags[partition]) + chance.randint(-2 * spread, 6)
        records.append((partition, max(0, half_minutes) * MINUTE // 2, values))
    sinks = [
        SinkNode(f"to {name}", name, SqliteSink("unused.db", name))
        for node in nodes
        if not isinstance(node, SourceNode | DeduplicateNode) and node.name != "before"
        for name in (_outputs(node) if isinstance(node, SplitNode) else [node.name])
    ]
    ends = tuple(sorted(draw(st.lists(st.integers(0, size), max_size=most_ends))))
    return Case(
        Graph("graph", (*nodes, *sinks), draw(st.sampled_from([1, 1, 3]))),
        records,
        tuple(partitions),
        (_cut(size, 1), _cut(size, size)),
        ends=ends,
    )


def _outputs(node: SplitNode) -> list[str]:
    return [f"{node.name}.{one}" for one in (*(output.name for output in node.outputs), node.other) if one]


def _cut(size: int, length: int) -> list[int]:
    """Return where steps of a length end."""
    return list(range(length, size, length))


class CrashedRun(Run):
    """A run that dies in each third step, after it has computed it, and computes it again from the state before it."""

    def __init__(self, case: Case, cuts: list[int]) -> None:
        self._steps = 0
        super().__init__(case, cuts)

    def step(self, records: list[tuple[int, int, Values]]) -> None:
        self._steps += 1
        if self._steps % 3 == 0:
            states, offsets = self.host.copy_states(), dict(self.offsets)
            super().step(records)
            self.outputs.pop()
            self.offsets = offsets
            self.host = MemoryHost(self.graph, self.partitions)
            self.host.begin(states)
        super().step(records)


def _is_global(case: Case, sink: SinkNode) -> bool:
    """Return whether rows have no window of event time."""
    node = case.graph.producer(sink.input)
    return isinstance(node, TableJoinNode) or (isinstance(node, WindowNode) and isinstance(node.window, Global))


def figure(value: Any) -> Any:  # noqa: ANN401 - of any type
    """Return a value of a table as the oracle has it: times in microseconds."""
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1, tzinfo=value.tzinfo)) // timedelta(microseconds=1)
    return value


def compare(case: Case) -> None:
    """Compare every stream with the oracle's, in steps of 1, 3 (some of which crash), 7 and all records."""
    oracle = GraphOracle(case.graph, case.log, CONDITIONS, parts=case.parts)
    size = len(case.records)
    runs = [Run(case, _cut(size, 1)), CrashedRun(case, _cut(size, 3)), Run(case, _cut(size, 7)), Run(case, [])]
    for run in runs:
        run.end()
    for sink in case.graph.sinks:
        names = [field.name for field in schema.changes(rows_of(case.graph, sink))][3:]
        names = [
            name
            for name in names
            if name not in {"row", "t"} and not (name.startswith("window_") and _is_global(case, sink))
        ]
        expected = Counter(tuple(row.values[name] for name in names) for row in oracle.rows(sink.input, FOREVER))
        for run in runs:
            rows = table_of(run, sink).values()
            assert Counter(tuple(figure(row[name]) for name in names) for row in rows) == expected, sink.name
        # where a run resumes after an end, a pair can have the place of a row that was read before it
        if not case.ends or not any(isinstance(node, JoinNode | TableJoinNode) for node in case.graph.nodes):
            for run in runs[1:]:
                assert changelog(runs[0], sink) == changelog(run, sink), sink.name
    compare_without(case, runs[0])


def compare_without(case: Case, run: Run) -> None:
    """Compare the sessions with those of a graph in which no stream takes them."""
    sink = next(sink for sink in case.graph.sinks if sink.input == "sessions")
    kept: dict[str, Node] = {sink.name: sink}
    for node in reversed(case.graph.nodes):
        if any(node.name in one.inputs for one in kept.values()):
            kept[node.name] = node
    sources = [node for node in case.graph.nodes if isinstance(node, SourceNode)]
    others = [node for node in case.graph.nodes if node.name in kept and node not in sources]
    alone = Run(replace(case, graph=replace(case.graph, nodes=(*sources, *others))), case.cuts[1])
    alone.end()
    assert table_of(alone, sink) == table_of(run, sink)


@examples(6)
@given(cases())
def test_streams_behind_sessions_are_the_oracles_in_every_cut(case: Case) -> None:
    compare(case)


@examples(6)
@given(cases(most_ends=3))
def test_streams_behind_sessions_are_the_oracles_wherever_a_run_resumes_after_the_end(case: Case) -> None:
    compare(case)


@examples(6)
@given(cases(), st.integers(0, 30))
def test_streams_behind_sessions_resume_with_other_key_groups(case: Case, at: int) -> None:
    straight, resumed = resumed_runs(case, at, replace(case.graph, key_groups=2))
    for sink in case.graph.sinks:
        assert changelog(straight, sink) == changelog(resumed, sink), sink.name


@pytest.mark.parametrize("steps", [[], [1, 2]])
def test_a_session_that_the_end_of_the_input_fires_with_a_late_record_is_one_row(steps: list[int]) -> None:
    sessions = WindowNode("sessions", "log", ("user",), Session(30 * MINUTE), FIRST, Emit(lateness=600 * MINUTE))
    having = SelectNode("having", ("sessions",), "n > 0")
    sink = SinkNode("to having", "having", SqliteSink("unused.db", "having"))
    graph = Graph("graph", (replace(SOURCE, lateness=None), sessions, having, sink), 1)
    values: Values = {"id": "a", "user": "A", "v": 1}
    records = [(0, minute * MINUTE, values) for minute in (314, 342, 285)]
    run = Run(Case(graph, records, (0,), ([], [])), steps)
    run.end()
    assert [(row["op"], row["n"]) for row in changelog(run, sink)] == [("insert", 3)]


@pytest.mark.long
@many(600)
@given(cases())
def test_many_streams_behind_sessions(case: Case) -> None:
    compare(case)


@pytest.mark.long
@many(600)
@given(cases(most_ends=4))
def test_many_streams_behind_sessions_that_resume_after_the_end(case: Case) -> None:
    compare(case)


@pytest.mark.long
@many(300)
@given(cases(), st.integers(0, 40))
def test_many_streams_behind_sessions_that_resume_with_other_key_groups(case: Case, at: int) -> None:
    straight, resumed = resumed_runs(case, at, replace(case.graph, key_groups=2))
    for sink in case.graph.sinks:
        assert changelog(straight, sink) == changelog(resumed, sink), sink.name
