"""A run in this process that faults strike, again and again, until it has come to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.faults.jobs import Job
from tests.faults.points import IN_DRIVER, IN_WORKERS, Fault, Plan, Point, Victim, installed
from tests.faults.truth import assert_reports_true
from tests.graphs import as_graph
from tests.runtime.runs import Runner

from windrow.errors import EngineError
from windrow.telemetry.reports import StepReport

STEP = 250


PLACES: list[tuple[Point, Victim]] = [
    *((point, "worker") for point in IN_WORKERS),
    *((point, "step") for point in (*IN_WORKERS, *IN_DRIVER)),
]
"""Where a step can fail or a worker can die."""


@dataclass
class Campaign:
    """Faults in the steps of one run; `injected` is told of each that has struck."""

    folder: Path
    chance: Random
    injected: Callable[[str], None]
    reports: list[StepReport] = field(default_factory=list)

    def draw(self, job: Job, epochs: Iterable[int]) -> list[Fault]:
        """Draw a fault in each of these steps."""
        levels = range(len(as_graph(job.pipeline).levels))
        return [Fault(*self.chance.choice(PLACES), epoch, self.chance.choice(levels)) for epoch in epochs]

    def survive(self, job: Job, faults: Iterable[Fault]) -> None:
        """Run until nothing strikes any more, and hold the tables to what is right, and what was said to the tables.

        A step that fails ends the run with one message; a worker that dies does not.
        """
        marks = self.folder / "struck"
        marks.mkdir()
        plan = Plan(marks, tuple(faults))
        runner = Runner(job.checkpoint)
        failures: list[str] = []
        with installed(plan):
            while True:
                try:
                    runner.bounded(job.pipeline, STEP)
                except EngineError as exc:
                    failures.append(str(exc))
                else:
                    break
                finally:
                    self.reports += runner.reports
        for fault in plan.struck:
            self.injected(fault.kind)
        assert plan.struck == list(plan.faults)
        # a step can fail while the one before is being written, and fails too: the run ends once then
        struck = sum(fault.victim == "step" for fault in plan.faults)
        assert struck / 2 <= len(failures) <= struck
        for message in failures:
            assert message.startswith("the stream stopped: RuntimeError: a fault of the tests: "), message
            assert "\nwhat was committed stays; start again to continue from there" in message
        job.assert_right()
        assert_reports_true(job.store, self.reports, job.changelogs)
