"""A graph with several keyed nodes gives in each of them what the node gives alone, and shares the clocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MAIN, MINUTE, main, raw, record
from tests.examples import examples
from tests.graphs import as_graph
from tests.short_forms import Pipeline

from windrow.engine.changelog import StepOutput
from windrow.engine.level import migrate
from windrow.engine.schema import RAW
from windrow.engine.state.widening import StateChange
from windrow.model import (
    MAX_PARTITIONS,
    Aggregate,
    Count,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    Graph,
    Hopping,
    JoinNode,
    LogSource,
    Max,
    Session,
    SinkNode,
    SourceNode,
    SqliteSink,
    StringType,
    TimestampType,
    Tumbling,
    Window,
    WindowNode,
)
from windrow.runtime.memory import MemoryHost

NODES = st.builds(
    lambda window, salt, emit: main(window=window, salt=1 if isinstance(window, Session) else salt, emit=emit),
    st.sampled_from([Tumbling(5 * MINUTE), Hopping(6 * MINUTE, 4 * MINUTE), Session(3 * MINUTE)]),
    st.integers(1, 3),
    st.builds(Emit, lateness=st.sampled_from([0, 10 * MINUTE]), late=st.sampled_from(["each", "batch"])),
)
RECORDS = st.tuples(st.integers(0, 1), st.builds(record, st.sampled_from("AB"), st.integers(0, 40), st.integers(-9, 9)))
STEPS = st.lists(st.lists(RECORDS, max_size=8), max_size=6)


def graph(*nodes: Pipeline) -> Graph:
    """A graph of pipelines over one source, named by their numbers."""
    source = SourceNode("log", MAIN.source, MAIN.decode, MAIN.time, MAIN.derive)
    keyed = [
        WindowNode(str(number), "log", one.key, one.window, one.aggregates, one.emit, one.salt)
        for number, one in enumerate(nodes)
    ]
    sinks = [SinkNode(f"to {one.name}", one.name, SqliteSink("unused.db", f"table_{one.name}")) for one in keyed]
    return Graph("graph", (source, *keyed, *sinks), MAIN.key_groups)


class Run:
    """A log that a graph, or a pipeline, reads step by step."""

    def __init__(self, pipeline: Pipeline | Graph) -> None:
        self.host = MemoryHost(as_graph(pipeline), [0, 1])
        self._next = [0, 0]

    def step(self, records: list[tuple[int, bytes]]) -> dict[str, StepOutput]:
        tables = [RAW.empty_table()]
        for partition in (0, 1):
            values = [value for number, value in records if number == partition]
            if values:
                tables.append(raw(partition, self._next[partition], *values))
            self._next[partition] += len(values)
        groups = self.host.step(pa.concat_tables(tables))
        assert sum(group.stats.records + group.stats.dead for group in groups) == len(records)
        return {name: StepOutput.concat(group.by_sink[name] for group in groups) for name in groups[0].by_sink}


def rows(output: StepOutput) -> list[list[dict[str, Any]]]:
    tables = (output.changes, output.late, output.dead, output.clocks)
    return [sorted(table.to_pylist(), key=repr) for table in tables]


@examples(8)
@given(st.lists(NODES, min_size=1, max_size=3), STEPS)
def test_each_node_gives_what_it_gives_alone(nodes: list[Pipeline], steps: list[list[tuple[int, bytes]]]) -> None:
    together, alone = Run(graph(*nodes)), [Run(one) for one in nodes]
    for records in steps:
        output = together.step(records)
        assert [rows(output[f"to {number}"]) for number in range(len(nodes))] == [
            rows(one.step(records)[""]) for one in alone
        ]


def test_what_one_node_cannot_take_is_its_own_dead_letter_and_moves_the_clock_of_all() -> None:
    numbers = (Aggregate("number", Max("CAST(user AS BIGINT)")),)
    run = Run(graph(main(aggregates=(Aggregate("n", Count()),)), main(aggregates=numbers)))
    output = run.step([(0, record("7", 1)), (0, b"{}"), (0, record("A", 30)), (1, record("A", 30))])
    assert [row["reason"].partition(":")[0] for row in rows(output["to 0"])[2]] == ["missing"]
    assert sorted(row["reason"].partition(":")[0] for row in rows(output["to 1"])[2]) == [
        "expression",
        "expression",
        "missing",
    ]
    # the records that node 1 could not take moved the clocks of both partitions
    assert [row["n"] for row in rows(output["to 0"])[0]] == [1]
    assert [row["number"] for row in rows(output["to 1"])[0]] == [7]


def test_states_of_the_nodes_are_kept_apart_and_migrate_each() -> None:
    windows: tuple[Window, ...] = (Tumbling(5 * MINUTE), Hopping(6 * MINUTE, 4 * MINUTE), Session(3 * MINUTE))
    nodes = [main(window=window) for window in windows]
    first = [(0, record("A", minute)) for minute in range(10)]
    last = [(0, record("B", 20)), (1, record("A", 40)), (0, record("A", 40))]
    straight, cut = Run(graph(*nodes)), Run(graph(*nodes))
    straight.step(first)
    cut.step(first)
    wider = replace(graph(*nodes), key_groups=3)
    same = StateChange(aggregates=(0,), lateness=nodes[0].emit.lateness)
    states = migrate(wider, {str(number): same for number in range(3)}, cut.host.states)
    cut.host = MemoryHost(wider, [0, 1])
    cut.host.begin(states)
    expected, found = straight.step(last), cut.step(last)
    assert all(expected[name].changes.num_rows for name in expected)
    assert {name: rows(one) for name, one in found.items()} == {name: rows(one) for name, one in expected.items()}


def test_a_field_can_be_called_partition() -> None:
    decode = Decode((Field("partition", StringType()), Field("t", TimestampType("micros"))))
    log = SourceNode("log", LogSource("data/log"), decode, EventTime("t", Delay(0)), lateness=MINUTE)
    by = ("partition",)
    nodes = (
        log,
        replace(log, name="other", source=LogSource("data/other")),
        WindowNode("sums", "log", by, Tumbling(MINUTE), (Aggregate("n", Count()),), Emit()),
        JoinNode("joined", "log", "other", by, by, after=MINUTE, how="full"),
        SinkNode("to sums", "sums", SqliteSink("unused.db", "sums")),
        SinkNode("to joined", "joined", SqliteSink("unused.db", "joined")),
    )
    host = MemoryHost(Graph("graph", nodes), [0, MAX_PARTITIONS])
    values = [b'{"partition": "p", "t": 0}', b'{"partition": "q", "t": 0}']
    steps = [host.step(pa.concat_tables([raw(0, 0, *values), raw(MAX_PARTITIONS, 0, values[0])])), host.end()]
    found = [
        {name: StepOutput.concat(group.by_sink[name] for group in groups).changes for name in ("to sums", "to joined")}
        for groups in steps
    ]
    sums, joined = (pa.concat_tables([step[name] for step in found]) for name in ("to sums", "to joined"))
    assert sorted(zip(sums["partition"].to_pylist(), sums["n"].to_pylist(), strict=True)) == [("p", 1), ("q", 1)]
    assert sorted(zip(joined["row"].to_pylist(), joined["partition"].to_pylist(), strict=True)) == [
        ("log/0/0+other/0/0", "p"),
        ("log/0/1+", "q"),
    ]
