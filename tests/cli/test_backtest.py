"""Printing a back-test."""

from __future__ import annotations

import json

import pytest
from tests.hosts.test_backtest import Alert, label_table, table

from windrow.cli.backtest import plain_backtest, show_backtest
from windrow.hosts.backtest import Backtest, compare_alerts


@pytest.fixture
def found() -> Backtest:
    old = table(Alert("burst", number) for number in range(4))
    new = table(Alert("burst", number) for number in range(1, 3))
    labels = label_table([Alert("burst", 1), Alert("travel", 7)])
    return compare_alerts(old, new, labels, key=["card"], limit=1)


def test_it_is_printed_by_rule_and_day(found: Backtest, capsys: pytest.CaptureFixture[str]) -> None:
    show_backtest(found)
    printed = capsys.readouterr().out
    rows = [line.replace("│", " ").split() for line in printed.splitlines() if line.startswith("│")]
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
        "not the same alerts\n"
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
