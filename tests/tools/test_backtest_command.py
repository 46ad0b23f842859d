"""Printing a back-test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.tools.test_backtest import Alert, label_table, table

from windrow.cli import main
from windrow.tools.backtest.command import plain_backtest, show_backtest
from windrow.tools.backtest.compare import Backtest, compare_alerts


@pytest.fixture
def found() -> Backtest:
    old = table(Alert("burst", number) for number in range(4))
    new = table(Alert("burst", number) for number in range(1, 3))
    labels = label_table([Alert("burst", 1), Alert("travel", 7)])
    return compare_alerts(old, new, labels, key=["card"], limit=1)


def test_it_is_printed_by_rule_and_day(found: Backtest, capsys: pytest.CaptureFixture[str]) -> None:
    show_backtest(found)
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    rows = [words for words in lines if words[0] in {"burst", "travel", "all", "1969-12-31", "1970-01-01"}]
    assert rows == [
        ["burst", "4", "2", "2", "2", "0", "4", "2"],
        ["travel", "0", "0", "0", "0", "0", "0", "0"],
        ["all", "4", "2", "2", "2", "0", "4", "2"],
        ["burst", "1", "25.0%", "50.0%", "100.0%", "100.0%"],
        ["travel", "1", "0.0%", "0.0%"],
        ["all", "2", "25.0%", "50.0%", "50.0%", "50.0%"],
        ["1969-12-31", "burst", "3", "2"],
        ["1970-01-01", "burst", "1", "0"],
    ]
    assert printed.endswith(
        "  only old: event_time 1969-12-31 00:00:00, alert_id burst/tx0, rule burst, card c0, subject tx0\n"
        "  ... and 1 more\n"
        "the alerts differ\n"
    )


def test_it_is_json_too(found: Backtest) -> None:
    plain = json.loads(json.dumps(plain_backtest(found)))
    assert plain["same"] is False
    assert plain["rules"][0]["old"] == {"alerts": 4, "keys": 4, "precision": 0.25, "recall": 1.0}
    assert plain["rules"][1] == {
        "rule": "travel",
        "old": {"alerts": 0, "keys": 0, "precision": None, "recall": 0.0},
        "new": {"alerts": 0, "keys": 0, "precision": None, "recall": 0.0},
        "both": 0,
        "only_old": 0,
        "only_new": 0,
        "labels": 1,
    }
    assert plain["days"][0] == {"day": "1969-12-31", "rule": "burst", "old": 3, "new": 2}
    assert len(plain["only_old"]) == 1
    assert plain["only_new"] == []


RULES = """\
name: card-fraud
source: {log: {path: purchases}}
decode: {id: string, card: string, t: timestamp_micros, amount: "decimal(12,2)", merchant: string}
time: {field: t, delay: 30s, future: 1m}
key: [card]
unique: {by: id}
recent: {last: 64, within: 24h}
lists: {blocked: {file: purchases/blocked.csv, key: value}}
rules:
  - {name: burst, when: "count(recent, '1m') >= LEAST"}
  - {name: blocked_merchant, when: merchant in blocked}
emit: {lateness: 10m, revise: true}
sink: {sqlite: {path: fraud.db, table: alerts}}
"""


def invoke(*words: str) -> tuple[int, str]:
    ran = CliRunner().invoke(main, list(words))
    return ran.exit_code, ran.output


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, least in (("old.yaml", "5"), ("new.yaml", "6")):
        Path(name).write_text(RULES.replace("LEAST", least), encoding="utf-8")
    Path("windows.yaml").write_text(
        "name: w\nsource: {log: {path: purchases}}\ndecode: {card: string, t: timestamp_micros}\n"
        "time: {field: t, delay: 1m, future: 1h}\nkey: [card]\nwindow: {tumbling: 1m}\naggregate: {n: count()}\n"
        "sink: {sqlite: {path: w.db, table: w}}\n",
        encoding="utf-8",
    )
    code, output = invoke("generate", "purchases", "--kind", "fraud", "--events", "5000", "--cards", "1000")
    assert code == 0, output


@pytest.mark.usefixtures("files")
def test_other_rules_are_compared_over_the_log() -> None:
    words = ("replay", "old.yaml", "--rules", "new.yaml", "--labels", "purchases/labels.jsonl", "--host", "memory")
    code, output = invoke(*words, "--json")
    assert code == 0, output
    found = json.loads(output)
    rules = {one["rule"]: one for one in found["rules"]}
    labels = [json.loads(line)["kind"] for line in Path("purchases/labels.jsonl").read_text("utf-8").splitlines()]
    assert {name: rules[name]["labels"] for name in ("burst", "blocked_merchant")} == {
        name: labels.count(name) for name in ("burst", "blocked_merchant")
    }
    burst, blocked = rules["burst"], rules["blocked_merchant"]
    # a purchase with six before it has five before it, too
    assert burst["both"] == burst["new"]["alerts"] < burst["old"]["alerts"]
    assert burst["old"]["recall"] == 1
    assert burst["new"]["recall"] < 1
    assert blocked["both"] == blocked["old"]["alerts"] == blocked["new"]["alerts"] > 0
    assert found["only_new"] == []
    assert not Path("fraud.db").exists()
    code, output = invoke(*words)
    assert (code, output.splitlines()[-1]) == (0, "the alerts differ")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rules", "windows.yaml"), "pipeline 'w' has no rules"),
        (("--rules", "new.yaml", "--into", "x", "--fresh"), "leave out --into and --fresh"),
        (("--labels", "purchases/labels.jsonl"), "--labels is used only in a back-test: add --rules"),
        (("--rules", "new.yaml", "--labels", "none.csv"), "the labels none.csv cannot be read"),
    ],
)
def test_what_is_no_back_test_is_refused(words: tuple[str, ...], message: str) -> None:
    code, output = invoke("replay", "old.yaml", "--host", "memory", *words)
    assert code == 2
    assert message in output
