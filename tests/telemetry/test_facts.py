"""Facts of reports: their kinds say how they are added up, written and renamed."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

import pytest
from tests.telemetry.test_history import STEP

from windrow.telemetry import facts
from windrow.telemetry.facts import Count, FactKind
from windrow.telemetry.probe import StepFacts
from windrow.telemetry.reports import COUNTS, StepReport, Totals


@dataclass(frozen=True)
class Example:
    """A record with a new fact."""

    late: Count
    newest: str = ""


def test_a_field_is_of_the_kind_of_its_annotation_and_else_the_latest() -> None:
    assert facts.kinds_of(Example) == {"late": facts.COUNT, "newest": facts.LATEST}
    assert facts.sum_facts(Example, [Example(1, "a"), Example(2, "b")]) == {"late": 3, "newest": "b"}


def test_a_report_has_the_facts_of_probes_and_the_sums_of_totals() -> None:
    only_of_probes = {"ages", "verdicts"}
    assert {field.name for field in fields(StepFacts)} - only_of_probes <= set(facts.kinds_of(StepReport))
    summed = {name for name, kind in facts.kinds_of(Totals).items() if kind is not facts.LATEST}
    assert summed <= set(facts.kinds_of(StepReport))
    assert set(COUNTS) - {"records"} <= summed


@pytest.mark.parametrize("name", facts.kinds_of(StepReport))
def test_each_fact_of_a_report_survives_json_and_a_repeated_step(name: str) -> None:
    kind: FactKind = facts.kinds_of(StepReport)[name]
    value = getattr(STEP, name)
    if name != "part_times":
        assert kind.parse(json.loads(json.dumps(kind.plain(value)))) == value
    if kind not in {facts.SECONDS, facts.SECONDS_BY_NAME}:  # a repeated step takes time
        assert kind.sum([value, kind.again(value)]) == value
