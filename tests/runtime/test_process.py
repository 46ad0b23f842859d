"""A process on the stream host: its functions reach the workers, and a crash changes no answer."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine.operators.process.test_process_distinct_urls import EXAMPLE, HOUR, Click, reference
from tests.faults.windrow_process import WindrowProcess
from tests.graphs import graph_of
from tests.runtime.runs import Runner
from tests.short_forms import Pipeline, ProcessPipeline

import windrow as wr
from windrow.errors import PipelineError, RunError
from windrow.model import Graph, When
from windrow.runtime.spark.transport import pickle_pipeline, unpickle_pipeline

CLICKS = 3000
PARTITIONS = 3


def clicks() -> list[Click]:
    chance = random.Random(20_260_101)
    return [
        (number % PARTITIONS, f"u{chance.randrange(60)}", f"/{chance.randrange(40)}", _time(number, chance))
        for number in range(CLICKS)
    ]


def _time(number: int, chance: random.Random) -> int:
    """Three days, a little out of order, a few far behind."""
    return max(0, number * 72 * HOUR // CLICKS - chance.randrange(HOUR // (1 if chance.random() < 0.1 else 6)))


def write(folder: Path, log: list[Click]) -> None:
    folder.mkdir(parents=True)
    for number in range(PARTITIONS):
        lines = [json.dumps({"user": user, "url": url, "at": at}) for part, user, url, at in log if part == number]
        (folder / f"partition-{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def assert_told(folder: Path, log: list[Click]) -> None:
    """The changelog says what the reference does, each number once, and the table is its fold."""
    with sqlite3.connect(folder / "clicks.db") as database:
        rows = database.execute("SELECT op, user, urls_24h FROM urls_24h_changes ORDER BY epoch, seq").fetchall()
        table = dict(database.execute("SELECT user, urls_24h FROM urls_24h").fetchall())
        late = database.execute("SELECT count(*) FROM urls_24h_late").fetchone()[0]
    told: dict[str, list[int]] = {}
    folded: dict[str, int] = {}
    for op, user, urls in rows:
        if op == "delete":
            assert folded.pop(user) == urls
        elif op != "update_before":
            told.setdefault(user, []).append(urls)
            folded[user] = urls
    expected = reference(log)
    assert told == expected
    assert table == folded
    assert late == len(log) - sum(map(len, expected.values())) > 0


def epochs(folder: Path) -> int:
    path = folder / "clicks.db"
    if not path.exists():
        return 0
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        try:
            return int(database.execute("SELECT count(*) FROM windrow_epochs").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


@pytest.mark.long
@pytest.mark.service
def test_the_example_gives_the_same_answer_after_a_crash(tmp_path: Path) -> None:
    log = clicks()
    write(tmp_path / "data" / "clicks", log)
    # as it is, but for its function, which is in a module beside it that no worker could import
    example = tmp_path / "distinct_urls.py"
    text = EXAMPLE.read_text()
    start, end = text.index("def visited"), text.index("pipeline = ")
    example.write_text(text[:start] + "from beside import visited\n\n" + text[end:])
    imports = "from collections.abc import Mapping\nfrom typing import Any\n\nimport windrow as wr\n\n"
    (tmp_path / "beside.py").write_text(imports + text[start:end])
    run = ["run", str(example), "--checkpoint", "checkpoint"]
    with WindrowProcess([*run, "--max-records", "200"], tmp_path) as process:
        process.wait_until(lambda: epochs(tmp_path) >= 3)
        assert not process.ended, process.errors
        process.kill()
    assert epochs(tmp_path) * 200 < CLICKS  # there is something left to do
    with WindrowProcess([*run, "--until-end"], tmp_path) as process:
        assert process.wait() == 0, process.errors
    assert_told(tmp_path, log)


def fails(ctx: wr.Context, record: Mapping[str, Any]) -> None:
    if record["n"] == 7:
        msg = "seven"
        raise ValueError(msg)
    ctx.emit(n=record["n"])


def mended(ctx: wr.Context, record: Mapping[str, Any]) -> None:
    ctx.emit(n=record["n"])


# to the checkpoint a function is its name
mended.__qualname__ = fails.__qualname__


@pytest.mark.usefixtures("spark")
def test_a_function_that_fails_ends_the_run_and_says_where(tmp_path: Path, runner: Runner) -> None:
    folder = tmp_path / "numbers"
    folder.mkdir()
    lines = [json.dumps({"k": "a", "t": number, "n": number}) + "\n" for number in range(10)]
    (folder / "partition-0.jsonl").write_text("".join(lines))
    made = (
        wr.log(folder)
        .decode(k="string", t="timestamp_millis", n="long")
        .event_time("t", delay="1s")
        .key_by("k")
        .process(fails, returns={"n": "long"})
        .to(wr.sqlite(tmp_path / "numbers.db", table="numbers"))
    )
    pipeline = graph_of(made, ProcessPipeline)
    message = "failed at partition 0, offset 7 of numbers, key k='a': ValueError: seven"
    with pytest.raises(RunError, match=message) as caught:
        runner.bounded(pipeline, max_records=4)
    assert "Traceback" not in str(caught.value)
    with sqlite3.connect(tmp_path / "numbers.db") as database:
        assert database.execute("SELECT n FROM numbers").fetchall() == [(3,)]  # the first step is there, whole
    runner.bounded(replace(pipeline, process=replace(pipeline.process, function=mended)))
    with sqlite3.connect(tmp_path / "numbers.db") as database:
        assert database.execute("SELECT n, revision FROM numbers").fetchall() == [(9, 9)]


def with_a_function() -> Graph:
    return (
        wr.log("unused")
        .decode(k="string", t="timestamp_millis")
        .event_time("t", delay="1s")
        .key_by("k")
        .window(wr.global_window())
        .aggregate(n=wr.count())
        .emit(early=wr.when(lambda pane: pane.records == 1))
        .to(wr.sqlite("unused.db", table="t"))
        .graph
    )


def test_pipelines_that_start_together_are_sent_with_their_functions() -> None:
    pipeline = with_a_function()
    with ThreadPoolExecutor(8) as threads:
        sent = set(threads.map(lambda _: pickle_pipeline(pipeline), range(400)))
    assert sent == {pickle_pipeline(pipeline)}


def test_a_worker_builds_what_it_keeps_once_whatever_functions_a_pipeline_has() -> None:
    pipeline = with_a_function()
    sent = pickle_pipeline(pipeline)
    got, again = unpickle_pipeline(sent), unpickle_pipeline(bytes(bytearray(sent)))
    assert got is again
    assert got != pipeline  # by value, as the test's module is out of a worker's reach
    assert isinstance(graph_of(got, Pipeline).emit.early, When)


def test_what_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    file = (tmp_path / "open").open("w")

    def function(ctx: wr.Context, record: Mapping[str, Any]) -> None:
        file.write(f"{ctx.key} {record}")

    pipeline = (
        wr.log("unused")
        .decode(k="string", t="timestamp_millis")
        .event_time("t", delay="1s")
        .key_by("k")
        .process(function, returns={"n": "long"})
        .to(wr.sqlite("unused.db", table="t"))
        .graph
    )
    with file, pytest.raises(PipelineError, match="cannot be sent to Spark's workers"):
        pickle_pipeline(pipeline)
