"""Every host gives the oracle's answer, in every cut of the log, and after every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from tests.properties.strategies import Case, Steps, cases

from windrow.core.output import StepOutput
from windrow.testing.oracle import Answer, LogRecord, differences, run
from windrow.testing.transcript.folded import fold
from windrow.testing.transcript.hosts import load_play
from windrow.testing.transcript.observed import answer, observe, repeated


def log_of(case: Case, steps: Steps) -> dict[int, list[LogRecord]]:
    """Return the log of some steps; all the case's partitions are there."""
    log: dict[int, list[LogRecord]] = {partition: [] for partition in case.log}
    for partition, value in (record for step in steps for record in step):
        log[partition].append(LogRecord(len(log[partition]), None, value))
    return log


def same(case: Case, expected: Answer, outputs: Sequence[StepOutput]) -> None:
    observed = observe(case.pipeline, outputs)
    found = differences(
        expected,
        answer(case.pipeline, observed),
        # what depends on the steps, or on how partitions interleave, is no promise
        revisions=case.pipeline.emit.late == "each",
        changelog=len(case.log) == 1,
    )
    assert not found, "\n".join(found)
    assert not fold(observed.changes, case.pipeline.emit.mode).misfits
    assert not repeated(observed)


def hold_to_the_oracle(host: str, case: Case) -> None:
    play = load_play(host)
    at_end = case.pipeline.emit.at_end
    expected = run(case.pipeline, log_of(case, case.steps))
    outputs = play(case.pipeline, case.steps, at_end)
    same(case, expected, outputs)
    # after each step the answer is that of the log so far, with windows held that the low watermark has not passed
    held = replace(case.pipeline, emit=replace(case.pipeline.emit, at_end="hold"))
    for done in range(1, len(case.steps) + 1):
        same(case, run(held, log_of(case, case.steps[:done])), outputs[:done])
    for steps in (case.recut, case.extreme):
        same(case, expected, play(case.pipeline, steps, at_end))


def search(host: str, examples: int, most_records: int = 30) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(cases(most_records=most_records))
    def find(case: Case) -> None:
        hold_to_the_oracle(host, case)

    find()


def test_memory_host_gives_the_oracles_answer_in_every_cut() -> None:
    search("memory", 200)


@pytest.mark.usefixtures("spark")
def test_stream_host_gives_the_oracles_answer_in_every_cut() -> None:
    search("stream", 3, most_records=8)


@pytest.mark.long
def test_memory_host_gives_the_oracles_answer_in_many_cases() -> None:
    search("memory", 3000, most_records=60)


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_stream_host_gives_the_oracles_answer_in_many_cases() -> None:
    search("stream", 40)
