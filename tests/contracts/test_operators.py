"""What holds for every operator, by what its graph gives in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.pipelines import MAIN, MINUTE, raw, record

from windrow.engine.changelog import StepOutput
from windrow.engine.level import migrate
from windrow.engine.operators.registry import build_operator
from windrow.engine.schema import RAW, row_key
from windrow.engine.state.widening import StateChange
from windrow.expressions import rows_of
from windrow.model import (
    Aggregate,
    ArrayType,
    Calendar,
    Count,
    Cumulate,
    Decode,
    DeduplicateNode,
    Emit,
    EveryEventTime,
    Field,
    FlatMapNode,
    Global,
    Graph,
    Hopping,
    JoinNode,
    LongType,
    LookupNode,
    Max,
    Process,
    ProcessNode,
    Records,
    SampleNode,
    SelectNode,
    Session,
    SinkNode,
    SourceNode,
    SqliteSink,
    StreamNode,
    Sum,
    TableJoinNode,
    TableNode,
    Tumbling,
    ValueState,
    WindowNode,
)
from windrow.runtime.memory import MemoryHost

SOURCE = SourceNode("log", MAIN.source, MAIN.decode, MAIN.time, lateness=20 * MINUTE)
SUMS = (Aggregate("total", Sum("amount")), Aggregate("n", Count()), Aggregate("top", Max("amount")))
OVER = (Aggregate("total", Sum("total")), Aggregate("n", Sum("n")), Aggregate("rows", Count()))


def windowed(window: Any, emit: Emit | None = None, **settings: Any) -> WindowNode:  # noqa: ANN401 - any of either
    emit = Emit(lateness=10 * MINUTE) if emit is None else emit
    return WindowNode("made", "log", ("user",), window, SUMS, emit, **settings)


def counted(ctx: Any, _: Any) -> None:  # noqa: ANN401 - as users write it
    """Count a user's records."""
    ctx.state.n.set(ctx.state.n.get(0) + 1)
    ctx.emit(n=ctx.state.n.get())


def process(**settings: Any) -> ProcessNode:  # noqa: ANN401 - any of `Process`
    made = Process(
        function=counted,
        state=(ValueState("n", LongType()),),
        returns=(Field("n", LongType()),),
        **({"ttl": None, "order": "log", "on_timer": None, "on_processing_timer": None} | settings),
    )
    return ProcessNode("made", "log", ("user",), made)


def over_elements(node: StreamNode) -> StreamNode:
    """Return an operator that takes the elements of an array."""
    match node:
        case JoinNode():
            return replace(node, left="lines", right="lines")
        case SelectNode():
            return replace(node, inputs=("lines",))
        case _:
            return replace(node, input="lines")  # type: ignore[arg-type] # a join of tables is none of these


UNIQUE = DeduplicateNode("made", "log", ("user", "amount"), 8 * MINUTE)
NEAR = JoinNode("made", "log", "log", ("user",), ("user",), 2 * MINUTE, 3 * MINUTE)
LAST = TableNode("last", "log", ("user",), "amount > 6")
LOOKUP = LookupNode("made", "log", "last", ("user",), ("user",), "left")
AMOUNTS = TableNode("amounts", "log", ("user", "amount"))
TABLES = TableJoinNode("made", "last", "amounts", ("user",), ("user",))
OPERATORS: dict[str, tuple[StreamNode, ...]] = {
    "tumbling": (windowed(Tumbling(5 * MINUTE)),),
    "salted": (windowed(Tumbling(5 * MINUTE), salt=2),),
    "hopping": (windowed(Hopping(6 * MINUTE, 2 * MINUTE)),),
    "cumulate": (windowed(Cumulate(6 * MINUTE, 2 * MINUTE)),),
    "calendar": (windowed(Calendar(1, "day", "Europe/Berlin")),),
    "session": (windowed(Session(5 * MINUTE)),),
    "global": (windowed(Global(), Emit(early=Records(1))),),
    "early": (windowed(Tumbling(5 * MINUTE), Emit(lateness=10 * MINUTE, early=Records(2))),),
    "early by event time": (windowed(Tumbling(5 * MINUTE), Emit(lateness=10 * MINUTE, early=EveryEventTime(MINUTE))),),
    "late by count": (windowed(Tumbling(5 * MINUTE), Emit(lateness=10 * MINUTE, late=Records(2))),),
    "without a key": (replace(windowed(Tumbling(5 * MINUTE)), key=()),),
    "salted without a key": (replace(windowed(Tumbling(5 * MINUTE), salt=2), key=()),),
    "hopping without a key": (replace(windowed(Hopping(6 * MINUTE, 2 * MINUTE)), key=()),),
    "session without a key": (replace(windowed(Session(5 * MINUTE)), key=()),),
    "global without a key": (replace(windowed(Global(), Emit(early=Records(1))), key=()),),
    "process": (process(),),
    "process in order": (process(order="event_time", ttl=30 * MINUTE),),
    "deduplicate": (UNIQUE,),
    "deduplicate by partition": (replace(UNIQUE, scope="partition"),),
    "sample": (SampleNode("made", "log", ("user",), 3),),
    "records": (SelectNode("made", ("log",), "amount > 3"),),
    "join": (NEAR,),
    "left join": (replace(NEAR, how="left", before=0),),
    "full join": (replace(NEAR, how="full"),),
    "table": (replace(LAST, name="made"),),
    "lookup": (LAST, LOOKUP),
    "lookup of few": (LAST, replace(LOOKUP, how="inner", revise=2 * MINUTE)),
    "lookup in order": (LAST, replace(LOOKUP, as_of="order")),
    "lookup, broadcast": (LAST, replace(LOOKUP, broadcast=True)),
    "lookup in order, broadcast": (LAST, replace(LOOKUP, as_of="order", broadcast=True)),
    "join of tables": (LAST, AMOUNTS, TABLES),
    "full join of tables": (LAST, AMOUNTS, replace(TABLES, how="full")),
    "over a lookup": (
        LAST,
        replace(LOOKUP, name="found"),
        WindowNode("made", "found", ("user",), Tumbling(5 * MINUTE), SUMS, Emit()),
    ),
    "over a lookup, broadcast": (
        LAST,
        replace(LOOKUP, name="found", broadcast=True),
        WindowNode("made", "found", ("user",), Tumbling(5 * MINUTE), SUMS, Emit()),
    ),
    "over a join": (
        replace(NEAR, name="near", how="left"),
        WindowNode("made", "near", ("user",), Tumbling(5 * MINUTE), SUMS, Emit()),
    ),
    "over windows": (
        replace(windowed(Tumbling(5 * MINUTE)), name="inner"),
        WindowNode("made", "inner", ("user",), Hopping(20 * MINUTE, 10 * MINUTE), OVER, Emit()),
    ),
    "cumulate over cumulate": (
        replace(windowed(Cumulate(6 * MINUTE, 2 * MINUTE)), name="inner"),
        WindowNode("made", "inner", ("user",), Cumulate(12 * MINUTE, 4 * MINUTE), OVER, Emit()),
    ),
    "over windows without a key": (
        replace(windowed(Tumbling(5 * MINUTE)), name="inner", key=()),
        WindowNode("made", "inner", (), Tumbling(20 * MINUTE), OVER, Emit()),
    ),
}
CLEAN = replace(UNIQUE, name="clean")
OPERATORS |= {
    f"{name} without copies": (CLEAN, replace(OPERATORS[name][0], input="clean"))  # type: ignore[arg-type]
    for name in ("hopping", "session", "global", "process", "process in order")
}
OVER_ELEMENTS = " over elements"
ORDERS = replace(SOURCE, decode=Decode((*SOURCE.decode.fields, Field("parts", ArrayType(LongType())))))
ELEMENTS = FlatMapNode("lines", "log", "parts", element="part", position="line")
FLAT = ("hopping", "session", "global", "early", "process", "process in order", "deduplicate", "records", "left join")
OPERATORS |= {f"{name}{OVER_ELEMENTS}": (ELEMENTS, over_elements(OPERATORS[name][0])) for name in FLAT}
UNBOUNDED = {
    "global",
    "global without a key",
    "process",
    "calendar",
    "global without copies",
    "process without copies",
    "sample",
    "table",
    "over a lookup",
    "over a lookup, broadcast",
}
UNBOUNDED |= {f"{name}{OVER_ELEMENTS}" for name in ("global", "process")}
UNBOUNDED |= {name for name in OPERATORS if "of tables" in name or name.startswith("lookup")}
"""Their keys stay, or their windows are longer than the log."""


def graph_of(name: str, key_groups: int = 2) -> Graph:
    sink = SinkNode("to_made", "made", SqliteSink("unused.db", "made"))
    source = ORDERS if name.endswith(OVER_ELEMENTS) else SOURCE
    return Graph("graph", (source, *OPERATORS[name], sink), key_groups)


def with_parts(value: bytes, parts: list[int]) -> bytes:
    """Add an array to a record, if it is one."""
    return value[:-1] + f', "parts": {parts}}}'.encode() if value.endswith(b"}") else value


def log() -> list[tuple[int, bytes]]:
    """Records of six users, each in one partition; some late, some expired, some copies, some that cannot be read."""
    chance = Random(7)
    found = []
    for number in range(90):
        user = chance.randrange(6)
        minute = max(0, number / 2 - chance.choice([0, 0, 0, 1, 3, 9, 40]))
        value = record(f"u{user}", round(minute), chance.randint(0, 9)) if chance.random() > 0.03 else b"{"
        value = with_parts(value, [number % 5, number % 5, number % 2, *range(9)][: number % 13])
        found += [(user % 3, value)] * (2 if chance.random() < 0.1 else 1)
    return found


LOG = log()


class Run:
    """Plays the log in steps."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.host = MemoryHost(graph, range(3))
        self.offsets = [0, 0, 0]
        self.outputs: list[StepOutput] = []

    def play(self, records: Sequence[tuple[int, bytes]], size: int, order: Iterable[int] = (0, 1, 2)) -> Run:
        for begin in range(0, len(records), size):
            tables = [RAW.empty_table()]
            for partition in order:
                values = [value for at, value in records[begin : begin + size] if at == partition]
                if values:
                    tables.append(raw(partition, self.offsets[partition], *values))
                self.offsets[partition] += len(values)
            self._take(self.host.step(pa.concat_tables(tables)))
        return self

    def move(self, graph: Graph, states: Iterable[Any]) -> Run:
        """Go on in another host."""
        self.graph, self.host = graph, MemoryHost(graph, range(3))
        self.host.begin(states)
        return self

    def end(self) -> tuple[dict[Any, Any], Counter[str], Counter[str]]:
        """Return the table that the changelog leaves, the late output and the dead letters."""
        self._take(self.host.end())
        table: dict[Any, Any] = {}
        key = [field.name for field in row_key(rows_of(self.graph, self.graph.sinks[0]))]
        for output in self.outputs:
            for row in output.changes.to_pylist():
                place = tuple(row.pop(name) for name in key)
                values = {name: value for name, value in row.items() if name not in {"op", "pane", "revision"}}
                if row["op"] in {"insert", "update_after"}:
                    table[place] = values
                elif row["op"] == "delete":
                    del table[place]
        late, dead = (
            Counter(repr(row) for output in self.outputs for row in getattr(output, name).to_pylist())
            for name in ("late", "dead")
        )
        return table, late, dead

    def _take(self, groups: list[Any]) -> None:
        self.outputs.append(StepOutput.concat(one.by_sink["to_made"] for one in groups))


ALIKE = {
    "salted without a key", "hopping without a key", "session without a key", "global without a key", "lookup of few",
    "over a lookup, broadcast", "lookup in order, broadcast", "over windows without a key", "hopping without copies",
    "global without copies", "process without copies", "hopping over elements", "global over elements",
    "process over elements", "early over elements",
}  # fmt: skip
"""Each of them has two others that are like it in parts; only `make test-long` runs it."""


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.long if name in ALIKE else ()) for name in OPERATORS])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@cache
def whole(name: str) -> tuple[dict[Any, Any], Counter[str], Counter[str]]:
    table, late, dead = Run(graph_of(name)).play(LOG, len(LOG)).end()
    assert table
    assert dead
    return table, late, dead


@pytest.mark.parametrize("size", [12, pytest.param(2, marks=pytest.mark.long)])
def test_any_cut_gives_the_same(name: str, size: int) -> None:
    assert Run(graph_of(name)).play(LOG, size).end() == whole(name)


def test_any_order_of_partitions_gives_the_same(name: str) -> None:
    assert Run(graph_of(name)).play(LOG, 30, order=(2, 0, 1)).end() == whole(name)


@pytest.mark.parametrize("at", [pytest.param(1, marks=pytest.mark.long), 50])
def test_a_host_that_resumes_from_the_states_gives_the_same(name: str, at: int) -> None:
    run = Run(graph_of(name)).play(LOG[:at], 26)
    assert run.move(run.graph, run.host.states).play(LOG[at:], 25).end() == whole(name)


@pytest.mark.parametrize("key_groups", [pytest.param(1, marks=pytest.mark.long), 5])
def test_other_key_groups_give_the_same(name: str, key_groups: int) -> None:
    run = Run(graph_of(name)).play(LOG[:50], 26)
    other = graph_of(name, key_groups)
    changes = {
        node.name: StateChange(
            tuple(range(len(node.aggregates))) if isinstance(node, WindowNode) else (),
            node.emit.lateness if isinstance(node, WindowNode) else 0,
        )
        for node in other.keyed
    }
    assert run.move(other, migrate(other, changes, run.host.states)).play(LOG[50:], 25).end() == whole(name)


def test_what_is_stored_is_declared(name: str) -> None:
    graph = graph_of(name)
    declared = {node.name: build_operator(graph, node).state for node in graph.computed}
    run, kinds = Run(graph), set()
    for begin in range(0, len(LOG), 25):
        run.play(LOG[begin : begin + 25], 25)
        kinds |= {kind for state in run.host.states for (kind, _), _ in state.items()}
    for kind in kinds:
        node, _, own = kind.rpartition("/")
        assert own.rstrip("0123456789") in declared[node]


def test_state_is_freed_when_the_watermark_is_far(name: str) -> None:
    if name in UNBOUNDED:
        pytest.skip("it keeps state for longer than this log")
    minutes = (10_000, 20_000, 20_100)
    far = [[(partition, with_parts(record("z", minute), [1])) for partition in range(3)] for minute in minutes]
    kinds = []
    for before in (LOG, []):
        run = Run(graph_of(name)).play(before, 30)
        for step in far:
            run.play(step, 3)
            run.play([(0, b"{")], 1)
        kinds.append(Counter(kind for state in run.host.states for (kind, _), _ in state.items()))
    assert kinds[0] == kinds[1]
