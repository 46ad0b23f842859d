"""The rows of graphs are explained: the replay makes the row, and the records are those that it depends on."""

from __future__ import annotations

import json
import tempfile
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import Random
from time import process_time
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE
from tests.examples import examples
from tests.graphs import as_graph
from tests.tools.test_why import conditions, ran, rows

from windrow.authoring.pipeline_file import read_document
from windrow.connectors.database import Condition
from windrow.engine.schema import OFFSET, PARTITION, TIME, WATERMARK
from windrow.model import (
    Aggregate,
    Count,
    Decode,
    Delay,
    Derive,
    Emit,
    EventTime,
    Field,
    Graph,
    Hopping,
    JoinNode,
    LogSource,
    LongType,
    LookupNode,
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
    TableJoinNode,
    TableNode,
    TimestampType,
    Tumbling,
    ValueState,
    WindowNode,
)
from windrow.tools.why import row_lineage
from windrow.tools.why.explain import Explanation, explain_row
from windrow.tools.why.row_trace import Trace
from windrow.tools.why.target import RowTarget, TargetRow

LATENESS = 3 * MINUTE
SUMS = (Aggregate("total", Sum("v")), Aggregate("n", Count()))
AGAIN = (Aggregate("total", Sum("total")), Aggregate("n", Sum("n")))


def window(name: str, given: str, size: int, aggregates: tuple[Aggregate, ...] = SUMS, *key: str) -> WindowNode:
    # a window over rows takes every revision of them
    emit = Emit(lateness=LATENESS if given in {"left", "both"} else 0)
    return WindowNode(name, given, key or ("user",), Tumbling(size * MINUTE), aggregates, emit)


def summed(ctx: Any, record: Any) -> None:  # noqa: ANN401 - as users write them
    """Emit the sum of a key so far."""
    total = ctx.state.total.get(0) + record["v"]
    ctx.state.total.set(total)
    ctx.emit(total=total, n=1)


SUMMING = Process(summed, (ValueState("total", LongType()),), (Field("total", LongType()), Field("n", LongType())))
SECOND = (Derive("w", "v"),)
GRAPHS: dict[str, tuple[Node, ...]] = {
    "window over window": (window("fours", "left", 4), window("out", "fours", 12, AGAIN)),
    "hopping over window": (
        window("fours", "left", 4),
        replace(window("out", "fours", 12, AGAIN), window=Hopping(12 * MINUTE, 6 * MINUTE)),
    ),
    "window over hopping": (
        replace(window("sixes", "left", 6), window=Hopping(6 * MINUTE, 2 * MINUTE)),
        window("out", "sixes", 12, AGAIN),
    ),
    "re-keyed window": (window("fours", "left", 4, SUMS, "user", "shop"), window("out", "fours", 12, AGAIN, "shop")),
    "window over session": (
        replace(window("visits", "left", 4), window=Session(3 * MINUTE)),
        window("out", "visits", 12, AGAIN),
    ),
    "window over union": (SelectNode("both", ("left", "right")), window("out", "both", 6)),
    "window over inner join": (
        SelectNode("other", ("right",), None, SECOND, ("user", "w")),
        JoinNode("pairs", "left", "other", ("user",), ("user",), 2 * MINUTE, 3 * MINUTE),
        window("out", "pairs", 6, (Aggregate("total", Sum("v + w")), Aggregate("n", Count())), "shop"),
    ),
    "window over all pairs": (
        SelectNode("other", ("right",), None, SECOND, ("user", "w")),
        JoinNode("pairs", "left", "other", ("user",), ("user",), 2 * MINUTE, 3 * MINUTE),
        window("out", "pairs", 50_000_000, (Aggregate("total", Sum("v + w")), Aggregate("n", Count()))),
    ),
    "window over left join": (
        SelectNode("other", ("right",), None, SECOND, ("user", "w")),
        JoinNode("pairs", "left", "other", ("user",), ("user",), 2 * MINUTE, 3 * MINUTE, "left"),
        window("out", "pairs", 6, (Aggregate("total", Sum("v + coalesce(w, 0)")), Aggregate("n", Count()))),
    ),
    "join": (
        SelectNode("other", ("right",), None, SECOND, ("user", "w")),
        JoinNode("pairs", "left", "other", ("user",), ("user",), 2 * MINUTE, 3 * MINUTE, "full"),
        SelectNode("out", ("pairs",), None, (Derive("total", "coalesce(v, 0) + coalesce(w, 0)"),)),
    ),
    "window over lookup": (
        SelectNode("other", ("right",), None, SECOND, ("user", "w")),
        TableNode("last", "other", ("user",)),
        LookupNode("known", "left", "last", ("user",), ("user",)),
        window("out", "known", 6, (Aggregate("total", Sum("v + w")), Aggregate("n", Count())), "shop"),
    ),
    "lookup": (
        SelectNode("other", ("right",), None, SECOND, ("user", "w")),
        TableNode("last", "other", ("user",)),
        LookupNode("known", "left", "last", ("user",), ("user",), "left", "order"),
        SelectNode("out", ("known",), None, (Derive("total", "v + coalesce(w, 0)"),)),
    ),
    "join of tables": (
        SelectNode("other", ("right",), None, SECOND, ("user", "w")),
        TableNode("first", "left", ("user",)),
        TableNode("last", "other", ("user",)),
        TableJoinNode("pairs", "first", "last", ("user",), ("user",)),
        SelectNode("out", ("pairs",), None, (Derive("total", "v + w"),)),
    ),
    "process": (ProcessNode("out", "left", ("user",), SUMMING),),
    "window over process": (ProcessNode("sums", "left", ("user",), SUMMING), window("out", "sums", 12, AGAIN)),
    "records": (SelectNode("out", ("left",), "v > 1", (Derive("total", "v"),)),),
}
EXACT = {
    "window over window", "hopping over window", "window over hopping", "re-keyed window", "window over session",
    "window over union", "window over inner join", "window over left join", "join", "window over lookup", "records",
}  # fmt: skip
ALIKE = {
    "hopping over window", "window over hopping", "re-keyed window", "window over union", "window over inner join",
    "window over all pairs", "window over lookup", "window over process",
}  # fmt: skip
"""Each is made of what two others are made of; only `make test-long` runs it."""
JUDGED = {
    "window over window": (4, 4), "hopping over window": (4, 4), "window over hopping": (6, 2),
    "re-keyed window": (4, 4), "window over union": (6, 6),
}  # fmt: skip
"""Size and slide of the windows that judge the records, in minutes; those of a session no single record decides."""
Log = list[tuple[str, str, str, int]]
"""Of each record the source, user, shop and minute."""
logs: st.SearchStrategy[Log] = st.lists(
    st.tuples(
        st.sampled_from(["left", "right"]), st.sampled_from(["ann", "bob"]), st.sampled_from("xy"), st.integers(0, 30)
    ),
    min_size=1,
    max_size=14,
)


def written(folder: Path, log: Log, heavier: int | None = None) -> dict[str, list[int]]:
    """Write a log, of which one record has another value; return by source the numbers of its records."""
    places: dict[str, list[int]] = {"left": [], "right": []}
    lines: dict[str, list[str]] = {"left": [], "right": []}
    for number, (source, user, shop, minute) in enumerate(log):
        value = number + 1 + (1000 if number == heavier else 0)
        lines[source].append(json.dumps({"user": user, "shop": shop, "t": minute * MINUTE, "v": value}))
        places[source].append(number)
    for source, texts in lines.items():
        (folder / source).mkdir(parents=True, exist_ok=True)
        (folder / source / "partition-0.jsonl").write_text("".join(f"{text}\n" for text in texts))
    return places


def verdict(name: str, log: Log, number: int, row: tuple[int, int] | None) -> str:
    """Return the verdict on a record that is behind a row: late if it was so for one of the windows behind that."""
    if name not in JUDGED:
        return "taken"
    assert row is not None
    size, slide = JUDGED[name]
    source, *_, minute = log[number]
    before = [other[3] for other in log[:number] if other[0] == source]
    watermark = (max(before) - 1) * MINUTE if before else -1
    ends = [slide * MINUTE * (minute // slide + number) for number in range(1, size // slide + 1)]
    # a row of a window is in the window of its last microsecond
    behind = [end for end in ends if row[0] <= end - 1 < row[1] and watermark < end + LATENESS]
    return "late" if any(end <= watermark for end in behind) else "on_time"


def graph(name: str, folder: Path) -> Graph:
    fields = (
        Field("user", StringType()), Field("shop", StringType()),
        Field("t", TimestampType("micros")), Field("v", LongType()),
    )  # fmt: skip
    taken = {given for node in GRAPHS[name] for given in node.inputs}
    sources = [
        SourceNode(
            one, LogSource(str(folder / one)), Decode(fields), EventTime("t", Delay(MINUTE)), lateness=9 * MINUTE
        )
        for one in ("left", "right")
        if one in taken
    ]
    return Graph("g", (*sources, *GRAPHS[name], SinkNode("to", "out", SqliteSink(str(folder / "out.db"), "out"))), 2)


def explained(pipeline: Graph, row: dict[str, Any], folder: Path) -> Explanation:
    return explain_row(pipeline, "to", conditions(pipeline, row), checkpoint=folder / "none")


def identity(pipeline: Graph, row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple((one.column, one.value) for one in conditions(pipeline, row))


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.long if one in ALIKE else ()) for one in GRAPHS])
@examples(3)
@given(logs, st.randoms(use_true_random=False))
def test_the_records_are_those_that_the_row_depends_on(name: str, log: Log, random: Random) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        places = written(folder, log)
        pipeline = graph(name, folder)
        ran(pipeline, 5)
        there = rows(pipeline)
        if not there:
            return
        row = random.choice(there)
        found = explained(pipeline, row, folder)
        assert found.differences == ()
        assert found.row == row
        assert found.replayed is not None
        assert {one: found.replayed[one] for one in row.keys() - {"pane", "revision"}} == {
            one: row[one] for one in row.keys() - {"pane", "revision"}
        }
        listed = {
            places[str(one.partition).split("/")[0] if "/" in str(one.partition) else "left"][one.offset]: one.verdict
            for one in found.records
            if one.verdict in {"on_time", "late", "taken"}
        }
        assert len(listed) == found.counted
        if name != "window over session":
            assert listed == {number: verdict(name, log, number, found.window) for number in listed}
        matter = set()
        for number in range(len(log)):
            with tempfile.TemporaryDirectory() as other:
                written(Path(other), log, number)
                changed = graph(name, Path(other))
                ran(changed, 5)
                same = [one for one in rows(changed) if identity(changed, one) == identity(pipeline, row)]
                if [one["total"] for one in same] != [row["total"]]:
                    matter.add(number)
        assert matter <= listed.keys()
        if name in EXACT:
            assert matter == listed.keys()


def test_a_pair_is_told_from_those_whose_places_begin_alike(tmp_path: Path) -> None:
    """The pair of the left record with the right one at offset 10 is not made of that at 1."""
    # the left record has the greater watermark, so all pairs have its place
    log: Log = [*(("right", "ann", "x", 0) for _ in range(11)), ("left", "bob", "x", 2), ("left", "ann", "x", 1)]
    written(tmp_path, log)
    pipeline = graph("join", tmp_path)
    ran(pipeline)
    row = next(one for one in rows(pipeline) if one["row"].endswith("right/0/10"))
    found = explained(pipeline, row, tmp_path)
    assert [(one.partition, one.offset) for one in found.records] == [("left/0", 1), ("right/0", 10)]


OTHER_NAMES = """
name: paid
sources:
  orders: {source: {log: {path: a}}, decode: {order_id: string, t: timestamp_millis}, time: {field: t, delay: 1m}}
  payments: {source: {log: {path: b}}, decode: {id: string, t: timestamp_millis}, time: {field: t, delay: 1m}}
streams:
  once: {from: payments, deduplicate: {by: id, within: 1h}}
  paid: {from: orders, join: {with: once, by: {order_id: id}, after: 1h}}
sinks:
  out: {from: paid, sink: {sqlite: {path: a.db, table: paid}}}
"""


def test_the_key_of_a_row_filters_both_sides_of_a_join_under_their_names() -> None:
    graph = as_graph(read_document(OTHER_NAMES, "paid.yaml").pipeline)
    key = {"order_id": pa.scalar("A")}
    row = TargetRow(key, None, None, None, key)
    (join,) = (node for node in graph.nodes if isinstance(node, JoinNode))
    filters = row_lineage._filters(graph, join, row)  # noqa: SLF001 - only the cost of a replay shows it
    assert filters == {"paid": key, "once": {"id": pa.scalar("A")}}


def test_a_source_with_few_records_is_listed(tmp_path: Path) -> None:
    log: Log = [*(("left", "ann", "x", 1) for _ in range(20)), ("right", "ann", "x", 2), ("right", "ann", "x", 3)]
    written(tmp_path, log)
    pipeline = graph("window over union", tmp_path)
    ran(pipeline)
    where = conditions(pipeline, rows(pipeline)[0])
    found = explain_row(pipeline, "to", where, checkpoint=tmp_path / "none", most=5)
    places = [("left/0", 0), ("left/0", 1), ("left/0", 2), ("right/0", 0), ("right/0", 1)]
    assert [(one.partition, one.offset) for one in found.records] == places
    assert found.counts_by_source == {"left": {"on_time": 20}, "right": {"on_time": 2}}
    found = explain_row(graph("window over left join", tmp_path), "to", where, checkpoint=tmp_path / "none", most=5)
    assert [(one.partition, one.offset) for one in found.records] == places
    assert all("user" not in one.values and "t" not in one.values for one in found.records)


def test_rows_that_memory_does_not_hold_go_to_a_folder(tmp_path: Path) -> None:
    pipeline = graph("join", tmp_path)
    with mock.patch("windrow.tools.why.row_trace.MEMORY", "24MB"):
        trace = Trace(pipeline, RowTarget.of(pipeline, "to").operator, tmp_path / "rows")
    number = 250_000
    with closing(trace):
        stage = trace.stages["pairs"]
        for offset in range(0, 8 * number, number):
            offsets = np.arange(offset, offset + number)
            columns = {PARTITION: np.zeros(number, dtype=np.int32), OFFSET: offsets, TIME: offsets, WATERMARK: offsets}
            trace.keep_given(stage, trace.with_ids(pa.table(columns)), [])
        assert any((tmp_path / "rows").iterdir())


def test_the_trace_of_one_key_takes_time_by_its_records(tmp_path: Path) -> None:
    """Four times as many records took sixteen times as long."""
    seconds = []
    for number in (2_000, 8_000):
        folder = tmp_path / str(number)
        written(folder, [(source, "ann", "x", 4 * at) for at in range(number) for source in ("left", "right")])
        pipeline = graph("window over all pairs", folder)
        ran(pipeline)
        began = process_time()
        found = explained(pipeline, rows(pipeline)[0], folder)
        seconds.append(process_time() - began)
        assert found.counts == {"taken": 2 * number}
    assert seconds[1] < 8 * seconds[0]


def test_a_log_that_lacks_records_is_found_out(tmp_path: Path) -> None:
    log: Log = [("left", "ann", "x", 1), ("right", "ann", "x", 2), ("left", "ann", "x", 3), ("left", "bob", "x", 30)]
    written(tmp_path, log)
    pipeline = graph("window over left join", tmp_path)
    ran(pipeline)
    row = rows(pipeline)[0]
    found = explained(pipeline, row, tmp_path)
    assert [(one.partition, one.offset) for one in found.records] == [("left/0", 0), ("left/0", 1), ("right/0", 0)]
    assert found.differences == ()
    written(tmp_path, [log[0], log[2], log[3]])
    found = explained(pipeline, row, tmp_path)
    assert any(one.startswith("total is ") for one in found.differences)


OVERLAPPING = """\
name: hops
sources:
  p:
    source: {log: {path: LOG}}
    decode: {user: string, t: timestamp, v: long}
    time: {field: t, delay: 0s}
    lateness: 1h
streams:
  hops: {from: p, key: user, window: {hopping: {size: 10m, slide: 5m}}, aggregate: {n: count()}, emit: {lateness: 20m}}
  big: {from: hops, where: n > 0, select: [user, window_start, n]}
sinks:
  to_hops: {from: hops, sink: {sqlite: {path: DB, table: hops}}}
  to_big: {from: big, sink: {sqlite: {path: DB, table: big}}}
"""


def test_a_record_is_late_for_the_windows_behind_the_row_alone(tmp_path: Path) -> None:
    """At 00:08, read when the watermark is 00:11:30, it is late for the window up to 00:10, and not for the next."""
    times = (("ann", "01:00"), ("ann", "07:00"), ("bob", "11:30"), ("ann", "08:00"), ("bob", "40:00"))
    (tmp_path / "log").mkdir()
    lines = [json.dumps({"user": user, "t": f"2026-01-01T00:{time}Z", "v": 1}) + "\n" for user, time in times]
    (tmp_path / "log" / "partition-0.jsonl").write_text("".join(lines))
    text = OVERLAPPING.replace("LOG", str(tmp_path / "log")).replace("DB", str(tmp_path / "hops.db"))
    pipeline = read_document(text, "hops.yaml").pipeline
    assert isinstance(pipeline, Graph)
    ran(pipeline)
    for table in ("hops", "big"):
        for minute, counts in (("00", {"on_time": 2, "late": 1}), ("05", {"on_time": 2})):
            start = datetime.fromisoformat(f"2026-01-01T00:{minute}:00Z")
            where = [Condition("user", "=", "ann"), Condition("window_start", "=", int(start.timestamp() * 1e6))]
            found = explain_row(pipeline, f"to_{table}", where, checkpoint=tmp_path / "none")
            assert found.counts == counts
            assert {one.window_end is None for one in found.records} == {table == "big"}


PAID = """\
name: paid
sources:
  orders:
    source: {log: {path: LOGS/orders}}
    decode: {order: string, t: timestamp}
    time: {field: t, delay: 1m}
    lateness: 1h
  payments:
    source: {log: {path: LOGS/payments}}
    decode: {order: string, t: timestamp}
    time: {field: t, delay: 1m}
    lateness: 1h
streams:
  paid: {from: orders, join: {with: payments, by: order, before: 5m, after: 15m, how: full}}
sinks:
  to: {from: paid, sink: {sqlite: {path: LOGS/paid.db, table: paid}}}
"""


def paid(folder: Path, orders: list[str], payments: list[str]) -> Graph:
    """A run of a join of orders with payments at times of a day, one of each of the same order."""
    for name, times in (("orders", orders), ("payments", payments)):
        (folder / name).mkdir()
        lines = [
            json.dumps({"_log_time": 1_767_225_600_000 + row, "order": "o", "t": f"2026-01-01T{time}Z"})
            for row, time in enumerate(times)
        ]
        (folder / name / "partition-0.jsonl").write_text("".join(f"{line}\n" for line in lines))
    pipeline = read_document(PAID.replace("LOGS", str(folder)), "paid.yaml").pipeline
    assert isinstance(pipeline, Graph)
    ran(pipeline)
    return pipeline


@pytest.mark.parametrize(
    ("orders", "payments", "row", "expected"),
    [
        (["10:00:00"], ["10:19:46"], "orders/0/0+", [("payments/0", 0, 1186, 286)]),
        (["10:00:00"], ["09:54:00"], "orders/0/0+", [("payments/0", 0, -360, 60)]),
        (["10:00:00"], ["10:19:46"], "+payments/0/0", [("orders/0", 0, -1186, 286)]),
        (["10:00:00"], ["10:16:00", "09:54:30", "10:40:00", "10:30:00"], "orders/0/0+", [
            ("payments/0", 0, 960, 60), ("payments/0", 1, -330, 30), ("payments/0", 3, 1800, 900),
        ]),
        (["10:00:00"], ["10:15:00", "10:16:00"], "orders/0/0+payments/0/0", []),
    ],
)  # fmt: skip
def test_records_too_far_away_to_be_partners_are_listed(
    orders: list[str], payments: list[str], row: str, expected: list[tuple[str, int, int, int]], tmp_path: Path
) -> None:
    pipeline = paid(tmp_path, orders, payments)
    found = explained(pipeline, next(one for one in rows(pipeline) if one["row"] == row), tmp_path)
    outside = [one for one in found.records if one.verdict == "outside"]
    spans = [((one.apart or 0) // 1_000_000, (one.beyond or 0) // 1_000_000) for one in outside]
    assert [(one.partition, one.offset, *span) for one, span in zip(outside, spans, strict=True)] == expected
    assert found.counted == len(found.records) - len(outside)
    assert not found.differences
    # of each record, also of those that an operator was given in a later step
    assert all(one.log_time == (1_767_225_600_000 + one.offset) * 1_000 for one in found.records)


PEOPLE = """\
  people:
    source: {log: {path: LOG, format: debezium}}
    decode: {id: string, team: string, n: long, at: timestamp_millis}
    time: {field: at, delay: 0s}
"""
VISITS = """\
  visits:
    source: {log: {path: VISITED}}
    decode: {visit: long, id: string, at: timestamp_millis}
    time: {field: at, delay: 0s, idle: 1m}
    lateness: 1h
"""
TABLE = "  table: {from: people, table: {key: id}}\n"
SEEN = """\
  seen: {from: visits, lookup: {table: table, by: id, revise: 1h, how: left}}
  counted: {from: seen, key: id, window: {tumbling: 10s}, aggregate: {n: sum(n), visits: count()}}
"""
JOIN = """\
  last: {from: visits, table: {key: id}}
  pairs: {from: table, join: {with: last, by: id, how: left}}
"""
TRUNCATED = {
    "table": (PEOPLE, TABLE),
    "sums": (
        PEOPLE,
        TABLE + "  sums: {from: table, key: team, window: {global: {}}, aggregate: {n: sum(n), people: count()}}\n",
    ),
    "pairs": (PEOPLE + VISITS, TABLE + JOIN),
    "counted": (PEOPLE + VISITS, TABLE + SEEN),
}


@pytest.mark.parametrize("name", TRUNCATED)
def test_rows_of_a_table_that_was_truncated_are_explained(name: str, tmp_path: Path) -> None:
    random = Random(7)
    lines: dict[str, list[dict[str, Any]]] = {"people": [], "visits": []}
    for number in range(60):
        at = 1_700_000_000_000 + number * 1000
        after = {"id": random.choice("abc"), "team": random.choice("xy"), "n": number, "at": at}
        op = "t" if number in {20, 50} else "c"
        versions = {"before": None, "after": None if op == "t" else after}
        lines["people"].append({**versions, "op": op, "ts_ms": at, "source": {"ts_ms": at}})
        lines["visits"].append({"visit": number, "id": random.choice("abc"), "at": at + 500})
    lines["people"][51:] = [line for line in lines["people"][51:] if line["after"]["id"] != "a"]
    sources, streams = TRUNCATED[name]
    sink = f"  to: {{from: {name}, sink: {{sqlite: {{path: {tmp_path}/out.db, table: {name}}}}}}}"
    text = f"name: shop\nsources:\n{sources}streams:\n{streams}sinks:\n{sink}\n"
    for place, (source, records) in zip(("LOG", "VISITED"), lines.items(), strict=True):
        (tmp_path / source).mkdir()
        (tmp_path / source / "partition-0.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in records))
        text = text.replace(place, str(tmp_path / source))
    pipeline = as_graph(read_document(text, "shop.yaml").pipeline)
    ran(pipeline, 7)
    ever = {
        json.dumps(one["id"] if name == "table" else sorted(identity(pipeline, one))): one for one in rows(pipeline, 1)
    }
    assert len(ever) >= (2 if name == "sums" else 3)
    truncations = 0
    for row in list(ever.values())[-9:]:
        found = explained(pipeline, row, tmp_path)
        assert found.differences == ()
        assert found.row is None or found.counts["taken"] > 0  # though the key is named like what joins are traced by
        truncations += found.counts.get("truncation", 0)
        if name == "table" and row["id"] == "a":
            assert found.row is None
    assert truncations == (6 if name == "table" else 0)
