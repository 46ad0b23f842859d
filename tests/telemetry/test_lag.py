"""How far behind a run is, asked beside its steps."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st
from tests.client.test_progress import REPORT

from windrow.connectors.source import Source
from windrow.errors import SourceError
from windrow.telemetry.lag import LagWatch, lag, lag_seconds
from windrow.telemetry.reports import Lag, StepReport

SECONDS = 30.0

partitions = st.integers(0, 20)
offsets = st.integers(0, 1 << 40)


@given(st.dictionaries(partitions, st.tuples(offsets, offsets)), st.dictionaries(partitions, offsets))
def test_what_is_read_and_what_is_not_make_up_the_log(
    found: dict[int, tuple[int, int]], reached: dict[int, int]
) -> None:
    ends = {partition: (min(pair), max(pair)) for partition, pair in found.items()}
    behind = lag(ends, reached)
    assert behind.keys() == ends.keys()
    for partition, (first, end) in ends.items():
        at = reached.get(partition, first)
        assert behind[partition] == (end - at if at < end else 0)


class Asked:
    """A source that answers when it is let, and tells when it is asked again."""

    def __init__(self) -> None:
        self.answers: list[dict[int, tuple[int, int]] | None] = []
        self.may_answer = threading.Semaphore(0)
        self.asked = threading.Semaphore(0)

    def ends(self) -> dict[int, tuple[int, int]]:
        self.asked.release()
        assert self.may_answer.acquire(timeout=SECONDS)
        answer = self.answers.pop(0)
        if answer is None:
            msg = "the broker is away"
            raise SourceError(msg)
        return answer

    def answer(self, ends: dict[int, tuple[int, int]] | None) -> None:
        """Give one answer, and wait for the question after it."""
        self.answers.append(ends)
        self.may_answer.release()
        assert self.asked.acquire(timeout=SECONDS)


def test_a_step_does_not_wait_for_the_answer() -> None:
    source, told = Asked(), list[StepReport]()
    with LagWatch(cast("Source", source), lambda epoch: {0: 7 + epoch}) as watch:
        tell = watch.with_lag(told.append)
        assert source.asked.acquire(timeout=SECONDS)
        tell(REPORT)  # the first question is not answered yet
        source.answer({0: (5, 10), 1: (2, 4)})
        tell(REPORT)
        tell(replace(REPORT, epoch=1))
        source.answer(None)
        tell(REPORT)
        # what is asked when the run ends is answered
        source.answers.append({})
        source.may_answer.release()
    assert not any(thread.name == "windrow-lag" for thread in threading.enumerate())
    assert [report.lag for report in told] == [None, {0: 3, 1: 2}, {0: 2, 1: 2}, None]
    assert [report.behind for report in told] == [None, 5, 4, None]
    # a step ends where it was planned to
    assert [report.offsets for report in told] == [{0: 7}, {0: 7}, {0: 8}, {0: 7}]
    assert replace(told[1], lag=None, offsets=REPORT.offsets) == REPORT
    assert {report.lag_seconds for report in told} == {None}


def test_lag_in_time_is_since_the_log_had_what_was_read_last() -> None:
    source, told = Asked(), list[StepReport]()
    with LagWatch(cast("Source", source), lambda _: {0: 7, 1: 2, 2: 0}) as watch:
        tell = watch.with_lag(told.append)
        assert source.asked.acquire(timeout=SECONDS)
        source.answer({0: (0, 10), 1: (0, 2), 2: (0, 1)})
        step = replace(REPORT, log_times={0: 4_000_000, 1: 5_000_000}, committed=6_500_000)
        tell(step)
        tell(replace(step, log_times={}, committed=9_000_000))
        source.answers.append({})
        source.may_answer.release()
    # all of partition 1 was read, and nothing of partition 2
    assert [report.lag_seconds for report in told] == [{0: 2.5, 1: 0.0}, {0: 5.0, 1: 0.0}]


def test_lag_grows_where_no_step_is_taken() -> None:
    source, told, seen = Asked(), list[Lag](), threading.Semaphore(0)

    def tell(lag: Lag) -> None:
        told.append(lag)
        seen.release()

    with LagWatch(cast("Source", source), lambda epoch: {0: 7 + epoch}, 3, tell) as watch:
        assert source.asked.acquire(timeout=SECONDS)
        source.answer({0: (0, 10)})
        watch.with_lag(lambda _: None)(replace(REPORT, epoch=5, log_times={0: 4_000_000}))
        source.answer({0: (0, 12)})
        source.answer({0: (0, 20)})
        source.answers.append({})
        source.may_answer.release()
        for _ in range(4):
            assert seen.acquire(timeout=SECONDS)
    assert [one.records for one in told] == [{0: 0}, {0: 0}, {0: 8}, {}]
    assert told[2].asked > told[0].asked
    assert told[2].longest is not None
    assert told[2].longest > 1_000_000
    assert told[0].longest == 0.0


def test_lag_in_time_is_unknown_without_log_timestamps() -> None:
    assert lag_seconds({0: 3}, {}, 1) is None
    assert lag_seconds({0: 3}, {0: 1}, None) is None
