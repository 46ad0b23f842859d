"""Key groups that become more or fewer between two steps change nothing: not a row of any later step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.strategies import Case, cases

from windrow.core.carry import Plan, carry
from windrow.core.operators.base import GroupOutput
from windrow.core.output import StepOutput
from windrow.core.schema import RAW
from windrow.core.tick import PlayStep, Tick
from windrow.hosts.memory import MemoryHost
from windrow.model import Calendar, Hopping, Pipeline, Tumbling


class Player:
    """Gives the steps of a case to a host."""

    def __init__(self, case: Case, pipeline: Pipeline) -> None:
        self._partitions = case.partitions
        self.host = MemoryHost(pipeline, case.partitions)
        self._offsets = dict.fromkeys(case.partitions, 0)

    def step(self, step: PlayStep) -> StepOutput:
        """Take a step."""
        if isinstance(step, Tick):
            return together(self.host.tick(step.micros))
        rows = []
        for partition, value in step:
            rows.append({"partition": partition, "offset": self._offsets[partition], "value": value})
            self._offsets[partition] += 1
        return together(self.host.step(pa.Table.from_pylist(rows, schema=RAW)))

    def carry(self, pipeline: Pipeline, plan: Plan) -> None:
        """Go on with another pipeline."""
        states = self.host.states
        self.host = MemoryHost(pipeline, self._partitions)
        self.host.begin(carry(pipeline, plan, states))


def together(groups: Sequence[GroupOutput]) -> StepOutput:
    return StepOutput.concat(group.rows for group in groups)


def told(case: Case, output: StepOutput) -> dict[str, list[str]]:
    """All rows of a step, in an order of their own; changes of a key stay in theirs."""
    by_name = {field.name: sorted(map(repr, getattr(output, field.name).to_pylist())) for field in fields(output)}
    rows = output.changes.to_pylist()
    rows.sort(key=lambda row: repr([row[name] for name in case.pipeline.key]))
    return by_name | {"changes": list(map(repr, rows))}


def same(pipeline: Pipeline) -> Plan:
    """A plan that changes nothing but key groups."""
    return Plan(tuple(range(len(pipeline.aggregates))), pipeline.emit.lateness)


def hold(case: Case, data: st.DataObject) -> None:
    """Play a case with and without a change of the key groups somewhere in it."""
    salts = [1, 2, 3] if isinstance(case.pipeline.window, Tumbling | Calendar | Hopping) else [1]
    if case.pipeline.emit.early is not None:
        salts = [1]
    before = replace(case.pipeline, salt=data.draw(st.sampled_from(salts), "salt before"))
    after = replace(
        before,
        key_groups=data.draw(st.integers(1, 5), "key groups after"),
        salt=data.draw(st.sampled_from(salts), "salt after"),
    )
    at = data.draw(st.integers(0, len(case.feed)), "changed before step")
    plain, changed = Player(case, before), Player(case, before)
    for number, step in enumerate(case.feed):
        if number == at:
            changed.carry(after, same(after))
        assert told(case, changed.step(step)) == told(case, plain.step(step))
    if at == len(case.feed):
        changed.carry(after, same(after))
    assert told(case, together(changed.host.end())) == told(case, together(plain.host.end()))


def search(examples: int, most_records: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(cases(most_records=most_records), st.data())
    def find(case: Case, data: st.DataObject) -> None:
        hold(case, data)

    find()


def test_other_key_groups_change_nothing() -> None:
    search(15, most_records=16)


@pytest.mark.long
def test_other_key_groups_change_nothing_in_many_cases() -> None:
    search(1500, most_records=60)
