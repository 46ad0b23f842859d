"""Runs over a file that changes: they read its log, so that a replay needs no file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.graphs import as_graph, parse_short
from tests.runtime.runs import Runner, Scene, read
from tests.short_forms import Pipeline

from windrow.errors import InputError
from windrow.model import LogSource, SqliteSink
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings

PIPELINE = """
name: rates
source: {file: {path: FOLDER/rates.csv, key: currency, log: FOLDER/log}}
decode: {currency: string, rate: "decimal(12,6)", _deleted: boolean, _log_time: timestamp_millis}
time: {field: _log_time, delay: 0s}
key: currency
window: {global: {}}
aggregate: {readings: count(), rate: last_in_log(rate), deleted: "count() where _deleted"}
emit: {early: {count: 1}}
sink: {sqlite: {path: FOLDER/rates.db, table: rates}}
"""


def pipeline(folder: Path) -> Pipeline:
    return parse_short(PIPELINE.replace("FOLDER", str(folder)), "rates.yaml")


def write(folder: Path, **rates: str) -> None:
    """Replace the file, as who writes one should."""
    draft = folder / "draft"
    draft.write_text("".join(["currency,rate\n", *(f"{currency},{rate}\n" for currency, rate in rates.items())]))
    draft.replace(folder / "rates.csv")


def in_memory(given: Pipeline, folder: Path, *, fresh: bool = False) -> None:
    launch(
        as_graph(given),
        RunSettings(folder / "checkpoint", "memory", until_end=True, fresh=fresh),
        lambda _: None,
        lambda _: None,
    )


def rows(folder: Path, table: str = "rates") -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "rates.db") as database:
        return database.execute(f"SELECT currency, readings, rate, deleted FROM {table} ORDER BY 1").fetchall()


def recorded(folder: Path) -> Sequence[tuple[str, str, bool]]:
    lines = (folder / "log" / "partition-0.jsonl").read_text().splitlines()
    return [(one["currency"], one["rate"], one["_deleted"]) for one in map(json.loads, lines)]


FIRST = [("EUR", "1.17", False), ("USD", "1", False)]
THEN = [*FIRST, ("USD", "1", True), ("EUR", "1.18", False), ("GBP", "1.3", False)]
RESULT = [("EUR", 2, 1.18, 0), ("GBP", 1, 1.3, 0), ("USD", 2, 1, 1)]


def test_a_run_reads_what_has_changed_since_the_last(tmp_path: Path) -> None:
    given = pipeline(tmp_path)
    write(tmp_path, EUR="1.17", USD="1")
    in_memory(given, tmp_path)
    assert recorded(tmp_path) == FIRST
    write(tmp_path, GBP="1.3", EUR="1.18")
    in_memory(given, tmp_path, fresh=True)
    assert sorted(recorded(tmp_path)) == sorted(THEN)
    assert rows(tmp_path) == RESULT
    in_memory(given, tmp_path, fresh=True)
    assert sorted(recorded(tmp_path)) == sorted(THEN)

    (tmp_path / "rates.csv").unlink()
    with pytest.raises(InputError, match=r"cannot read the file .*rates\.csv"):
        in_memory(given, tmp_path, fresh=True)
    again = SqliteSink(str(tmp_path / "rates.db"), "again")
    in_memory(replace(given, name="again", source=LogSource(str(tmp_path / "log")), sink=again), tmp_path)
    assert rows(tmp_path, "again") == rows(tmp_path) == RESULT


@pytest.mark.service
def test_a_live_run_reads_the_file_again_when_it_changes(tmp_path: Path, runner: Runner) -> None:
    given = pipeline(tmp_path)
    write(tmp_path, EUR="1.17", USD="1")
    warnings: list[str] = []

    def mend(warning: str) -> None:
        warnings.append(warning)
        write(tmp_path, GBP="1.3", EUR="1.18", USD="1")

    def scene() -> Scene:
        yield read(2)
        write(tmp_path, GBP="1.3", EUR="1.18")
        yield read(5)
        write(tmp_path, GBP="1.3", EUR="1.18", USD="1,1")
        yield read(6)

    assert runner.live(given, scene(), on_warning=mend) == "asked"
    problem = "expected 2 values, one for each name in the header, not 3"
    assert warnings == [f"{tmp_path / 'rates.csv'}:4: {problem}; until then, the rows stay as they were"]
    assert sorted(recorded(tmp_path)) == sorted([*THEN, ("USD", "1", False)])
    assert rows(tmp_path) == [*RESULT[:2], ("USD", 3, 1, 1)]
