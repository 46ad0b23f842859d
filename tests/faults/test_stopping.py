"""A live run that is asked to stop finishes its step, says where it is, and resumes from there."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest
from tests.faults.conftest import MakeJob
from tests.faults.windrow_process import WindrowProcess
from tests.runtime.runs import Runner
from tests.runtime.spend import events

NOISE = re.compile(r"Traceback|Exception|Error|WARN|\bat (org|java|scala|py4j)\.|py4j|ResourceWarning")


def assert_quiet(process: WindrowProcess) -> None:
    assert not NOISE.search(process.errors), process.errors
    assert not NOISE.search(process.output), process.output


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    """Let SIGHUP end the processes of a test, which would inherit that it is ignored, as under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.long
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("log to SQLite", signal.SIGINT),
        ("log to SQLite", signal.SIGHUP),
        ("Kafka to PostgreSQL", signal.SIGTERM),
    ],
)
def test_a_live_run_stops_as_asked_and_goes_on(kind: str, number: signal.Signals, make_job: MakeJob) -> None:
    job, log = make_job(kind)
    feed = events(4000)
    log.append(feed[:2000])
    with job.start("--max-records", "500", "--every", "50ms", PYTHONWARNINGS="default") as process:
        process.wait_until(lambda: job.committed() > 0)
        process.send(number, to_group=number != signal.SIGTERM)  # what a terminal sends reaches the JVM too
        code = process.wait()
        assert code == 0, f"{process.output}{process.errors}"
        assert_quiet(process)
        said = "the terminal was closed: stopping after this step\n"
        assert (
            said if number == signal.SIGHUP else "stopping after this step (again to stop at once)\n"
        ) in process.errors
        stopped = re.match(
            r"user-spend: stopped on request after \d+ steps?, at epoch (\d+): partition 0 at [\d,]+, "
            r"partition 1 at [\d,]+, partition 2 at [\d,]+; low watermark 2026-01-01 ",
            process.output,
        )
        assert stopped, process.output
    assert job.committed() == int(stopped[1]) + 1
    log.append(feed[2000:])
    runner = Runner(job.checkpoint)
    runner.bounded(job.pipeline, max_records=5000)
    # a step that Spark had not noted when the run stopped is run again, and reported without counts
    first = next(report for report in runner.reports if report.events)
    assert first.epoch == int(stopped[1]) + 1
    job.assert_right()


@pytest.mark.long
@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_asked_twice_it_ends_at_once_and_loses_nothing(first: signal.Signals, make_job: MakeJob) -> None:
    job, log = make_job("log to SQLite")
    log.append(events(3000))
    with job.start("--max-records", "300", "--every", "50ms") as process:
        process.wait_until(lambda: job.committed() > 0)
        process.send(first, to_group=first == signal.SIGINT)
        process.wait_until(lambda: "stopping after this step" in process.errors or process.ended)
        process.send(signal.SIGINT, to_group=True)
        code = process.wait()
        assert code in {0, 130}, f"{process.output}{process.errors}"  # it may have been done by then
        assert_quiet(process)
    with job.start("--until-end") as process:
        assert process.wait() == 0
    job.assert_right()
