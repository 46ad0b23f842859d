"""Random process functions, graphs of them, and rules: one answer in every cut, however a run resumes.

What functions emit is that of the model in `process_oracle`, to the change and to the row; what windows make of it is
the same in every run.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE, raw
from tests.examples import examples, many, scaled
from tests.graphs import Runnable, as_graph
from tests.properties import test_rules
from tests.properties.process_oracle import BEFORE_ALL, EPOCH, Answer, Part, Row, Windows, answer, row_times
from tests.short_forms import ProcessPipeline

from windrow.engine.changelog import StepOutput
from windrow.engine.level import migrate
from windrow.engine.operators.base import GroupOutput
from windrow.engine.schema import RAW
from windrow.engine.state.store import MemoryState
from windrow.engine.state.widening import StateChange
from windrow.model import (
    MAX_PARTITIONS,
    Aggregate,
    Count,
    Cumulate,
    Decode,
    Delay,
    Derive,
    Emit,
    EventTime,
    Field,
    Graph,
    Hopping,
    ListState,
    LogSource,
    LongType,
    MapState,
    Max,
    Node,
    Process,
    ProcessNode,
    SelectNode,
    Session,
    SinkNode,
    SourceNode,
    SqliteSink,
    StringType,
    Sum,
    TimestampType,
    Tumbling,
    ValueState,
    Window,
    WindowNode,
)
from windrow.runtime.memory import MemoryHost

Function = Callable[[Any, Any], None]
STATES = (ValueState("n", LongType()), ListState("l", StringType()), MapState("m", StringType(), LongType()))
RETURNS = (Field("text", StringType()), Field("v", LongType()))
DECODE = Decode((Field("user", StringType()), Field("t", TimestampType("micros")), Field("v", LongType())))
MICRO = timedelta(microseconds=1)
FIRST = 30 * MINUTE
LONG = 10_000 * MINUTE


def operations(chance: Random, *, in_timer: bool) -> list[tuple[int, int, str, int]]:
    """Draw what a function does if v % modulus is a remainder: (modulus, remainder, operation, minutes)."""
    names = ["set", "set", "clear", "append", "append", "forget", "put", "put", "delete", "empty", "emit", "emit"]
    names += ["timer", "next", "cancel"] if in_timer else ["timer", "timer", "next", "past", "now", "cancel"]
    drawn = []
    for _ in range(chance.randint(1, 9)):
        modulus = chance.choice([1, 2, 2, 3, 4])
        drawn.append((modulus, chance.randrange(modulus), chance.choice(names), chance.randint(1, 12)))
    return drawn


def perform(ctx: Any, done: Sequence[tuple[int, int, str, int]], v: int, what: str) -> None:  # noqa: ANN401, C901, PLR0912 - a user's
    state, now = ctx.state, ctx.event_time
    for modulus, remainder, operation, minutes in done:
        if v % modulus != remainder:
            continue
        match operation:
            case "set":
                state.n.set((state.n.get(0) * 3 + v) % 1000)
            case "clear":
                state.n.clear()
            case "append":
                state.l.append(str(v))
            case "forget":
                state.l.clear()
            case "put":
                state.m.set(str(v % 4), v)
            case "delete":
                state.m.delete(str(v % 3))
            case "empty":
                state.m.clear()
            case "timer":
                ctx.timer(at=now + timedelta(minutes=minutes), name=f"t{v % 3}")
            case "next":
                five = (now - EPOCH) // timedelta(minutes=5)
                ctx.timer(at=EPOCH + (five + 1) * timedelta(minutes=5), name=f"next{v % 2}")
            case "past":
                ctx.timer(at=now - timedelta(minutes=minutes), name=f"past{v % 2}")
            case "now":
                ctx.timer(at=now + MICRO * (v % 2), name="now")
            case "cancel":
                ctx.cancel(f"t{v % 3}")
            case "emit":
                held = [state.n.get(), list(state.l)[-6:], state.m.items(), len(state.l), len(state.m)]
                ctx.emit(text=f"{what} {now} {ctx.watermark} {held}", v=v)


def process(chance: Random) -> Process:
    """Draw a process function."""
    in_record, in_timer = operations(chance, in_timer=False), operations(chance, in_timer=True)

    def function(ctx: Any, record: Any) -> None:  # noqa: ANN401 - a user's
        perform(ctx, in_record, record["v"], "r")

    def on_timer(ctx: Any, timer: Any) -> None:  # noqa: ANN401 - a user's
        minute = (timer.at - EPOCH) // timedelta(minutes=1)
        perform(ctx, in_timer, minute + len(timer.name), timer.name)

    ttl = chance.choice([None, 2, 5, 11, 30])
    return Process(
        function,
        STATES,
        RETURNS,
        None if ttl is None else ttl * MINUTE,
        chance.choice(["log", "event_time"]),
        on_timer,
    )


@dataclass(frozen=True)
class Log:
    """Records as (partition, time, user, v) in the order in which they are read; `ends` are numbers of records."""

    records: list[tuple[int, int, str, int]]
    partitions: tuple[int, ...]
    ends: tuple[int, ...]
    is_held: bool

    @staticmethod
    def draw(chance: Random, sources: int, *, is_by_partition: bool) -> Log:
        """Draw a log whose times go on; with `is_by_partition` a user is in one partition."""
        own = [chance.choice([1, 1, 2, 12]) for _ in range(sources)]
        partitions = [number * MAX_PARTITIONS + one for number, most in enumerate(own) for one in range(most)]
        size, spread = chance.randint(1, 60), chance.choice([0, 3, 12])
        pace = chance.choice([1, 1, 5])
        records = []
        for number in range(size):
            minute = max(0, number // pace + chance.randint(-spread, 2))
            user = chance.choice("ABC")
            at = partitions[ord(user) % len(partitions)] if is_by_partition else chance.choice(partitions)
            records.append((at, FIRST + minute * MINUTE, user, chance.randint(0, 9)))
        ends = sorted(chance.randint(0, size) for _ in range(chance.choice([0, 0, 0, 1, 2])))
        return Log(records, tuple(partitions), tuple(ends), chance.random() < 0.2)

    def parts(self, sources: Sequence[SourceNode], taken: Sequence[int], *, is_late_dropped: bool) -> list[Part]:
        """Return the records of some sources with their watermarks, up to each end."""
        clocks = dict.fromkeys((at for at in self.partitions if at // MAX_PARTITIONS in taken), BEFORE_ALL)
        offsets: defaultdict[int, int] = defaultdict(int)
        parts: list[Part] = []
        rows: list[Row] = []
        ends = [*self.ends, *([] if self.is_held else [len(self.records)])]
        for number in range(len(self.records) + 1):
            for _ in range(ends.count(number)):
                parts.append(Part(tuple(rows), min(clocks.values()), is_ended=True))
                rows = []
            if number == len(self.records):
                break
            at, time, user, v = self.records[number]
            offset, offsets[at] = offsets[at], offsets[at] + 1
            if at not in clocks:
                continue
            node = sources[at // MAX_PARTITIONS]
            assert isinstance(node.time.watermark, Delay)
            if not is_late_dropped or node.lateness is None or clocks[at] < time + node.lateness:
                place = f"{node.source.label}/{at % MAX_PARTITIONS}/{offset}"
                rows.append(Row(time, clocks[at], at, offset, place, {"user": user, "v": v}))
            clocks[at] = max(clocks[at], time - node.time.watermark.micros)
        return [*parts, Part(tuple(rows), min(clocks.values()), is_ended=False)]


class Run:
    """What a pipeline gives in steps of so many records; by `chance` it has other key groups, and is killed."""

    def __init__(self, pipeline: Runnable, log: Log, size: int, chance: Random | None = None) -> None:
        self.pipeline, self.log = pipeline, log
        self.host = MemoryHost(as_graph(pipeline), log.partitions)
        self.offsets = dict.fromkeys(log.partitions, 0)
        self.outputs: list[dict[str, StepOutput]] = []
        at, ends = 0, [*log.ends, *([] if log.is_held else [len(log.records)])]
        while at < len(log.records) or ends:
            while ends and ends[0] <= at:
                ends.pop(0)
                self.take(self.host.end())
            if at == len(log.records):
                continue
            until = min([at + size, len(log.records), *ends])
            if chance is not None and chance.random() < 0.25:
                self._resume(chance.choice([pipeline.key_groups, 1, 2, 5]))
            if chance is not None and chance.random() < 0.25:
                # a step whose outcome is lost, and which is made again, shorter
                states, offsets = self.host.copy_states(), dict(self.offsets)
                self.step(at, until)
                self._begin(states, self.pipeline)
                self.offsets = offsets
                until = chance.randint(at + 1, until)
            self.take(self.step(at, until))
            at = until

    def _resume(self, key_groups: int) -> None:
        other = replace(self.pipeline, key_groups=key_groups)
        nodes = self.pipeline.keyed if isinstance(self.pipeline, Graph) else ()
        changes = {
            node.name: StateChange(aggregates=tuple(range(len(node.aggregates))), lateness=node.emit.lateness)
            if isinstance(node, WindowNode)
            else StateChange(lateness=0)
            for node in nodes
        } or {"": StateChange(lateness=0)}
        self._begin(migrate(as_graph(other), changes, self.host.states), other)

    def _begin(self, states: list[MemoryState], pipeline: Runnable) -> None:
        self.pipeline, self.host = pipeline, MemoryHost(as_graph(pipeline), self.log.partitions)
        self.host.begin(states)

    def step(self, at: int, until: int) -> list[Any]:
        """Run a step over some records."""
        tables = [RAW.empty_table()]
        for partition in self.log.partitions:
            own = [one for one in self.log.records[at:until] if one[0] == partition]
            values = [json.dumps({"t": time, "user": user, "v": v}).encode() for _, time, user, v in own]
            tables += [raw(partition, self.offsets[partition], *values)] if values else []
            self.offsets[partition] += len(values)
        return self.host.step(pa.concat_tables(tables))

    def take(self, groups: list[Any]) -> None:
        """Keep what a step gave."""
        names = groups[0].by_sink
        self.outputs.append({name: StepOutput.concat(one.by_sink[name] for one in groups) for name in names})

    def table(self, sink: str, table: str = "changes") -> list[dict[str, Any]]:
        """Return all rows of a table of a sink."""
        return pa.concat_tables([getattr(one[sink], table) for one in self.outputs]).to_pylist()  # type: ignore[no-any-return]

    def by_user(self, sink: str = "") -> dict[str, list[tuple[Any, ...]]]:
        """Return the changes of each key's row."""
        found: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for row in self.table(sink):
            found[row["user"]].append((row["op"], row["revision"], row["text"], row["v"]))
        return dict(found)


def runs(pipeline: Runnable, log: Log, chance: Random) -> list[Run]:
    """Run a pipeline in steps of 1, 3, 7 and all records, and in steps after which it resumes or is killed."""
    made = [Run(pipeline, log, size) for size in (1, 3, 7, 1000)]
    return [*made, Run(replace(pipeline, key_groups=chance.choice([1, 2, 5])), log, chance.choice([1, 3, 7]), chance)]


def check_function(seed: int) -> None:
    """Compare a random function with the model."""
    chance = Random(seed)
    made = process(chance)
    source = SourceNode("log", LogSource("data/log"), DECODE, EventTime("t", Delay(chance.choice([0, 2, 7]) * MINUTE)))
    log = Log.draw(chance, 1, is_by_partition=made.order == "log")
    pipeline = ProcessPipeline(
        "one",
        source.source,
        DECODE,
        source.time,
        ("user",),
        made,
        SqliteSink("unused.db", "t"),
        chance.choice([1, 3]),
        at_end="hold" if log.is_held and not log.ends else "fire",
    )
    expected = answer(made, log.parts([source], [0], is_late_dropped=False))
    for run in runs(pipeline, log, chance):
        assert run.by_user() == expected.changes
        assert len(run.table("", "late")) == len(expected.late)


WINDOWS: list[Window] = [Tumbling(5 * MINUTE), Hopping(6 * MINUTE, 3 * MINUTE), Cumulate(6 * MINUTE, 2 * MINUTE)]
TOTALS = (Aggregate("n", Count()), Aggregate("total", Sum("v")), Aggregate("most", Max("v")))
AGAIN = (Aggregate("n", Count()), Aggregate("total", Sum("total")))


def graph(chance: Random) -> Graph:
    """Draw a graph: functions one behind the other over one or two sources, with selections, and windows of each."""
    nodes: list[Node] = []
    # the names of sources are not in the order of their numbers
    for name in ["z", "a"][: chance.choice([1, 1, 2])]:
        time = EventTime("t", Delay(chance.choice([0, 2, 7]) * MINUTE))
        lateness = chance.choice([None, 3 * MINUTE, LONG])
        nodes.append(SourceNode(name, LogSource(f"data/{name}"), DECODE, time, lateness=lateness))
    at = "z"
    if len(nodes) > 1:
        nodes.append(SelectNode("both", ("z", "a")))
        at = "both"
    names = ["f", "g", "h"][: chance.choice([1, 2, 2, 3])]
    for name in names:
        if chance.random() < 0.3:
            nodes.append(SelectNode(f"some of {name}", (at,), "v % 3 <> 1"))
            at = f"some of {name}"
        nodes.append(ProcessNode(name, at, ("user",), process(chance)))
        at = name
        nodes.append(SelectNode(f"rows of {name}", (at,), derive=(Derive("w", "v"),), select=("user", "text", "w")))
        window = chance.choice([*WINDOWS, Session(3 * MINUTE)])
        is_read = not isinstance(window, Session) and chance.random() < 0.5
        late = Emit(lateness=chance.choice([0, LONG]), late="each" if is_read else chance.choice(["each", "batch"]))
        nodes.append(WindowNode(f"windows of {name}", at, chance.choice([("user",), ()]), window, TOTALS, late))
        if is_read:
            windows = f"windows of {name}"
            nodes.append(WindowNode(f"windows of {windows}", windows, (), Tumbling(12 * MINUTE), AGAIN, Emit()))
    sinks = [
        SinkNode(f"to {node.name}", node.name, SqliteSink("unused.db", node.name.replace(" ", "_")))
        for node in nodes
        if not isinstance(node, SourceNode) and node.name != "both" and not node.name.startswith("some of")
    ]
    return Graph("graph", (*nodes, *sinks), chance.choice([1, 3]))


def answers(made: Graph, log: Log) -> dict[str, Answer]:
    """Return the answers of the model for the functions of a graph."""
    sources = made.sources
    parts = log.parts(sources, range(len(sources)), is_late_dropped=True)
    found: dict[str, Answer] = {}
    for node in made.nodes:
        if isinstance(node, SelectNode) and node.where is not None:
            parts = [replace(part, rows=tuple(one for one in part.rows if one.values["v"] % 3 != 1)) for part in parts]
        if isinstance(node, ProcessNode):
            is_behind = bool(found)
            found[node.name] = one = answer(node.process, parts, name=node.name if is_behind else "", has_ids=is_behind)
            parts = [
                replace(part, rows=tuple(row for row in one.rows if row.part == number))
                for number, part in enumerate(parts)
            ]
    return found


def unordered(rows: Sequence[dict[str, Any]]) -> Counter[str]:
    """Return rows in no order."""
    return Counter(map(repr, rows))


def check_graph(seed: int) -> None:
    """Compare a random graph with the model, and its windows among its runs."""
    chance = Random(seed)
    made = graph(chance)
    log = replace(Log.draw(chance, len(made.sources), is_by_partition=False), is_held=False)
    check_runs(made, log, chance)


def check_runs(made: Graph, log: Log, chance: Random) -> None:
    """Compare runs of a graph with the model, and with each other."""
    expected = answers(made, log)
    every = runs(made, log, chance)
    for run in every:
        for name, one in expected.items():
            assert run.by_user(f"to {name}") == one.changes, name
            rows = sorted((row["row"], row["user"], row["text"], row["w"]) for row in run.table(f"to rows of {name}"))
            wanted = [(row.id, row.values["user"], row.values["text"], row.values["v"]) for row in one.rows]
            assert rows == sorted(wanted), name
    windows = models(made, log, expected)
    for node in made.nodes:
        if isinstance(node, WindowNode):
            changes = [run.table(f"to {node.name}") for run in every]
            is_each = node.emit.late == "each"
            tables = [net(one, node) for one in changes]
            if not is_each:
                # how many revisions there are depends on the cut
                tables = [{group: row | {"revision": 0} for group, row in one.items()} for one in tables]
            on_time = [unordered([row for row in one if row["pane"] == "on_time"]) for one in changes]
            late = [unordered(run.table(f"to {node.name}", "late")) for run in every]
            if (model := windows.get(node.name)) is not None:
                assert totals(tables[0].values(), node) == {key: of(rows) for key, rows in model.table.items()}
                panes = [row for row in changes[0] if row["pane"] == "on_time" and row["op"] == "insert"]
                assert totals(panes, node) == {key: of(rows) for key, rows in model.on_time.items()}, node.name
                # records that came too late for a function have missed their own microsecond
                late_rows = every[0].table(f"to {node.name}", "late")
                assert sum(row["window_end"] - row["window_start"] > MICRO for row in late_rows) == model.missed
            for number in range(1, len(every)):
                assert tables[number] == tables[0], node.name
                assert late[number] == late[0], node.name
                assert on_time[number] == on_time[0], node.name
                if is_each or made.is_read(node):
                    assert unordered(changes[number]) == unordered(changes[0]), node.name


def models(made: Graph, log: Log, expected: dict[str, Answer]) -> dict[str, Windows]:
    """Return the model of windows over functions, and of windows over these."""
    records = [[time for _, time, *_ in log.records[:end]] for end in [*log.ends, len(log.records)]]
    reached = [max(times, default=BEFORE_ALL) for times in records]
    behind: dict[str, list[int]] = {}
    found: dict[str, Windows] = {}
    for node in made.nodes:
        if isinstance(node, ProcessNode):
            # a timer that an end has fired is ahead, for all functions behind it as well
            for number in range(len(reached)):
                rows = [one.time for one in expected[node.name].rows if one.part <= number]
                reached[number] = max([reached[number], *rows])
            behind[node.name] = [*reached]
        elif isinstance(node, WindowNode) and node.input in found:
            found[node.name] = found[node.input].again(node, behind[node.input])
        elif isinstance(node, WindowNode) and not isinstance(node.window, Session):
            found[node.name] = Windows.of(node, expected[node.input].rows, behind[node.input])
            behind[node.name] = row_times(node, behind[node.input])
    return found


def totals(rows: Iterable[dict[str, Any]], node: WindowNode) -> dict[Any, int]:
    """Return the sum in each row of a window."""
    return {
        (
            *((row[name] - EPOCH) // MICRO for name in ("window_start", "window_end")),
            tuple(row[name] for name in node.key),
        ): int(row["total"])
        for row in rows
    }


def of(rows: Sequence[Row]) -> int:
    """Return the sum of rows."""
    return sum(one.values["v"] for one in rows)


def net(changes: list[dict[str, Any]], node: WindowNode) -> dict[Any, Any]:
    """Apply a changelog, which must fit what is there."""
    table: dict[Any, Any] = {}
    for row in changes:
        group = row["window_start"], row["window_end"], *(row[name] for name in node.key)
        values = {name: value for name, value in row.items() if name not in {"op", "pane"}}
        if row["op"] in {"update_before", "delete"}:
            assert table.pop(group) == values, row
        else:
            assert group not in table, row
            table[group] = values
    return table


def check_rules(case: test_rules.Case, seed: int) -> None:
    """Compare random rules with their oracle in every cut, with other key groups, resumed and killed."""
    chance = Random(seed)
    for size in (1, 3, 7):
        test_rules.assert_answer(case, test_rules.run(case, range(size, len(case.records), size)))
    pipeline, host = case.pipeline, MemoryHost(as_graph(case.pipeline), range(2))
    outputs: list[GroupOutput] = []
    for step in case.steps(range(2, len(case.records), 2)):
        if chance.random() < 0.3:
            pipeline = replace(pipeline, key_groups=chance.choice([1, 2, 5]))
            states = migrate(as_graph(pipeline), {"": StateChange(lateness=pipeline.rules.lateness)}, host.states)
            host = MemoryHost(as_graph(pipeline), range(2))
            host.begin(states)
        if chance.random() < 0.3:
            states = host.copy_states()
            host.step(step)
            host = MemoryHost(as_graph(pipeline), range(2))
            host.begin(states)
        outputs += host.step(step)
    several = replace(case, pipeline=replace(case.pipeline, key_groups=2))
    test_rules.assert_answer(several, test_rules.Found.of(outputs))


def test_functions_are_the_models_in_every_cut() -> None:
    for seed in range(scaled(16)):
        check_function(seed)


def test_graphs_of_functions_are_the_models_in_every_cut() -> None:
    for seed in range(scaled(4)):
        check_graph(seed)


@examples(6)
@given(test_rules.cases(), st.integers(0, 2**32))
def test_rules_are_the_oracles_in_every_cut(case: test_rules.Case, seed: int) -> None:
    check_rules(case, seed)


def test_timers_of_one_time_at_two_ends_emit_two_rows() -> None:
    """A run to the end fires a timer, and the record that comes then sets it for the same time again."""

    def function(ctx: Any, record: Any) -> None:  # noqa: ANN401 - a user's
        ctx.timer(at=EPOCH + timedelta(hours=2))
        ctx.timer(at=EPOCH + timedelta(hours=2), name="other")
        ctx.state.n.set(record["v"])

    def on_timer(ctx: Any, _: Any) -> None:  # noqa: ANN401 - a user's
        ctx.emit(text="", v=ctx.state.n.get())

    source = SourceNode("log", LogSource("data/log"), DECODE, EventTime("t", Delay(0)), lateness=LONG)
    made = Process(function, STATES, RETURNS, None, "log", on_timer)
    rows = SelectNode("rows", ("f",))
    sink = SinkNode("to rows", "rows", SqliteSink("unused.db", "rows"))
    pipeline = Graph("graph", (source, ProcessNode("f", "log", ("user",), made), rows, sink), 2)
    minutes = [(0, minute * MINUTE, "A", minute) for minute in (1, 2, 3, 150, 151)]
    for ends in ((1, 2, 3), (1, 3)):
        run = Run(pipeline, Log(minutes, (0,), ends, is_held=False), 1, Random(0))
        # at each end, and when the watermark comes there; the last record has passed the time
        numbers = ["", *(f"#{number:04d}" for number in range(1, 2 * (len(ends) + 1)))]
        timers = [f"A@1970-01-01T02:00:00+00:00{number}" for number in numbers]
        found = sorted(row["row"] for row in run.table("to rows"))
        assert found == [*timers, "log/0/4", "log/0/4#0001"]


def test_windows_of_timers_at_an_end_have_fired_in_all_key_groups() -> None:
    """An end fires a timer of A two hours ahead; what comes of A and B in its windows then revises these at once."""

    def function(ctx: Any, record: Any) -> None:  # noqa: ANN401 - a user's
        if record["v"] == 1:
            ctx.timer(at=EPOCH + timedelta(minutes=117))
        ctx.emit(text="", v=record["v"])

    def on_timer(ctx: Any, _: Any) -> None:  # noqa: ANN401 - a user's
        ctx.emit(text="", v=10)

    source = SourceNode("z", LogSource("data/z"), DECODE, EventTime("t", Delay(0)), lateness=LONG)
    nodes: list[Node] = [
        source,
        ProcessNode("f", "z", ("user",), Process(function, STATES, RETURNS, None, "log", on_timer)),
    ]
    nodes.append(SelectNode("rows of f", ("f",), derive=(Derive("w", "v"),), select=("user", "text", "w")))
    late = Emit(lateness=LONG, late="each")
    nodes.append(WindowNode("windows of f", "f", ("user",), Hopping(6 * MINUTE, 3 * MINUTE), TOTALS, late))
    nodes.append(WindowNode("counted", "f", ("user",), Tumbling(5 * MINUTE), TOTALS, late))
    # not a multiple: its windows begin within those that it takes
    nodes.append(WindowNode("windows of counted", "counted", ("user",), Tumbling(4 * MINUTE), AGAIN, Emit()))
    sinks = [
        SinkNode(f"to {node.name}", node.name, SqliteSink("unused.db", node.name.replace(" ", "_")))
        for node in nodes[1:]
    ]
    made = Graph("graph", (*nodes, *sinks), 5)
    times = [("A", 1), ("B", 2), ("B", 116), ("A", 118), ("B", 118), ("B", 119), ("A", 121)]
    log = Log([(0, at * MINUTE, user, at % 7) for user, at in times], (0,), (2, 4), is_held=False)
    check_runs(made, log, Random(0))
    one, other = (Run(replace(made, key_groups=number), log, 1) for number in (1, 5))
    for name in ("windows of f", "windows of counted"):
        assert unordered(one.table(f"to {name}")) == unordered(other.table(f"to {name}"))
    end = EPOCH + timedelta(hours=2)
    of_b = [row for row in other.table("to windows of f") if row["user"] == "B" and row["window_end"] == end]
    assert {row["pane"] for row in of_b} == {"late"}
    assert [row["n"] for row in of_b if row["op"] in {"insert", "update_after"}] == [1, 2, 3]


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 900, 100))
def test_many_functions(first: int) -> None:
    for seed in range(first, first + 100):
        check_function(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 1400, 25))
def test_many_graphs_of_functions(first: int) -> None:
    for seed in range(first, first + 25):
        check_graph(seed)


@pytest.mark.long
@many(400)
@given(test_rules.cases(), st.integers(0, 2**32))
def test_many_rules(case: test_rules.Case, seed: int) -> None:
    check_rules(case, seed)
