"""Graphs give the oracle's tables and on-time panes in every cut of the log, and windows over windows one changelog."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE, raw
from tests.examples import examples, many
from tests.properties.graph_oracle import BEGINNING, FOREVER, FormulaError, GraphOracle, Values

from windrow.engine.changelog import StepOutput, with_numbers
from windrow.engine.columns import to_micros
from windrow.engine.level import migrate
from windrow.engine.schema import RAW
from windrow.engine.state.widening import StateChange
from windrow.engine.watermarks.journal import NO_BOUNDS, WatermarkBounds
from windrow.model import (
    MAX_PARTITIONS,
    Adaptive,
    Aggregate,
    ArrayType,
    Avg,
    Count,
    Cumulate,
    Decode,
    DeduplicateNode,
    Delay,
    DelayByPartition,
    Derive,
    Emit,
    EventTime,
    Field,
    FlatMapNode,
    Formula,
    Global,
    Graph,
    Hopping,
    JoinNode,
    LogSource,
    LongType,
    LookupNode,
    Max,
    Node,
    Process,
    ProcessNode,
    Punctuated,
    SampleNode,
    SelectNode,
    Session,
    SinkNode,
    SourceNode,
    SplitNode,
    SqliteSink,
    StringType,
    StructType,
    Sum,
    TableNode,
    TimestampType,
    Tumbling,
    ValueState,
    Watermark,
    Window,
    WindowNode,
)
from windrow.runtime.memory import MemoryHost

SOURCE = SourceNode(
    "log",
    LogSource("data/log"),
    Decode(
        (
            Field("id", StringType()),
            Field("user", StringType()),
            Field("t", TimestampType("micros")),
            Field("v", LongType()),
        )
    ),
    EventTime("t", Delay(3 * MINUTE)),
    lateness=20 * MINUTE,
)
OTHER = replace(
    SOURCE, name="other", source=LogSource("data/other"), time=EventTime("t", Delay(MINUTE)), lateness=12 * MINUTE
)
OWN_GAP = "60 + 30 * (coalesce(v, 0) % 10)"
FAILING = "CAST(CASE WHEN coalesce(total, 0) % 3 = 1 THEN 'x' ELSE total::VARCHAR END AS BIGINT)"


def failing(row: Values) -> int | None:
    """The formula `FAILING`."""
    if row["total"] is not None and row["total"] % 3 == 1:
        raise FormulaError
    return None if row["total"] is None else int(row["total"])


EXPRESSIONS = {
    "v > 3": lambda row: row["v"] is not None and row["v"] > 3,
    "v > 6": lambda row: row["v"] is not None and row["v"] > 6,
    "w > 6": lambda row: row["w"] is not None and row["w"] > 6,
    "total > 5": lambda row: row["total"] is not None and row["total"] > 5,
    OWN_GAP: lambda row: 60 + 30 * ((row["v"] or 0) % 10),
    FAILING: failing,
}
FIRST_WINDOWS: list[Window] = [
    Tumbling(4 * MINUTE),
    Hopping(6 * MINUTE, 2 * MINUTE),
    Cumulate(6 * MINUTE, 2 * MINUTE),
    Session(3 * MINUTE),
    Session(6 * MINUTE, OWN_GAP),
]
FIRST = (
    Aggregate("total", Sum("v")),
    Aggregate("n", Count()),
    Aggregate("top", Max("v")),
    Aggregate("mean", Avg("v")),
)
FAIL = Aggregate("f", Formula(FAILING))
SECOND = (
    Aggregate("total", Sum("total")),
    Aggregate("n", Count()),
    Aggregate("top", Max("top")),
    Aggregate("mean", Avg("top")),
)


@dataclass(frozen=True)
class Case:
    """A graph, the records in the order in which they are read, and where steps end.

    With `ticks`, there is one after each step. `known` are the partitions that are there at the start, all if empty.
    `ends` are the numbers of records after which the input ends, and the run resumes.
    """

    graph: Graph
    records: list[tuple[int, int, Values]]
    partitions: tuple[int, ...]
    cuts: tuple[list[int], list[int]]
    ticks: bool = False
    known: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()

    @property
    def parts(self) -> dict[int, list[int]]:
        """The number of ends before each record of the log of each partition."""
        return {
            partition: [
                bisect_right(self.ends, number) for number, (at, *_) in enumerate(self.records) if at == partition
            ]
            for partition in self.partitions
        }

    @property
    def log(self) -> dict[int, list[tuple[int, Values]]]:
        """The log of each partition."""
        return {
            partition: [(time, values) for at, time, values in self.records if at == partition]
            for partition in self.partitions
        }


BESIDE = WindowNode("beside", "log", ("user",), Tumbling(5 * MINUTE), FIRST, Emit())
SOURCES: dict[str, list[Node]] = {
    "log": [SOURCE],
    "both": [SOURCE, OTHER, SelectNode("both", ("log", "other"))],
    "other": [SOURCE, OTHER, BESIDE],
    "either": [SOURCE, OTHER, BESIDE, SelectNode("either", ("log", "other"))],
    "mixed": [
        SOURCE,
        OTHER,
        DeduplicateNode("clean", "log", ("user", "v"), 6 * MINUTE),
        SelectNode("mixed", ("other", "clean")),
    ],
}
"""The nodes before the chain, by the stream that it takes."""
NEAR = JoinNode("inner", "log", "other", ("user",), ("user",), MINUTE, 3 * MINUTE)
JOINS: dict[str, list[Node]] = {
    "inner": [SOURCE, OTHER, NEAR],
    "left": [SOURCE, OTHER, replace(NEAR, name="left", how="left")],
    "right": [SOURCE, OTHER, replace(NEAR, name="right", how="right", before=2 * MINUTE, after=0)],
    "full": [SOURCE, OTHER, replace(NEAR, name="full", how="full")],
    "itself": [SOURCE, replace(NEAR, name="itself", right="log", how="left", before=0)],
    "behind": [
        SOURCE,
        OTHER,
        DeduplicateNode("clean", "log", ("user", "v"), 6 * MINUTE),
        replace(NEAR, name="behind", left="clean", how="left", key=("id",), right_key=("id",)),
    ],
    "again": [
        SOURCE,
        OTHER,
        replace(NEAR, how="left"),
        replace(NEAR, name="again", left="inner", right="renamed", key=("user",), right_key=("u",), how="left"),
    ],
    "twice": [SOURCE, OTHER, NEAR, replace(NEAR, name="twice", left="inner", right="renamed", right_key=("u",))],
}
COUNTED = (
    WindowNode("own counts", "log", ("user",), Tumbling(4 * MINUTE), FIRST, Emit(lateness=9 * MINUTE)),
    WindowNode("other counts", "other", ("user",), Tumbling(4 * MINUTE), FIRST, Emit(lateness=6 * MINUTE)),
)
PAIRED = JoinNode("pairs", "own counts", "other counts", ("user",), ("user",))
AS_RECORDS = SelectNode(
    "paired", ("pairs",), derive=(Derive("v", "n"), Derive("id", "user")), select=("user", "v", "id")
)
BOTH_COUNTS = SelectNode("both counts", ("own counts", "other counts"))
JOINS |= {
    "paired": [SOURCE, OTHER, *COUNTED, PAIRED, AS_RECORDS],
    "counts": [SOURCE, OTHER, *COUNTED, BOTH_COUNTS, replace(AS_RECORDS, name="counts", inputs=("both counts",))],
    "paired, left": [
        SOURCE,
        OTHER,
        *COUNTED,
        replace(PAIRED, how="left", after=5 * MINUTE),
        replace(AS_RECORDS, name="paired, left"),
    ],
    "some fail": [
        SOURCE,
        OTHER,
        *(replace(node, aggregates=(*FIRST, FAIL)) for node in COUNTED),
        replace(PAIRED, how="left", after=5 * MINUTE),
        replace(AS_RECORDS, name="some fail"),
    ],
}
SOON = [replace(SOURCE, lateness=MINUTE), replace(OTHER, lateness=2 * MINUTE)]
JOINS |= {
    "wide": [*SOON, replace(NEAR, name="wide", how="left", after=9 * MINUTE)],
    "wide both": [*SOON, replace(NEAR, name="wide both", how="full", before=6 * MINUTE, after=9 * MINUTE)],
}
for nodes in (JOINS["again"], JOINS["twice"]):
    renamed = (Derive("u", "user"), Derive("w", "v"))
    nodes.insert(2, SelectNode("renamed", ("other",), derive=renamed, select=("u", "w")))
RENAMED = SelectNode("renamed", ("other",), derive=(Derive("u", "user"), Derive("w", "v")), select=("u", "w"))
KEPT = TableNode("kept", "renamed", ("u",), "w > 6")
PRICED = LookupNode("as of", "log", "kept", ("user",), ("u",), "left")
LOOKUPS: dict[str, list[Node]] = {
    "as of": [SOURCE, OTHER, RENAMED, KEPT, PRICED],
    "as of, inner": [SOURCE, OTHER, RENAMED, KEPT, replace(PRICED, name="as of, inner", how="inner")],
    "as of, soon": [SOURCE, OTHER, RENAMED, KEPT, replace(PRICED, name="as of, soon", revise=4 * MINUTE)],
    "as it was": [SOURCE, OTHER, RENAMED, KEPT, replace(PRICED, name="as it was", revise=0)],
    "in order": [SOURCE, OTHER, RENAMED, KEPT, replace(PRICED, name="in order", as_of="order")],
    "own last": [
        SOURCE,
        SelectNode("renamed", ("log",), derive=(Derive("u", "user"), Derive("w", "v")), select=("u", "w")),
        KEPT,
        replace(PRICED, name="own last", as_of="order"),
    ],
    "of itself": [
        SOURCE,
        SelectNode("renamed", ("log",), derive=(Derive("u", "user"), Derive("w", "v")), select=("u", "w")),
        KEPT,
        replace(PRICED, name="of itself", how="inner"),
    ],
}
CLEAN = DeduplicateNode("clean", "log", ("user", "v"), 6 * MINUTE)
for of in (PRICED, replace(PRICED, as_of="order")):
    LOOKUPS |= {
        f"of clean, {of.as_of}": [
            SOURCE,
            OTHER,
            RENAMED,
            KEPT,
            CLEAN,
            replace(of, name=f"of clean, {of.as_of}", left="clean"),
        ],
        f"in clean, {of.as_of}": [
            SOURCE,
            OTHER,
            replace(CLEAN, input="other"),
            replace(RENAMED, inputs=("clean",)),
            KEPT,
            replace(of, name=f"in clean, {of.as_of}"),
        ],
        f"of pairs, {of.as_of}": [
            SOURCE,
            OTHER,
            RENAMED,
            KEPT,
            NEAR,
            replace(of, name=f"of pairs, {of.as_of}", left="inner"),
        ],
        f"in pairs, {of.as_of}": [
            SOURCE,
            OTHER,
            NEAR,
            replace(RENAMED, inputs=("inner",)),
            KEPT,
            replace(of, name=f"in pairs, {of.as_of}", how="inner"),
        ],
        f"of part, {of.as_of}": [
            SOURCE,
            OTHER,
            RENAMED,
            KEPT,
            SplitNode("part", "log", (Derive("high", "v > 6"),), "low"),
            replace(of, name=f"of part, {of.as_of}", left="part.low"),
        ],
    }
SOURCES |= LOOKUPS
ITEMS = ArrayType(StructType((Field("id", StringType()), Field("v", LongType()))))
PLAIN = Decode((Field("user", StringType()), Field("t", TimestampType("micros")), Field("items", ITEMS)))
ORDERS, OTHERS = replace(SOURCE, decode=PLAIN), replace(OTHER, decode=PLAIN)
LINES = FlatMapNode("lines", "log", "items")
SLIM = SelectNode("slim", ("other",), derive=(Derive("u", "user"), Derive("w", "v")), select=("u", "w"))
PAID = replace(NEAR, name="paid", right="slim", right_key=("u",))
PRICED_LINES = replace(PRICED, name="priced lines", left="lines", table="rates")
FLAT: dict[str, list[Node]] = {
    "lines": [ORDERS, LINES],
    "numbered": [ORDERS, replace(LINES, name="numbered", position="line")],
    "outer": [ORDERS, replace(LINES, name="outer", outer=True)],
    "all lines": [
        ORDERS,
        OTHERS,
        LINES,
        replace(LINES, name="others", input="other"),
        SelectNode("all lines", ("lines", "others")),
    ],
    "paid lines": [ORDERS, OTHER, LINES, SLIM, replace(PAID, name="paid lines", left="lines", how="left")],
    "of paid": [ORDERS, OTHER, SLIM, PAID, FlatMapNode("of paid", "paid", "items")],
    "priced lines": [ORDERS, OTHER, LINES, SLIM, TableNode("rates", "slim", ("u",), "w > 6"), PRICED_LINES],
    "of all": [ORDERS, OTHER, SLIM, replace(PAID, how="left"), FlatMapNode("of all", "paid", "items", outer=True)],
}
SOURCES |= FLAT
CHANGED = {
    "left",
    "right",
    "full",
    "itself",
    "behind",
    "again",
    "wide",
    "wide both",
    "paired",
    "paired, left",
    "some fail",
    "counts",
    *LOOKUPS,
    "paid lines",
    "priced lines",
    "of all",
}
CHANGED -= {"in order", "own last", *(name for name in LOOKUPS if name.endswith(", order"))}
LACKING = {"right", "full", "wide both", "outer", "of all"}
SOURCES |= JOINS


def counted(ctx: Any, record: Any) -> None:  # noqa: ANN401 - as users write them
    """Count the records of a key, and set timers; one in three is for a time that is past."""
    count = ctx.state.count.get(0) + 1
    ctx.state.count.set(count)
    ctx.emit(id=record["id"], v=record["v"], n=count)
    if record["v"] is not None and record["v"] > 6:
        ctx.emit(id="again", v=count, n=count)
    if count % 2 == 0:
        ctx.timer(at=ctx.event_time + timedelta(minutes=4), name="later")
    if count % 3 == 0:
        ctx.timer(at=ctx.event_time - timedelta(minutes=10), name="now")


def timed(ctx: Any, timer: Any) -> None:  # noqa: ANN401 - as users write them
    """Emit the count."""
    count = ctx.state.count.get(0)
    ctx.emit(id=timer.name, v=count, n=-count)


COUNTING = Process(
    counted,
    (ValueState("count", LongType()),),
    (Field("id", StringType()), Field("v", LongType()), Field("n", LongType())),
    on_timer=timed,
)
PROCESSES: list[Process] = [COUNTING, replace(COUNTING, order="event_time")]


@st.composite
def of_records(draw: st.DrawFn, nodes: list[Node], at: str) -> str:
    """Add what can be over records alone; return the stream."""
    if draw(st.sampled_from([False, False, True])):
        nodes.append(ProcessNode("counted", at, ("user",), draw(st.sampled_from(PROCESSES))))
        at = "counted"
    taken = draw(st.sampled_from(["none", "unique", "unique.duplicates", "sampled"]))
    if taken == "sampled":
        nodes.append(SampleNode("sampled", at, ("user",), draw(st.integers(2, 3))))
        at = taken
    elif taken != "none":
        nodes.append(DeduplicateNode("unique", at, ("id",), 8 * MINUTE))
        at = taken
    return at


@st.composite
def graphs(draw: st.DrawFn, *starts: str) -> Graph:
    """A chain of up to seven streams over one or two sources, with a sink of each window."""
    start = at = draw(st.sampled_from(starts or ["log", *SOURCES]))
    nodes = [
        replace(node, broadcast=draw(st.booleans())) if isinstance(node, LookupNode) else node for node in SOURCES[at]
    ]
    match draw(st.sampled_from(["none", "filter", "split", "union", "overlap"])):
        case "filter":
            nodes.append(SelectNode("some", (at,), "v > 3"))
            at = "some"
        case "split":
            nodes.append(SplitNode("parts", at, (Derive("high", "v > 6"), Derive("middle", "v > 3")), "low"))
            at = draw(st.sampled_from(["parts.high", "parts.middle", "parts.low"]))
        case "union":
            nodes += [
                SplitNode("parts", at, (Derive("high", "v > 6"),), "low"),
                SelectNode("all", ("parts.low", "parts.high")),
            ]
            at = "all"
        case "overlap":
            nodes += [
                SelectNode("some", (at,), "v > 3"),
                SelectNode("few", (at,), "v > 6"),
                SelectNode("overlap", ("some", "few")),
            ]
            at = "overlap"
    if start not in CHANGED | LACKING:
        at = draw(of_records(nodes, at))
    kinds: list[Window] = [*(FIRST_WINDOWS if start not in CHANGED else FIRST_WINDOWS[:3]), Global()]
    first = kind = draw(st.sampled_from(kinds))
    key: tuple[str, ...] = draw(st.sampled_from([("user",), ()] if start in LACKING else [("user",), ("id",), ()]))
    emit = Emit(lateness=draw(st.sampled_from([0] if start in CHANGED else [0, 9 * MINUTE])))
    may_fail: list[tuple[Aggregate, ...]] = [(), (), (FAIL,)]
    nodes.append(WindowNode("first", at, key, first, (*FIRST, *draw(st.sampled_from(may_fail))), emit))
    at = "first"
    for name, size in (("second", 12 * MINUTE), ("third", 24 * MINUTE)):
        if not draw(st.sampled_from([True, True, False])):
            break
        if draw(st.booleans()):
            nodes.append(SelectNode(f"over {name}", (at,), "total > 5"))
            at = f"over {name}"
        by = draw(st.sampled_from([key, ("n",), ()]))
        windows: list[Window] = [Tumbling(size), Hopping(size, size // 2), Cumulate(size, size // 4)]
        # the rows of a table are in no other windows
        kind = draw(st.sampled_from([Global()] if isinstance(kind, Global) else [*windows, Global()]))
        aggregates = tuple(one for one in (*SECOND, *draw(st.sampled_from(may_fail))) if one.name not in by)
        nodes.append(WindowNode(name, at, by, kind, aggregates, Emit()))
        at, key = name, by
        if by == ("n",):
            break
    sinks = [
        SinkNode(f"to {node.name}", node.name, SqliteSink("unused.db", node.name))
        for node in nodes
        if isinstance(node, WindowNode)
    ]
    return Graph("graph", (*nodes, *sinks), 3)


@st.composite
def cases(draw: st.DrawFn, *starts: str) -> Case:
    """A graph, and a log whose times go on, so that windows fire, with records that are late."""
    chance = Random(draw(st.integers(0, 2**32)))
    size, graph = draw(st.integers(0, 60)), draw(graphs(*starts))
    partitions = [
        number * MAX_PARTITIONS + one for number in range(len(graph.sources)) for one in range(draw(st.integers(1, 3)))
    ]
    spread = draw(st.sampled_from([4, 12, 30]))
    records: list[tuple[int, int, Values]] = []
    for number in range(size):
        minute = number + chance.randint(-spread, 3)
        values: Values = {"id": chance.choice("abcd"), "user": chance.choice("AB"), "v": chance.randint(0, 9)}
        elements = chance.choice([0, 1, 1, 2, 3, 12])
        values["items"] = [{"id": chance.choice("abcd"), "v": chance.randint(0, 9)} for _ in range(elements)]
        records.append((chance.choice(partitions), max(0, minute) * MINUTE, values))
    ends = st.lists(st.integers(0, size), max_size=8).map(sorted)
    return Case(graph, records, tuple(partitions), (draw(ends), draw(ends)))


TICK = 2_000_000
MARKED = 0.3
AHEAD = 500 * MINUTE
"""How far a wrong clock is ahead: more than all of a log's times."""
WATERMARKS: list[Watermark] = [
    Delay(3 * MINUTE),
    DelayByPartition(3 * MINUTE, ((0, MINUTE), (2, 9 * MINUTE))),
    Adaptive(0.8, MINUTE, 12 * MINUTE),
    Punctuated("m"),
]

ALL_IDLE: list[Literal["hold", "advance"]] = ["hold", "advance"]


@st.composite
def clocked_cases(draw: st.DrawFn, *starts: str) -> Case:
    """The same with any watermarks, partitions that fall idle (there are ticks between the steps), and new ones.

    Where clocks are guarded, some records are far ahead: single ones, and enough in a row to advance the clock.
    """
    case, chance = draw(cases(*starts)), Random(draw(st.integers(0, 2**32)))
    mark = Field("m", TimestampType("micros"), optional=True)
    nodes: list[Node] = []
    for node in case.graph.nodes:
        if isinstance(node, SourceNode):
            watermark = draw(st.sampled_from(WATERMARKS))
            idle = draw(st.sampled_from([None, TICK, 2 * TICK]))
            all_idle = "hold" if idle is None else draw(st.sampled_from(ALL_IDLE))
            is_guarded = not isinstance(watermark, Punctuated) and draw(st.booleans())
            jump = draw(st.sampled_from([4, 15])) * MINUTE if is_guarded else None
            clocks = replace(node.time, watermark=watermark, idle=idle, all_idle=all_idle, jump=jump)
            nodes.append(replace(node, decode=Decode((*node.decode.fields, mark)), time=clocks))
        else:
            nodes.append(node)
    graph = replace(case.graph, nodes=tuple(nodes))
    records, ahead = [], 0
    for partition, at, values in case.records:
        marked = at - chance.randint(0, 6) * MINUTE if chance.random() < MARKED else None
        ahead = max(ahead - 1, chance.choice([0] * 20 + [1, 1, 20]))
        is_wrong = ahead > 0 and graph.source_of(partition).time.jump is not None
        records.append((partition, at + AHEAD * is_wrong, values | {"m": marked}))
    size = len(records)
    one, other = (sorted(chance.randint(0, size) for _ in range(chance.randint(4, 20))) for _ in range(2))
    known = draw(st.sets(st.sampled_from(case.partitions), min_size=1))
    return replace(case, graph=graph, records=records, cuts=(one, other), ticks=True, known=tuple(sorted(known)))


def encoded(time: int, row: Values) -> bytes:
    """Return a record of a log; a row with an `op` is a change of a database in Debezium's envelope."""
    if "op" not in row:
        return json.dumps({**row, "t": time}).encode()
    columns = {name: value for name, value in row.items() if name != "op"} | {"t": time}
    is_truncation, is_deleted = row["op"] == "t", row["op"] == "d"
    sides = {"before": columns if is_deleted else None, "after": None if is_deleted or is_truncation else columns}
    envelope = {**sides, "source": {"ts_ms": time // 1000}, "op": row["op"], "each_partition": is_truncation}
    return json.dumps(envelope).encode()


class Run:
    """What a graph gives for a log in steps; `bounds` are those of the journal of another run."""

    def __init__(self, case: Case, cuts: list[int], bounds: WatermarkBounds = NO_BOUNDS) -> None:
        self.graph = case.graph
        self.partitions = case.partitions
        self.host = MemoryHost(case.graph, case.known or case.partitions, bounds)
        self.offsets = dict.fromkeys(case.partitions, 0)
        self.outputs: list[dict[str, StepOutput]] = []
        stops, ends = sorted([*cuts, *case.ends]), list(case.ends)
        for number, (begin, end) in enumerate(zip([0, *stops], [*stops, len(case.records)], strict=True)):
            self.step(case.records[begin:end])
            if end in ends:
                ends.remove(end)
                self.end()
            if case.ticks:
                self._take(self.host.tick(TICK * (number + 1)))

    @property
    def bounds(self) -> WatermarkBounds:
        """What the clock journal says."""
        journal = pa.concat_tables([next(iter(output.values())).clocks for output in self.outputs])
        return WatermarkBounds.of(with_numbers(self.graph, journal))

    def step(self, records: list[tuple[int, int, Values]]) -> None:
        tables = [RAW.empty_table()]
        for partition in self.partitions:
            values = [encoded(time, row) for at, time, row in records if at == partition]
            if values:
                tables.append(raw(partition, self.offsets[partition], *values))
            self.offsets[partition] += len(values)
        self._take(self.host.step(pa.concat_tables(tables)))

    def end(self) -> None:
        self._take(self.host.end())

    def _take(self, groups: list[Any]) -> None:
        self.outputs.append(
            {name: StepOutput.concat(one.by_sink[name] for one in groups) for name in groups[0].by_sink}
        )

    def dead_rows(self, name: str) -> list[str]:
        """Return the dead letters of rows that a sink has, in an order of their own."""
        rows = [row for output in self.outputs for row in output[f"to {name}"].dead.to_pylist()]
        return sorted(str(row) for row in rows if row["partition"] is None)

    def changes(self, name: str) -> list[dict[str, Any]]:
        table = pa.concat_tables([output[f"to {name}"].changes for output in self.outputs])
        for column in ("window_start", "window_end"):
            times = pa.array(to_micros(table.column(column)))
            table = table.set_column(table.column_names.index(column), column, times)
        return table.to_pylist()  # type: ignore[no-any-return]


def group_of(row: dict[str, Any], node: WindowNode) -> tuple[int, int, tuple[Any, ...]]:
    bounds = (BEGINNING, FOREVER) if isinstance(node.window, Global) else (row["window_start"], row["window_end"])
    return *bounds, tuple(row[name] for name in node.key)


def values_of(row: dict[str, Any], node: WindowNode) -> Values:
    return {one.name: row[one.name] for one in node.aggregates}


def table_of(changes: list[dict[str, Any]], node: WindowNode) -> dict[Any, Values]:
    """Apply a changelog, which must fit what is there."""
    table: dict[Any, Values] = {}
    for row in changes:
        group, values = group_of(row, node), values_of(row, node)
        match row["op"]:
            case "insert":
                assert group not in table, row
                table[group] = values
            case "update_before":
                assert table[group] == values, row
            case "update_after":
                assert group in table, row
                table[group] = values
            case "delete":
                assert table.pop(group) == values, row
    return table


def windows(graph: Graph) -> list[WindowNode]:
    return [node for node in graph.nodes if isinstance(node, WindowNode)]


def compare(case: Case) -> None:
    oracle = GraphOracle(case.graph, case.log, EXPRESSIONS)
    runs = [Run(case, cuts) for cuts in case.cuts]
    for run in runs:
        run.end()
    for node in windows(case.graph):
        changelogs = [run.changes(node.name) for run in runs]
        for changes in changelogs:
            assert table_of(changes, node) == oracle.table(node.name), node.name
            if not isinstance(node.window, Session | Global):
                on_time = {group_of(row, node): values_of(row, node) for row in changes if row["pane"] == "on_time"}
                assert on_time == oracle.on_time(node.name), node.name
        if node.name != windows(case.graph)[0].name or len(windows(case.graph)) > 1:
            by_group = [sorted(changes, key=lambda row: repr(group_of(row, node))) for changes in changelogs]
            assert by_group[0] == by_group[1], node.name
            assert runs[0].dead_rows(node.name) == runs[1].dead_rows(node.name), node.name


@examples(12)
@given(cases())
def test_tables_and_panes_are_the_oracles_in_every_cut(case: Case) -> None:
    compare(case)


def compare_clocked(case: Case) -> None:
    """Each run is what the oracle says of its own journal, and a replay that repeats the journal is the same."""
    for cuts, others in (case.cuts, case.cuts[::-1]):
        live = Run(case, cuts)
        live.end()
        replay = Run(replace(case, ticks=False, known=()), others, live.bounds)
        replay.end()
        floors: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for partition, offset, low in live.bounds.rows:
            floors[partition].append((offset, low))
        oracle = GraphOracle(case.graph, case.log, EXPRESSIONS, floors)
        for node in windows(case.graph):
            for run in (live, replay):
                changes = run.changes(node.name)
                assert table_of(changes, node) == oracle.table(node.name), node.name
                if not isinstance(node.window, Session | Global):
                    on_time = {group_of(row, node): values_of(row, node) for row in changes if row["pane"] == "on_time"}
                    assert on_time == oracle.on_time(node.name), node.name


@examples(4)
@given(clocked_cases())
def test_idle_partitions_and_other_watermarks_and_their_replay(case: Case) -> None:
    compare_clocked(case)


def part(case: Case, number: int) -> Case:
    """The streams that depend on one source alone, with its records, in the same steps."""
    source = case.graph.sources[number]
    nodes = (source, *case.graph.below(source))

    def is_own(partition: int) -> bool:
        return partition // MAX_PARTITIONS == number

    records = [(at % MAX_PARTITIONS, time, values) for at, time, values in case.records if is_own(at)]
    before = [sum(is_own(at) for at, *_ in case.records[:end]) for end in range(len(case.records) + 1)]
    own = [tuple(at % MAX_PARTITIONS for at in given if is_own(at)) for given in (case.partitions, case.known)]
    cuts = [[before[end] for end in ends] for ends in case.cuts]
    return Case(replace(case.graph, nodes=nodes), records, own[0], (cuts[0], cuts[1]), case.ticks, own[1])


@examples(6)
@given(clocked_cases("other"))
def test_a_source_does_not_hold_back_what_does_not_depend_on_it(case: Case) -> None:
    parts = [part(case, number) for number in (0, 1)]
    assume(all(one.known for one in parts))
    whole, alone = Run(case, case.cuts[0]), [Run(one, one.cuts[0]) for one in parts]
    for _ in range(2):
        for one in alone:
            for node in windows(one.graph):
                assert whole.changes(node.name) == one.changes(node.name)
        for run in (whole, *alone):
            run.end()


@examples(8)
@given(cases(*FLAT))
def test_elements_are_the_oracles_in_every_cut(case: Case) -> None:
    compare(case)


@pytest.mark.long
@many(2000)
@given(cases())
def test_many_graphs(case: Case) -> None:
    compare(case)


@pytest.mark.long
@many(400)
@given(clocked_cases())
def test_many_clocks(case: Case) -> None:
    compare_clocked(case)


def resumed_runs(case: Case, at: int, other: Graph | None = None) -> tuple[Run, Run]:
    """Run a case in one go, and with other key groups (or another graph) from a record on; return both runs, ended."""
    at = min(at, len(case.records))
    straight, resumed = Run(case, [at]), Run(replace(case, records=case.records[:at]), [])
    other = replace(case.graph, key_groups=2) if other is None else other
    changes = {
        node.name: StateChange(aggregates=tuple(range(len(node.aggregates))), lateness=node.emit.lateness)
        if isinstance(node, WindowNode)
        else StateChange(aggregates=(), lateness=0)
        for node in case.graph.keyed
    }
    states = migrate(other, changes, resumed.host.states)
    resumed.graph, resumed.host = other, MemoryHost(other, resumed.partitions)
    resumed.host.begin(states)
    resumed.step(case.records[at:])
    for run in (straight, resumed):
        run.end()
    return straight, resumed


@examples(8)
@given(cases(), st.integers(0, 30))
def test_a_run_that_resumes_with_other_key_groups_gives_the_same(case: Case, at: int) -> None:
    straight, resumed = resumed_runs(case, at)
    for node in windows(case.graph):
        found = [Counter(map(repr, run.changes(node.name))) for run in (straight, resumed)]
        assert found[0] == found[1], node.name
        assert straight.dead_rows(node.name) == resumed.dead_rows(node.name)


@examples(8)
@given(cases())
def test_no_state_is_left_when_the_watermark_is_far(case: Case) -> None:
    assume(not any(isinstance(node, TableNode) for node in case.graph.nodes))  # it keeps its rows
    assume(not any(isinstance(node, ProcessNode) for node in case.graph.nodes))  # it keeps its counts
    assume(not any(isinstance(node.window, Global) for node in windows(case.graph)))  # it keeps its results
    run, alone = Run(case, case.cuts[0]), Run(replace(case, records=[]), [])
    far = 10_000 * MINUTE
    values = {"id": "z", "user": "Z", "v": 5, "items": [{"id": "z", "v": 5}]}
    for later in (far, 2 * far, 2 * far + 40 * MINUTE):
        for one in (run, alone):
            one.step([(partition, later, values) for partition in one.partitions])
            one.step([])
    kinds = [Counter(kind for state in one.host.states for (kind, _), _ in state.items()) for one in (run, alone)]
    assert kinds[0] == kinds[1]
