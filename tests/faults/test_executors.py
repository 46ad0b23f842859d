"""On a cluster, here of two executors on this machine, an executor that dies ends no run: Spark starts another."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.faults.conftest import Injected, MakeJob
from tests.faults.points import IN_WORKERS, Fault, Plan
from tests.faults.truth import assert_summary_true
from tests.faults.windrow_process import FAULTS
from tests.runtime.spend import events


@pytest.mark.long
@pytest.mark.parametrize("kind", ["log to SQLite", "Kafka to PostgreSQL"])
def test_executors_and_workers_that_die(
    kind: str, make_job: MakeJob, tmp_path: Path, chance: Random, injected: Injected
) -> None:
    job, log = make_job(kind)
    log.append(events(3000, seed=chance.randrange(1, 1000)))
    marks = tmp_path / "struck"
    marks.mkdir()
    faults = [
        Fault(chance.choice(IN_WORKERS), chance.choice(["executor", "worker"]), epoch) for epoch in range(0, 12, 2)
    ]
    plan = Plan(marks, (*faults, Fault(chance.choice(IN_WORKERS), "executor", 11)))
    options = ("--until-end", "--max-records", "250", "--master", "local-cluster[2,1,1024]")
    with job.start(*options, **{FAULTS: plan.to_json()}) as process:
        code = process.wait(1800)
        assert code == 0, f"{process.output}{process.errors}"
        assert_summary_true(job.store, 0, process.output)
    assert plan.struck == list(plan.faults)
    for fault in plan.struck:
        injected(f"{fault.kind} of two executors")
    job.assert_right()
