"""Every pair of a change of a section and a kind of node, by checkpoint and by savepoint, against one run."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from windrow.api.pipeline_file import read_document
from windrow.core.changelog import StepOutput, concat_by_sink, empty_by_sink
from windrow.core.operators.base import GroupOutput
from windrow.core.schema import RAW
from windrow.core.state.store import MemoryState
from windrow.errors import CheckpointError
from windrow.hosts.compatibility import upgraded
from windrow.hosts.memory import MemoryHost
from windrow.hosts.savepoint import Savepoint, fingerprint
from windrow.hosts.stream.checkpoint import Checkpoint
from windrow.model import MAX_PARTITIONS, Runnable
from windrow.sinks.base import Run

Section = dict[str, Any]
Log = dict[int, list[bytes]]
Tables = dict[str, Counter[str]]
"""The rows of each sink's table, with how many there are of each."""

PARTITIONS = (0, MAX_PARTITIONS)
NOTES = {"op", "pane", "revision", "watermark"}
"""Columns of a changelog that say how a row came about."""

SUMS = {"events": "count()", "total": "sum(n)"}
SIDE = {"side": {"from": "r", "key": "user", "window": {"tumbling": "5m"}, "aggregate": {"events": "count()"}}}
LAST = {"last": {"from": "r", "table": {"key": "user"}}}


def sums(of: str, **window: Any) -> Section:  # noqa: ANN401 - any window
    return {"from": of, "key": "user", "window": window, "aggregate": SUMS}


NODES: dict[str, Section] = {
    "tumbling": SIDE | {"out": sums("l", tumbling="5m")},
    "hopping": SIDE | {"out": sums("l", hopping={"size": "10m", "slide": "5m"})},
    "session": SIDE | {"out": sums("l", session="3m")},
    "select": SIDE | {"out": {"from": "l", "where": "n > 10"}},
    "deduplicate": SIDE | {"out": {"from": "l", "deduplicate": {"by": ["user", "n"], "within": "5m"}}},
    "join": {"out": {"from": "l", "join": {"with": "r", "by": "user", "after": "3m", "before": "3m"}}},
    "left join": {"out": {"from": "l", "join": {"with": "r", "by": "user", "after": "3m", "how": "left"}}},
    "table": {"out": LAST["last"]} | {"all": sums("l", tumbling="5m")},
    "lookup": LAST | {"out": {"from": "l", "lookup": {"table": "last", "by": "user", "revise": "5m"}}},
    "join of tables": LAST
    | {
        "first": {"from": "l", "table": {"key": "user"}},
        "out": {"from": "first", "join": {"with": "last", "by": "user"}},
    },
    "windows of a deduplication": SIDE
    | {
        "once": {"from": "l", "deduplicate": {"by": ["user", "n"], "within": "5m"}},
        "out": sums("once", tumbling="5m"),
    },
    "windows of a join": {
        "both": {"from": "l", "join": {"with": "r", "by": "user", "after": "3m"}},
        "out": sums("both", tumbling="5m"),
    },
    "windows of a lookup": LAST
    | {
        "rated": {"from": "l", "lookup": {"table": "last", "by": "user", "revise": "5m"}},
        "out": sums("rated", tumbling="5m"),
    },
    "windows of windows": SIDE
    | {
        "small": sums("l", tumbling="5m"),
        "out": {"from": "small", "key": "user", "window": {"tumbling": "10m"}, "aggregate": {"most": "max(total)"}},
    },
    "sessions of a deduplication": SIDE
    | {
        "once": {"from": "l", "deduplicate": {"by": ["user", "n"], "within": "5m"}},
        "out": sums("once", session="3m"),
    },
}
WINDOWS = {"tumbling", "hopping", "session"}
"""Nodes with nothing else between them and the log."""


def graph_of(node: str) -> Section:
    """The graph of a node, as in a pipeline file."""
    decode = {"user": "string", "t": "timestamp", "t2": "timestamp", "n": "long", "spare": "string?"}
    time = {"field": "t", "delay": "1m"}
    source = {"decode": decode, "time": time, "lateness": "10m"}
    return deepcopy(
        {
            "name": "shop",
            "key_groups": 2,
            "sources": {
                "l": source | {"source": {"log": {"path": "data/l"}}},
                "r": source
                | {
                    "source": {"log": {"path": "data/r"}},
                    "decode": {"user": "string", "t": "timestamp", "t2": "timestamp", "rate": "long"},
                },
            },
            "streams": NODES[node],
            "sinks": {
                f"to_{name}": {"from": name, "sink": {"sqlite": {"path": "a.db", "table": name}}}
                for name in NODES[node]
                if not any(name in _taken(section) for section in NODES[node].values())
            },
        }
    )


def _taken(section: Section) -> set[str]:
    join, lookup = section.get("join", {}), section.get("lookup", {})
    return {section["from"], join.get("with"), lookup.get("table")}


@dataclass(frozen=True)
class Change:
    """A change of a graph: its name, the edit, and the nodes of which a savepoint takes it (None: of all).

    A checkpoint takes it only if it `is_place`. `hidden` are columns that one of the runs does not have.
    """

    name: str
    edit: Callable[[Section], Any]
    taken: frozenset[str] | None
    is_place: bool = False
    hidden: frozenset[str] = frozenset()


ALL = None
NEVER: frozenset[str] = frozenset()
DIRECT = frozenset(WINDOWS)


def _decode(graph: Section, source: str, **fields: str) -> None:
    graph["sources"][source]["decode"].update(fields)


def _time(graph: Section, source: str, **settings: str) -> None:
    graph["sources"][source]["time"].update(settings)


def _add(graph: Section, stream: Section) -> None:
    graph["streams"]["more"] = stream
    graph["sinks"]["to_more"] = {"from": "more", "sink": {"sqlite": {"path": "a.db", "table": "more"}}}


def _reordered(graph: Section, section: str) -> None:
    graph[section] = dict(reversed(graph[section].items()))


def _aggregate(graph: Section, **functions: str | None) -> None:
    out = graph["streams"]["out"]
    given = out.get("aggregate", graph["streams"].get("all", out).setdefault("aggregate", {}))
    merged = {name: function for name, function in (given | functions).items() if function is not None}
    given.clear()
    given.update(merged)


CHANGES = [
    Change("nothing", dict, ALL, is_place=True),
    Change("name", lambda graph: graph.update(name="other"), NEVER),
    Change("more key groups", lambda graph: graph.update(key_groups=5), ALL),
    Change("fewer key groups", lambda graph: graph.update(key_groups=1), ALL),
    Change(
        "path of l", lambda graph: graph["sources"]["l"].update(source={"log": {"path": "e/l"}}), ALL, is_place=True
    ),
    Change(
        "path of r", lambda graph: graph["sources"]["r"].update(source={"log": {"path": "e/r"}}), ALL, is_place=True
    ),
    Change("longer delay of l", lambda graph: _time(graph, "l", delay="2m"), ALL),
    Change("shorter delay of l", lambda graph: _time(graph, "l", delay="30s"), ALL),
    Change("longer delay of r", lambda graph: _time(graph, "r", delay="2m"), ALL),
    Change("idle of l", lambda graph: _time(graph, "l", idle="1m"), ALL),
    Change("idle of r", lambda graph: _time(graph, "r", idle="1m"), ALL),
    Change("future of l", lambda graph: _time(graph, "l", future="10h"), ALL),
    Change("time field of l", lambda graph: _time(graph, "l", field="t2"), NEVER),
    Change("lateness of l", lambda graph: graph["sources"]["l"].update(lateness="20m"), NEVER),
    Change("lateness of r", lambda graph: graph["sources"]["r"].update(lateness="20m"), NEVER),
    Change("optional field of l", lambda graph: _decode(graph, "l", z="long?"), ALL),
    Change("optional field of r", lambda graph: _decode(graph, "r", z="long?"), ALL),
    Change("field of l", lambda graph: _decode(graph, "l", w="long"), DIRECT | {"table"}),
    Change(
        "field of l that r has",
        lambda graph: _decode(graph, "l", rate="long?"),
        DIRECT | {"table", "windows of windows"},
    ),
    Change("type of n", lambda graph: _decode(graph, "l", n="string"), NEVER),
    Change("removed field of l", lambda graph: graph["sources"]["l"]["decode"].pop("spare"), DIRECT | {"table"}),
    Change("optional user", lambda graph: _decode(graph, "l", t2="timestamp?"), DIRECT | {"table"}),
    Change("derived field of l", lambda graph: graph["sources"]["l"].update(derive={"d": "n * 2"}), DIRECT | {"table"}),
    Change("order of decode", lambda graph: _reordered(graph["sources"]["l"], "decode"), ALL),
    Change("order of sources", lambda graph: _reordered(graph, "sources"), NEVER),
    Change(
        "place of tables",
        lambda graph: [one["sink"]["sqlite"].update(path="b.db") for one in graph["sinks"].values()],
        ALL,
        is_place=True,
    ),
    Change(
        "names of sinks",
        lambda graph: graph.update(sinks={f"{name}2": one for name, one in graph["sinks"].items()}),
        ALL,
        is_place=True,
    ),
    Change("new stream", lambda graph: _add(graph, {"from": "l", "where": "n > 3"}), NEVER),
    Change("new windows", lambda graph: _add(graph, sums("l", tumbling="5m")), NEVER),
]


def log_of(seed: int) -> Log:
    """A log in the order of event time, of users who come again; records behind the cut have one more field."""
    choose = random.Random(seed)
    log: Log = {}
    for partition in PARTITIONS:
        at, values = 0, []
        for number in range(RECORDS):
            at += choose.randrange(1, 90)
            time = f"2026-01-01T{10 + at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z"
            value = {"user": choose.choice("ABCD"), "t": time, "t2": time, "z": number, "w": number}
            value |= {"n": choose.randrange(20)} if partition == 0 else {"rate": choose.randrange(20)}
            if number < CUT:
                value["z"] = None
            values.append(json.dumps(value).encode())
        log[partition] = values
    return log


RECORDS = 60
CUT = 30


def raw(log: Log, begin: int, end: int) -> pa.Table:
    """The records of a log from one offset to another."""
    tables = []
    for partition, values in log.items():
        offsets = range(begin, end)
        columns = [[partition] * len(offsets), offsets, None, None, values[begin:end]]
        arrays = [
            pa.nulls(len(offsets), field.type) if column is None else pa.array(column, field.type)
            for column, field in zip(columns, RAW, strict=True)
        ]
        tables.append(pa.table(arrays, schema=RAW))
    return pa.concat_tables(tables)  # a batch is of one source


def rows_of(pipeline: Runnable, outputs: Iterable[list[GroupOutput]]) -> Tables:
    """The tables after some steps."""
    nothing = empty_by_sink(pipeline)
    tables: Tables = {name: Counter() for name in nothing}
    for groups in outputs:
        for name, output in concat_by_sink(nothing, (group.by_sink for group in groups)).items():
            add(tables[name], output)
    return tables


def add(table: Counter[str], output: StepOutput) -> None:
    assert not output.dead.num_rows, output.dead.to_pylist()
    for row in output.changes.to_pylist():
        sign = 1 if row["op"] in {"insert", "update_after"} else -1
        text = json.dumps({name: value for name, value in row.items() if name not in NOTES}, default=str)
        table[text] += sign


def joined(*tables: Tables) -> dict[str, list[tuple[dict[str, Any], int]]]:
    """The rows that are left of all, by table, without columns that are null."""
    found: dict[str, list[tuple[dict[str, Any], int]]] = {}
    for one in tables:
        for name, rows in one.items():
            counts: Counter[str] = Counter()
            for text, count in rows.items():
                row = {key: value for key, value in json.loads(text).items() if value is not None}
                counts[json.dumps(row, sort_keys=True)] += count
            stem = name.rstrip("2")
            total = Counter({json.dumps(row, sort_keys=True): count for row, count in found.get(stem, [])})
            total.update(counts)
            found[stem] = sorted(((json.loads(text), count) for text, count in total.items() if count), key=str)
    return found


@cache
def one_run(text: str, seed: int) -> dict[str, list[tuple[dict[str, Any], int]]]:
    """The tables of one run over the whole log."""
    pipeline, log = read_document(text, "shop.yaml").pipeline, log_of(seed)
    host = MemoryHost(pipeline, PARTITIONS)
    return joined(rows_of(pipeline, [host.step(raw(log, 0, CUT)), host.step(raw(log, CUT, RECORDS)), host.end()]))


@cache
def first_half(text: str, seed: int) -> tuple[Tables, list[MemoryState]]:
    """The tables and the states of a run up to the cut."""
    pipeline = read_document(text, "shop.yaml").pipeline
    host = MemoryHost(pipeline, PARTITIONS)
    tables = rows_of(pipeline, [host.step(raw(log_of(seed), 0, CUT))])
    return tables, host.copy_states()


def second_half(
    pipeline: Runnable, states: list[MemoryState], before: Tables, seed: int
) -> dict[str, list[tuple[dict[str, Any], int]]]:
    """The tables after a run that resumes from states."""
    host, log = MemoryHost(pipeline, PARTITIONS), log_of(seed)
    host.begin(states)
    return joined(before, rows_of(pipeline, [host.step(raw(log, CUT, RECORDS)), host.end()]))


def cases() -> Iterable[tuple[str, Change, str]]:
    return ((node, change, way) for node in NODES for change in CHANGES for way in ("checkpoint", "savepoint"))


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("node", "change", "way"), [pytest.param(*one, id=f"{one[0]}, {one[1].name}, {one[2]}") for one in cases()]
)
def test_a_change_is_taken_with_the_right_rows_or_refused(
    node: str, change: Change, way: str, seed: int, tmp_path: Path
) -> None:
    graph = graph_of(node)
    there = json.dumps(graph)
    change.edit(graph)
    here = json.dumps(graph)
    old, new = (read_document(text, "shop.yaml").pipeline for text in (there, here))
    before, states = first_half(there, seed)
    named: list[str] = []
    if way == "checkpoint":
        is_expected = change.is_place
        is_taken = not Checkpoint.new(tmp_path, old, PARTITIONS).differences(new)
    else:
        is_expected = change.taken is None or node in change.taken
        savepoint = Savepoint(
            Run("shop", "one"), 0, dict.fromkeys(PARTITIONS, CUT), PARTITIONS, old.key_groups, fingerprint(old)
        )
        savepoint.write(tmp_path / "savepoint", enumerate(states))
        try:
            states = [state for _, state in upgraded(tmp_path / "savepoint", new)[1]]
            is_taken = True
        except CheckpointError as refusal:
            is_taken = False
            named = str(refusal).splitlines()[1:-1]
    assert is_taken == is_expected
    assert is_taken or way == "checkpoint" or all(" there, " in line for line in named), named
    if is_taken:
        assert second_half(new, states, before, seed) == one_run(here, seed)
    else:
        assert second_half(old, first_half(there, seed)[1], before, seed) == one_run(there, seed)
