"""Commands with a graph of several streams."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.docs.pages import ROOT
from tests.runtime.spend import event

from windrow.cli import main

EXAMPLE = ROOT / "examples" / "shop.yaml"
CHAIN = ROOT / "examples" / "shop_hours.yaml"


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
    for form in ("text", "yaml", "json", "mermaid", "python"):
        said = windrow("explain", str(EXAMPLE), "--format", form)
        assert said.exit_code == 0
        assert "bands" in said.output


TABLES = ("minutes", "hours", "large", "cents", "copies")


def test_replay_diff_and_promote() -> None:
    ran = windrow("run", str(CHAIN), "--until-end", "--host", "memory")
    assert ran.exit_code == 0, ran.output
    assert windrow("diff", str(CHAIN)).exit_code == 2
    replayed = windrow("replay", str(CHAIN), "--host", "memory", "--json")
    assert replayed.exit_code == 0, replayed.output
    assert json.loads(replayed.stdout)["tables"] == {table: f"{table}_shadow" for table in TABLES}
    for table in TABLES:
        assert rows(f"SELECT * FROM {table}_shadow") == rows(f"SELECT * FROM {table}")
    same = windrow("diff", str(CHAIN), "--json")
    assert same.exit_code == 0, same.output
    assert len(json.loads(same.stdout)["tables"]) == len(TABLES)
    with closing(sqlite3.connect("shop.db")) as db, db:
        db.execute("UPDATE hours_shadow SET busy = 99 WHERE user_id = 'u1'")
        db.execute('DELETE FROM cents_shadow WHERE "offset" = 0')
    differs = windrow("diff", str(CHAIN))
    assert differs.exit_code == 1
    assert "busy 6 and 99" in differs.output
    assert "spend 0 0: only in cents: user_id u0, cents 50" in differs.output
    promoted = windrow("promote", str(CHAIN), "--json")
    assert promoted.exit_code == 0, promoted.output
    assert [one["table"] for one in json.loads(promoted.stdout)["tables"]] == list(TABLES)
    assert rows("SELECT busy FROM hours WHERE user_id = 'u1'") == [(99,)]
    assert windrow("promote", str(CHAIN)).exit_code == 0
    assert rows("SELECT busy FROM hours WHERE user_id = 'u1'") == [(6,)]


def test_promote_is_all_or_nothing() -> None:
    assert windrow("run", str(CHAIN), "--until-end", "--host", "memory").exit_code == 0
    assert windrow("replay", str(CHAIN), "--host", "memory").exit_code == 0
    with closing(sqlite3.connect("shop.db")) as db, db:
        db.execute("UPDATE windrow_replays SET finished = 0 WHERE table_name = 'large_shadow'")
        db.execute("UPDATE minutes_shadow SET events = 7")
    refused = windrow("promote", str(CHAIN))
    assert refused.exit_code == 1, refused.output
    assert "large_shadow" in refused.output
    assert rows("SELECT DISTINCT events FROM minutes") == [(1,)]


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("replay", ["--into", "other"], "--into names one table, but there are 5"),
        ("diff", ["--against", "other"], "--against is a single table, but there are 5"),
        ("promote", ["--from", "other"], "--from names one table, but there are 5"),
        ("replay", ["--from", "purchases/0=1"], "'purchases/0' is not a partition here; write the first one as 0"),
        ("diff", [str(EXAMPLE)], "the sinks have different names"),
    ],
)
def test_what_several_tables_cannot_have(command: str, options: list[str], said: str) -> None:
    refused = windrow(command, str(CHAIN), *options)
    assert refused.exit_code == 2, refused.output
    assert said in refused.output
