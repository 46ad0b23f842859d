"""A change of the key groups or the aggregates between two steps changes nothing else: not a row of any later step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import scaled
from tests.graphs import as_graph, sink_spec_of
from tests.properties.strategies import Case, cases
from tests.short_forms import Pipeline

from windrow.engine import schema
from windrow.engine.changelog import StepOutput
from windrow.engine.level import migrate
from windrow.engine.operators.base import GroupOutput
from windrow.engine.schema import RAW
from windrow.engine.state.widening import StateChange
from windrow.engine.tick import PlayStep, Tick
from windrow.model import Aggregate, Calendar, Count, Formula, Sliced, Tumbling
from windrow.runtime.memory import MemoryHost

_COUNT = Aggregate("records", Count())


class Player:
    """Gives the steps of a case to a host."""

    def __init__(self, case: Case, pipeline: Pipeline) -> None:
        self._partitions = case.partitions
        self.host = MemoryHost(as_graph(pipeline), case.partitions)
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

    def carry(self, pipeline: Pipeline, plan: StateChange) -> None:
        """Go on with another pipeline."""
        states = self.host.states
        self.host = MemoryHost(as_graph(pipeline), self._partitions)
        self.host.begin(migrate(as_graph(pipeline), {"": plan}, states))


def together(groups: Sequence[GroupOutput]) -> StepOutput:
    return StepOutput.concat(group.rows for group in groups)


def told(case: Case, output: StepOutput) -> dict[str, list[str]]:
    """All rows of a step, in an order of their own; changes of a key stay in theirs."""
    by_name = {field.name: sorted(map(repr, getattr(output, field.name).to_pylist())) for field in fields(output)}
    rows = output.changes.to_pylist()
    rows.sort(key=lambda row: repr([row[name] for name in case.pipeline.key]))
    return by_name | {"changes": list(map(repr, rows))}


def same(pipeline: Pipeline) -> StateChange:
    """A plan that changes nothing but key groups."""
    return StateChange(tuple(range(len(pipeline.aggregates))), pipeline.emit.lateness)


def hold(case: Case, data: st.DataObject) -> None:
    """Play a case with and without a change of the key groups somewhere in it."""
    salts = [1, 2, 3] if isinstance(case.pipeline.window, Tumbling | Calendar | Sliced) else [1]
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


def search(examples: int, most_records: int, hold: Callable[[Case, st.DataObject], None] = hold) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(cases(most_records=most_records), st.data())
    def find(case: Case, data: st.DataObject) -> None:
        hold(case, data)

    find()


def test_other_key_groups_change_nothing() -> None:
    search(scaled(8), most_records=16)


@pytest.mark.long
def test_other_key_groups_change_nothing_in_many_cases() -> None:
    search(1500, most_records=60)


def hold_columns(case: Case, data: st.DataObject) -> None:
    """Play a case whose aggregates become others somewhere in it: those that stay are as if they had been alone."""
    given = [one for one in case.pipeline.aggregates if not isinstance(one.function, Formula)] or [_COUNT]
    before = data.draw(st.permutations(given).map(lambda found: found[: len(found) // 2 + 1]), "before")
    after = data.draw(st.permutations(given).map(lambda found: found[: len(found) // 2 + 1]), "after")
    stay = [one.name for one in before if one in after]
    whole = replace(case.pipeline, aggregates=tuple(given))
    first, then = (replace(whole, aggregates=tuple(one)) for one in (before, after))
    at = data.draw(st.integers(0, len(case.feed)), "changed before step")
    plain, changed = Player(case, whole), Player(case, first)
    for number, step in enumerate([*case.feed, None]):
        if number == at:
            places = tuple(before.index(one) if one in before else None for one in after)
            changed.carry(then, StateChange(places, whole.emit.lateness, same_records=False))
        outputs = [
            player.step(step) if step is not None else together(player.host.end()) for player in (plain, changed)
        ]
        names = [*schema.changes(sink_spec_of(whole).rows).names[: 5 + len(whole.key)], *(stay if number >= at else ())]
        expected, found = (told(case, replace(output, changes=output.changes.select(names))) for output in outputs)
        assert found == expected


def test_aggregates_that_stay_are_as_if_no_other_had_gone_or_come() -> None:
    search(scaled(8), most_records=16, hold=hold_columns)


@pytest.mark.long
def test_aggregates_that_stay_are_as_if_no_other_had_gone_or_come_in_many_cases() -> None:
    search(1500, most_records=60, hold=hold_columns)
