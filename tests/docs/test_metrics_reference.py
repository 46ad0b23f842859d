"""docs/reference/metrics.md has every metric with its type and labels, and no other."""

from __future__ import annotations

import re

import pytest
from tests.client.test_progress import REPORT
from tests.docs.pages import ROOT

from windrow.telemetry.metrics import METRICS

TEXT = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["counter", "gauge", "histogram"])
def test_every_metric_is_documented_as_it_is(kind: str) -> None:
    section = re.search(rf"^## {kind.title()}s\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL)
    assert section is not None
    rows = re.findall(r"^\| `(windrow_\w+)` \| ([^|]*)\| .+ \|$", section[1], re.MULTILINE)
    told = [(name, tuple(re.findall(r"`(\w+)`", labels))) for name, labels in rows]
    assert told == [(one.name, one.labels) for one in METRICS if one.kind == kind]


def test_every_field_of_a_report_is_documented() -> None:
    section = TEXT[TEXT.index("A report has these fields") : TEXT.index("## Structured logs")]
    cells = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    told = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(told) == sorted(REPORT.plain())


def test_no_other_metric_is_named() -> None:
    names = {one.name for one in METRICS}
    found = {re.sub("_(bucket|count|sum)$", "", name) for name in re.findall(r"windrow_[a-z_]+", TEXT)}
    assert found == names
