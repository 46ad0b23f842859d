"""No function that an expression may call ends a run, whatever its arguments, wherever the expression stands."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.expressions.hostile import calls, names, records

import windrow as wr

GRAPH = """
name: hostile
sources:
  all:
    source: {log: {path: log}}
    decode: {id: long, at: timestamp_micros, s: "string?", n: "long?", x: "double?", d: "decimal(18,3)?", b: "boolean?",
      t: "timestamp_micros?"}
    time: {field: at, delay: 1h}
    lateness: 1h
streams:
  derived: {from: all, derive: {v: CALL}, select: [id, v]}
  chosen: {from: all, where: CONDITION}
  windows:
    {from: all, key: [{k: TEXT}], window: {tumbling: 1h}, aggregate: {n: count(), v: "max(CALL)"}}
  rows:
    {from: all, key: id, window: {tumbling: 1h},
     aggregate: {s: max(s), n: max(n), x: max(x), d: max(d), b: bool_or(b), t: max(t)}}
  some: {from: rows, where: CONDITION}
sinks:
  to_derived: {from: derived, sink: {sqlite: {path: out.db, decimals: text, table: derived}}}
  to_chosen: {from: chosen, sink: {sqlite: {path: out.db, decimals: text, table: chosen}}}
  to_windows: {from: windows, sink: {sqlite: {path: out.db, decimals: text, table: windows}}}
  to_some: {from: some, sink: {sqlite: {path: out.db, decimals: text, table: some}}}
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "log").mkdir()
    (folder / "log/partition-0.jsonl").write_text("".join(f"{record}\n" for record in records()), "utf-8")
    return folder


def quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@pytest.mark.long
@pytest.mark.parametrize("name", names())
def test_no_function_ends_a_run_whatever_its_arguments(name: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log)
    total = sum(1 for _ in records())
    for call in calls(name):
        text = GRAPH.replace("max(CALL)", f"max({quoted(call)})").replace("CALL", f'"{quoted(call)}"')
        text = text.replace("CONDITION", f'"({quoted(call)}) IS NOT NULL"')
        text = text.replace("TEXT", f'"CAST({quoted(call)} AS VARCHAR)"')
        Path("graph.yaml").write_text(text, "utf-8")
        for file in log.glob("out.db*"):
            file.unlink()
        wr.load("graph.yaml").run("memory")
        with closing(sqlite3.connect("out.db")) as db:
            (rows,) = db.execute(
                "SELECT (SELECT count(*) FROM derived) + (SELECT count(*) FROM derived_dead)"
            ).fetchone()
        assert rows == total, call
