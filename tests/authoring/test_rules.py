"""Every rule, held to the cases in its file in `checks/`.

A case is the main job with some sections replaced, and what the rule finds in it (the beginning of each finding).
"""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.graphs import graph_of

from windrow.authoring.checks import RULES
from windrow.authoring.checks.alerts import alert_limits
from windrow.authoring.checks.realtime import realtime
from windrow.authoring.pipeline_file import read_document
from windrow.model import Pipeline

CASES = Path(__file__).parent / "checks"
BASE = yaml.safe_load("""
name: user-spend
source: {log: {path: data/spend}}
decode: {user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}
time: {field: event_time, delay: 10m, future: 1h}
key: [user_id]
window: {tumbling: 5m}
aggregate: {total: sum(amount), events: count()}
emit: {lateness: 1h, late: each, mode: retract}
sink: {sqlite: {path: spend.db, table: user_spend_5m}}
""")


OF_GRAPHS = {rule.__name__: rule for rule in (realtime, alert_limits)}
OF_SHORT = {rule.__name__: rule for rule in RULES}

FILES = sorted(CASES.glob("*.yaml"))


@pytest.mark.parametrize(
    ("rule_name", "case"),
    [
        pytest.param(path.stem, case, id=f"{path.stem}-{number}")
        for path in FILES
        for number, case in enumerate(yaml.safe_load(path.read_text()))
    ],
)
def test_a_rule_finds_what_its_case_says(rule_name: str, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    text = yaml.safe_dump(BASE | case.get("pipeline", {}), sort_keys=False, allow_unicode=True)
    given = read_document(text, "case.yaml").pipeline
    findings = OF_GRAPHS[rule_name](given) if rule_name in OF_GRAPHS else OF_SHORT[rule_name](graph_of(given, Pipeline))
    found = [f"{finding.level} {finding.text}" for finding in findings]
    expected = case["finds"]
    assert [text[: len(begin)] for text, begin in zip(found, expected, strict=True)] == expected, found


def test_each_rule_has_its_cases() -> None:
    assert {path.stem for path in FILES} == {rule.__name__ for rule in (*RULES, realtime, alert_limits)}
