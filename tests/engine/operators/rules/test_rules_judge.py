"""Identities and texts of alerts, and lists as each version of rules sees them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from tests.graphs import graph_of
from tests.short_forms import RulesPipeline, operator_spec

import windrow as wr
from windrow.engine.operators.rules.judge import Entries, alert_id, format_value, time_text

AT = datetime(2026, 1, 1, 10, 0, tzinfo=UTC)


def test_an_identity_stays() -> None:
    """Compacted topics and tables keep identities for ever."""
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


def test_a_removed_list_without_entries_is_empty() -> None:
    """Earlier rules, which judge their records again, can name it."""
    records = wr.log("purchases").decode(id="string", card="string", t="timestamp").event_time("t", delay="10s")
    rules = records.key_by("card").rules(wr.rule("large", when="true"), recent=wr.recent(last=2, within="1h"))
    pipeline = rules.to(wr.sqlite("alerts.db", table="alerts"), name="p")
    zeros = np.zeros(2, dtype=np.int64)
    assert Entries(operator_spec(graph_of(pipeline, RulesPipeline))).contain(
        "blocked", pa.array(["a", None]), zeros, zeros
    ).to_pylist() == [False, None]
