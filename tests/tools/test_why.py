"""Why a row is what it is: verdicts are those of the memory host, and the records make the row of a real run."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.stores import Store
from tests.engine.pipelines import MAIN, MINUTE, main
from tests.examples import examples
from tests.graphs import Runnable, as_graph
from tests.runtime.conftest import MakeLog
from tests.runtime.runs import Runner
from tests.runtime.spend import events, spend
from tests.short_forms import Pipeline, RulesPipeline

from windrow.connectors.database import Condition
from windrow.connectors.open_sinks import open_database, open_sinks
from windrow.connectors.open_sources import open_sources
from windrow.connectors.tables import layout, plain_rows
from windrow.engine.columns import to_micros
from windrow.engine.operators.base import Judged
from windrow.engine.probe import NodeStep, NoProbe
from windrow.engine.schema import END, OFFSET, PARTITION, WINDOW
from windrow.engine.windows import window_bounds
from windrow.errors import InputError, StoppedError
from windrow.expressions import sink_spec
from windrow.model import (
    Calendar,
    DeduplicateNode,
    Emit,
    Global,
    Graph,
    Hopping,
    LogSource,
    Recent,
    Records,
    Rule,
    RuleSet,
    SampleNode,
    SelectNode,
    Session,
    SinkNode,
    SourceNode,
    SqliteSink,
    TableNode,
    WindowNode,
)
from windrow.runtime.memory import MemoryHost, MemoryRun
from windrow.tools.why.explain import Explanation, explain_row
from windrow.tools.why.row_replay import ExplainedRecord

WINDOWS = {
    "tumbling": MAIN.window,
    "hopping": Hopping(6 * MINUTE, 2 * MINUTE),
    "calendar": Calendar(1, "hour", "Asia/Kathmandu"),
    "session": Session(3 * MINUTE),
    "global": Global(),
}
EMITS = {
    "late each": Emit(lateness=10 * MINUTE),
    "no lateness": Emit(lateness=0),
    "late batch": Emit(lateness=10 * MINUTE, late="batch"),
    "early": Emit(lateness=4 * MINUTE, early=Records(2)),
}
Log = list[list[tuple[str, int]]]
logs: st.SearchStrategy[Log] = st.lists(
    st.lists(st.tuples(st.sampled_from(["ann", "bob", "zoë"]), st.integers(0, 40)), max_size=14),
    min_size=1,
    max_size=3,
)


def write(folder: Path, log: Log) -> LogSource:
    """Write a log: of each user the minutes; amounts tell records apart, but for every third, which has a copy."""
    (folder / "log").mkdir()
    for partition, records in enumerate(log):
        lines = []
        for number, (user, minute) in enumerate(records):
            line = json.dumps({"user": user, "t": minute * MINUTE, "amount": number + 1})
            lines += [line, line] if number % 3 == 2 else [line]
            if number % 5 == 4:
                lines.append(json.dumps({"user": user, "t": "soon", "amount": 1}))
        (folder / "log" / f"partition-{partition}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return LogSource(str(folder / "log"))


def ran(pipeline: Runnable, max_records: int | None = None) -> None:
    sink = open_sinks(as_graph(pipeline))
    MemoryRun(as_graph(pipeline), sink, max_records).run(lambda _: None)
    sink.close()


def rows(pipeline: Runnable, part: int = 0) -> list[dict[str, Any]]:
    """Return the rows of the only table, or one beside it."""
    graph = as_graph(pipeline)
    (sink,) = graph.sinks
    table = layout(sink_spec(graph, sink)).own[part]
    with open_database(sink.sink).snapshot() as snapshot:
        tables = list(snapshot.rows(table, table.order))
    return [dict(zip(table.columns, row, strict=True)) for one in tables for row in plain_rows(one)]


def conditions(pipeline: Runnable, row: dict[str, Any]) -> list[Condition]:
    """Return conditions that a row of the only table alone meets."""
    graph = as_graph(pipeline)
    (sink,) = graph.sinks
    table = layout(sink_spec(graph, sink)).result
    found = []
    for name in table.key:
        type_ = table.schema.field(name).type
        value = pa.array([row[name]]).cast(type_)[0]
        found.append(Condition(name, "=", value.value if pa.types.is_timestamp(type_) else value.as_py()))
    return found


def explained(pipeline: Runnable, row: dict[str, Any], folder: Path) -> Explanation:
    (sink,) = as_graph(pipeline).sinks
    return explain_row(as_graph(pipeline), sink.name, conditions(pipeline, row), checkpoint=folder / "none")


def judged(pipeline: Runnable) -> dict[tuple[int, int, int | None, int | None], str]:
    """Return the verdicts of the memory host in one step, by place and window (None where it has no bounds)."""
    graph = as_graph(pipeline)
    node = next(one for one in graph.computed if isinstance(one, WindowNode))
    found: dict[tuple[int, int, int | None, int | None], str] = {}

    class Verdicts(NoProbe):
        def step(self, step: NodeStep) -> None:
            if step.node == node.name:
                see(step.judged)

    def see(steps: Sequence[Judged]) -> None:
        for one in steps:
            windows: Sequence[tuple[int | None, int | None]] = [(None, None)] * one.records.num_rows
            if WINDOW in one.records.column_names and not isinstance(node.window, Session | Global):
                bounds = window_bounds(node.window, to_micros(one.records.column(WINDOW)))
                windows = list(zip(bounds.starts.tolist(), to_micros(one.records.column(END)).tolist(), strict=True))
            places = zip(*(to_micros(one.records.column(name)).tolist() for name in (PARTITION, OFFSET)), strict=True)
            for row, (place, window) in enumerate(zip(places, windows, strict=True)):
                verdict = "expired" if one.expired[row] else "on_time" if one.on_time[row] else "late"
                found[(*place, *window)] = verdict

    source = open_sources(as_graph(pipeline))
    host = MemoryHost(as_graph(pipeline), source.partitions(), probe=Verdicts)
    batches = list(source.read_all())
    if batches:
        host.step(pa.Table.from_batches(batches))
        host.end()
    return found


def in_row(found: Explanation) -> list[ExplainedRecord]:
    return [one for one in found.records if one.verdict in {"on_time", "late", "taken"}]


def total(records: Sequence[ExplainedRecord]) -> Decimal:
    return sum((Decimal(one.values["amount"]) for one in records), Decimal(0))


def deduplicated(pipeline: Pipeline) -> Graph:
    window = WindowNode("spent", "paid", pipeline.key, pipeline.window, pipeline.aggregates, pipeline.emit)
    return Graph(
        "user-spend",
        (
            SourceNode("payments", pipeline.source, pipeline.decode, pipeline.time, lateness=15 * MINUTE),
            DeduplicateNode("unique", "payments", ("user", "amount"), 30 * MINUTE),
            SelectNode("paid", ("unique",), "amount > 1"),
            window,
            SinkNode("out", "spent", pipeline.sink),
        ),
        pipeline.key_groups,
    )


@dataclass(frozen=True)
class Case:
    """A log, a way to emit, records in a step, whether there is a key, and duplicates are left out."""

    log: Log
    emit: str
    size: int | None
    has_key: bool
    is_unique: bool


cases = st.builds(Case, logs, st.sampled_from(sorted(EMITS)), st.sampled_from([None, 3]), st.booleans(), st.booleans())


@pytest.mark.parametrize("window", WINDOWS)
@examples(8)
@given(cases)
def test_the_records_make_the_row(window: str, case: Case) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        pipeline: Runnable = main(
            source=write(folder, case.log),
            sink=SqliteSink(str(folder / "out.db"), "spend"),
            window=WINDOWS[window],
            emit=EMITS[case.emit] if window != "global" else Emit(early=Records(3)),
            key=("user",) if case.has_key else (),
        )
        assert isinstance(pipeline, Pipeline)
        pipeline = deduplicated(pipeline) if case.is_unique else pipeline
        ran(pipeline, case.size)
        verdicts = {} if case.is_unique else judged(pipeline)
        late = Counter((one["partition"], one["offset"], one["window_start"]) for one in rows(pipeline, 2))
        seen: Counter[tuple[Any, ...]] = Counter()
        # some of them: each reads the whole log
        for row in rows(pipeline)[::3]:
            found = explained(pipeline, row, folder)
            assert found.differences == ()
            assert found.row == row
            assert found.replayed is not None
            # where late records of a step make one revision, their number depends on the steps
            same = row.keys() - ({"revision", "pane"} if case.emit == "late batch" else set())
            assert {name: found.replayed[name] for name in same} == {name: row[name] for name in same}
            assert len(in_row(found)) == found.counted == row["events"]
            assert total(in_row(found)) == Decimal(row["total"])
            assert found.revisions[-1].after is not None
            assert found.revisions[-1].after["total"] == row["total"]
            assert found.window is not None
            for one in found.records:
                assert isinstance(one.partition, int)
                bounds = found.window if window in {"tumbling", "hopping", "calendar"} else (None, None)
                whole = (one.partition, one.offset, None, None)
                if one.verdict != "duplicate" and verdicts:
                    assert one.verdict == verdicts.get((one.partition, one.offset, *bounds), verdicts.get(whole))
                if one.verdict == "expired" and window in {"tumbling", "hopping", "calendar"}:
                    seen[one.partition, one.offset, row["window_start"]] += 1
                if one.watermark is not None and one.clock is not None:
                    assert one.clock - one.watermark == MINUTE
        # what expires before a deduplication has no window yet
        assert case.is_unique or seen <= late


@examples(8)
@given(logs)
def test_a_row_of_a_table_is_explained(log: Log) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        plain = main(source=write(folder, log), sink=SqliteSink(str(folder / "out.db"), "last"))
        graph = Graph(
            "last",
            (
                SourceNode("payments", plain.source, plain.decode, plain.time, lateness=15 * MINUTE),
                TableNode("last", "payments", ("user",)),
                SinkNode("out", "last", plain.sink),
            ),
            2,
        )
        ran(graph)
        for row in rows(graph):
            found = explained(graph, row, folder)
            assert found.differences == ()
            assert found.window is None
            assert set(found.counts) <= {"taken", "expired"}
            last = [one for one in found.records if one.values["amount"] == row["amount"]]
            assert last


def pipeline_of(folder: Path, *lines: str) -> Pipeline:
    (folder / "log").mkdir(exist_ok=True)
    (folder / "log" / "partition-0.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return main(source=LogSource(str(folder / "log")), sink=SqliteSink(str(folder / "out.db"), "spend"))


def line(user: str, minute: float, amount: str = "1") -> str:
    return json.dumps({"user": user, "t": round(minute * MINUTE), "amount": amount})


def ask(pipeline: Runnable, folder: Path, *where: Condition) -> Explanation:
    (sink,) = as_graph(pipeline).sinks
    return explain_row(as_graph(pipeline), sink.name, where, checkpoint=folder / "none")


USER = Condition("user", "=", "ann")
START = Condition("window_start", "=", 0)


def test_late_expired_and_dead_are_there(tmp_path: Path) -> None:
    pipeline = pipeline_of(
        tmp_path, line("ann", 1), line("bob", 9), line("ann", 2), line("ann", 3, "?"), line("bob", 30), line("ann", 4)
    )
    ran(pipeline)
    found = ask(pipeline, tmp_path, USER, START)
    assert [(one.offset, one.verdict, one.watermark, one.clock) for one in found.records] == [
        (0, "on_time", None, None),
        (2, "late", 8 * MINUTE, 9 * MINUTE),
        (5, "expired", 29 * MINUTE, 30 * MINUTE),
    ]
    assert found.counts == {"on_time": 1, "late": 1, "expired": 1}
    assert [(one.before and one.before["total"], one.after and one.after["total"]) for one in found.revisions] == [
        (None, "1.00"),
        ("1.00", "2.00"),
    ]
    assert [(one.offset, one.raw) for one in found.dead] == [(3, line("ann", 3, "?"))]
    assert found.offsets == {0: 6}
    plain = json.loads(json.dumps(found.plain()))
    assert plain["window"] == ["1970-01-01T00:00:00Z", "1970-01-01T00:05:00Z"]
    assert plain["records"][1]["clock"] == "1970-01-01T00:09:00Z"
    one = explain_row(as_graph(pipeline), "", [USER, START], checkpoint=tmp_path / "none", most=1)
    assert ([record.offset for record in one.records], one.counts) == ([0, 2], found.counts)


@pytest.mark.parametrize("kept", [0, 100])
def test_the_log_time_within_a_record_is_its_own(kept: int, tmp_path: Path) -> None:
    """Also of records that come after more than are kept for later steps."""
    texts = [line("ann", 1), line("ann", 2), line("bob", 9), line("ann", 2)]
    pipeline = pipeline_of(tmp_path, *(f'{{"_log_time": {7 + row}, {text[1:]}' for row, text in enumerate(texts)))
    ran(pipeline)
    with (
        mock.patch("windrow.tools.why.row_replay._LOG_TIMES", kept),
        mock.patch("windrow.tools.why.row_replay._LOG_TIMES_PER_RECORD", 0),
    ):
        found = ask(pipeline, tmp_path, USER, START)
    assert [(one.offset, one.log_time) for one in found.records] == [(0, 7_000), (1, 8_000), (3, 10_000)]


def test_the_dead_letter_of_a_row_that_the_next_stream_could_not_take_is_there(tmp_path: Path) -> None:
    plain = pipeline_of(tmp_path, line("ann", 1), line("bob", 2), line("cid", 9))
    condition = "CAST(replace(user, 'bob', '1') AS BIGINT) > 0"
    graph = Graph(
        "user-spend",
        (
            SourceNode("payments", plain.source, plain.decode, plain.time),
            WindowNode("spent", "payments", plain.key, plain.window, plain.aggregates, plain.emit),
            SelectNode("numbers", ("spent",), condition),
            SinkNode("out", "numbers", plain.sink),
        ),
        1,
    )
    ran(graph)
    assert {row["reason"].partition(":")[0] for row in rows(graph, 3)} == {"expression"}
    found = ask(graph, tmp_path, USER, START, Condition("window_end", "=", 5 * MINUTE))
    (dead,) = found.dead
    assert (dead.partition, dead.offset) == (None, None)
    assert dead.reason.endswith(": at window 1970-01-01T00:00:00Z to 1970-01-01T00:05:00Z, user=ann")
    assert json.loads(json.dumps(found.plain()))["dead"][0]["partition"] is None


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, line("ann", 1), line("ann", 6), line("bob", 30), line("late", 1))
    with pytest.raises(InputError, match="run the pipeline first"):
        ask(pipeline, tmp_path, USER)
    ran(pipeline)
    with pytest.raises(InputError, match=r"2 rows of 'spend' match(.|\n)*window_start=1970-01-01T00:05:00Z"):
        ask(pipeline, tmp_path, USER)
    with pytest.raises(InputError, match=r"no row has that key\. To explain a missing row, also give .*window_start"):
        ask(pipeline, tmp_path, Condition("user", "=", "eve"))
    with pytest.raises(InputError, match="the log has no record of it"):
        ask(pipeline, tmp_path, Condition("user", "=", "eve"), START)
    with pytest.raises(InputError, match=r"'spend' has no window from 1970-01-01T00:00:00\.000001Z"):
        ask(pipeline, tmp_path, USER, Condition("window_start", "=", 1))
    # why there is no row
    found = ask(pipeline, tmp_path, Condition("user", "=", "late"), START)
    assert (found.row, found.replayed, found.counts) == (None, None, {"expired": 1})


def test_another_log_is_found_out(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, line("ann", 1), line("ann", 2), line("bob", 30))
    ran(pipeline)
    pipeline_of(tmp_path, line("ann", 1), line("bob", 2), line("bob", 30))
    found = ask(pipeline, tmp_path, USER, START)
    assert found.differences == (
        "total is 2.00 in the table, but 1.00 when computed from the log",
        "events is 2 in the table, but 1 when computed from the log",
    )
    pipeline_of(tmp_path, line("bob", 1), line("bob", 2), line("bob", 30))
    found = ask(pipeline, tmp_path, USER, START)
    assert found.differences == ("the table has a row, but the log gives no row",)


def test_the_words_of_an_error_are_the_asker_s(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, line("ann", 1), line("ann", 6))
    ran(pipeline)
    with pytest.raises(InputError) as found:
        explain_row(as_graph(pipeline), "", [USER], checkpoint=tmp_path / "none", option="")
    assert "--" not in str(found.value)
    assert "window_start=1970-01-01T00:05:00Z" in str(found.value)


def test_an_explanation_that_nobody_waits_for_stops(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, line("ann", 1), line("ann", 6))
    ran(pipeline)
    with pytest.raises(StoppedError):
        explain_row(as_graph(pipeline), "", [USER, START], checkpoint=tmp_path / "none", is_stopped=lambda: True)


def test_duplicates_are_named(tmp_path: Path) -> None:
    graph = deduplicated(pipeline_of(tmp_path, line("ann", 1, "2"), line("ann", 1, "2"), line("bob", 2, "2")))
    ran(graph)
    found = ask(graph, tmp_path, USER, START)
    assert [(one.offset, one.verdict) for one in found.records] == [(0, "on_time"), (1, "duplicate")]
    assert found.differences == ()


def test_a_sample_before_a_window_counts_all_records_of_the_key(tmp_path: Path) -> None:
    unique = deduplicated(pipeline_of(tmp_path, *(line("ann", 1, f"{amount}.00") for amount in range(2, 9))))
    sample = SampleNode("unique", "payments", ("user",), 3)
    graph = unique.map_nodes(lambda node: sample if isinstance(node, DeduplicateNode) else node)
    ran(graph)
    found = ask(graph, tmp_path, USER, START)
    assert [(one.offset, one.verdict) for one in found.records] == [(2, "on_time"), (5, "on_time")]
    assert found.differences == ()


def test_alerts_are_refused(tmp_path: Path) -> None:
    plain = pipeline_of(tmp_path, line("ann", 1))
    rules = RuleSet((Rule("large", "amount > 1"),), Recent(8, 60 * MINUTE))
    pipeline = RulesPipeline(
        plain.name, plain.source, plain.decode, plain.time, plain.key, rules, plain.sink, plain.key_groups
    )
    with pytest.raises(InputError, match="rows of 'spend' cannot be explained: they are alerts, which carry"):
        explain_row(as_graph(pipeline), "", [], checkpoint=tmp_path)


@pytest.mark.usefixtures("spark")
def test_a_live_table_on_kafka_is_explained_as_far_as_it_is(make_log: MakeLog, store: Store, runner: Runner) -> None:
    log = make_log("kafka", 2)
    log.append(events(400, partitions=2))
    pipeline = spend(log.source, store.settings())
    runner.bounded(pipeline, max_records=200)
    # a second run resumes behind the end of the input, where all windows had fired
    log.append(events(700, partitions=2)[400:])
    runner.bounded(pipeline, max_records=200)
    # what no run has read yet is not in the table
    log.append(events(800, partitions=2)[700:])
    made = rows(pipeline)
    late = [row for row in made if row["pane"] == "late"]
    for row in (made[0], made[-1], *late[:2]):
        found = explain_row(as_graph(pipeline), "", conditions(pipeline, row), checkpoint=runner.checkpoint)
        assert found.differences == ()
        assert found.counted == row["events"]
        assert all(one.log_time is not None for one in found.records)
        assert found.offsets == runner.reports[-1].offsets
