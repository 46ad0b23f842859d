"""`windrow relay`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.runtime.spend import event

from windrow.cli import main

ONE = """\
name: spend
source: {log: {path: data/spend}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 1m}
key: user_id
window: {tumbling: 5m}
aggregate: {total: sum(amount), events: count()}
sink: {postgres: {url: "%s", table: spend, outbox: true}}
"""
TWO = """\
name: shop
sources:
  purchases:
    source: {log: {path: data/spend}}
    decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
    time: {field: event_time, delay: 1m}
streams:
  large: {from: purchases, where: amount > 3}
  small: {from: purchases, where: amount <= 3}
sinks:
  to_large: {from: large, sink: {postgres: {url: "%s", table: large, outbox: true}}}
  to_small: {from: small, sink: {postgres: {url: "%s", table: small, outbox: true}}}
"""
NOWHERE = "postgresql://localhost:1/nowhere"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("data/spend", "sent"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "partition-0.jsonl").touch()
    values = [event(minute, f"u{minute % 2}", f"{minute}.50") for minute in range(6)]
    Path("data/spend/partition-0.jsonl").write_bytes(b"\n".join([*values, b""]))


def windrow(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def records() -> list[dict[str, object]]:
    return [json.loads(line) for line in Path("sent/partition-0.jsonl").read_text().splitlines()]


@pytest.mark.service
def test_results_are_sent_until_the_outbox_is_empty(database: str) -> None:
    Path("spend.yaml").write_text(ONE % database)
    missing = windrow("relay", "spend.yaml", "sent", "--until-empty")
    assert missing.exit_code == 2
    assert "has no table 'spend_outbox': set `outbox: true` in the sink, and start the run once" in missing.stderr
    ran = windrow("run", "spend.yaml", "--until-end", "--host", "memory", "--json")
    assert ran.exit_code == 0, ran.output
    waiting = [json.loads(line) for line in windrow("show", "spend.yaml", "outbox", "--json").stdout.splitlines()]
    assert [one["id"] for one in waiting] == [1, 2, 3]
    assert sorted(json.loads(one["payload"])["total"] for one in waiting) == ["5.00", "5.50", "7.50"]
    refused = windrow("show", "spend.yaml", "outbox", "--as-of", "2026-01-01")
    assert "spend_outbox can only be written by the steps of a run" in refused.stderr
    relayed = windrow("relay", "spend.yaml", "sent", "--until-empty", "--json")
    assert relayed.exit_code == 0, relayed.output
    rows = {"sent": 3, "waiting": 0, "oldest_seconds": 0.0}
    assert json.loads(relayed.stdout) == {"pipeline": "spend", "outbox": "spend_outbox", "target": "sent", **rows}
    totals = sorted((str(one["user_id"]), one["total"]) for one in records())
    assert totals == [("u0", "7.50"), ("u1", "5.00"), ("u1", "5.50")]
    again = windrow("relay", "spend.yaml", "sent", "--until-empty")
    assert again.stdout == "spend_outbox: sent 0 rows to sent; it is empty\n"
    assert windrow("show", "spend.yaml", "spend_outbox").stdout == "spend_outbox has no rows\n"


@pytest.mark.service
def test_each_table_has_an_outbox(database: str) -> None:
    Path("shop.yaml").write_text(TWO % (database, database))
    ran = windrow("run", "shop.yaml", "--until-end", "--host", "memory", "--json")
    assert ran.exit_code == 0, ran.output
    relayed = windrow("relay", "shop.yaml", "sent", "--table", "small", "--until-empty")
    assert relayed.stdout == "small_outbox: sent 3 rows to sent; it is empty\n"
    assert [one["amount"] for one in records()] == ["0.50", "1.50", "2.50"]


@pytest.mark.parametrize(
    ("pipeline", "arguments", "message"),
    [
        (TWO % (NOWHERE, NOWHERE), ["sent"], "several tables of pipeline 'shop' have an outbox: choose one with"),
        (TWO % (NOWHERE, NOWHERE), ["sent", "--table", "x"], "not 'x', but these tables of pipeline 'shop' have an"),
        ((ONE % NOWHERE).replace(", outbox: true", ""), ["sent"], "no sink of pipeline 'spend' has an outbox: set"),
        (ONE % NOWHERE, ["kafka://localhost:1"], "kafka://localhost:1 is not kafka://HOST:PORT/TOPIC"),
        (ONE % NOWHERE, ["sent", "--option", "a=b"], "--option is for Kafka, but sent is a folder: leave it out"),
        (ONE % NOWHERE, ["kafka://h:1/t", "--option", "a"], "--option 'a' is not NAME=VALUE, such as"),
    ],
)
def test_wrong_arguments(pipeline: str, arguments: list[str], message: str) -> None:
    Path("pipeline.yaml").write_text(pipeline)
    ran = windrow("relay", "pipeline.yaml", *arguments)
    assert ran.exit_code == 2
    assert message in ran.stderr


@pytest.mark.service
def test_a_target_that_is_not_there(database: str) -> None:
    Path("spend.yaml").write_text(ONE % database)
    assert windrow("run", "spend.yaml", "--until-end", "--host", "memory").exit_code == 0
    ran = windrow("relay", "spend.yaml", "nowhere", "--until-empty")
    assert ran.exit_code == 2
    assert "there is no log folder nowhere" in ran.stderr
    assert windrow("relay", "spend.yaml", "sent", "--until-empty").exit_code == 0
