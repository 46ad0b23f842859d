"""Every host gives the oracle's answer, in every cut of the log."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from tests.properties.strategies import Case, cases

from windrow.testing.oracle import LogRecord, differences, run
from windrow.testing.transcript.hosts import load_play
from windrow.testing.transcript.observed import answer, fold, observe, repeated


def hold_to_the_oracle(host: str, case: Case) -> None:
    play = load_play(host)
    log = {
        partition: [LogRecord(offset, None, value) for offset, value in enumerate(values)]
        for partition, values in case.log.items()
    }
    expected = run(case.pipeline, log)
    for steps in (case.steps, case.recut, case.extreme):
        observed = observe(case.pipeline, play(case.pipeline, steps, case.pipeline.emit.at_end))
        found = differences(
            expected,
            answer(observed),
            revisions=case.pipeline.emit.late == "each",
            changelog=len(log) == 1,
        )
        assert not found, "\n".join(found)
        assert not fold(observed.changes).misfits
        assert not repeated(observed)


def search(host: str, examples: int, most_records: int = 30) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(cases(most_records=most_records))
    def find(case: Case) -> None:
        hold_to_the_oracle(host, case)

    find()


def test_memory_host_gives_the_oracles_answer_in_every_cut() -> None:
    search("memory", 200)


def test_stream_host_gives_the_oracles_answer_in_every_cut() -> None:
    search("stream", 3, most_records=8)


@pytest.mark.long
def test_memory_host_gives_the_oracles_answer_in_many_cases() -> None:
    search("memory", 3000, most_records=60)


@pytest.mark.long
def test_stream_host_gives_the_oracles_answer_in_many_cases() -> None:
    search("stream", 40)
