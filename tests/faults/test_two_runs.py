"""Two runs of one pipeline at once: one of them writes, the other is refused, and nothing is mixed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.conftest import Injected, MakeJob
from tests.faults.jobs import Job
from tests.faults.windrow_process import WindrowProcess
from tests.runtime.spend import events

pytestmark = [pytest.mark.long]

REFUSED = {
    "the same checkpoint": (2, "another run is using the checkpoint"),
    "log to SQLite": (1, "holds the rows of another run of pipeline 'user-spend'"),
    "Kafka to PostgreSQL": (1, "a run that writes table 'spend' is still running"),
}


def assert_refused(second: WindrowProcess, why: str) -> None:
    code, message = REFUSED[why]
    assert second.wait() == code, f"{second.output}{second.errors}"
    assert message in second.errors
    assert "Traceback" not in second.errors


@pytest.mark.parametrize("same", [True, False], ids=["one checkpoint", "two checkpoints"])
@pytest.mark.parametrize("kind", ["log to SQLite", "Kafka to PostgreSQL"])
def test_a_second_run(kind: str, same: bool, make_job: MakeJob, injected: Injected) -> None:  # noqa: FBT001
    job, log = make_job(kind)
    log.append(events(2000))
    with job.start("--max-records", "200", "--every", "50ms") as first:
        first.wait_until(lambda: job.committed() > 1)
        with other(job, "checkpoint" if same else "another") as second:
            assert_refused(second, "the same checkpoint" if same else kind)
        injected("a second run")
        assert not first.ended
        known = job.committed()
        log.append(events(500, seed=2))
        first.wait_until(lambda: job.committed() > known)
    with job.start("--until-end") as last:
        assert last.wait() == 0, last.errors
    job.assert_right()


@pytest.mark.parametrize("kind", ["log to SQLite", "Kafka to PostgreSQL"])
def test_two_that_begin_at_once(kind: str, make_job: MakeJob, injected: Injected) -> None:
    job, log = make_job(kind)
    log.append(events(2000))
    with (
        other(job, "one", "--until-end", "--max-records", "200") as one,
        other(job, "two", "--until-end", "--max-records", "200") as two,
    ):
        codes = sorted([one.wait(), two.wait()])
        said = f"{one.output}{one.errors}{two.output}{two.errors}"
    injected("two runs at once")
    assert codes == [0, 1], said
    job.assert_right()


def other(job: Job, checkpoint: str, *options: str) -> WindrowProcess:
    folder = job.folder / f"of-{checkpoint}-{len(options)}"
    folder.mkdir()
    given: tuple[str | Path, ...] = ("--checkpoint", job.folder / checkpoint, *options)
    return WindrowProcess(["run", job.folder / "pipeline.yaml", *given], folder)
