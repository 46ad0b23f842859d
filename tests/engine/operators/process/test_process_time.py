"""Timers, time to live and event-time order of a process: one answer in every cut, and state that is bounded."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.engine.operators.process.test_process import Step, at, by_user, count, pipeline, played
from tests.engine.pipelines import MINUTE, raw, record
from tests.examples import examples
from tests.graphs import as_graph
from tests.short_forms import ProcessPipeline

from windrow.connectors.tables import net_changes
from windrow.engine.changelog import StepOutput
from windrow.engine.state.keyed import MAX_BUCKET_KEYS
from windrow.engine.tick import Tick
from windrow.errors import RunError
from windrow.model import Field, ListState, LongType, MapState, StringType, TimestampType, ValueState
from windrow.runtime.memory import MemoryHost

SECOND = 1_000_000
TEXT = (Field("text", StringType()),)
LOG = (ListState("log", StringType()),)


def say(ctx: Any, what: str) -> None:  # noqa: ANN401 - as users write it
    """Emit all that was said of the key, with the times of the call."""
    now = f"{what}@{_minute(ctx.event_time)}/{_minute(ctx.watermark)}"
    ctx.state.log.append(now)
    ctx.emit(text=" ".join(ctx.state.log.get()))


def _minute(time: Any) -> str:  # noqa: ANN401
    return "-" if time is None else f"{(time - at(0)).total_seconds() / 60:g}"


def last(output: StepOutput, user: str) -> Any:  # noqa: ANN401
    return by_user(output)[user][-1][-1]


def test_timers_fire_in_order_of_time_as_the_watermark_of_the_record_passes_them() -> None:
    def function(ctx: Any, _: Any) -> None:  # noqa: ANN401
        if ctx.event_time == at(1):
            ctx.timer(at=at(7), name="late")
            ctx.timer(at=at(5), name="b")
            ctx.timer(at=at(5), name="a")
            ctx.timer(at=at(3), name="moved")
            ctx.timer(at=at(6), name="moved")
            ctx.timer(at=at(2), name="cancelled")
            ctx.cancel("cancelled")
            ctx.cancel("nothing")
        say(ctx, "r")

    given_ = pipeline(function, LOG, TEXT, on_timer=lambda ctx, timer: say(ctx, f"{timer.name}:{_minute(timer.at)}"))
    records = [record("A", 1), record("B", 7.5), record("A", 9)]
    expected = "r@1/- a:5@5/5 b:5@5/5 moved:6@6/6 r@9/6.5 late:7@7/7"
    for steps in ([[(0, one) for one in records]], [[(0, one)] for one in records]):
        assert last(played(given_, steps), "A") == expected
    # with `hold` what the watermark has passed fires, and no more
    assert last(played(given_, [[(0, one) for one in records]], "hold"), "A") == expected
    assert last(played(given_, [[(0, one) for one in records[:2]]], "hold"), "A") == expected[: expected.index(" r@9")]


def test_a_timer_that_is_due_when_it_is_set_fires_right_after_the_call() -> None:
    def function(ctx: Any, _: Any) -> None:  # noqa: ANN401
        if ctx.watermark is not None:
            ctx.timer(at=at(0))
        say(ctx, "r")

    given_ = pipeline(function, LOG, TEXT, on_timer=lambda ctx, _: say(ctx, "t"))
    output = played(given_, [[(0, record("A", 5)), (0, record("A", 5)), (0, record("A", 6))]], "hold")
    assert last(output, "A") == "r@5/- r@5/4 t@4/4 r@6/4 t@4/4"


def test_it_fires_before_the_key_expires_and_does_not_wait_for_other_partitions() -> None:
    def function(ctx: Any, record: Any) -> None:  # noqa: ANN401
        if record["amount"] == 2:
            ctx.timer(at=at(0))
        say(ctx, "r")

    given_ = pipeline(function, LOG, TEXT, on_timer=lambda ctx, _: say(ctx, "t"), ttl=2 * MINUTE)
    host = MemoryHost(as_graph(given_), [0, 1])
    # nothing is known of partition 1: the low watermark stays before all
    host.step(raw(0, 0, record("A", 5), record("A", 7)))
    output = StepOutput.concat(one.rows for one in host.step(raw(0, 2, record("B", 1, 2))))
    # by its record alone B would have expired at 3, and the watermark of the call is 6
    assert [(op, text) for op, _, _, text in by_user(output)["B"]] == [
        ("insert", ""),
        ("update_before", ""),
        ("update_after", "t@6/6"),
    ]


def test_many_timers_of_a_key_cost_little_each() -> None:
    """If each looked at all others, this would take minutes."""
    many = 30_000
    fired: list[int] = []

    def function(ctx: Any, record: Any) -> None:  # noqa: ANN401
        if record["amount"] == 2:
            for number in range(many):
                ctx.timer(at=at(10), name=f"moved {number}")
                ctx.timer(at=at(20 + (number * 7919 % many) / many), name=str(number))
            for number in range(many):
                ctx.cancel(f"moved {number}")

    given_ = pipeline(function, (), on_timer=lambda _, timer: fired.append(int(timer.name)))
    played(given_, [[(0, record("A", 1, 2))], [(0, record("B", 21.5))], [(0, record("A", 30))]])
    assert len(fired) == many
    assert [number * 7919 % many for number in fired] == sorted(number * 7919 % many for number in fired)


def test_at_the_end_each_timer_fires_once_and_those_that_it_sets_wait() -> None:
    def again(ctx: Any, timer: Any) -> None:  # noqa: ANN401
        say(ctx, timer.name)
        ctx.timer(at=timer.at + (at(10) - at(0)), name=timer.name)

    def function(ctx: Any, _: Any) -> None:  # noqa: ANN401
        ctx.timer(at=at(20), name="x")
        ctx.timer(at=at(15), name="y")
        say(ctx, "r")

    given_ = pipeline(function, LOG, TEXT, on_timer=again)
    host = MemoryHost(as_graph(given_), [0])
    host.step(raw(0, 0, record("A", 1)))
    output = StepOutput.concat(one.rows for one in host.end())
    assert last(output, "A") == "r@1/- y@15/15 x@20/20"
    # 36 - 1: y has been set for 25 and then for 35, x for 30
    host.step(raw(0, 1, record("B", 36)))
    output = StepOutput.concat(one.rows for one in host.step(raw(0, 2, record("A", 36))))
    assert "y@25/25 x@30/30 y@35/35 r@36/35" in last(output, "A")


def test_a_timer_that_sets_itself_for_ever_is_refused() -> None:
    given_ = pipeline(lambda ctx, _: ctx.timer(at=at(0)), LOG, TEXT, on_timer=lambda ctx, timer: ctx.timer(at=timer.at))
    steps: list[Step] = [[(0, record("A", 1)), (0, record("A", 2))]]
    with pytest.raises(RunError, match=r"in the timer '' of .*, key user='A': ValueError: on_timer must set timers"):
        played(given_, steps)


def test_timers_need_someone_to_call() -> None:
    with pytest.raises(RunError, match="no on_timer is defined"):
        played(pipeline(lambda ctx, _: ctx.timer(at=at(0))), [[(0, record("A", 1))]])
    with pytest.raises(RunError, match="no on_processing_timer is defined"):
        played(pipeline(lambda ctx, _: ctx.processing_timer(after="1m")), [[(0, record("A", 1))]])


def test_processing_timers_fire_at_ticks_and_what_they_write_is_early() -> None:
    def function(ctx: Any, record: Any) -> None:  # noqa: ANN401
        ctx.processing_timer(after="10s")
        if record["amount"] == 2:
            ctx.cancel()
        say(ctx, "r")

    given_ = pipeline(function, LOG, TEXT, on_processing_timer=lambda ctx, timer: say(ctx, f"p{timer.at.second}"))
    steps: list[Step | Tick] = [
        [(0, record("A", 1)), (0, record("B", 1, 2))],  # before the first tick: so long after that
        Tick(5 * SECOND),
        Tick(14 * SECOND),
        Tick(16 * SECOND),
        [(0, record("A", 3))],
        Tick(30 * SECOND),
        Tick(40 * SECOND),
    ]
    changes = by_user(played(given_, steps))
    assert [(op, pane, text) for op, pane, _, text in changes["A"] if op != "update_before"] == [
        ("insert", "on_time", "r@1/-"),
        ("update_after", "early", "r@1/- p15@0/0"),
        ("update_after", "on_time", "r@1/- p15@0/0 r@3/0"),
        ("update_after", "early", "r@1/- p15@0/0 r@3/0 p26@2/2"),
    ]
    assert len(changes["B"]) == 1


def test_an_entry_is_gone_a_time_to_live_after_its_writing_and_the_row_after_the_last_call() -> None:
    def function(ctx: Any, record: Any) -> None:  # noqa: ANN401
        ctx.state.map.set(str(record["amount"]), ctx.event_time)
        ctx.emit(text=" ".join(key for key, _ in ctx.state.map.items()))

    state = (MapState("map", StringType(), TimestampType("micros")),)
    given_ = pipeline(function, state, TEXT, ttl=10 * MINUTE)
    records = [record("A", 0, 0), record("A", 5, 5), record("A", 11, 11), record("A", 12, 12), record("B", 23, 23)]
    # the watermark at 11 is 4, at 12 it is 10: the entry of 0 is gone
    expected = [
        ("insert", 0, "0.00"),
        ("update_before", 0, "0.00"),
        ("update_after", 1, "0.00 5.00"),
        ("update_before", 1, "0.00 5.00"),
        ("update_after", 2, "0.00 5.00 11.00"),
        ("update_before", 2, "0.00 5.00 11.00"),
        ("update_after", 3, "5.00 11.00 12.00"),
        ("delete", 3, "5.00 11.00 12.00"),
    ]
    for steps in ([[(0, one) for one in records]], [[(0, one)] for one in records]):
        output = played(given_, steps)
        # the last call of A was at 12, and the watermark comes to 22
        assert [(op, revision, text) for op, _, revision, text in by_user(output)["A"]] == expected
    after = played(given_, [[(0, one) for one in records], [(0, record("A", 24, 24))]])
    assert by_user(after)["A"][-1] == ("insert", "on_time", 0, "24.00")
    table = net_changes(after.changes, ("user",)).inserts.to_pylist()
    assert {row["user"]: row["text"] for row in table} == {"A": "24.00", "B": "23.00"}


def test_a_call_that_leaves_nothing_counts_for_the_time_to_live_in_every_cut() -> None:
    def function(ctx: Any, record: Any) -> None:  # noqa: ANN401
        if record["amount"] == 2:
            ctx.emit(n=1)

    given_ = pipeline(function, (), ttl=2 * MINUTE)
    # A lives until 12 by its first call, which leaves nothing, and not until 11 by its second
    records = [record("A", 10), record("A", 9, 2), record("B", 12.5), record("A", 13, 2), record("B", 40)]
    for steps in ([[(0, one) for one in records]], [[(0, one)] for one in records]):
        changes = by_user(played(given_, steps))["A"]
        assert [op for op, *_ in changes] == ["insert", "update_before", "update_after", "delete"]


def test_many_keys_that_come_and_go_leave_nothing() -> None:
    given_ = replace(
        pipeline(count, ttl=10 * MINUTE, on_timer=count),
        key_groups=1,
    )
    host = MemoryHost(as_graph(given_), [0])
    (state,) = host.states
    offset = 0

    def step(*records: bytes) -> tuple[int, int, int]:
        nonlocal offset
        host.step(raw(0, offset, *records))
        offset += len(records)
        summary = state.summary()
        assert summary is not None
        return state.size, len(state._blobs), len(summary)  # noqa: SLF001

    first = step(record("one", 0))
    most = first
    for minute in range(0, 100, 20):
        most = max(most, step(*(record(f"{minute}-{number}", minute) for number in range(3 * MAX_BUCKET_KEYS))))
        step(record("one", minute + 19))
    assert most[1] >= 4
    size, blobs, summary = step(record("one", 119))
    assert blobs == first[1]
    assert summary == pytest.approx(first[2], abs=20)
    assert size == pytest.approx(first[0], abs=200)


def test_state_without_a_time_to_live_goes_when_it_is_cleared() -> None:
    def function(ctx: Any, record: Any) -> None:  # noqa: ANN401
        if record["amount"] == 0:
            ctx.state.n.clear()
        else:
            ctx.state.n.set(1)

    host = MemoryHost(as_graph(pipeline(function)), [0])
    host.step(raw(0, 0, *(record(f"u{n}", 1) for n in range(5000))))
    assert all(state._blobs for state in host.states)  # noqa: SLF001 - the state is the point
    host.step(raw(0, 5000, *(record(f"u{n}", 1, 0) for n in range(5000))))
    assert not any(state._blobs for state in host.states)  # noqa: SLF001


def test_in_event_time_order_the_partitions_and_their_disorder_are_not_seen() -> None:
    given_ = pipeline(lambda ctx, record: say(ctx, str(record["amount"])[0]), LOG, TEXT, order="event_time")
    steps: list[Step] = [
        [(0, record("A", 2, 2)), (0, record("A", 1, 1)), (0, record("A", 5, 5))],
        [(1, record("A", 3, 3)), (1, record("A", 2, 4)), (1, record("A", 4.5, 6))],
        [(1, record("A", 1, 7)), (0, record("A", 4, 8)), (0, record("A", 3.9, 9))],
    ]
    output = played(given_, steps)
    # equal times in the order of partition and offset; 1 is behind partition 1's 3.5 and 3.9 behind partition 0's 4
    assert last(output, "A") == "1@1/1 2@2/2 4@2/2 3@3/3 8@4/4 6@4.5/4.5 5@5/5"
    late = output.late.to_pylist()
    assert [(row["partition"], row["offset"], row["window_start"], row["lateness_ms"]) for row in late] == [
        (0, 4, at(3.9), 5999),
        (1, 3, at(1), 149_999),
    ]
    assert all((row["window_end"] - row["window_start"]).total_seconds() == 1e-6 for row in late)


def test_what_is_held_is_taken_once_and_leaves_no_state() -> None:
    given_ = replace(pipeline(count, ttl=MINUTE, order="event_time"), key_groups=1)
    host = MemoryHost(as_graph(given_), [0])
    seen: list[int] = []
    for number in range(200):
        outputs = host.step(raw(0, number, record("A", number / 10)))
        seen += [row["n"] for row in outputs[0].rows.changes.to_pylist() if row["op"] != "update_before"]
    held = sum(kind == "held" for kind, _ in host.states[0]._blobs)  # noqa: SLF001 - the state is the point
    assert held == 11
    assert seen == list(range(1, 190))


def _busy(ctx: Any, record: Any) -> None:  # noqa: ANN401
    """Use all there is."""
    number = int(record["amount"])
    if number % 3 == 0:
        ctx.timer(at=at(number), name=f"t{number % 2}")
    if number % 5 == 0:
        ctx.cancel("t0")
    ctx.state.map.set(str(number % 4), number)
    ctx.state.log.append(str(number))
    if number % 7 == 0:
        ctx.state.n.set(number)
    _tell(ctx, "r")


def _timed(ctx: Any, timer: Any) -> None:  # noqa: ANN401
    ctx.state.log.append(f"{timer.name}!")
    ctx.state.map.set("t", 1)
    if ctx.state.n.get():
        ctx.timer(at=timer.at + (at(2) - at(0)), name=timer.name)
    _tell(ctx, timer.name)


def _tell(ctx: Any, what: str) -> None:  # noqa: ANN401
    state = ctx.state
    ctx.emit(text=f"{what} {ctx.event_time} {ctx.watermark} {state.n.get()} {state.map.items()} {state.log.get()}")


BUSY = pipeline(
    _busy,
    (ValueState("n", LongType()), *LOG, MapState("map", StringType(), LongType())),
    TEXT,
    ttl=6 * MINUTE,
    on_timer=_timed,
)

events = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("ABC"), st.integers(0, 30), st.integers(0, 30)), max_size=25
)


def _cut(log: Sequence[tuple[int, bytes]], cuts: set[int]) -> list[Step]:
    ends = [*sorted(cut for cut in cuts if 0 < cut < len(log)), len(log)]
    return [list(log[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


@given(events, st.sets(st.integers(0, 25)), st.sampled_from(["log", "event_time"]), st.sampled_from(["fire", "hold"]))
@example([(0, "A", 10, 3), (0, "A", 4, 0), (0, "A", 0, 3)], {2}, "log", "fire")
def test_the_changelog_of_a_partition_is_the_same_in_every_cut(
    log: list[tuple[int, str, int, int]],
    cuts: set[int],
    order: Any,  # noqa: ANN401
    at_end: Any,  # noqa: ANN401
) -> None:
    given_ = _ordered(BUSY, order)
    records = [(0, record(user, minute, amount)) for _, user, minute, amount in log]
    whole = played(given_, [records], at_end)
    parts = played(given_, _cut(records, cuts), at_end)
    assert by_user(parts) == by_user(whole)
    assert _sorted(parts.late) == _sorted(whole.late)


@examples(40)
@given(events, st.permutations(range(25)), st.sets(st.integers(0, 25)))
def test_in_event_time_order_several_partitions_give_one_answer_too(
    log: list[tuple[int, str, int, int]], shuffle: list[int], cuts: set[int]
) -> None:
    given_ = _ordered(BUSY, "event_time")
    records = [(partition, record(user, minute, amount)) for partition, user, minute, amount in log]
    # another pace of reading: each partition keeps its order
    waiting = {number: [one for one in records if one[0] == number] for number in range(3)}
    other = [waiting[records[place][0]].pop(0) for place in shuffle if place < len(records)]
    whole = played(given_, [records])
    parts = played(given_, _cut(other, cuts))
    assert by_user(parts) == by_user(whole)
    assert _sorted(parts.late) == _sorted(whole.late)


@examples(40)
@given(events, st.sets(st.integers(0, 25)))
def test_the_table_is_the_fold_of_the_changelog(log: list[tuple[int, str, int, int]], cuts: set[int]) -> None:
    changes = played(BUSY, _cut([(p, record(user, m, n)) for p, user, m, n in log], cuts)).changes
    rows: dict[str, dict[str, Any]] = {}
    for row in changes.to_pylist():
        told = {name: value for name, value in row.items() if name not in {"op", "pane"}}
        match row["op"]:
            case "insert":
                assert row["user"] not in rows
                assert row["revision"] == 0
                rows[row["user"]] = told
            case "update_before":
                assert rows[row["user"]] == told
            case "update_after":
                assert rows[row["user"]]["revision"] + 1 == row["revision"]
                rows[row["user"]] = told
            case "delete":
                assert rows.pop(row["user"]) == told


def _sorted(late: pa.Table) -> list[Any]:
    return late.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()  # type: ignore[no-any-return]


def _ordered(given_: ProcessPipeline, order: Any) -> ProcessPipeline:  # noqa: ANN401
    return replace(given_, process=replace(given_.process, order=order))
