"""Sessions on the memory host, from records to changes."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.operators.session.session_reference import (
    Component,
    Judged,
    OnePartition,
    components,
    on_time_panes,
    watermarks,
    window,
)
from tests.engine.outputs import play
from tests.engine.pipelines import main, raw
from tests.examples import examples
from tests.graphs import as_graph
from tests.short_forms import Pipeline

from windrow.engine.changelog import StepOutput
from windrow.engine.tick import Tick
from windrow.errors import PipelineError
from windrow.model import (
    Aggregate,
    AllOf,
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    BoolAnd,
    CollectList,
    CollectSet,
    Count,
    CountDistinct,
    Decode,
    Delay,
    Emit,
    EventTime,
    Every,
    Field,
    First,
    Formula,
    Function,
    Last,
    LongType,
    Min,
    Quantile,
    Records,
    Repeat,
    Session,
    Stddev,
    StringType,
    Sum,
    TimestampType,
    TopK,
)
from windrow.runtime.memory import MemoryHost

GAP = 10
DECODE = Decode((Field("user", StringType()), Field("t", TimestampType("micros")), Field("bit", LongType())))

Change = tuple[Any, ...]
"""(op, pane, revision, (start, end), key, bits of the records)."""


def pipeline(gap: int = GAP, delay: int = 0, key: tuple[str, ...] = ("user",), **emit: Any) -> Pipeline:  # noqa: ANN401
    return main(
        decode=DECODE,
        time=EventTime("t", Delay(delay)),
        key=key,
        window=Session(gap),
        aggregates=(Aggregate("bits", Sum("bit")), Aggregate("events", Count())),
        emit=Emit(**{"lateness": 100, **emit}),
        key_groups=1,
    )


def line(user: str, time: int, bit: int = 0) -> bytes:
    return json.dumps({"user": user, "t": time, "bit": 1 << bit}).encode()


def changes(outputs: Sequence[StepOutput]) -> list[Change]:
    """The changes in the order of their steps."""
    found = []
    for output in outputs:
        table = output.changes
        for name in ("window_start", "window_end"):
            number = table.column_names.index(name)
            table = table.set_column(number, name, table.column(name).cast(pa.int64()))
        for row in table.to_pylist():
            assert int(row["bits"]).bit_count() == row["events"]
            bounds = (row["window_start"], row["window_end"])
            found.append((row["op"], row["pane"], row["revision"], bounds, row["user"], int(row["bits"])))
    return found


def told(pipeline_: Pipeline, *steps: Sequence[int] | Tick, end: bool = False) -> list[list[Change]]:
    """The changes of each step of a log of one key in one partition; the n-th record has bit n."""
    fed: list[Any] = []
    number = 0
    for step in steps:
        if isinstance(step, Tick):
            fed.append(step)
            continue
        fed.append([(0, line("A", time, number + place)) for place, time in enumerate(step)])
        number += len(step)
    outputs = play(pipeline_, fed, "fire" if end else "hold")
    return [[(*change[:4], change[5]) for change in changes([output])] for output in outputs]


def fold(found: Sequence[Change]) -> dict[Any, int]:
    """The table that a changelog makes; every change must fit what is there."""
    table: dict[Any, tuple[int, int]] = {}
    taken: dict[Any, int] = {}
    for op, _, revision, bounds, user, bits in found:
        there = table.pop((bounds, user), None)
        before = taken.pop((bounds, user), None)
        match op:
            case "insert":
                assert (there, before, revision) == (None, None, 0)
                table[bounds, user] = (revision, bits)
            case "update_after":
                assert there is None
                assert before == revision - 1
                table[bounds, user] = (revision, bits)
            case _:
                assert there == (revision, bits)
                if op == "update_before":
                    taken[bounds, user] = revision
    assert not taken
    return {name: bits for name, (_, bits) in table.items()}


class Setting(NamedTuple):
    gap: int
    delay: int
    lateness: int
    late: Literal["each", "batch"]
    at_end: bool


SETTINGS = st.builds(
    Setting,
    gap=st.sampled_from([1, 2, 4, 7]),
    delay=st.sampled_from([0, 2, 6]),
    lateness=st.sampled_from([0, 3, 30]),
    late=st.sampled_from(["each", "each", "batch"]),
    at_end=st.booleans(),
)


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, str, int]]:
    """(partition, key, time): time goes on, and records are somewhat out of order."""
    partitions, pace = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    skews = draw(st.lists(st.sampled_from([0, 0, 4, 15]), min_size=3, max_size=3))
    base = draw(st.sampled_from([0, -500]))
    steps = st.tuples(st.integers(0, partitions - 1), st.sampled_from("ab"), st.integers(-12, 6))
    return [
        (partition, key, base + number * pace + skews[partition] + jitter)
        for number, (partition, key, jitter) in enumerate(draw(st.lists(steps, min_size=1, max_size=30)))
    ]


@examples(20)
@given(entries=logs(), setting=SETTINGS, cut=st.lists(st.integers(0, 30), max_size=5).map(sorted))
def test_every_cut_tells_what_the_definition_says(
    entries: list[tuple[int, str, int]], setting: Setting, cut: list[int]
) -> None:
    gap, delay, lateness, late, at_end = setting
    records, reached = watermarks(entries, delay)
    # a partition that occurs is there from the start
    present = {partition for partition, _, _ in entries}
    low = min(reached[partition] for partition in present)
    bits = {record: 1 << number for number, (_, record) in enumerate(records)}

    def bits_of(component: Component) -> int:
        return sum(bits[record] for record in component)

    on_time: list[Any] = []
    final: dict[Any, int] = {}
    expired: set[tuple[int, int]] = set()
    changelog: list[Change] = []
    for key in "ab":
        its = [record for its_key, record in records if its_key == key]
        judged = Judged.of(its, gap, lateness)
        panes = on_time_panes(judged.on_time, gap, low, at_end=at_end)
        on_time += [(window(pane, gap), key, bits_of(pane)) for pane in panes]
        expired |= {(record.partition, record.offset) for record in judged.expired}
        final |= {(window(one, gap), key): bits_of(one) for one in components([*judged.on_time, *judged.late], gap)}
        changelog += [
            (op, pane, revision, bounds, key, bits_of(component))
            for op, pane, revision, bounds, component in OnePartition(gap).run(its, lateness, low, at_end=at_end)
        ]

    count = len(entries)
    for cuts in ([], [min(place, count) for place in cut], list(range(1, count))):
        steps = [
            [(entries[n][0], line(entries[n][1], entries[n][2], n)) for n in range(first, last)]
            for first, last in zip([0, *cuts], [*cuts, count], strict=True)
        ]
        outputs = play(pipeline(gap, delay, lateness=lateness, late=late), steps, "fire" if at_end else "hold")
        found = changes(outputs)
        table = fold(found)
        if at_end:
            assert table == final
        told_on_time = [
            change for change in found if change[1] == "on_time" and change[0] in ("insert", "update_after")
        ]
        assert sorted((bounds, key, values) for _, _, _, bounds, key, values in told_on_time) == sorted(on_time)
        missed = [(row["partition"], row["offset"]) for output in outputs for row in output.late.to_pylist()]
        assert len(missed) == len(expired)
        assert set(missed) == expired
        if len(present) == 1 and late == "each":
            assert by_window(found) == by_window(changelog)


def by_window(found: Sequence[Change]) -> dict[Any, list[Change]]:
    grouped: dict[Any, list[Change]] = {}
    for change in found:
        grouped.setdefault(change[3:5], []).append(change)
    return grouped


def test_records_a_gap_apart_are_two_sessions_and_closer_ones_are_one() -> None:
    apart, *_, last = told(pipeline(), [0, GAP, 100])
    assert apart == [("insert", "on_time", 0, (0, 10), 1), ("insert", "on_time", 0, (10, 20), 2)]
    assert last == []
    (one, *_) = told(pipeline(), [0, GAP - 1, 100])
    assert one == [("insert", "on_time", 0, (0, 19), 3)]


def test_equal_times_are_one_session() -> None:
    (one, *_) = told(pipeline(), [-5, -5, -5, 100])
    assert one == [("insert", "on_time", 0, (-5, 5), 7)]


def test_a_late_record_joins_two_sessions_and_late_records_of_one_batch_more() -> None:
    _, second, *_ = told(pipeline(gap=20), [0, 30, 31, 100], [15])
    assert second == [
        ("delete", "late", 0, (0, 20), 1),
        ("delete", "late", 0, (30, 51), 6),
        ("insert", "late", 0, (0, 51), 23),
    ]
    each, batch = (told(pipeline(gap=20, late=late), [0, 30, 60, 130], [15, 45])[1] for late in ("each", "batch"))
    assert each == [
        ("delete", "late", 0, (0, 20), 1),
        ("delete", "late", 0, (30, 50), 2),
        ("insert", "late", 0, (0, 50), 19),
        ("delete", "late", 0, (0, 50), 19),
        ("delete", "late", 0, (60, 80), 4),
        ("insert", "late", 0, (0, 80), 55),
    ]
    assert batch == [
        ("delete", "late", 0, (0, 20), 1),
        ("delete", "late", 0, (30, 50), 2),
        ("delete", "late", 0, (60, 80), 4),
        ("insert", "late", 0, (0, 80), 55),
    ]


def test_a_late_record_within_a_session_revises_it() -> None:
    _, second, third, *_ = told(pipeline(), [0, 8, 100], [5], [6, 7])
    assert second == [("update_before", "late", 0, (0, 18), 3), ("update_after", "late", 1, (0, 18), 11)]
    assert [change[:3] for change in third] == [
        ("update_before", "late", 1),
        ("update_after", "late", 2),
        ("update_before", "late", 2),
        ("update_after", "late", 3),
    ]
    *_, third, _ = told(pipeline(late="batch"), [0, 8, 100], [5], [6, 7])
    assert third == [("update_before", "late", 1, (0, 18), 11), ("update_after", "late", 2, (0, 18), 59)]


def test_a_late_record_alone_is_a_session_of_its_own() -> None:
    _, second, third, *_ = told(pipeline(), [100], [50], [55])
    assert second == [("insert", "late", 0, (50, 60), 2)]
    assert third == [("delete", "late", 0, (50, 60), 2), ("insert", "late", 0, (50, 65), 6)]


def test_a_late_record_waits_for_the_open_session_that_it_touches() -> None:
    # the watermark is 18 when 5 comes: late, but [0, 28) is open
    first, second, third, _ = told(pipeline(), [0, 9, 18], [5], [60])
    assert first == []
    assert second == []
    assert third == [
        ("insert", "on_time", 0, (0, 28), 7),
        ("update_before", "late", 0, (0, 28), 7),
        ("update_after", "late", 1, (0, 28), 15),
    ]


def test_an_on_time_record_after_its_session_has_fired_makes_a_longer_one() -> None:
    # the watermark is 12 when 5 comes: [0, 10) has fired, and 5 is on time until 15
    first, second, third, _ = told(pipeline(), [0, 12], [5], [60])
    assert first == [("insert", "on_time", 0, (0, 10), 1)]
    assert second == []
    assert third == [("delete", "on_time", 0, (0, 10), 1), ("insert", "on_time", 0, (0, 22), 7)]


def test_what_late_records_added_comes_back_after_the_on_time_pane() -> None:
    # -5 is late and joins [0, 10); 9 is on time and makes [0, 19)
    steps = told(pipeline(), [0, 12], [-5], [9], [60])
    assert steps[1] == [("delete", "late", 0, (0, 10), 1), ("insert", "late", 0, (-5, 10), 5)]
    assert steps[3] == [
        ("delete", "on_time", 0, (-5, 10), 5),
        ("insert", "on_time", 0, (0, 22), 11),
        ("delete", "late", 0, (0, 22), 11),
        ("insert", "late", 0, (-5, 22), 15),
    ]


def test_a_row_of_a_late_record_is_deleted_while_an_open_session_touches_it() -> None:
    # 9 is late at 17 by less than the lateness; 10 is on time, touches it, and makes [10, 25) with 17
    pipeline_ = pipeline(gap=8, lateness=1)
    first, second, third, _ = told(pipeline_, [0, 0, 0, 0, 1, 1, 17], [9], [10])
    assert first == [("insert", "on_time", 0, (0, 9), 63)]
    assert second == [("insert", "late", 0, (9, 17), 128)]
    assert third == [("delete", "late", 0, (9, 17), 128)]
    *_, fired, _ = told(pipeline_, [0, 0, 0, 0, 1, 1, 17], [9], [10], [25])
    assert fired == [
        ("insert", "on_time", 0, (10, 25), 320),
        ("delete", "late", 0, (10, 25), 320),
        ("insert", "late", 0, (9, 25), 448),
    ]


def test_accumulate_leaves_out_what_is_replaced_in_its_place_only() -> None:
    _, second, third, *_ = told(pipeline(mode="accumulate"), [0, 8, 100], [5], [20])
    assert second == [("update_after", "late", 1, (0, 18), 11)]
    assert third == [("insert", "late", 0, (20, 30), 16)]
    _, second, *_ = told(pipeline(mode="accumulate"), [0, 100], [5])
    assert second == [("delete", "late", 0, (0, 10), 1), ("insert", "late", 0, (0, 15), 4 + 1)]


def test_the_end_fires_what_is_open_and_hold_leaves_it() -> None:
    assert told(pipeline(), [0, 5], end=True)[-1] == [("insert", "on_time", 0, (0, 15), 3)]
    assert told(pipeline(), [0, 5])[-1] == []


def groups(outputs: list[Any]) -> list[Change]:
    return [(*change[:4], change[5]) for change in changes([output.rows for output in outputs])]


def test_after_the_end_a_session_goes_on_and_nothing_is_told_twice() -> None:
    host = MemoryHost(as_graph(pipeline()), [0])
    host.step(raw(0, 0, line("A", 0, 0), line("A", 8, 1)))
    assert groups(host.end()) == [("insert", "on_time", 0, (0, 18), 3)]
    assert groups(host.end()) == []
    assert groups(host.step(raw(0, 2, line("A", 4, 2)))) == []
    # the same bounds with more in them
    assert groups(host.end()) == [
        ("update_before", "on_time", 0, (0, 18), 3),
        ("update_after", "on_time", 1, (0, 18), 7),
    ]
    host.step(raw(0, 3, line("A", 12, 3)))
    assert groups(host.step(raw(0, 4, line("B", 500, 4)))) == [
        ("delete", "on_time", 1, (0, 18), 7),
        ("insert", "on_time", 0, (0, 22), 15),
    ]


def test_what_the_end_fired_is_not_told_again_by_the_watermark() -> None:
    host = MemoryHost(as_graph(pipeline()), [0])
    host.step(raw(0, 0, line("A", 0, 0)))
    assert groups(host.end()) == [("insert", "on_time", 0, (0, 10), 1)]
    assert groups(host.step(raw(0, 1, line("B", 50, 1)))) == []
    assert groups(host.step(raw(0, 2, line("A", 5, 2)))) == [
        ("delete", "late", 0, (0, 10), 1),
        ("insert", "late", 0, (0, 15), 5),
    ]


def test_early_panes_come_with_processing_time_and_are_replaced() -> None:
    every = pipeline(early=Every(10))
    steps = told(every, Tick(100), [0], Tick(105), Tick(110), [5], Tick(115), Tick(121), Tick(140), [60])
    assert steps[2] == []
    assert steps[3] == [("insert", "early", 0, (0, 10), 1)]
    assert steps[5] == []
    assert steps[6] == [("delete", "early", 0, (0, 10), 1), ("insert", "early", 0, (0, 15), 3)]
    # nothing new
    assert steps[7] == []
    # the on-time pane is written though it says the same
    assert steps[8] == [("update_before", "on_time", 0, (0, 15), 3), ("update_after", "on_time", 1, (0, 15), 3)]


def test_records_before_the_first_tick_count_from_it() -> None:
    steps = told(pipeline(early=Every(10)), [0], Tick(100), Tick(109), Tick(110))
    assert [len(step) for step in steps] == [0, 0, 0, 1, 0]


def test_a_late_record_joins_an_early_pane_that_stays_early_until_it_fires() -> None:
    # 5 is late at 18, and touches the early pane
    steps = told(pipeline(early=Every(10)), Tick(0), [0, 9, 18], Tick(10), [5], [60])
    assert steps[2] == [("insert", "early", 0, (0, 28), 7)]
    assert steps[3] == [("update_before", "early", 0, (0, 28), 7), ("update_after", "early", 1, (0, 28), 15)]
    assert steps[4] == [
        ("update_before", "on_time", 1, (0, 28), 15),
        ("update_after", "on_time", 2, (0, 28), 7),
        ("update_before", "late", 2, (0, 28), 7),
        ("update_after", "late", 3, (0, 28), 15),
    ]


def test_triggers_that_do_not_add_up_are_refused() -> None:
    for trigger in (AllOf((Records(3), Every(10))), Repeat(Every(10), 2)):
        with pytest.raises(PipelineError, match="use count, every, or any_of them"):
            MemoryHost(as_graph(pipeline(early=trigger)), [0])


def test_state_goes_with_the_last_session_and_a_key_may_come_back() -> None:
    host = MemoryHost(as_graph(pipeline(lateness=30)), [0])
    users = [f"u{number}" for number in range(200)]
    host.step(raw(0, 0, *(line(user, number) for number, user in enumerate(users))))
    full = host.state_size
    assert full > 0
    host.step(raw(0, 200, line("B", 1_000, 1)))
    host.step(raw(0, 201, line("C", 2_000, 2)))
    # B has fired and gone, and so have all others; C is open
    assert host.state_size < full / 20
    assert groups(host.step(raw(0, 202, line("u7", 2_100, 3), line("C", 2_200, 4)))) == [
        ("insert", "on_time", 0, (2_000, 2_010), 4),
        ("insert", "on_time", 0, (2_100, 2_110), 8),
    ]


def test_a_row_is_kept_until_no_record_can_touch_it() -> None:
    # [0, 10) can be touched by what ends at up to 19, and that is late until the watermark is 10 + 10 + 30
    _, second, *_ = told(pipeline(lateness=30), [0, 48], [9])
    assert second == [("delete", "late", 0, (0, 10), 1), ("insert", "late", 0, (0, 19), 5)]
    assert told(pipeline(lateness=30), [0, 49], [9])[1] == []


def test_an_open_session_melts_to_one_row_whatever_the_number_of_records() -> None:
    host = MemoryHost(as_graph(pipeline(delay=20)), [0])
    sizes = []
    for step in range(30):
        times = range(step * 50, step * 50 + 50)
        # each record 3 before or after its turn
        host.step(raw(0, step * 50, *(line("A", time + 3 * (-1) ** time) for time in times)))
        sizes.append(host.state_size)
    assert max(sizes) <= sizes[0] + 64


def test_keys_of_several_fields() -> None:
    decode = Decode((*DECODE.fields, Field("shop", LongType())))
    lines = [
        json.dumps({"user": user, "t": time, "bit": 1 << number, "shop": shop}).encode()
        for number, (user, shop, time) in enumerate(
            [("a", 1, 0), ("a", 2, 5), ("b", 1, 5), ("a", 1, 9), ("a", 2, 500), ("a", 1, 10), ("b", 1, 6)]
        )
    ]
    several = main(
        decode=decode,
        time=EventTime("t", Delay(0)),
        key=("user", "shop"),
        window=Session(GAP),
        aggregates=(Aggregate("bits", Sum("bit")),),
        emit=Emit(lateness=1000),
    )
    for steps in ([lines], [[one] for one in lines]):
        outputs = play(several, [[(0, one) for one in step] for step in steps], "fire")
        table: dict[Any, Decimal] = {}
        for output in outputs:
            for row in output.changes.to_pylist():
                name = (row["user"], row["shop"], row["window_start"], row["window_end"])
                if row["op"] in ("insert", "update_after"):
                    table[name] = row["bits"]
                else:
                    del table[name]
        assert sorted((user, shop, int(bits)) for (user, shop, _, _), bits in table.items()) == [
            ("a", 1, 0b101001),
            ("a", 2, 0b10),
            ("a", 2, 0b10000),
            ("b", 1, 0b1000100),
        ]


def test_an_aggregate_that_looks_at_order_takes_that_of_event_time() -> None:
    lasts = main(
        decode=DECODE,
        time=EventTime("t", Delay(0)),
        window=Session(GAP),
        aggregates=(Aggregate("last", Last("bit")),),
        emit=Emit(lateness=1000),
    )
    outputs = play(lasts, [[(0, line("A", 8, 3)), (0, line("A", 100, 5))], [(0, line("A", 4, 9))]], "hold")
    (row,) = [row for row in outputs[1].changes.to_pylist() if row["op"] == "insert"]
    assert row["last"] == 8


def test_all_kinds_of_accumulators_give_one_changelog_in_every_cut() -> None:
    functions: list[Function] = [
        Count(),
        Sum("bit"),
        Avg("bit"),
        Min("bit"),
        CountDistinct("bit"),
        ApproxCountDistinct("bit"),
        Quantile("bit", 0.5),
        ApproxQuantile("bit", 0.5),
        TopK("bit", 2),
        First("bit", "log"),
        Last("bit"),
        CollectList("bit", 5),
        CollectSet("bit", 5),
        Stddev("bit"),
        BoolAnd("bit > 1"),
        Formula("a1 / a0"),
    ]
    many = main(
        decode=DECODE,
        time=EventTime("t", Delay(0)),
        window=Session(GAP),
        aggregates=tuple(Aggregate(f"a{number}", function) for number, function in enumerate(functions)),
        emit=Emit(lateness=1000),
        key_groups=1,
    )
    # late records that join, wait and revise, on-time ones that come after their session
    times = [0, 9, 18, 5, 12, 40, 31, 60, 36, 22, 25, 70, 55, 50, 100, 91, 45, 200, 150]
    lines = [(0, line("A", time, number % 4)) for number, time in enumerate(times)]
    told_in_each = []
    for size in (1, 4, len(lines)):
        outputs = play(many, [lines[first : first + size] for first in range(0, len(lines), size)], "fire")
        rows = [row for output in outputs for row in output.changes.to_pylist()]
        told_in_each.append(sorted(rows, key=lambda row: (row["window_start"], row["window_end"])))
    assert {row["op"] for row in told_in_each[0]} == {"insert", "update_before", "update_after", "delete"}
    assert told_in_each[1] == told_in_each[0]
    assert told_in_each[2] == told_in_each[0]
