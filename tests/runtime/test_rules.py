"""Rules give the same alerts, with the same identities, on every host; a late purchase clears impossible travel."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from tests.graphs import as_graph, graph_of
from tests.runtime.runs import Runner
from tests.short_forms import RulesPipeline

import windrow as wr
from windrow.authoring.load import open_pipeline
from windrow.engine.lists import lists_of, with_entries
from windrow.errors import InputError
from windrow.model import PostgresSink, RulesJournal, RulesVersion
from windrow.runtime.launch import launch
from windrow.runtime.replay import ReplayOptions
from windrow.runtime.run import HostName, RunSettings
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.tools.backtest.compare import back_test

MINUTE = 60_000_000
START = 1_767_261_600_000_000
YAML = """
name: card-fraud
source: {log: {path: LOG}}
decode:
  id: string
  card: string
  t: timestamp_micros
  amount: decimal(12,2)
  lat: double
  lon: double
  merchant: string
time: {field: t, delay: 30s}
key: [card]
unique: {by: id}
recent: {last: 16, within: 24h}
lists: {blocked: {file: LIST, key: merchant}}
rules:
  - name: impossible_travel
    severity: high
    when: km(prev.lat, prev.lon, lat, lon) > 100 + 900 * hours(prev.t, t)
    say: "{km:.0f} km in {minutes:.0f} min: {prev.id} then {id}"
    with: {km: "round(km(prev.lat, prev.lon, lat, lon))", minutes: "60 * hours(prev.t, t)"}
  - name: unusual_amount
    when: count(recent) >= 8 and amount > mean(recent.amount) + 4 * stddev(recent.amount)
    with: {amount: amount, seen: count(recent)}
  - name: burst
    when: count(recent, '1m') >= 3
  - name: blocked_merchant
    when: merchant in blocked
emit: {lateness: 10m, revise: true}
sink: {sqlite: {path: DATABASE, table: alerts}}
key_groups: 2
"""


def pipeline(folder: Path, database: str = "fraud.db") -> RulesPipeline:
    text = YAML.replace("LOG", str(folder / "log")).replace("DATABASE", str(folder / database))
    file, blocked = folder / f"{database}.yaml", folder / "blocked.csv"
    file.write_text(text.replace("LIST", str(blocked)))
    blocked.write_text("merchant,since\nevil,2026\n")
    return graph_of(open_pipeline(str(file)).runnable(), RulesPipeline)


def purchase(id_: str, minute: float, place: tuple[float, float], **fields: str) -> dict[str, Any]:
    one = {"id": id_, "card": "A", "t": START + round(minute * MINUTE), "amount": "10.00", "merchant": "shop"}
    return one | {"lat": place[0], "lon": place[1]} | fields


BERLIN, NEW_YORK = (52.5, 13.4), (40.7, -74.0)


def write(folder: Path, *partitions: list[dict[str, Any]]) -> None:
    (folder / "log").mkdir(parents=True)
    for number, records in enumerate(partitions):
        text = "".join(f"{json.dumps(one)}\n" for one in records)
        (folder / "log" / f"partition-{number}.jsonl").write_text(text)


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as opened:
        return opened.execute(query).fetchall()


def run(pipeline: RulesPipeline, folder: Path, host: HostName, max_records: int | None = None) -> None:
    options = RunSettings(folder / f"checkpoint-{host}", host=host, until_end=True, max_records=max_records)
    launch(as_graph(pipeline), options, lambda _: None, lambda _: None)


@pytest.mark.parametrize("step", [1, 2, 100])
def test_a_late_purchase_clears_impossible_travel_and_raises_it_where_it_belongs(tmp_path: Path, step: int) -> None:
    purchases = [
        purchase("tx1", 0, BERLIN),
        purchase("tx2", 5, NEW_YORK),
        purchase("tx3", 3, NEW_YORK),
        purchase("tx3", 3, NEW_YORK),
        purchase("tx3", 3, NEW_YORK, amount="99.00"),
        purchase("tx4", 5.5, NEW_YORK, merchant="evil"),
        purchase("tx0", -60, BERLIN),
    ]
    write(tmp_path, purchases)
    run(pipeline(tmp_path), tmp_path, "memory", step)
    changes = (
        "SELECT op, pane, revision, rule, severity, subject, text, evidence FROM alerts_changes ORDER BY epoch, seq"
    )
    travel = ("impossible_travel", "high")
    fast = '{"km": 6386.0, "minutes": 5.0}'
    assert rows(tmp_path / "fraud.db", changes) == [
        ("insert", "on_time", 0, *travel, "tx2", "6386 km in 5 min: tx1 then tx2", fast),
        ("insert", "late", 0, *travel, "tx3", "6386 km in 3 min: tx1 then tx3", '{"km": 6386.0, "minutes": 3.0}'),
        ("delete", "late", 1, *travel, "tx2", "6386 km in 5 min: tx1 then tx2", fast),
        ("insert", "on_time", 0, "blocked_merchant", "medium", "tx4", "blocked_merchant", "{}"),
    ]
    table = "SELECT alert_id, card, subject, event_time FROM alerts ORDER BY subject"
    assert rows(tmp_path / "fraud.db", table) == [
        ("3z2eiyjzzfa37yhhoscyema4rq", "A", "tx3", "2026-01-01 10:03:00"),
        ("4de4pnmspsdchwi3y7zkgnpoze", "A", "tx4", "2026-01-01 10:05:30"),
    ]
    dead = "SELECT partition, offset, reason FROM alerts_dead"
    assert rows(tmp_path / "fraud.db", dead) == [(0, 4, "repeated id, other content")]
    assert rows(tmp_path / "fraud.db", "SELECT partition, offset, reason FROM alerts_late") == [(0, 6, "expired")]


def shuffled(count: int, seed: int) -> list[dict[str, Any]]:
    """Purchases of some cards, out of order, some of them twice."""
    chance = Random(seed)
    made = []
    for number in range(count):
        at = number / 4 - chance.choice([0, 0, 0, 0.2, 3])
        place = chance.choice([BERLIN] * 9 + [NEW_YORK])
        merchant = chance.choice(["shop"] * 20 + ["evil"])
        amount = f"{chance.choice([10, 11, 12, 13] * 10 + [500])}.00"
        fields = {"card": f"{seed}-{chance.randrange(6)}", "amount": amount, "merchant": merchant}
        made.append(purchase(f"{seed}-{number}", at, place, **fields))
        if chance.random() < 0.05:
            made.append(made[-1])
    return made


ALL = "SELECT * FROM alerts ORDER BY alert_id"
CHANGES = """
    SELECT card, op, pane, revision, alert_id, rule_hash, subject, event_time, text, evidence FROM alerts_changes
    ORDER BY card, epoch, seq
"""


@pytest.mark.service
@pytest.mark.spark
def test_every_host_raises_the_same_alerts(tmp_path: Path) -> None:
    write(tmp_path, shuffled(400, 1), shuffled(300, 2))
    found = {}
    hosts: list[tuple[HostName, int]] = [("memory", 50), ("batch", 300), ("stream", 250)]
    for host, step in hosts:
        given = pipeline(tmp_path, f"{host}.db")
        if host == "stream":
            Runner(tmp_path / "checkpoint").bounded(given, step)
        else:
            run(given, tmp_path, host, step)
        found[host] = tuple(rows(tmp_path / f"{host}.db", query) for query in (ALL, CHANGES))
    assert {row[1] for row in found["memory"][0]} == {rule.name for rule in pipeline(tmp_path).rules.rules}
    assert found["batch"] == found["memory"]
    assert found["stream"] == found["memory"]


def test_a_checkpoint_keeps_the_entries_of_its_lists(tmp_path: Path) -> None:
    """A step that is run again after a crash is judged by the entries that it was judged by."""
    given, blocked = pipeline(tmp_path), tmp_path / "blocked.csv"
    checkpoint = Checkpoint.new(tmp_path / "checkpoint", as_graph(given), [0])
    checkpoint.write()
    assert checkpoint.keep_lists(as_graph(given)) == (with_entries(as_graph(given)), [])
    kept, _ = checkpoint.keep_lists(as_graph(given))
    blocked.write_text("merchant\nworse\n")
    assert checkpoint.keep_lists(as_graph(given)) == (kept, ["blocked"])
    assert lists_of(kept)[0].entries == ("evil",)


def test_a_back_test_takes_a_list_that_was_empty_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = replace(pipeline(tmp_path), mode="realtime")
    write(tmp_path, [purchase("tx1", 0, BERLIN, merchant="evil")])
    journal = RulesJournal(versions=(RulesVersion.of(given.rules),))
    monkeypatch.setattr("windrow.runtime.realtime.journal.read_journal", lambda _: journal)
    options = ReplayOptions(tmp_path, end="log", journal=False, host="memory")
    found = back_test(as_graph(given), given.rules, options, lambda _: None, lambda _: None)
    assert found != "asked"
    assert found.all.old.alerts == 0


def test_postgresql_holds_the_same_alerts(tmp_path: Path, database: str) -> None:
    write(tmp_path, shuffled(200, 1))
    given = pipeline(tmp_path)
    run(given, tmp_path, "memory")
    run(replace(given, sink=PostgresSink(database, "alerts")), tmp_path, "memory", 30)
    query = "SELECT alert_id, rule, subject, text, evidence, pane, revision FROM alerts"
    with psycopg.connect(database) as opened:
        found = opened.execute(query).fetchall()
    assert sorted(found) == sorted(rows(tmp_path / "fraud.db", query)) != []


def test_rules_in_python_are_those_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, shuffled(100, 1))
    given = pipeline(tmp_path)
    made = (
        wr.log(str(tmp_path / "log"))
        .decode(id="string", card="string", t="timestamp_micros", merchant="string")
        .event_time("t", delay="30s")
        .key_by("card")
        .rules(
            wr.rule("blocked_merchant", when="merchant in blocked"),
            recent=wr.recent(last=16, within="24h"),
            unique="id",
            lists={"blocked": wr.list_file(str(tmp_path / "blocked.csv"), key="merchant")},
            lateness="10m",
        )
        .to(wr.sqlite(str(tmp_path / "python.db"), table="alerts"), name=given.name)
    )
    run(given, tmp_path, "memory")
    run(graph_of(made, RulesPipeline), tmp_path, "memory", 7)
    query = "SELECT alert_id, rule_hash, subject FROM alerts WHERE rule = 'blocked_merchant' ORDER BY subject"
    assert rows(tmp_path / "python.db", query) == rows(tmp_path / "fraud.db", query) != []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        ("shop,since\n", "has no column 'merchant'; its columns are shop, since"),
        ("", "has no column 'merchant'; its columns are none"),
    ],
)
def test_a_list_that_cannot_be_read_stops_the_run_before_it_begins(
    tmp_path: Path, text: str | None, problem: str
) -> None:
    write(tmp_path, shuffled(10, 1))
    given, blocked = pipeline(tmp_path), tmp_path / "blocked.csv"
    blocked.unlink()
    if text is not None:
        blocked.write_text(text)
    with pytest.raises(InputError, match=f"the list 'blocked': .*blocked.csv {problem}"):
        run(given, tmp_path, "memory")
    assert not (tmp_path / "fraud.db").exists()


@pytest.mark.parametrize("when", ["cast(merchant as bigint) > 0", "cast(merchant as bigint) + 1 not in even"])
def test_an_expression_that_fails_makes_a_dead_letter_and_hides_no_other_record(tmp_path: Path, when: str) -> None:
    (tmp_path / "even.txt").write_text("0\n4\n")
    write(tmp_path, [purchase(f"tx{number}", number, BERLIN, merchant=name) for number, name in enumerate("1x2")])
    made = (
        wr.log(str(tmp_path / "log"))
        .decode(id="string", card="string", t="timestamp_micros", merchant="string")
        .event_time("t", delay="30s")
        .key_by("card")
        .rules(
            wr.rule("number", when=when, say="{n}", evidence={"n": "count(recent)"}),
            recent=wr.recent(last=16, within="24h"),
            lists={"even": wr.list_file(str(tmp_path / "even.txt"))},
        )
        .to(wr.sqlite(str(tmp_path / "python.db"), table="alerts"))
    )
    run(graph_of(made, RulesPipeline), tmp_path, "memory")
    assert rows(tmp_path / "python.db", "SELECT subject, text FROM alerts ORDER BY subject") == [
        ("0:0", "0"),
        ("0:2", "2"),
    ]
    ((offset, reason),) = rows(tmp_path / "python.db", "SELECT offset, reason FROM alerts_dead")
    assert offset == 1
    assert reason.startswith("expression: rules: Could not convert string 'x' to INT64")
