"""A pipeline whose processes are killed, at named points or at any time, gives the right answer in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from random import Random

import pytest
from tests.faults.conftest import Injected, MakeJob
from tests.faults.jobs import Job
from tests.faults.points import IN_DRIVER, IN_WORKERS, Fault, Plan, Point
from tests.faults.truth import assert_summary_true
from tests.faults.windrow_process import FAULTS, WindrowProcess
from tests.runtime.answers import assert_epochs
from tests.runtime.spend import events

STEP = 100
PART = 3 * STEP
"""So many records come before each blow: there is something to do for a run that is to be struck."""
JAVA_IS_GONE = (
    "windrow: the stream stopped: Spark's Java process has ended\n"
    "what was committed stays; start again to continue from there; Spark's log is in checkpoint/spark.log\n"
)

Moment = Callable[[Job, WindrowProcess, Random], None]


def planned(job: Job, process: WindrowProcess, chance: Random) -> None:
    """Spark has written down what the next step reads, and perhaps done some of it."""
    known = job.known("offsets")
    process.wait_until(lambda: job.known("offsets") > known)
    process.linger(chance.choice([0.0, chance.uniform(0, 0.8)]))


def state_written(job: Job, process: WindrowProcess, chance: Random) -> None:
    """A key group's state of the step has been written, and others' may not have been."""
    del chance
    known = job.states()
    process.wait_until(lambda: job.states() > known)


def noted(job: Job, process: WindrowProcess, chance: Random) -> None:
    """Spark has noted that a step is done."""
    del chance
    known = job.known("commits")
    process.wait_until(lambda: job.known("commits") > known)


def any_time(job: Job, process: WindrowProcess, chance: Random) -> None:
    del job
    process.linger(chance.uniform(0, 12))


MOMENTS: dict[str, Moment] = {
    "step planned": planned,
    "state written": state_written,
    "step noted": noted,
    "any time": any_time,
}


POINTS: tuple[Point, ...] = (*IN_WORKERS, *IN_DRIVER)


class Crashes:
    """One job that is killed again and again."""

    def __init__(self, job: Job, chance: Random, injected: Injected) -> None:
        self._job = job
        self._chance = chance
        self._injected = injected
        self._plans = 0
        self._left: list[tuple[WindrowProcess, ExitStack]] = []

    def at_point(self, fault: Fault) -> None:
        """Kill a process at a point; where that is windrow's own, its JVM may live for a moment more."""
        plan = self._plan(fault)
        with ExitStack() as held:
            process = held.enter_context(self._start(plan))
            code = process.wait()
            said = f"{fault}\n{process.output}{process.errors}"
            assert plan.struck == [fault], said
            if fault.victim == "java":
                assert code == 1, said
                assert process.errors.endswith(JAVA_IS_GONE), said
                assert "Traceback" not in process.errors
            else:
                assert code == -9, said
            if fault.victim == "driver":
                self._left.append((process, held.pop_all()))
        self._count(fault.kind)

    def at_moment(self, name: str) -> None:
        """Kill all at once, at a moment that is seen from without."""
        with self._start(None) as process:
            MOMENTS[name](self._job, process, self._chance)
            process.kill()
        self._count(f"all at {name}")

    def to_the_end(self, workers: int) -> None:
        """Run to the end, though a worker dies in each of some steps; hold all to the oracle, and to what it says."""
        before = self._job.committed()
        plan = self._plan(*(Fault(self._chance.choice(IN_WORKERS), "worker", before + step) for step in range(workers)))
        with self._start(plan) as process:
            code = process.wait()
            assert code == 0, f"{process.output}{process.errors}"
            assert plan.struck == list(plan.faults)
            assert process.errors.count("; trying again in ") >= workers, process.errors
            assert_summary_true(self._job.store, before, process.output, self._job.changelogs)
        for fault in plan.struck:
            self._injected(fault.kind)
        self._job.assert_right()

    def leave_nothing(self) -> None:
        """What windrow's own process left behind when it was killed has ended by itself."""
        for process, held in self._left:
            with held:
                process.wait_until_all_ended()

    def _plan(self, *faults: Fault) -> Plan:
        folder = self._job.folder / f"plan-{self._plans}"
        self._plans += 1
        folder.mkdir()
        return Plan(folder, faults)

    def _start(self, plan: Plan | None) -> WindrowProcess:
        environment = {} if plan is None else {FAULTS: plan.to_json()}
        return self._job.start("--until-end", "--max-records", str(STEP), **environment)

    def _count(self, kind: str) -> None:
        self._injected(kind)
        if self._job.committed():
            assert_epochs(self._job.store)


def crash(
    make_job: MakeJob, kind: str, chance: Random, injected: Injected, blows: Sequence[Fault | str], *, workers: int = 2
) -> None:
    # an end that fires in the midst would make the rest late
    job, log = make_job(kind, at_end="hold")
    feed = events(PART * (len(blows) + 1), seed=chance.randrange(1, 1000))
    crashes = Crashes(job, chance, injected)
    for number, blow in enumerate(blows):
        log.append(feed[PART * number : PART * (number + 1)])
        if isinstance(blow, Fault):
            crashes.at_point(blow)
        else:
            crashes.at_moment(blow)
    log.append(feed[PART * len(blows) :])
    crashes.to_the_end(workers)
    crashes.leave_nothing()


@pytest.mark.long
def test_all_processes_killed_at_once(make_job: MakeJob, chance: Random, injected: Injected) -> None:
    crash(make_job, "Kafka to PostgreSQL", chance, injected, [Fault(chance.choice(IN_DRIVER), "all", 2)], workers=1)


@pytest.mark.long
@pytest.mark.parametrize("level", [0, 1, 2])
def test_all_processes_of_joins_killed_at_each_point(
    level: int, make_job: MakeJob, chance: Random, injected: Injected
) -> None:
    # a run that is struck at a point within a step has committed the one before
    blows = [Fault(point, "all", step, level) for step, point in enumerate(POINTS)]
    crash(make_job, "joins to SQLite", chance, injected, blows)


@pytest.mark.long
def test_one_of_each(make_job: MakeJob, chance: Random, injected: Injected) -> None:
    kind = "Kafka to PostgreSQL"
    blows = [
        Fault(chance.choice(POINTS), "java", 0),
        Fault(chance.choice(POINTS), "driver", 2),
        Fault(chance.choice(IN_DRIVER), "all", 3),
    ]
    crash(make_job, kind, chance, injected, blows)


@pytest.mark.long
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("kind", ["Kafka to PostgreSQL", "log to SQLite", "joins to SQLite"])
def test_a_dozen(kind: str, number: int, make_job: MakeJob, chance: Random, injected: Injected) -> None:
    del number  # it is in the seed
    every: list[Fault | str] = [Fault(point, victim, 0) for point in POINTS for victim in ("java", "driver", "all")]
    blows = chance.sample([*every, *MOMENTS, *MOMENTS], 10)
    steps = iter(range(10))
    ordered = [Fault(blow.point, blow.victim, next(steps)) if isinstance(blow, Fault) else blow for blow in blows]
    crash(make_job, kind, chance, injected, ordered)
