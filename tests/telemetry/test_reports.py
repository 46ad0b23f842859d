"""Reports of steps: what they add up to, and the names of partitions in them."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.pipelines import main
from tests.telemetry.test_history import STEP

from windrow.engine.changelog import reason_kinds
from windrow.errors import (
    EngineError,
    RecordsLostError,
    SinkUnavailableError,
    SourceUnavailableError,
    WindrowError,
    WorkerLostError,
)
from windrow.model import MAX_PARTITIONS, Graph, SinkNode, SourceNode, SqliteSink
from windrow.telemetry.histogram import Histogram
from windrow.telemetry.reports import Fault, FaultReason, StepReport, Totals, name_partitions


def test_all_partitions_of_several_sources_are_named() -> None:
    plain = main()
    sources = [SourceNode(name, plain.source, plain.decode, plain.time) for name in ("orders", "rates")]
    graph = Graph("two", (*sources, SinkNode("to", "orders", SqliteSink("out.db", "t"))), 2)
    told: list[StepReport] = []
    numbers: dict[str, Any] = {
        one.name: {MAX_PARTITIONS + 1: next(iter(getattr(STEP, one.name).values()))}
        for one in fields(STEP)
        if isinstance(getattr(STEP, one.name), dict)
        and one.name not in {"parts", "tasks", "state_by_node", "hot_keys", "dead_reasons", "dead_by_sink"}
    }
    (sample,) = STEP.samples
    samples = (replace(sample, partition=MAX_PARTITIONS + 1),)
    name_partitions(graph, told.append)(replace(STEP, **numbers, samples=samples, idle=[0]))
    assert told[0].idle == ["orders/0"]
    assert [one.partition for one in told[0].samples] == ["rates/1"]
    for name in numbers:
        assert getattr(told[0], name).keys() == {"rates/1"}, name


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SourceUnavailableError("away"), "source"),
        (RecordsLostError("away"), "lost"),
        (SinkUnavailableError("away"), "sink"),
        (WorkerLostError("away"), "engine"),
        (EngineError("away"), "engine"),
    ],
)
def test_a_fault_has_the_reason_of_its_error(error: WindrowError, reason: FaultReason) -> None:
    fault = Fault.of(error, str(error), "trying again")
    assert (fault, fault.reason) == ("away; trying again", reason)


def test_a_step_that_is_run_again_counts_nothing() -> None:
    totals, once = Totals(), Totals()
    for report in (STEP, STEP.again()):
        totals.add(report)
    once.add(STEP)
    assert totals.events == once.events == 1
    assert totals.latency == once.latency
    assert totals.lateness == once.lateness
    assert STEP.again().lag == STEP.lag


def test_lateness_and_latency_of_a_run_are_in_its_json() -> None:
    totals = Totals()
    totals.add(replace(STEP, lateness={0: Histogram.of_one(60_000_000)}, latency=Histogram.of_one(0)))
    plain = totals.plain()
    assert plain["lateness_seconds"] == {"p50": 52.5, "p99": 59.85, "p99.9": 59.985}
    assert plain["latency_seconds"] == {"p50": 0.0, "p99": 0.0, "p99.9": 0.0}
    assert plain["parts"] == {"compute": 0.5, "commit": 0.25}
    assert plain["watermark_lag"] is None


def test_dead_letters_are_counted_by_the_kind_of_their_reason() -> None:
    reasons = [
        "missing: amount",
        "missing: amount at customer.id",
        "wrong type: amount: 'x: y' is not a decimal(12,2)",
        "malformed: Expecting value: line 1 column 1 (char 0)\nand more",
        "not an object: [1]",
        "no log time",
    ]
    tables = [pa.table({"reason": pa.array(part, pa.string())}) for part in (reasons[:2], [], reasons[2:])]
    assert reason_kinds(tables) == {
        "missing: amount": 2,
        "malformed": 1,
        "no log time": 1,
        "not an object": 1,
        "wrong type: amount": 1,
    }
    assert reason_kinds([]) == {}


def test_dead_letters_because_of_a_defect_are_counted_however_rare_they_are() -> None:
    reasons = [f"missing: f{number % 30}" for number in range(90)]
    reasons += ["internal: derive: RuntimeError: no", "internal: where: SystemError"]
    kinds = reason_kinds([pa.table({"reason": reasons})])
    assert len(kinds) == 20
    assert list(kinds)[:3] == ["internal: derive", "internal: where", "missing: f0"]
    totals = Totals(dead_reasons=kinds, dead=92)
    assert (totals.internal, "92 dead letters (2 internal)" in totals.text) == (2, True)


def test_a_fault_is_copied_with_its_reason() -> None:
    fault = deepcopy(Fault("the database is locked", "sink", "trying again"))
    assert (fault, fault.what, fault.reason) == (
        "the database is locked; trying again", "the database is locked", "sink",
    )  # fmt: skip
