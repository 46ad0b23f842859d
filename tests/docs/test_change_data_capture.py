"""The guide to changes of a database: its records give its table, and its expression for dates holds."""

from __future__ import annotations

import datetime as dt
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
from tests.docs.pages import ROOT, blocks

from windrow.authoring.checks import validate
from windrow.authoring.pipeline_file import read_document
from windrow.engine.decode.evaluation import Evaluator
from windrow.expressions import Computed, analyse
from windrow.model import Field, LongType
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings

PAGE = ROOT / "docs" / "guides" / "change-data-capture.md"


def records() -> list[object]:
    """Return the records of the guide, each of which is in several lines."""
    (text,) = (block.text for block in blocks("json") if block.page == PAGE)
    found, at = [], 0
    while at < len(text):
        record, at = json.JSONDecoder().raw_decode(text, at)
        found.append(record)
        at += 1
    return found


def test_a_date_is_a_timestamp() -> None:
    (text,) = re.findall(r"`derive: \{day: (.*)\}`", PAGE.read_text(encoding="utf-8"))
    days = Field("days", LongType())
    made = Evaluator((Computed("day", "day", analyse(text, (days,))),))
    columns, failed = made.compute(pa.table({"days": [20_454]}))
    assert (columns[0][0].as_py(), failed) == (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), {})


def test_the_records_make_the_table(tmp_path: Path) -> None:
    (text,) = (block.text for block in blocks("yaml") if block.page == PAGE)
    text = re.sub(r"source: \{kafka: .*\}\n", f"source: {{log: {{path: {tmp_path}/log, format: debezium}}}}\n", text)
    text = text.replace("shop.db", f"{tmp_path}/shop.db")
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "partition-0.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records()))
    pipeline = read_document(text, "shop.yaml").pipeline
    assert [one for one in validate(pipeline) if one.level == "error"] == []
    launch(pipeline, RunSettings(tmp_path / "run", "memory", until_end=True), lambda _: None, lambda _: None)
    (row,) = re.findall(r"^\| (1002 .*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    expected = [cell.strip() or None for cell in row.split("|")]
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        (found,) = database.execute("SELECT id, name, balance, created_at, changed, lsn FROM customer").fetchall()
    assert [None if one is None else str(one).partition(".")[0].replace("T", " ") for one in found] == expected
