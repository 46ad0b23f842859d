"""Tables, and what looks rows up in them: names of fields, and where records are that they cannot take."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import pytest
from tests.engine.pipelines import MINUTE, raw

from windrow.engine import duckdb_sql
from windrow.engine.changelog import StepOutput
from windrow.model import (
    MAX_PARTITIONS,
    Decode,
    Delay,
    EventTime,
    Field,
    Graph,
    JoinNode,
    LogSource,
    LookupNode,
    SelectNode,
    SinkNode,
    SourceNode,
    SqliteSink,
    StreamNode,
    StringType,
    TableJoinNode,
    TableNode,
    TimestampType,
)
from windrow.runtime.memory import MemoryHost

USED = """
    records rows stored versions lefts rights touched places limits all_versions before settled horizon gone is_all
    held best shown moved times changes candidates events counted valued there partners alone met paired others v l r c
    m o p b t n low time key made near semi
"""
"""Words of the SQL that operators run, which fields can be called, too."""


def source(name: str, fields: tuple[Field, ...]) -> SourceNode:
    when = Field("at", TimestampType("micros"))
    time = EventTime("at", Delay(MINUTE))
    return SourceNode(name, LogSource(f"data/{name}"), Decode((when, *fields)), time, lateness=9 * MINUTE)


def run(graph: Graph, *steps: dict[str, list[dict[str, Any]]]) -> dict[str, StepOutput]:
    """Return what each sink is given for records by source, in steps."""
    numbers = {one.name: number * MAX_PARTITIONS for number, one in enumerate(graph.sources)}
    host, offsets = MemoryHost(graph, sorted(numbers.values())), dict.fromkeys(numbers, 0)
    outputs = []
    for step in steps:
        tables = []
        for name, rows in step.items():
            tables.append(raw(numbers[name], offsets[name], *(json.dumps(row).encode() for row in rows)))
            offsets[name] += len(rows)
        outputs.append(host.step(pa.concat_tables(tables)))
    outputs.append(host.end())
    return {
        sink.name: StepOutput.concat(group.by_sink[sink.name] for groups in outputs for group in groups)
        for sink in graph.sinks
    }


def graph_of(sources: tuple[SourceNode, ...], *streams: StreamNode) -> Graph:
    sinks = (SinkNode(f"to {node.name}", node.name, SqliteSink("unused.db", node.name)) for node in streams)
    return Graph("graph", (*sources, *streams, *sinks), 2)


def test_fields_can_have_the_names_that_operators_use() -> None:
    names = USED.split()
    fields = (Field("k", StringType()), *(Field(name, StringType()) for name in names))
    both = source("one", fields), source("two", fields)
    graph = graph_of(
        both,
        TableNode("rows", "two", ("k",), "gone = 'yes'"),
        TableNode("named", "one", ("k", *names)),
        SelectNode("bare", ("one",), select=("at", "k")),
        LookupNode("held", "bare", "rows", ("k",), ("k",), "left"),
        LookupNode("before", "bare", "rows", ("k",), ("k",), as_of="order"),
        LookupNode("wide", "two", "named", ("k", *names), ("k", *names)),
        TableJoinNode("joined", "rows", "named", ("k", *names), ("k", *names), "full"),
        JoinNode("near", "one", "two", ("k", *names), ("k", *names), MINUTE, MINUTE, "full"),
    )
    steps = [
        {name: [{"at": at * MINUTE, "k": "a"} | dict.fromkeys(names, f"x{at}")] for name in ("two", "one")}
        for at in range(0, 40, 9)
    ]
    outputs = run(graph, *steps)
    for name, output in outputs.items():
        assert output.dead.to_pylist() == [], name
        assert output.changes.num_rows, name
    held = {row["at"]: row["t"] for row in outputs["to held"].changes.to_pylist() if row["op"] == "insert"}
    assert list(held.values()) == [f"x{at}" for at in range(0, 40, 9)]


@pytest.mark.parametrize("as_of", ["event_time", "order"])
def test_the_records_of_one_key_are_in_all_key_groups_if_its_table_is_broadcast(
    as_of: Literal["event_time", "order"],
) -> None:
    words = (Field("k", StringType()),)
    sources = source("changes", words), source("records", words)
    by_key = LookupNode("found", "records", "kept", ("k",), ("k",), as_of=as_of)
    for node, is_spread in ((by_key, False), (replace(by_key, broadcast=True), True)):
        graph = replace(graph_of(sources, TableNode("kept", "changes", ("k",)), node), key_groups=4)
        host = MemoryHost(graph, [0, MAX_PARTITIONS])
        rows = [json.dumps({"at": at * MINUTE, "k": "hot"}).encode() for at in range(1, 401)]
        # those before the last one have come by the watermark
        groups = host.step(pa.concat_tables([raw(0, 0, *rows[:1]), raw(MAX_PARTITIONS, 0, *rows)]))
        both = zip(groups, host.end(), strict=True)
        counts = [sum(one.by_sink["to found"].changes.num_rows for one in outputs) for outputs in both]
        assert sum(counts) == len(rows)
        assert [count for count in counts if count] == (counts if is_spread else [len(rows)])
        assert not is_spread or max(counts) < 2 * min(counts)


def test_what_a_table_cannot_take_is_said_once_in_each_sink_below() -> None:
    """A lookup takes the versions of a table: what the table itself does with them is not the lookup's."""
    words = (Field("k", StringType()), Field("n", StringType()))
    graph = graph_of(
        (source("changes", words), source("records", words)),
        TableNode("kept", "changes", ("k",), "CAST(n AS INTEGER) > 5"),
        LookupNode("found", "records", "kept", ("k",), ("k",), "left"),
        LookupNode("noted", "records", "kept", ("k",), ("k",), as_of="order"),
        LookupNode("spread", "records", "kept", ("k",), ("k",), "left", broadcast=True),
    )
    values = [("a", "1"), ("a", "one"), ("k" * 3000, "1"), ("a", "2"), ("a", "3")]
    rows = [{"at": at * MINUTE, "k": k, "n": n} for at, (k, n) in zip([0, 1, 2, 60, 3], values, strict=True)]
    outputs = run(graph, {"changes": rows, "records": rows[:1]})
    for output in outputs.values():
        reasons = Counter(reason.partition(":")[0] for reason in output.dead.column("reason").to_pylist())
        assert reasons == {"expression": 1, "long key": 1}
        assert output.late.select(["partition", "offset"]).to_pylist() == [{"partition": 0, "offset": 4}]


def test_a_change_of_a_table_meets_the_rows_of_the_other_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not all its changes: of one key, they would be as many as the product of both."""
    sizes, query = [], duckdb_sql.query

    def sized(connection: duckdb_sql.Connection, sql: str, **tables: pa.Table) -> pa.Table:
        found = query(connection, sql, **tables)
        sizes.append(found.num_rows)
        return found

    monkeypatch.setattr(duckdb_sql, "query", sized)
    sources = (
        source("one", (Field("k", StringType()), Field("m", StringType()))),
        source("two", (Field("k", StringType()), Field("n", StringType()))),
    )
    graph = graph_of(
        sources,
        TableNode("left", "one", ("k",)),
        TableNode("right", "two", ("k",)),
        TableJoinNode("both", "left", "right", ("k",), ("k",)),
    )
    count = 100
    changes = [{"at": at * MINUTE, "k": "a", "m": f"m{at}", "n": f"n{at}"} for at in range(count)]
    output = run(graph, {"one": changes, "two": changes})["to both"]
    left = [row for row in output.changes.to_pylist() if row["op"] in {"insert", "update_after"}][-1]
    assert (left["m"], left["n"]) == ("m99", "n99")
    assert max(sizes) < 10 * count
