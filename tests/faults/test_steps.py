"""Whatever dies within a step, in one Spark session: the answer is the oracle's, and what was said is true."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.faults.campaign import Campaign
from tests.faults.conftest import Injected, MakeJob
from tests.faults.points import Fault
from tests.runtime.spend import events

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def campaign(tmp_path: Path, chance: Random, injected: Injected) -> Campaign:
    """Faults in a run with a checkpoint of its own."""
    return Campaign(tmp_path, chance, injected)


def test_a_few(make_job: MakeJob, campaign: Campaign) -> None:
    job, log = make_job("log to SQLite")
    log.append(events(1000))
    campaign.survive(job, campaign.draw(job, [0, 2, 3]))


@pytest.mark.long
def test_a_few_with_joins_and_tables(make_job: MakeJob, campaign: Campaign) -> None:
    """One table is written, the others are not; one level has its state, the next has not; a step is not noted."""
    job, log = make_job("joins to SQLite")
    log.append(events(750))
    faults = [Fault("inside", "step", 0), Fault("stepped", "worker", 1, 1), Fault("committed", "step", 2)]
    campaign.survive(job, faults)


@pytest.mark.long
@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("kind", ["log to SQLite", "Kafka to PostgreSQL", "joins to SQLite"])
def test_one_in_each_of_a_dozen_steps(kind: str, number: int, make_job: MakeJob, campaign: Campaign) -> None:
    job, log = make_job(kind)
    log.append(events(3000, seed=number + 1))
    campaign.survive(job, campaign.draw(job, range(12)))
