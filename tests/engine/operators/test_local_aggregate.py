"""Salted pipelines give the same answers, and spread the work."""

from __future__ import annotations

import json
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.engine.outputs import play
from tests.engine.pipelines import MAIN, MINUTE, main, raw, record
from tests.examples import examples
from tests.graphs import as_graph

from windrow.engine.changelog import StepOutput
from windrow.engine.messages import Records
from windrow.engine.operators.ingest import Ingest
from windrow.model import (
    Aggregate,
    Calendar,
    Cumulate,
    Decode,
    Delay,
    Emit,
    EventTime,
    Field,
    Hopping,
    Last,
    Punctuated,
    Sliced,
    Sum,
    TimestampType,
    Tumbling,
)
from windrow.runtime.memory import MemoryHost

WINDOWS = st.sampled_from(
    [
        Tumbling(5 * MINUTE),
        Tumbling(5 * MINUTE, MINUTE),
        Hopping(6 * MINUTE, 4 * MINUTE),
        Cumulate(6 * MINUTE, 2 * MINUTE),
        Calendar(1, "day"),
    ]
)
EMITS = st.builds(
    Emit,
    lateness=st.sampled_from([0, 10 * MINUTE]),
    late=st.sampled_from(["each", "batch"]),
    mode=st.sampled_from(["retract", "accumulate"]),
    at_end=st.sampled_from(["fire", "hold"]),
)
RECORDS = st.tuples(st.integers(0, 1), st.builds(record, st.sampled_from("AB"), st.integers(0, 40), st.integers(-9, 9)))
STEPS = st.lists(st.lists(RECORDS, max_size=8), max_size=6)


def rows(output: StepOutput) -> list[list[dict[str, object]]]:
    return [
        output.changes.to_pylist(),
        sorted(output.late.to_pylist(), key=lambda row: json.dumps(row, default=str)),
        output.clocks.to_pylist(),
    ]


@examples(20)
@given(WINDOWS, EMITS, STEPS, st.integers(2, 4), st.sampled_from([("user",), ()]))
def test_every_step_is_the_same_however_keys_are_spread(
    window: Tumbling | Sliced | Calendar,
    emit: Emit,
    steps: list[list[tuple[int, bytes]]],
    salt: int,
    key: tuple[str, ...],
) -> None:
    aggregates = (Aggregate("total", Sum("amount")), Aggregate("last", Last("amount")))
    plain = main(key=key, window=window, emit=emit, aggregates=aggregates, time=EventTime("t", Delay(2 * MINUTE)))
    expected = play(plain, steps, emit.at_end)
    actual = play(replace(plain, salt=salt, key_groups=4), steps, emit.at_end)
    assert [by_key(rows(output)) for output in actual] == [by_key(rows(output)) for output in expected]


def by_key(tables: list[list[dict[str, object]]]) -> list[list[dict[str, object]]]:
    """Keys are in the order of their groups; what is of one key stays in its own."""
    changes, *rest = tables
    return [
        sorted(changes, key=lambda row: (str(row["window_start"]), str(row["window_end"]), str(row.get("user")))),
        *rest,
    ]


@pytest.mark.parametrize("key", [("user",), ()])
def test_a_hot_key_is_in_as_many_groups_as_its_salt(key: tuple[str, ...]) -> None:
    log = raw(0, 0, *(record("hot", 1) for _ in range(300)))
    for salt, groups in ((1, 1), (3, 3)):
        packets = Ingest(as_graph(main(key=key, salt=salt, key_groups=4))).run(log.to_batches())
        assert len({packet.key_group for packet in packets if isinstance(packet.message, Records)}) == groups


@pytest.mark.parametrize("window", [Tumbling(5 * MINUTE), Hopping(5 * MINUTE, 5 * MINUTE)])
@pytest.mark.parametrize("punctuated", [False, True])
def test_records_after_an_end_of_the_input_revise_what_it_fired(
    window: Tumbling | Hopping, *, punctuated: bool
) -> None:
    for salt in (1, 4):
        pipeline = main(window=window, salt=salt, key_groups=4)
        if punctuated:
            # its watermarks may be far behind
            decode = Decode((*MAIN.decode.fields, Field("mark", TimestampType("micros"))))
            pipeline = replace(pipeline, decode=decode, time=EventTime("t", Punctuated("mark")))
        host = MemoryHost(as_graph(pipeline), [0])
        host.step(raw(0, 0, record("A", 1, 5), record("A", 2, 5)))
        host.end()
        changes = StepOutput.concat(group.rows for group in host.step(raw(0, 2, record("A", 3, 1)))).changes
        assert changes.column("op").to_pylist() == ["update_before", "update_after"]
        assert [group.stats.records for group in host.step(raw(0, 3, record("A", 4, 1)))].count(1) == 1
