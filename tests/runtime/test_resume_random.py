"""Every pair of a change of a section and a kind of node, by checkpoint and by savepoint, against one run."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.graphs import Runnable, as_graph

import windrow as wr
from windrow.authoring.pipeline_file import read_document
from windrow.connectors.sink import Run
from windrow.engine.changelog import StepOutput, concat_by_sink, empty_by_sink
from windrow.engine.operators.base import GroupOutput
from windrow.engine.schema import RAW
from windrow.engine.state.store import MemoryState
from windrow.errors import CheckpointError
from windrow.model import MAX_PARTITIONS
from windrow.runtime.compatibility import upgraded
from windrow.runtime.memory import MemoryHost
from windrow.runtime.savepoint import Savepoint, fingerprint
from windrow.runtime.stream.checkpoint import Checkpoint

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

SHORT: dict[str, Section] = {
    "rules": {
        "recent": {"last": 8, "within": "1h"},
        "rules": [
            {"name": "rise", "when": "n > prev.n + 5", "say": "{n} after {prev.n}"},
            {"name": "burst", "when": "count(recent, '5m') >= 4"},
        ],
        "emit": {"lateness": "10m"},
    },
    "process": {"process": {"function": "counted", "ttl": "1h"}},
    "process by event time": {"process": {"function": "counted", "order": "event_time"}},
}
"""Pipelines with one stream. A process function has no form in a file; its settings are those of the call."""


def counted(ctx: wr.Context, record: Mapping[str, Any]) -> None:
    """Emit how many records a key had, and the sum of some."""
    ctx.state.seen.set(ctx.state.seen.get(0) + 1)
    if record["n"] > 3:
        ctx.state.large.append(record["n"])
    ctx.emit(seen=ctx.state.seen.get(0), total=sum(ctx.state.large.get()))


def counted_again(ctx: wr.Context, record: Mapping[str, Any]) -> None:
    """Emit the same."""
    counted(ctx, record)


def parsed(text: str) -> Runnable:
    """The pipeline of a document."""
    document = json.loads(text)
    if "process" not in document:
        return read_document(text, "shop.yaml").pipeline
    time = document["time"]
    options = {"state": {"seen": "value(long)", "large": "list(long)"}, "returns": {"seen": "long", "total": "long"}}
    options = deepcopy(options) | document["process"]
    states = {
        "value(long)": wr.value_state("long"),
        "value(decimal(19,0))": wr.value_state("decimal(19,0)"),
        "list(long)": wr.list_state("long"),
    }
    options["state"] = {name: states[one] for name, one in options["state"].items()}
    return (
        wr.log(document["source"]["log"]["path"])
        .decode(**document["decode"])
        .event_time(time["field"], **{name: one for name, one in time.items() if name != "field"})
        .key_by(*document["key"])
        .process({"counted": counted, "counted_again": counted_again}[options.pop("function")], **options)
        .to(wr.sqlite("a.db", table="out"), name=document["name"], key_groups=document["key_groups"])
        .graph
    )


def partitions_of(node: str) -> tuple[int, ...]:
    """The partitions of the sources that a pipeline reads."""
    return (0,) if node in SHORT else PARTITIONS


def graph_of(node: str) -> Section:
    """The graph of a node, or the pipeline with one stream, as in a pipeline file."""
    if node in SHORT:
        return deepcopy(
            {
                "name": "shop",
                "source": {"log": {"path": "data/l"}},
                "decode": {"user": "string", "t": "timestamp", "t2": "timestamp", "n": "long", "spare": "string?"},
                "time": {"field": "t", "delay": "1m"},
                "key": ["user"],
                "sink": {"sqlite": {"path": "a.db", "table": "out"}},
                "key_groups": 2,
            }
            | SHORT[node]
        )
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

    A checkpoint takes it only if it `is_place`. `hidden` are columns that one of the runs does not have. Of one that
    `begins` with the next record, the rows of records before are those of before. An edit that changes nothing in a
    node is not tried with it.
    """

    name: str
    edit: Callable[[Section], Any]
    taken: frozenset[str] | None
    is_place: bool = False
    hidden: frozenset[str] = frozenset()
    begins: bool = False


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
    _aggregated(graph, lambda given: {k: v for k, v in (given | functions).items() if v is not None})


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
    Change(
        "new aggregate",
        lambda graph: _aggregate(graph, most="max(n)"),
        DIRECT | {"table"},
        hidden=frozenset({"most"}),
    ),
    Change(
        "removed aggregate",
        lambda graph: _aggregate(graph, events=None),
        DIRECT | {"table"},
        hidden=frozenset({"events"}),
    ),
    Change("other aggregate", lambda graph: _aggregate(graph, total="min(n)"), NEVER),
    Change("order of aggregates", lambda graph: _aggregated(graph, lambda given: dict(reversed(given.items()))), ALL),
    Change("other windows", lambda graph: _windowed(graph, {"tumbling": "15m"}), NEVER),
    Change("later windows", lambda graph: _windowed(graph, {"tumbling": {"size": "5m", "offset": "1m"}}), NEVER),
    Change("broadcast", lambda graph: _of(graph, "lookup", broadcast=True), ALL),
    Change("revise", lambda graph: _of(graph, "lookup", revise="6m"), NEVER),
    Change("within", lambda graph: _of(graph, "deduplicate", within="6m"), NEVER),
    Change("by", lambda graph: _of(graph, "deduplicate", by=["user"]), NEVER),
    Change("after", lambda graph: _of(graph, "join", after="5m") if _is_timed(graph) else None, NEVER),
    Change("how", lambda graph: _of(graph, "join", how="left"), NEVER),
    Change("where", lambda graph: [one.update(where="n > 11") for one in _streams(graph) if "where" in one], NEVER),
    Change("key of a table", lambda graph: _of(graph, "table", key="n"), NEVER),
]


def _streams(graph: Section) -> list[Section]:
    return list(graph["streams"].values())


def _of(graph: Section, kind: str, **settings: Any) -> None:  # noqa: ANN401 - any setting
    for one in _streams(graph):
        if kind in one and one["from"] != "r":
            one[kind].update(settings)


def _is_timed(graph: Section) -> bool:
    return any("after" in one.get("join", {}) for one in _streams(graph))


def _aggregated(graph: Section, edit: Callable[[Section], Section]) -> None:
    for name, one in graph["streams"].items():
        if name in {"out", "all"} and "aggregate" in one and one["from"] != "small":
            one["aggregate"] = edit(one["aggregate"])


def _windowed(graph: Section, window: Section) -> None:
    for name, one in graph["streams"].items():
        if name in {"out", "all"} and "window" in one:
            one["window"] = window


OF_SHORT = [
    Change("nothing", dict, ALL, is_place=True),
    Change("name", lambda short: short.update(name="other"), NEVER),
    Change("more key groups", lambda short: short.update(key_groups=5), ALL),
    Change("fewer key groups", lambda short: short.update(key_groups=1), ALL),
    Change("path", lambda short: short.update(source={"log": {"path": "e/l"}}), ALL, is_place=True),
    Change("longer delay", lambda short: short["time"].update(delay="2m"), ALL),
    Change("idle", lambda short: short["time"].update(idle="1m"), ALL),
    Change("future", lambda short: short["time"].update(future="10h"), ALL),
    Change("time field", lambda short: short["time"].update(field="t2"), NEVER),
    Change("key", lambda short: short.update(key=["user", "t2"]), NEVER),
    Change("optional field", lambda short: short["decode"].update(z="long?"), frozenset({"process"})),
    Change("removed field", lambda short: short["decode"].pop("spare"), frozenset({"process"})),
    Change("place of the table", lambda short: short["sink"]["sqlite"].update(path="b.db"), ALL, is_place=True),
]
OF_RULES = [
    *OF_SHORT,
    Change("other rule", lambda short: short["rules"][0].update(when="n > prev.n + 9"), ALL, begins=True),
    Change("other text", lambda short: short["rules"][0].update(say="up to {n}"), ALL, begins=True),
    Change("new rule", lambda short: short["rules"].append({"name": "zero", "when": "n = 0"}), ALL, begins=True),
    Change("removed rule", lambda short: short["rules"].pop(), ALL, begins=True),
    Change("order of rules", lambda short: short["rules"].reverse(), ALL, begins=True),
    Change("other severity", lambda short: short["rules"][1].update(severity="low"), ALL, begins=True),
    Change("rule of the next record", lambda short: short["rules"][0].update(when="n > next.n"), NEVER),
    Change("fewer recent records", lambda short: short["recent"].update(last=3), ALL, begins=True),
    Change("longer lateness", lambda short: short["emit"].update(lateness="20m"), ALL),
    Change("shorter lateness", lambda short: short["emit"].update(lateness="5m"), ALL),
    Change("no revisions", lambda short: short["emit"].update(revise=False), NEVER),
]
OF_PROCESS = [
    *OF_SHORT,
    Change("other function", lambda short: short["process"].update(function="counted_again"), ALL),
    Change("ttl", lambda short: short["process"].update(ttl="2h"), NEVER),
    Change(
        "order",
        lambda short: short["process"].update(order="log" if "order" in short["process"] else "event_time"),
        NEVER,
    ),
    Change(
        "new state",
        lambda short: short["process"].update(
            state={"seen": "value(long)", "large": "list(long)", "other": "value(long)"}
        ),
        NEVER,
    ),
    Change(
        "order of states",
        lambda short: short["process"].update(state={"large": "list(long)", "seen": "value(long)"}),
        NEVER,
    ),
    Change("removed column", lambda short: short["process"].update(returns={"seen": "long"}), NEVER),
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


def raw(log: Log, begin: int, end: int, partitions: Iterable[int] = PARTITIONS) -> pa.Table:
    """The records of a log from one offset to another."""
    tables = []
    for partition in partitions:
        values = log[partition]
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
    nothing = empty_by_sink(as_graph(pipeline))
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


def joined(*tables: Tables, hidden: Collection[str] = ()) -> dict[str, list[tuple[dict[str, Any], int]]]:
    """The rows that are left of all, by table, without columns that are null."""
    found: dict[str, list[tuple[dict[str, Any], int]]] = {}
    for one in tables:
        for name, rows in one.items():
            counts: Counter[str] = Counter()
            for text, count in rows.items():
                row = {key: one for key, one in json.loads(text).items() if one is not None and key not in hidden}
                counts[json.dumps(row, sort_keys=True)] += count
            stem = name.rstrip("2")
            total = Counter({json.dumps(row, sort_keys=True): count for row, count in found.get(stem, [])})
            total.update(counts)
            found[stem] = sorted(((json.loads(text), count) for text, count in total.items() if count), key=str)
    return found


Answer = dict[str, list[tuple[dict[str, Any], int]]]


@cache
def one_run(text: str, seed: int, partitions: tuple[int, ...], hidden: frozenset[str]) -> Answer:
    """The tables of one run over the whole log."""
    pipeline, log = parsed(text), log_of(seed)
    host = MemoryHost(as_graph(pipeline), partitions)
    steps = [host.step(raw(log, *cut, partitions)) for cut in ((0, CUT), (CUT, RECORDS))]
    return joined(rows_of(pipeline, [*steps, host.end()]), hidden=hidden)


@cache
def first_half(text: str, seed: int, partitions: tuple[int, ...]) -> tuple[Tables, list[MemoryState]]:
    """The tables and the states of a run up to the cut."""
    pipeline = parsed(text)
    host = MemoryHost(as_graph(pipeline), partitions)
    tables = rows_of(pipeline, [host.step(raw(log_of(seed), 0, CUT, partitions))])
    return tables, host.copy_states()


def second_half(
    pipeline: Runnable,
    states: list[MemoryState],
    before: Tables,
    seed: int,
    hidden: frozenset[str] = frozenset(),
) -> Answer:
    """The tables after a run that resumes from states."""
    partitions = PARTITIONS[: len(as_graph(pipeline).sources)]
    host, log = MemoryHost(as_graph(pipeline), partitions), log_of(seed)
    host.begin(states)
    steps = [host.step(raw(log, CUT, RECORDS, partitions)), host.end()]
    return joined(before, rows_of(pipeline, steps), hidden=hidden)


def from_the_cut_on(before: Answer, after: Answer) -> Answer:
    """The alerts of the records before the cut in one answer, and of those behind it in another."""

    def offset(row: dict[str, Any]) -> int:
        return int(row["subject"].split(":")[1])

    return {
        name: sorted(
            [
                *(one for one in before[name] if offset(one[0]) < CUT),
                *(one for one in after[name] if offset(one[0]) >= CUT),
            ],
            key=str,
        )
        for name in after
    }


def cases() -> Iterable[tuple[str, Change, str]]:
    tried = [
        *((node, change) for node in NODES for change in CHANGES),
        *((node, change) for node in SHORT for change in (OF_RULES if node == "rules" else OF_PROCESS)),
    ]
    return ((node, change, way) for node, change in tried if _changes(node, change) for way in WAYS)


def _changes(node: str, change: Change) -> bool:
    """Whether a change is one, in a node."""
    graph = graph_of(node)
    change.edit(graph)
    # JSON has the order of names
    return change.name == "nothing" or json.dumps(graph) != json.dumps(graph_of(node))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("node", ["windows of a deduplication", "sessions of a deduplication"])
def test_a_deduplication_is_partitioned_like_its_readers_from_a_savepoint_on(
    node: str, seed: int, tmp_path: Path
) -> None:
    """In the state of an older version, it is partitioned by its own key."""
    text = json.dumps(graph_of(node))
    graph = as_graph(parsed(text))
    old = replace(graph, copartitions=False)
    assert len(old.levels) == len(graph.levels) + 1
    host = MemoryHost(old, PARTITIONS)
    before = rows_of(old, [host.step(raw(log_of(seed), 0, CUT))])
    savepoint = Savepoint(
        Run("shop", "one"), 0, dict.fromkeys(PARTITIONS, CUT), PARTITIONS, old.key_groups, fingerprint(old)
    )
    savepoint.write(tmp_path / "savepoint", enumerate(host.copy_states()))
    states = [state for _, state in upgraded(tmp_path / "savepoint", graph)[1]]
    assert second_half(graph, states, before, seed) == one_run(text, seed, PARTITIONS, frozenset())
    checkpoint = Checkpoint.new(tmp_path, old, PARTITIONS)
    assert not checkpoint.differences(graph)
    assert checkpoint.partitioned(graph) == old


WAYS = ("checkpoint", "savepoint")


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
    old, new = parsed(there), parsed(here)
    partitions = partitions_of(node)
    before, states = first_half(there, seed, partitions)
    named: list[str] = []
    if way == "checkpoint":
        is_expected = change.is_place
        is_taken = not Checkpoint.new(tmp_path, as_graph(old), partitions).differences(as_graph(new))
    else:
        is_expected = change.taken is None or node in change.taken
        savepoint = Savepoint(
            Run("shop", "one"),
            0,
            dict.fromkeys(partitions, CUT),
            partitions,
            old.key_groups,
            fingerprint(as_graph(old)),
        )
        savepoint.write(tmp_path / "savepoint", enumerate(states))
        try:
            states = [state for _, state in upgraded(tmp_path / "savepoint", as_graph(new))[1]]
            is_taken = True
        except CheckpointError as refusal:
            is_taken = False
            named = str(refusal).splitlines()[1:-1]
    assert is_taken == is_expected
    assert is_taken or way == "checkpoint" or all(" there, " in line for line in named), named
    if not is_taken:
        states = first_half(there, seed, partitions)[1]
        assert second_half(old, states, before, seed) == one_run(there, seed, partitions, frozenset())
        return
    found = second_half(new, states, before, seed, change.hidden)
    expected = one_run(here, seed, partitions, change.hidden)
    if change.begins:
        expected = from_the_cut_on(one_run(there, seed, partitions, frozenset()), expected)
    assert found == expected
