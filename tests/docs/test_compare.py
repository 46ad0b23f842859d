"""The pages of docs/compare: the programs that they show in part are beside them, and write what the pages show."""

from __future__ import annotations

import json
import os
import re
import runpy
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from bench.peers.environment import NotInstalledError
from bench.same_log import ENGINES, LOG, PAGES, tables_of
from pyspark.sql import SparkSession
from tests.docs.pages import blocks
from tests.docs.sessions import matches
from tests.graphs import graph_of, parse_short
from tests.short_forms import Pipeline

from windrow.testing.transcript import read_story

PROGRAMS = {
    "beam.md": "beam.py",
    "flink.md": "flink.py",
    "kafka-streams.md": "SpendTotals.java",
    "spark.md": "spark.py",
}
SHOWN = {
    "beam": ("beam.md", 0),
    "beam, bounded": ("beam.md", 1),
    "flink": ("flink.md", 0),
    "flink, on-periodic": ("flink.md", 1),
    "kafka streams": ("kafka-streams.md", 0),
    "kafka streams, restarted": ("kafka-streams.md", 1),
}

LEFT_OUT = re.compile(r"^ *(?:#|//|--) \.\.\.\n", re.MULTILINE)
README = (PAGES / "README.md").read_text(encoding="utf-8")


def output(page: str, number: int) -> str:
    return [block.text for block in blocks("text") if block.page == PAGES / page][number]


def unindented(code: str) -> str:
    return "\n".join(line.strip() for line in code.strip().splitlines())


def micros(event_time: int | str) -> int:
    return event_time if isinstance(event_time, int) else int(datetime.fromisoformat(event_time).timestamp() * 1e6)


def plain(value: bytes | str) -> tuple[str, int, str]:
    record = json.loads(value, parse_float=Decimal)
    return record["user_id"], micros(record["event_time"]), str(record["amount"])


def test_the_story_has_the_log_and_the_pipeline_of_the_page() -> None:
    story = read_story(PAGES / "late-records.yaml")
    lines = LOG.read_text(encoding="utf-8").splitlines()
    assert list(map(plain, story.log[0])) == list(map(plain, lines))
    shown = re.search(r'^```yaml title="spend.yaml"\n(.*?)^```$', README, re.MULTILINE | re.DOTALL)
    assert shown is not None
    pipeline = parse_short(shown[1], "spend.yaml")
    told = graph_of(story.pipeline, Pipeline)
    for part in ("time", "key", "window", "aggregates", "emit"):
        assert getattr(pipeline, part) == getattr(told, part), part


def test_the_page_shows_the_log() -> None:
    rows = re.findall(r'^\| (\d+) \| (\w+) \| ([\d:]+) \| "?([\d.,]+)"? \|', README, re.MULTILINE)
    records = map(plain, LOG.read_text(encoding="utf-8").splitlines())
    assert rows == [
        (str(offset), user, f"{datetime.fromtimestamp(time / 1e6, UTC):%H:%M:%S}", amount)
        for offset, (user, time, amount) in enumerate(records)
    ]


@pytest.mark.parametrize(("page", "program"), PROGRAMS.items())
def test_a_page_shows_parts_of_its_program(page: str, program: str) -> None:
    (shown,) = (block.text for block in blocks("py", "java", "sql") if block.page == PAGES / page)
    left = unindented((PAGES / program).read_text(encoding="utf-8"))
    for part in LEFT_OUT.split(shown):
        _, found, left = left.partition(unindented(part))
        assert found, f"{program} has this not, or not in this place:\n{part}"


@pytest.mark.parametrize(("files", "number"), [("14", 0), ("1", 1)])
def test_spark_writes_what_its_page_shows(
    files: str, number: int, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    for offset, line in enumerate(LOG.read_text(encoding="utf-8").splitlines(keepends=True)):
        file = log / f"{offset:02}.jsonl"
        file.write_text(line, encoding="utf-8")
        os.utime(file, (offset, offset))  # the order in which Spark reads them
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        runpy.run_path(str(PAGES / "spark.py"))["main"](str(log), str(tmp_path / "spend.db"), files)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or "")
    assert matches(output("spark.md", number), tables_of(tmp_path / "spend.db") + capsys.readouterr().out)


@pytest.mark.long
@pytest.mark.service
@pytest.mark.parametrize(("engine", "shown"), SHOWN.items())
def test_another_engine_writes_what_its_page_shows(engine: str, shown: tuple[str, int]) -> None:
    try:
        given = ENGINES[engine]()
    except NotInstalledError as exc:
        pytest.skip(str(exc))
    assert matches(output(*shown), given)
