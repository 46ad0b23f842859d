"""Health: one table of conditions and states, from which alerts, doctor, the dashboard and Prometheus judge."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

import pytest
from tests.telemetry.test_history import T0
from tests.tools.test_doctor import FAILED, RECORD, examined, run_of

from windrow.model import ALERT_NAMES, DEFAULT_ALERTS, AlertName, LagLimit, ShareLimit, TimeLimit
from windrow.telemetry import health
from windrow.telemetry.health import CONDITIONS, GOING, OVER, STATES, Condition, State, default_limit, span_of
from windrow.tools.doctor.running import run_state

SECOND = 1_000_000
MINUTE = 60 * SECOND


def test_each_alert_has_a_condition_with_its_default_limit() -> None:
    assert tuple(CONDITIONS) == ALERT_NAMES
    limits = {name: condition.limit for name, condition in CONDITIONS.items()}
    assert limits.items() >= DEFAULT_ALERTS.limits.items()


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=lambda condition: condition.name)
def test_all_names_in_texts_are_filled_in(condition: Condition) -> None:
    texts = (condition.promql, condition.hold, condition.summary, condition.description, condition.note)
    assert [found for text in texts for found in re.findall(r"<[a-z0-9 ]+>", condition.fill(text))] == []


@pytest.mark.parametrize(
    ("name", "limit", "rule"),
    [
        (
            "lag",
            LagLimit(90 * SECOND, span=20 * MINUTE),
            "windrow:lag:seconds > 90 and deriv(windrow:lag:seconds[20m])",
        ),
        ("expired-share", ShareLimit(0.05, 30 * MINUTE), "windrow_event_lateness_seconds_count[30m]) > 0.05"),
        ("sink-errors", TimeLimit(60 * MINUTE), "increase(windrow_retries_total[1h])"),
        ("no-step", TimeLimit(5 * MINUTE), "[1d]) > 300"),
    ],
)
def test_a_rule_has_the_limit(
    name: AlertName, limit: LagLimit | ShareLimit | TimeLimit, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_LIMITS", {**DEFAULT_ALERTS.limits, name: limit})
    assert rule in CONDITIONS[name].fill(CONDITIONS[name].promql)
    assert default_limit(name, "span") == limit.span


def test_the_rule_of_the_watermark_holds_for_what_its_expression_leaves() -> None:
    condition = CONDITIONS["watermark-stuck"]
    assert "offset 2m" in condition.promql
    assert (condition.fill("<span>"), condition.fill(condition.hold), condition.fill("<in words>")) == (
        "5m", "3m", "5 minutes",
    )  # fmt: skip


def test_a_run_is_stalled_after_two_minutes_or_ten_triggers() -> None:
    limit = CONDITIONS["no-step"].limit
    assert [span_of(limit, every) for every in (0, SECOND, MINUTE)] == [2 * MINUTE, 2 * MINUTE, 10 * MINUTE]


def test_each_state_goes_on_or_is_over() -> None:
    assert set(STATES) == set(get_args(State))
    assert not GOING & OVER
    assert set(STATES) - GOING - OVER == {"unknown"}


@pytest.mark.parametrize("state", sorted({*GOING, *OVER}))
def test_doctor_judges_a_state_as_the_table_does(state: State) -> None:
    record = replace(FAILED if state == "failed" else RECORD, ended=T0 if state in {"ended", "failed"} else None)
    found = next(run_state(examined(run=run_of(record=record, status={"state": state}))))
    severities = {"good": "fine", "done": "fine", "warn": "advice", "bad": "serious"}
    assert found.severity == severities[STATES[state][0]]
