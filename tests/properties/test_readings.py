"""Tables in files whose rows have the time of reading: lookups are the oracle's in every cut of log and readings."""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.pipelines import MINUTE, raw
from tests.examples import examples
from tests.properties.graph_oracle import FOREVER, GraphOracle, Values
from tests.properties.test_graphs import SOURCE, TICK, Case, Run
from tests.properties.test_tables import changelog, table_of

from windrow.connectors.file.source import FollowedFile
from windrow.engine.schema import RAW
from windrow.model import (
    LOG_TIME,
    MAX_PARTITIONS,
    Aggregate,
    BooleanType,
    Count,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    FileSource,
    Graph,
    LongType,
    LookupNode,
    Node,
    SelectNode,
    SinkNode,
    SourceNode,
    SqliteSink,
    StringType,
    Sum,
    TableNode,
    TimestampType,
    Tumbling,
    WindowNode,
)
from windrow.runtime.memory import MemoryHost

Rows = dict[str, int]
DECODE = Decode(
    (
        Field("u", StringType()),
        Field("w", LongType()),
        Field("_deleted", BooleanType()),
        Field(LOG_TIME, TimestampType("millis")),
    )
)
FILE = SourceNode("file", FileSource("rates.csv", ("u",), "unused"), DECODE, EventTime(LOG_TIME, Delay(0)))
LOG = SOURCE
EXPRESSIONS = {
    "_deleted": lambda row: row["_deleted"],
    "w > 2": lambda row: row["w"] > 2,
}
FOUND = LookupNode("found", "log", "kept", ("user",), ("u",), "left")
COUNTED = WindowNode(
    "counted", "found", ("user",), Tumbling(4 * MINUTE), (Aggregate("n", Count()), Aggregate("total", Sum("w"))), Emit()
)


def log_of(readings: Sequence[tuple[int, Rows, int | None]]) -> list[bytes]:
    """Return the log of a file that had some rows at some minutes; a crash leaves some bytes of a reading."""
    with tempfile.TemporaryDirectory() as folder:
        file, log, now = Path(folder) / "rates.csv", Path(folder) / "log", 0
        source = FileSource(str(file), ("u",), str(log))
        for minute, rows, torn in readings:
            now = minute * 60_000
            with file.open("w", newline="") as text:
                csv.writer(text).writerows([("u", "w"), *rows.items()])
            before = path.stat().st_size if (path := log / "partition-0.jsonl").exists() else 0
            FollowedFile(source, DECODE, lambda: now).update()  # noqa: B023 - it is called here
            if torn is not None:
                with path.open("r+b") as lines:
                    lines.truncate(min(path.stat().st_size, before + torn))
        FollowedFile(source, DECODE, lambda: now).update()
        return path.read_bytes().splitlines(keepends=False)


def record_of(line: bytes) -> tuple[int, Values]:
    content = json.loads(line)
    time = content[LOG_TIME] * 1_000
    return time, {"u": content["u"], "w": int(content["w"]), "_deleted": content["_deleted"], "line": line}


@dataclass(frozen=True)
class Readings(Case):
    """A graph over a log and a file."""


class FileRun(Run):
    """A run whose records of the file are the lines of its log."""

    def step(self, records: list[tuple[int, int, Values]]) -> None:
        tables = [RAW.empty_table()]
        for partition in self.partitions:
            rows = [(time, row) for at, time, row in records if at == partition]
            values = [row["line"] if "line" in row else json.dumps({**row, "t": time}).encode() for time, row in rows]
            if values:
                tables.append(raw(partition, self.offsets[partition], *values))
            self.offsets[partition] += len(values)
        self._take(self.host.step(pa.concat_tables(tables)))


class KilledRun(FileRun):
    """A run that is killed after each of its steps, so also in the middle of a reading, and resumes by its states."""

    def step(self, records: list[tuple[int, int, Values]]) -> None:
        killed, self.host = self.host, MemoryHost(self.graph, self.partitions)
        self.host.begin(killed.copy_states())
        super().step(records)


@st.composite
def cases(draw: st.DrawFn, *, ticks: bool = False) -> Readings:
    """A graph that looks records up in a file, which has been read some times, and where steps end."""
    minutes = draw(st.lists(st.integers(0, 40), min_size=1, max_size=4, unique=True).map(sorted))
    tables = st.dictionaries(st.sampled_from("ABC"), st.integers(1, 4))
    torn = st.one_of(st.none(), st.integers(0, 200))
    lines = log_of([(minute, draw(tables), draw(torn)) for minute in minutes])
    if draw(st.booleans()):
        # as logs were written before readings had an end
        lines = [re.sub(rb'"_more": (true|false), ', b"", line) for line in lines]
    last = len(lines) if draw(st.booleans()) else max(0, len(lines) - draw(st.integers(0, 3)))
    is_first = draw(st.booleans())
    sources = [FILE, LOG] if is_first else [LOG, FILE]
    file, log = (MAX_PARTITIONS, 0)[:: -1 if is_first else 1]
    if ticks:
        sources = [replace(one, time=replace(one.time, idle=2 * TICK)) for one in sources]
    delay = draw(st.sampled_from([0, 0, 3])) * MINUTE
    sources = [
        replace(one, time=replace(one.time, watermark=Delay(delay))) if one.name == "file" else one for one in sources
    ]
    chosen: list[Node] = [SelectNode("some", ("file",), "w > 2")] if draw(st.booleans()) else []
    kept = TableNode("kept", chosen[0].name if chosen else "file", ("u",), "_deleted")
    revise = draw(st.sampled_from([0, 5, 30])) * MINUTE
    found = replace(FOUND, broadcast=draw(st.booleans()), how=draw(st.sampled_from(["left", "inner"])), revise=revise)
    results: list[Node] = [found, COUNTED]
    if draw(st.booleans()):
        results = [replace(found, as_of="order", revise=None)]
    sinks = [SinkNode(f"to {one.name}", one.name, SqliteSink("unused.db", one.name)) for one in results]
    graph = Graph("graph", (*sources, *chosen, kept, *results, *sinks), 2)
    partitions = sorted([file, log, log + 1])
    records: list[tuple[int, int, Values]] = []
    rows = [record_of(line) for line in lines[:last]]
    for number in range(draw(st.integers(0, 30))):
        minute = max(0, number + draw(st.integers(-6, 3)))
        values = {"id": str(number), "user": draw(st.sampled_from("ABCD")), "v": 1}
        records.append((log + draw(st.integers(0, 1)), minute * MINUTE, values))
    for time, values in reversed(rows):
        # anywhere among the others, but in their own order
        most = next((at for at, one in enumerate(records) if one[0] == file), len(records))
        records.insert(draw(st.integers(0, most)), (file, time, values))
    ends = st.lists(st.integers(0, len(records)), max_size=6).map(sorted)
    return Readings(graph, records, tuple(partitions), (draw(ends), draw(ends)), ticks=ticks)


def compare(case: Readings, run: Run, floors: dict[int, list[tuple[int, int]]]) -> None:
    oracle = GraphOracle(case.graph, case.log, EXPRESSIONS, floors)
    for sink in case.graph.sinks:
        found = table_of(run, sink)
        if sink.input == "counted":
            expected = oracle.table("counted")
            assert {(key[0], *key[2:]): (row["n"], row["total"]) for key, row in found.items()} == {
                (_time(start), *by): (row["n"], row["total"]) for (start, _, by), row in expected.items()
            }
            continue
        names = ("id", "user", "v", "w")
        rows = Counter(tuple(row.values[name] for name in names) for row in oracle.rows(sink.input, FOREVER))
        assert Counter(tuple(row[name] for name in names) for row in found.values()) == rows


def _time(micros: int) -> Any:  # noqa: ANN401 - a time as Arrow gives it
    return pa.scalar(micros, pa.timestamp("us", "UTC")).as_py()


@examples(40)
@given(cases())
def test_lookups_in_a_file_are_the_oracles_in_every_cut(case: Readings) -> None:
    runs = [FileRun(case, cuts) for cuts in case.cuts]
    for run in runs:
        run.end()
        compare(case, run, {})
    for sink in case.graph.sinks:
        assert changelog(runs[0], sink) == changelog(runs[1], sink)


@examples(8)
@given(cases())
def test_a_run_that_is_killed_within_a_reading_finds_the_same(case: Readings) -> None:
    whole = FileRun(case, [])
    each = KilledRun(case, list(range(1, len(case.records))))
    for run in (whole, each):
        run.end()
    compare(case, each, {})
    for sink in case.graph.sinks:
        assert changelog(whole, sink) == changelog(each, sink)


@examples(15)
@given(cases(ticks=True))
def test_a_replay_finds_what_a_live_run_has_found(case: Readings) -> None:
    live = FileRun(case, case.cuts[0])
    live.end()
    replay = FileRun(replace(case, ticks=False), case.cuts[1], live.bounds)
    replay.end()
    floors: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for partition, offset, low in live.bounds.rows:
        floors[partition].append((offset, low))
    for run in (live, replay):
        compare(case, run, floors)
