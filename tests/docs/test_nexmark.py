"""Each query of examples/nexmark gives the rows that DuckDB finds by its SQL in the whole logs."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.docs.nexmark import EXAMPLES, SQL, answer, rows_of
from tests.docs.pages import ROOT

from windrow.cli import main
from windrow.tools.generate import NexmarkSpec, write_log

QUERIES = sorted((file.stem for file in EXAMPLES.glob("q*.yaml")), key=lambda name: int(name[1:]))

SMALL = NexmarkSpec(events=3000, start=1_767_311_920_000_000, duration=150_000_000, partitions=2)
"""Twenty events a second from 2026-01-01 23:58:40 on; an auction is open for 83 seconds on average."""
LARGE = NexmarkSpec(events=100_000, start=1_767_293_000_000_000, duration=2_000_000_000, partitions=3, seed=2)
"""From 18:43:20 on."""


def write_logs(spec: NexmarkSpec, folder: Path) -> Path:
    """Write the logs of the queries into data/nexmark."""
    write_log(spec, folder / "data" / "nexmark")
    for file in (folder / "data" / "nexmark" / "bids").iterdir():
        lines = file.read_text().splitlines()
        file.write_text("".join(f"{one}\n" for at, line in enumerate(lines) for one in (line, *equals(at, line))))
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def equals(at: int, line: str) -> list[str]:
    """Of each seventh bid, return one of the same price a millisecond later: there are ties for the greatest price."""
    if at % 7:
        return []
    bid = json.loads(line)
    later = datetime.fromisoformat(bid["dateTime"]) + timedelta(milliseconds=1)
    return [json.dumps({**bid, "bidder": bid["bidder"] + 1_000_000, "dateTime": later.isoformat()})]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_logs(SMALL, tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_logs(LARGE, tmp_path_factory.mktemp("large"))


def run(query: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> dict[str, int]:
    """Run a query from the beginning; return the counts of its summary."""
    monkeypatch.chdir(folder)
    words = ["run", str(EXAMPLES / f"{query}.yaml"), "--until-end", "--host", "memory", "--fresh", "--json", *options]
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == 0, ran.output
    counts: dict[str, int] = json.loads(ran.stdout)
    return counts


def check(query: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    summary = run(query, folder, monkeypatch, *options)
    assert (summary["expired"], summary["dead"]) == (0, 0)
    columns, expected = answer(query, folder / "data" / "nexmark")
    assert expected, "a query without rows shows nothing"
    assert sorted(rows_of(query, Path("nexmark.db"), columns), key=repr_of) == sorted(expected, key=repr_of)


def repr_of(row: tuple[object, ...]) -> str:
    return repr([float(value) if isinstance(value, int) else value for value in row])


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_duckdb_finds(query: str, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(query, small, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("step", [1_000_000, 7_001])
@pytest.mark.parametrize("query", QUERIES)
def test_it_does_in_steps_of_any_size(query: str, step: int, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(query, large, monkeypatch, "--max-records", str(step))


def test_every_query_has_its_sql() -> None:
    assert list(SQL) == [f"q{number}" for number in range(23)]


def test_the_page_links_the_queries_that_run() -> None:
    page = (EXAMPLES / "README.md").read_text()
    listed = re.findall(r"^\| (?:\[(q\d+)\]\(\1\.yaml\)|(q\d+)) \|", page, re.MULTILINE)
    assert [linked or missing for linked, missing in listed] == list(SQL)
    assert [linked for linked, _ in listed if linked] == QUERIES
