"""A pipeline that is killed at any moment, and started again, gives the oracle's answer."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.faults.conftest import MakeJob
from tests.faults.jobs import Job
from tests.faults.windrow_process import WindrowProcess
from tests.hosts.answers import assert_epochs, assert_same
from tests.hosts.spend import events

EVENTS = 20_000

Moment = Callable[[Job, WindrowProcess, random.Random], None]


def while_it_starts(job: Job, process: WindrowProcess, chance: random.Random) -> None:
    del job
    process.linger(chance.uniform(0, 6))


def within_a_step(job: Job, process: WindrowProcess, chance: random.Random) -> None:
    """A step has been written down as begun; some way into it."""
    begun = job.begun() + chance.choice([0, 1, 2])
    committed = job.committed()
    process.wait_until(lambda: job.begun() > begun or job.committed() > committed + 2)
    process.linger(chance.uniform(0, 0.8))


def between_two_commits(job: Job, process: WindrowProcess, chance: random.Random) -> None:
    """A step is in the tables, and Spark has hardly noted that it is done."""
    committed = job.committed() + chance.choice([0, 1])
    process.wait_until(lambda: job.committed() > committed)


MOMENTS: list[Moment] = [within_a_step, between_two_commits, while_it_starts]


def crash(make_job: MakeJob, kind: str, kills: int) -> None:
    chance = random.Random(20_260_101)
    job, log = make_job(kind)
    log.append(events(EVENTS, users=200))
    step = EVENTS // (8 * kills)
    for number in range(kills):
        moment = MOMENTS[number % len(MOMENTS)]
        with job.start("--max-records", str(step), "--every", "50ms") as process:
            moment(job, process, chance)
            assert not process.ended, f"{process.output}{process.errors}"
            process.kill()
    assert 0 < job.committed() < EVENTS // step  # there was something to lose, and something left to do
    with job.start("--until-end", "--max-records", "5000") as process:
        code = process.wait()
        assert code == 0, f"{process.output}{process.errors}"
    found = assert_same(job.store, job.pipeline)
    assert found.on_time
    assert found.late
    assert found.dead
    assert_epochs(job.store)


def test_three_kills_of_kafka_to_postgresql(make_job: MakeJob) -> None:
    crash(make_job, "Kafka to PostgreSQL", 3)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["Kafka to PostgreSQL", "log to SQLite"])
def test_ten_kills(kind: str, make_job: MakeJob) -> None:
    crash(make_job, kind, 10)


def test_a_jvm_that_dies_is_one_message(make_job: MakeJob) -> None:
    job, log = make_job("log to SQLite")
    log.append(events(3000))
    with job.start("--max-records", "300", "--every", "50ms") as process:
        process.wait_until(lambda: job.committed() > 0)
        process.kill_java()
        assert process.wait() == 1
        assert "Traceback" not in process.errors
        message = process.errors[process.errors.index("windrow: ") :]
        assert message == (
            "windrow: the stream stopped: Spark's Java process has ended\n"
            "what was committed stays; start again to go on from there; what Spark said is in checkpoint/spark.log\n"
        )
    with job.start("--until-end") as process:
        assert process.wait() == 0
    assert_same(job.store, job.pipeline)
    assert_epochs(job.store)
