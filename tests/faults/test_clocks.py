"""A clock that is set back does not hold up a live run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.faults.clock import Clock
from tests.faults.conftest import Injected, MakeJob
from tests.runtime.spend import events

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")]

HOUR = 3600


def test_a_clock_that_is_set_back_by_an_hour(make_job: MakeJob, tmp_path: Path, injected: Injected) -> None:
    """Java's clock too: Spark waits until the clock shows a time."""
    clock = Clock(tmp_path)
    job, log = make_job("log to SQLite")
    feed = events(3000)
    log.append(feed[:1000])
    with job.start("--every", "1s", **clock.environment) as process:
        process.wait_until(lambda: job.committed() > 0)
        clock.set(-HOUR)
        injected("clock set back by an hour")
        process.wait_until(lambda: "the clock of this machine was set back by 3,600 s" in process.errors)
        log.append(feed[1000:])
        known = job.committed()
        process.wait_until(lambda: job.committed() > known)
        clock.set(0)
    with job.start("--until-end", **clock.environment) as process:
        assert process.wait() == 0, process.errors
    job.assert_right()
