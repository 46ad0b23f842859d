"""No function that an expression may call ends a run, whatever its arguments, wherever the expression stands."""

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.expressions.hostile import GROWING, accepted, calls, names, records

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


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Bound the memory of this process by what it has and 3 GB: threads and allocators reserve more than they use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 3 * 2**30, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.long
@pytest.mark.parametrize("name", names())
def test_no_function_ends_a_run_whatever_its_arguments(name: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log)
    for call in calls(name):
        run_with(call)


@pytest.mark.long
@pytest.mark.parametrize("text", GROWING)
@pytest.mark.usefixtures("little_memory")
def test_no_product_of_sizes_ends_a_run(text: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log)
    call = accepted(text)
    assert call is not None
    run_with(call)


def run_with(call: str) -> None:
    """Run a graph with a call in every place, and check that each record comes to a table or is a dead letter."""
    text = GRAPH.replace("max(CALL)", f"max({quoted(call)})").replace("CALL", f'"{quoted(call)}"')
    text = text.replace("CONDITION", f'"({quoted(call)}) IS NOT NULL"')
    text = text.replace("TEXT", f'"CAST({quoted(call)} AS VARCHAR)"')
    Path("graph.yaml").write_text(text, "utf-8")
    for file in Path().glob("out.db*"):
        file.unlink()
    wr.load("graph.yaml").run("memory")
    with closing(sqlite3.connect("out.db")) as db:
        (rows,) = db.execute("SELECT (SELECT count(*) FROM derived) + (SELECT count(*) FROM derived_dead)").fetchone()
    assert rows == sum(1 for _ in records()), call
