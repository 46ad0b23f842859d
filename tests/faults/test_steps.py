"""Whatever dies within a step, in one Spark session: the answer is the oracle's, and what was said is true."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.faults.campaign import Campaign
from tests.faults.conftest import Injected, MakeJob
from tests.hosts.spend import events

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def campaign(tmp_path: Path, chance: Random, injected: Injected) -> Campaign:
    """Faults in a run with a checkpoint of its own."""
    return Campaign(tmp_path, chance, injected)


def test_a_few(make_job: MakeJob, campaign: Campaign) -> None:
    job, log = make_job("log to SQLite")
    log.append(events(1000))
    campaign.survive(job.pipeline, job.store, campaign.plan([0, 2, 4]))


@pytest.mark.long
@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("kind", ["log to SQLite", "Kafka to PostgreSQL"])
def test_one_in_each_of_a_dozen_steps(kind: str, number: int, make_job: MakeJob, campaign: Campaign) -> None:
    job, log = make_job(kind)
    log.append(events(3000, seed=number + 1))
    campaign.survive(job.pipeline, job.store, campaign.plan(range(12)))
