"""Identities of alerts are the same for ever: a compacted topic and every table has them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from windrow.engine.operators.rules.judge import alert_id, format_value, time_text

AT = datetime(2026, 1, 1, 10, 0, tzinfo=UTC)


def test_an_identity_stays() -> None:
    key = ("A", 1, Decimal("1.50"), None, AT)
    assert alert_id("fraud", "burst", key, time_text(AT), 0) == "p5zesae5sjwiugk6ab2vu2joga"
    assert alert_id("fraud", "burst", key, time_text(AT), 1) == "lftwosahorrzogwqthkyvrdkou"


@pytest.mark.parametrize(
    ("time", "text"), [(AT, "2026-01-01T10:00:00Z"), (AT.replace(microsecond=500), "2026-01-01T10:00:00.000500Z")]
)
def test_a_time_has_a_fraction_only_if_it_is_not_zero(time: datetime, text: str) -> None:
    assert time_text(time) == text


@pytest.mark.parametrize("spec", ["", ".2f"])
@pytest.mark.parametrize("value", [None, float("inf"), float("-inf"), float("nan")])
def test_what_is_no_number_is_null_in_a_text(value: float | None, spec: str) -> None:
    assert format_value(value, spec) == "null"
