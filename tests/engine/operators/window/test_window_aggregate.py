import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.outputs import play
from tests.engine.pipelines import MAIN, MINUTE, main, raw, record
from tests.examples import examples
from tests.graphs import as_graph

from windrow.engine.changelog import StepOutput
from windrow.engine.schema import RAW
from windrow.model import Aggregate, Avg, DataType, DoubleType, Emit, LongType, Max, Min
from windrow.runtime.memory import MemoryHost


def rows(outputs: list[Any]) -> list[tuple[Any, ...]]:
    """(op, pane, revision, start minute, user, total, events) of all key groups."""
    changes = StepOutput.concat(output.rows for output in outputs).changes.to_pylist()
    return sorted(
        (
            (
                *(row["op"], row["pane"], row["revision"], int(row["window_start"].timestamp()) // 60, row["user"]),
                *(row[aggregate.name] for aggregate in MAIN.aggregates),
            )
            for row in changes
        ),
        key=lambda row: (row[3], row[4]),
    )


def test_a_partition_that_joins_begins_at_the_low_watermark_and_is_journaled() -> None:
    host = MemoryHost(as_graph(MAIN), [0])
    host.step(raw(0, 0, record("A", 1), record("A", 20)))
    outputs = host.step(raw(1, 5, record("A", 2), record("B", 17.5), record("B", 30)))
    # watermark 19: [0, 5) fired and is past its lateness of 10 minutes; B's 17.5 is on time for [15, 20)
    late = StepOutput.concat(output.rows for output in outputs).late.to_pylist()
    assert [(row["partition"], row["offset"]) for row in late] == [(1, 5)]
    (joined,) = StepOutput.concat(output.rows for output in outputs).clocks.to_pylist()
    assert (joined["partition"], joined["offset"], joined["reason"]) == (1, 5, "joined")
    assert joined["low_watermark"].timestamp() == 19 * 60
    assert joined["clock"].timestamp() == 20 * 60
    outputs = host.step(raw(0, 2, record("A", 31)))
    assert rows(outputs) == [
        ("insert", "on_time", 0, 15, "B", Decimal("1.00"), 1),
        ("insert", "on_time", 0, 20, "A", Decimal("1.00"), 1),
    ]


def test_a_partition_without_a_record_holds_every_window_open() -> None:
    host = MemoryHost(as_graph(MAIN), [0, 1])
    assert rows(host.step(raw(0, 0, record("A", 1), record("A", 90)))) == []
    assert rows(host.step(raw(1, 0, record("B", 7)))) == [("insert", "on_time", 0, 0, "A", Decimal("1.00"), 1)]


def test_a_record_after_the_end_of_the_input_revises_what_the_end_fired() -> None:
    host = MemoryHost(as_graph(MAIN), [0])
    host.step(raw(0, 0, record("A", 1, 5)))
    assert rows(host.end()) == [("insert", "on_time", 0, 0, "A", Decimal("5.00"), 1)]
    assert rows(host.step(raw(0, 1, record("A", 2, 2)))) == [
        ("update_before", "late", 0, 0, "A", Decimal("5.00"), 1),
        ("update_after", "late", 1, 0, "A", Decimal("7.00"), 2),
    ]


def test_the_end_is_journaled_with_the_offsets_at_which_it_took_effect() -> None:
    host = MemoryHost(as_graph(MAIN), [0, 3])
    host.step(raw(0, 7, record("A", 1)))
    clocks = StepOutput.concat(output.rows for output in host.end()).clocks.to_pylist()
    assert [(row["partition"], row["offset"], row["reason"]) for row in clocks] == [(0, 8, "end"), (3, 0, "end")]


def test_state_goes_when_no_record_can_reach_it() -> None:
    host = MemoryHost(as_graph(MAIN), [0])
    for minute in range(0, 150, 3):
        host.step(raw(0, minute // 3, record(f"u{minute % 7}", minute), record("u1", minute - 9)))
    sizes = [len(state._blobs) for state in host.states]  # noqa: SLF001 - the state is the point
    # 10 minutes of lateness and 1 of delay: never more than the windows of the last 20 minutes
    assert max(sizes) <= 4
    host.step(raw(0, 10_000, record("u1", 10_000), record("u1", 10_100)))
    assert sum(len(state._blobs) for state in host.states) == 1  # noqa: SLF001 - the same


def test_a_late_record_that_waits_is_kept_over_steps() -> None:
    host = MemoryHost(as_graph(main(emit=Emit(lateness=60 * MINUTE))), [0, 1])
    host.step(raw(0, 0, record("A", 1, 1), record("A", 30, 1)))
    assert rows(host.step(raw(0, 2, record("A", 2, 10)))) == []
    assert rows(host.step(raw(0, 3, record("B", 3, 10), record("A", 4, 100)))) == []
    assert rows(host.step(raw(1, 0, record("C", 29)))) == [
        ("insert", "on_time", 0, 0, "A", Decimal("1.00"), 1),
        ("update_before", "late", 0, 0, "A", Decimal("1.00"), 1),
        ("update_after", "late", 1, 0, "A", Decimal("11.00"), 2),
        ("update_before", "late", 1, 0, "A", Decimal("11.00"), 2),
        ("update_after", "late", 2, 0, "A", Decimal("111.00"), 3),
        ("insert", "late", 0, 0, "B", Decimal("10.00"), 1),
    ]


def test_one_revision_a_step_where_late_goes_by_batch() -> None:
    host = MemoryHost(as_graph(main(emit=Emit(lateness=60 * MINUTE, late="batch"))), [0])
    host.step(raw(0, 0, record("A", 1, 1), record("A", 30, 1)))
    assert rows(host.step(raw(0, 2, record("A", 2, 10), record("A", 3, 100)))) == [
        ("update_before", "late", 0, 0, "A", Decimal("1.00"), 1),
        ("update_after", "late", 1, 0, "A", Decimal("111.00"), 3),
    ]


def test_a_step_without_records_changes_nothing() -> None:
    host = MemoryHost(as_graph(MAIN), [0])
    host.step(raw(0, 0, record("A", 1)))
    assert rows(host.step(RAW.empty_table())) == []


@examples(50)
@given(amount=st.sampled_from([1, -1]), amounts=st.lists(st.integers(0, 10**12 - 1), min_size=1, max_size=8))
def test_the_mean_is_exact_and_rounds_half_away_from_zero(amount: int, amounts: list[int]) -> None:
    cents = [amount * value for value in amounts]
    lines = [(0, b'{"user":"A","t":0,"amount":"%s"}' % str(Decimal(cent) / 100).encode()) for cent in cents]
    *_, last = play(main(aggregates=(Aggregate("mean", Avg("amount")),)), [lines], "fire")
    (mean,) = last.changes.column("mean").to_pylist()
    exact = Decimal(sum(cents)) / len(cents) / 100
    assert mean.as_tuple().exponent == -8
    assert abs(mean - exact) <= Decimal("0.000000005")
    doubled = abs(sum(cents)) * 10**6 * 2 + len(cents)
    assert abs(int(mean.scaleb(8))) == doubled // (2 * len(cents))


@pytest.mark.parametrize(
    ("type_", "values", "expected"),
    [
        (LongType(), [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        (DoubleType(), [-0.5, 1e308], [1e308, -0.5]),
    ],
)
def test_extremes_come_out_as_they_went_in(type_: DataType, values: list[Any], expected: list[Any]) -> None:
    decode = type(MAIN.decode)((*MAIN.decode.fields[:2], type(MAIN.decode.fields[2])("amount", type_)))
    pipeline = main(decode=decode, aggregates=(Aggregate("hi", Max("amount")), Aggregate("lo", Min("amount"))))
    lines = [(0, b'{"user":"A","t":0,"amount":%s}' % repr(value).encode()) for value in values]
    *_, last = play(pipeline, [lines], "fire")
    assert [last.changes.column(name).to_pylist()[0] for name in ("hi", "lo")] == expected


@pytest.mark.parametrize("groups", [1, 4, 8])
def test_what_the_end_fired_is_the_same_in_every_key_group(groups: int) -> None:
    host = MemoryHost(as_graph(main(key_groups=groups)), [0])
    host.step(raw(0, 0, record("A", 1)))
    host.end()
    # the event time had come to minute 1: [0, 5) has fired for every key, also for those that had nothing in it
    late = rows(host.step(raw(0, 1, *(record(user, 1.5) for user in "BCDEFG"))))
    assert [row[:5] for row in late] == [("insert", "late", 0, 0, user) for user in "BCDEFG"]


def test_a_key_that_is_a_time_has_one_group_in_every_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import pyarrow as pa; from windrow.engine.duckdb_sql import Connection;"
        "from windrow.engine.keys import key_groups;"
        "t = pa.table({'t': pa.array([0, 10**15], pa.timestamp('us', tz='UTC'))});"
        "print(key_groups(Connection(), t, 1000).tolist())"
    )
    found = set()
    for zone in ("America/New_York", "Asia/Kolkata"):
        monkeypatch.setenv("TZ", zone)
        found.add(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout)
    assert len(found) == 1
