"""Every host gives the oracle's answer, in every cut of the log, and after every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy
from tests.engine.outputs import only
from tests.examples import scaled
from tests.graphs import as_graph
from tests.properties.strategies import Case, cases
from tests.runtime.answers import answer
from tests.short_forms import operator_spec, windowed

from windrow.engine.changelog import StepOutput
from windrow.engine.tick import PlayStep, Tick
from windrow.model import Records, Session
from windrow.model.triggers import has_every
from windrow.testing.oracle import Answer, Journal, LogRecord, differences, run
from windrow.testing.oracle.answer import WindowKey
from windrow.testing.transcript.changelog_check import fold_changelog
from windrow.testing.transcript.story import load_play
from windrow.testing.transcript.views import observe, repeated


def log_of(case: Case, steps: Sequence[PlayStep]) -> dict[int, list[LogRecord]]:
    """Return the log of some steps; all the case's partitions are there."""
    log: dict[int, list[LogRecord]] = {partition: [] for partition in case.partitions}
    for step in steps:
        for partition, value in () if isinstance(step, Tick) else step:
            log[partition].append(LogRecord(len(log[partition]), None, value))
    return log


def journal_of(outputs: Sequence[StepOutput]) -> Journal:
    """Return what a run's clock journal says of the clocks."""
    bounds: dict[int, tuple[tuple[int, int], ...]] = {}
    low = None
    for output in outputs:
        columns = [
            output.clocks.column("partition"),
            output.clocks.column("offset"),
            output.clocks.column("low_watermark").cast(pa.int64()),
            output.clocks.column("reason"),
        ]
        for partition, offset, at, reason in zip(*(column.to_pylist() for column in columns), strict=True):
            if reason in {"joined", "active"} and at is not None:
                bounds[partition] = (*bounds.get(partition, ()), (offset, at))
            if reason == "end":
                low = at
    return Journal(bounds, low)


def same(case: Case, expected: Answer, outputs: Sequence[StepOutput]) -> None:
    """Hold outputs to an answer, in all that is the same in every cut."""
    emit = case.pipeline.emit
    observed = observe(operator_spec(case.pipeline), outputs)
    settled = case.one_order and emit.late != "batch" and not has_every(emit.early)
    seen = answer(operator_spec(case.pipeline), observed)
    found = differences(
        _but_early(expected, seen) if _sessions(case) and not settled else expected,
        seen,
        revisions=settled,
        changelog=settled,
        early=settled,
        # with counts, which late records are in a revision by now depends on their order
        table=settled or (emit.mode != "discard" and not isinstance(emit.late, Records)),
    )
    assert not found, "\n".join(found)
    assert not fold_changelog(operator_spec(case.pipeline), observed.changes).misfits
    assert not repeated(observed)


def _but_early(expected: Answer, seen: Answer) -> Answer:
    """Leave out the sessions that early panes have taken the place of: processing time is not in the log."""
    early = [key for key, row in seen.table.items() if row[-2] == "early"]

    def is_shown(key: WindowKey) -> bool:
        start, end = _window(key)
        return not any(key[2:] == one[2:] and start < _window(one)[1] and _window(one)[0] < end for one in early)

    return replace(expected, table={key: row for key, row in expected.table.items() if is_shown(key)})


def _window(key: WindowKey) -> tuple[int, int]:
    start, end = key[:2]
    assert isinstance(start, int)
    assert isinstance(end, int)
    return start, end


def _sessions(case: Case) -> bool:
    return isinstance(case.pipeline.window, Session)


def hold_to_the_oracle(host: str, case: Case) -> None:
    """Play a case as it is and in another cut; both must come to the oracle's answer."""
    play = load_play(host)
    at_end = case.pipeline.emit.at_end
    expected = run(windowed(case.pipeline), log_of(case, case.feed))
    told = only(play(as_graph(case.pipeline), case.feed, at_end))
    recut = only(play(as_graph(case.pipeline), case.recut.steps, at_end))
    for steps, outputs in ((case.feed, told), (case.recut.steps, recut)):
        if case.pipeline.time.idle is None:
            same(case, expected, outputs)
        else:
            # idleness is not in the log, but in the journal
            same(case, run(windowed(case.pipeline), log_of(case, steps), journal_of(outputs)), outputs)
    if case.pipeline.time.idle is not None:
        return
    # after each step the answer is that of the log so far, with windows held that the low watermark has not passed
    held = replace(case.pipeline, emit=replace(case.pipeline.emit, at_end="hold"))
    for done in range(1, len(case.feed) + 1):
        same(case, run(windowed(held), log_of(case, case.feed[:done])), told[:done])


def search(host: str, examples: int, drawn: SearchStrategy[Case]) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(drawn)
    def find(case: Case) -> None:
        hold_to_the_oracle(host, case)

    find()


def test_memory_host_gives_the_oracles_answer_in_every_cut() -> None:
    search("memory", scaled(10), cases(most_records=20))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("host", ["stream", "batch"])
def test_spark_hosts_give_the_oracles_answer_in_every_cut(host: str) -> None:
    search(host, 2, cases(most_records=8))


@pytest.mark.long
def test_memory_host_gives_the_oracles_answer_in_many_cases() -> None:
    search("memory", 3000, cases(most_records=60))


@pytest.mark.long
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("host", "examples"), [("stream", 40), ("batch", 100)])
def test_spark_hosts_give_the_oracles_answer_in_many_cases(host: str, examples: int) -> None:
    search(host, examples, cases())
