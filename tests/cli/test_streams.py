"""Commands with a graph of several streams."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.docs.pages import ROOT
from tests.hosts.spend import event

from windrow.cli import main

EXAMPLE = ROOT / "examples" / "shop.yaml"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data" / "spend"
    folder.mkdir(parents=True)
    values = [event(minute, f"u{minute % 2}", f"{minute}.50") for minute in range(0, 60, 5)]
    (folder / "partition-0.jsonl").write_bytes(b"\n".join([*values, b"{}", b""]))
    text = EXAMPLE.read_text().replace('"CAST(floor(amount * 0.1) AS BIGINT)"', '"CAST(left(user_id, 1) AS BIGINT)"')
    (tmp_path / "failing.yaml").write_text(text)


def windrow(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def rows(sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect("shop.db")) as db:
        return db.execute(sql).fetchall()


def test_a_run_writes_all_tables() -> None:
    ran = windrow("run", str(EXAMPLE), "--until-end", "--host", "memory", "--json")
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert (found["events"], found["dead"], found["rejected"]) == (13, 1, 0)
    assert rows("SELECT sum(events) FROM spend_5m") == [(12,)]
    assert rows("SELECT user_id, purchases, largest FROM visits ORDER BY 1") == [("u0", 6, 5050), ("u1", 6, 5550)]
    assert rows("SELECT sum(purchases), count(*) FROM bands") == [(12, 6)]
    for table in ("spend_5m", "visits", "bands"):
        assert rows(f"SELECT count(*) FROM {table}_dead") == [(1,)]
    assert rows("SELECT DISTINCT epoch FROM windrow_epochs ORDER BY 1") == [(0,), (1,)]


def test_what_one_stream_cannot_take_is_counted() -> None:
    ran = windrow("run", "failing.yaml", "--until-end", "--host", "memory")
    assert ran.exit_code == 0, ran.output
    assert "13 events" in ran.output
    assert "13 dead letters" in ran.output
    assert rows("SELECT count(*) FROM bands_dead") == [(13,)]
    assert rows("SELECT count(*) FROM spend_5m_dead") == [(1,)]
    assert rows("SELECT sum(events) FROM spend_5m") == [(12,)]


def test_check_and_explain() -> None:
    assert windrow("check", str(EXAMPLE)).exit_code == 0
    for form in ("text", "yaml", "json", "mermaid"):
        said = windrow("explain", str(EXAMPLE), "--format", form)
        assert said.exit_code == 0
        assert "bands" in said.output
    refused = windrow("explain", str(EXAMPLE), "--format", "python")
    assert (refused.exit_code, "print it as YAML" in refused.output) == (2, True)


@pytest.mark.parametrize("command", ["replay", "diff", "promote"])
def test_commands_for_one_stream_refuse_a_graph(command: str) -> None:
    refused = windrow(command, str(EXAMPLE))
    assert refused.exit_code == 2
    assert "is a graph of named streams, which this command does not take" in refused.output
