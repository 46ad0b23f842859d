"""A field of a wider type from some step on: the later steps are those of the new pipeline over the whole log."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import scaled
from tests.properties.strategies import Case, cases
from tests.properties.test_carry import Player, together, told
from tests.short_forms import Pipeline, operator_spec

from windrow.engine.state.widening import StateChange, incompatible_fields
from windrow.engine.tick import PlayStep, Tick
from windrow.model import DataType, DecimalType, Decode, Field

WIDER: dict[str, list[DataType]] = {
    "n": [DecimalType(19, 0), DecimalType(24, 0), DecimalType(22, 3)],
    "shop": [DecimalType(19, 0)],
    "amount": [DecimalType(14, 2), DecimalType(28, 2), DecimalType(14, 4), DecimalType(16, 3)],
    "price": [DecimalType(13, 2), DecimalType(38, 2)],
}


@st.composite
def widened(draw: st.DrawFn, pipeline: Pipeline) -> Pipeline:
    """Draw a pipeline with some fields of wider types, and some that may be lacking now."""
    fields = []
    for field in pipeline.decode.fields:
        type_, optional = field.type, field.optional
        if draw(st.booleans()):
            type_ = draw(st.sampled_from(WIDER.get(field.name, [type_])))
        if field.name in {"n", "amount", "weight"}:
            optional = optional or draw(st.booleans())
        if field.name == "amount" and "amount::VARCHAR" in repr(pipeline):
            # digits behind the point change what that is
            type_ = field.type
        fields.append(Field(field.name, type_, optional, field.alias))
    # also with other key groups
    return replace(pipeline, decode=Decode(tuple(fields)), key_groups=draw(st.integers(1, 3)))


def plan_of(before: Pipeline, after: Pipeline) -> StateChange:
    """The plan of a pipeline that differs in its fields alone."""
    were = tuple(field for field in before.decode.fields if field not in after.decode.fields)
    places = tuple(range(len(before.aggregates)))
    return StateChange(places, before.emit.lateness, same_records=not were, were=were)


def sound(before: Pipeline, after: Pipeline) -> Pipeline:
    """The pipeline with the fields as they were whose types cannot be others."""
    bad = incompatible_fields(operator_spec(after), plan_of(before, after))
    fields = tuple(
        replace(field, type=before.decode.field(field.name).type) if field.name in bad else field
        for field in after.decode.fields
    )
    found = replace(after, decode=Decode(fields))
    assert incompatible_fields(operator_spec(found), plan_of(before, found)) == {}
    return found


def without(step: PlayStep, dead: set[tuple[int, int]], offsets: dict[int, int]) -> PlayStep:
    """The step with garbage in the place of what was dead."""
    if isinstance(step, Tick):
        return step
    records = []
    for partition, value in step:
        place = (partition, offsets.get(partition, 0))
        offsets[partition] = place[1] + 1
        records.append((partition, b"{" if place in dead else value))
    return records


def hold(case: Case, data: st.DataObject) -> None:
    """Play a case by the old types up to a step and by the new ones from there, and by the new ones all of it."""
    before = case.pipeline
    after = sound(before, data.draw(widened(before), "after"))
    at = data.draw(st.integers(0, len(case.feed)), "changed before step")
    changed = Player(case, before)
    dead: set[tuple[int, int]] = set()
    for step in case.feed[:at]:
        rows = changed.step(step).dead
        dead |= set(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    changed.carry(after, plan_of(before, after))
    plain = Player(case, after)
    offsets: dict[int, int] = {}
    for step in case.feed[:at]:
        plain.step(without(step, dead, offsets))
    for step in case.feed[at:]:
        assert told(case, changed.step(step)) == told(case, plain.step(step))
    assert told(case, together(changed.host.end())) == told(case, together(plain.host.end()))


def search(examples: int, most_records: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(cases(most_records=most_records), st.data())
    def find(case: Case, data: st.DataObject) -> None:
        hold(case, data)

    find()


def test_later_steps_are_those_of_the_new_types() -> None:
    search(scaled(4), most_records=16)


@pytest.mark.long
def test_later_steps_are_those_of_the_new_types_in_many_cases() -> None:
    search(1500, most_records=60)
