"""Records that fail because of a defect are dead letters in every cut, after a crash and in a replay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.outputs import only
from tests.examples import examples, many
from tests.graphs import as_graph
from tests.properties.defects import Defects, content_of
from tests.properties.graph_oracle import GraphOracle, Values
from tests.properties.strategies import Case as ShortCase
from tests.properties.strategies import cases as short_cases
from tests.properties.test_graphs import EXPRESSIONS, FLAT, Case, Run, cases, group_of, table_of, values_of, windows
from tests.properties.test_hosts import log_of, same
from tests.short_forms import windowed

from windrow.engine.tick import PlayStep
from windrow.model import Global, Session
from windrow.runtime.memory import MemoryHost
from windrow.testing.oracle import run
from windrow.testing.oracle.answer import LogRecord
from windrow.testing.transcript.story import load_play

DEFECTS = st.builds(Defects, st.integers(0, 2**32), st.integers(4, 12))


class CrashedRun(Run):
    """A run whose process dies in each second step, which is run again from the state before it."""

    def step(self, records: list[tuple[int, int, Values]]) -> None:
        if len(self.outputs) % 2:
            states, offsets = self.host.copy_states(), dict(self.offsets)
            super().step(records)
            self.outputs.pop()
            self.offsets, self.host = offsets, MemoryHost(self.graph, self.partitions)
            self.host.begin(states)
        super().step(records)


def content_of_bytes(value: bytes) -> str:
    return content_of(json.loads(value))


def rejected(runs: Run, part: str) -> list[str]:
    """Return the rows of all sinks in the dead letters or in the late output, in an order of their own."""
    found = [(sink, getattr(made, part)) for output in runs.outputs for sink, made in output.items()]
    return sorted(f"{sink}: {row}" for sink, table in found for row in table.to_pylist())


def compare(case: Case, defects: Defects) -> None:
    oracle = GraphOracle(case.graph, case.log, EXPRESSIONS, fails=defects.fails)
    with pytest.MonkeyPatch.context() as patch:
        defects.inject(patch, content_of_bytes)
        runs = [Run(case, case.cuts[0]), CrashedRun(case, case.cuts[1]), Run(case, [])]
        for one in runs:
            one.end()
    for node in windows(case.graph):
        for one in runs:
            changes = one.changes(node.name)
            assert table_of(changes, node) == oracle.table(node.name), node.name
            if not isinstance(node.window, Session | Global):
                on_time = {group_of(row, node): values_of(row, node) for row in changes if row["pane"] == "on_time"}
                assert on_time == oracle.on_time(node.name), node.name
    for part in ("dead", "late"):
        assert rejected(runs[1], part) == rejected(runs[0], part)
        assert rejected(runs[2], part) == rejected(runs[0], part)


@examples(12)
@given(cases(), DEFECTS)
def test_records_that_fail_are_dead_letters_and_all_else_is_the_oracles(case: Case, defects: Defects) -> None:
    compare(case, defects)


@examples(6)
@given(cases(*FLAT), DEFECTS)
def test_records_with_elements_that_fail_are_dead_letters(case: Case, defects: Defects) -> None:
    compare(case, defects)


@pytest.mark.long
@many(1000)
@given(cases(), DEFECTS)
def test_many_graphs_with_records_that_fail(case: Case, defects: Defects) -> None:
    compare(case, defects)


def hold_to_the_oracle(host: str, case: ShortCase, defects: Defects) -> None:
    """Play a case as it is and in another cut; both must come to the oracle's answer, which knows defects of decode."""

    def expected_of(steps: Sequence[PlayStep]) -> dict[int, list[LogRecord]]:
        return {
            partition: [replace(one, is_defect=defects.at("decode", repr(one.value)) is not None) for one in records]
            for partition, records in log_of(case, steps).items()
        }

    if case.pipeline.time.idle is not None:
        return
    defects = replace(defects, only="decode")
    with pytest.MonkeyPatch.context() as patch:
        defects.inject(patch, repr)
        for steps in (case.feed, case.recut.steps):
            outputs = only(load_play(host)(as_graph(case.pipeline), steps, case.pipeline.emit.at_end))
            same(case, run(windowed(case.pipeline), expected_of(steps)), outputs)


@examples(12)
@given(short_cases(most_records=20), DEFECTS)
def test_records_that_cannot_be_decoded_are_dead_letters_of_the_oracle(case: ShortCase, defects: Defects) -> None:
    hold_to_the_oracle("memory", case, defects)
