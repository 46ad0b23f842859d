"""A Python function with state for each key, held to a plain-Python reference and to one answer in every cut."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from tests.engine.outputs import play
from tests.engine.pipelines import MAIN, raw, record
from tests.graphs import as_graph
from tests.short_forms import ProcessPipeline

from windrow.engine.changelog import StepOutput
from windrow.engine.tick import Tick
from windrow.engine.windows import GLOBAL_END, GLOBAL_START
from windrow.errors import RunError
from windrow.model import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    Field,
    KeyedState,
    ListState,
    LongType,
    MapState,
    Process,
    StringType,
    TimestampType,
    ValueState,
)
from windrow.runtime.memory import MemoryHost

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
N = (Field("n", LongType()),)
COUNTER = (ValueState("n", LongType()),)

Step = list[tuple[int, bytes]]


def at(minute: float) -> datetime:
    return EPOCH + timedelta(minutes=minute)


def pipeline(
    function: Callable[[Any, Any], None],
    state: tuple[KeyedState, ...] = COUNTER,
    returns: tuple[Field, ...] = N,
    **more: Any,  # noqa: ANN401 - fields of any type
) -> ProcessPipeline:
    process = Process(function, state, returns, **more)
    return ProcessPipeline(
        "process", MAIN.source, MAIN.decode, MAIN.time, MAIN.key, process, MAIN.sink, key_groups=MAIN.key_groups
    )


def count(ctx: Any, _: Any) -> None:  # noqa: ANN401 - as users write it
    n = ctx.state.n.get(0) + 1
    ctx.state.n.set(n)
    ctx.emit(n=n)


def by_user(output: StepOutput) -> dict[str, list[tuple[Any, ...]]]:
    """(op, pane, revision, values...) of each user, in order."""
    changes: dict[str, list[tuple[Any, ...]]] = {}
    for row in output.changes.to_pylist():
        values = [value for name, value in row.items() if name not in {*NAMES, "user"}]
        changes.setdefault(row["user"], []).append((row["op"], row["pane"], row["revision"], *values))
    return changes


NAMES = ("op", "pane", "revision", "window_start", "window_end")


def played(given_: ProcessPipeline, steps: Sequence[Step | Tick], at_end: Any = "fire") -> StepOutput:  # noqa: ANN401
    return StepOutput.concat(play(given_, steps, at_end))


def test_rows_are_upserted_by_key_in_one_window_of_all_time() -> None:
    output = played(pipeline(count), [[(0, record("A", 1)), (0, record("B", 2)), (0, record("A", 3))]])
    assert by_user(output) == {
        "A": [
            ("insert", "on_time", 0, 1),
            ("update_before", "on_time", 0, 1),
            ("update_after", "on_time", 1, 2),
        ],
        "B": [("insert", "on_time", 0, 1)],
    }
    bounds = {(row["window_start"], row["window_end"]) for row in output.changes.to_pylist()}
    micros = timedelta(microseconds=1)
    assert {((start - EPOCH) // micros, (end - EPOCH) // micros) for start, end in bounds} == {
        (GLOBAL_START, GLOBAL_END)
    }


def test_state_of_every_kind_and_type_comes_back_as_it_went() -> None:
    values: dict[str, Any] = {
        "string": "ü",
        "boolean": True,
        "long": 2**63 - 1,
        "double": 0.1,
        "decimal": Decimal("12.30"),
        "time": datetime(2026, 2, 3, 4, 5, 6, 7, UTC),
    }
    types: list[DataType] = [
        StringType(),
        BooleanType(),
        LongType(),
        DoubleType(),
        DecimalType(12, 2),
        TimestampType("micros"),
    ]
    state = [
        kind(f"{kind.__name__}_{name}", type_)
        for name, type_ in zip(values, types, strict=True)
        for kind in (ValueState, ListState)
    ]
    maps = [MapState(f"Map_{name}", type_, type_) for name, type_ in zip(values, types, strict=True)]
    seen: list[list[Any]] = []

    def function(ctx: Any, _: Any) -> None:  # noqa: ANN401
        seen.append(
            [
                [getattr(ctx.state, f"ValueState_{name}").get() for name in values],
                [getattr(ctx.state, f"ListState_{name}").get() for name in values],
                [getattr(ctx.state, f"Map_{name}").items() for name in values],
            ]
        )
        for name, value in values.items():
            getattr(ctx.state, f"ValueState_{name}").set(value)
            getattr(ctx.state, f"ListState_{name}").append(value)
            getattr(ctx.state, f"Map_{name}").set(value, value)

    played(pipeline(function, (*state, *maps)), [[(0, record("A", 1))], [(0, record("A", 2))]])
    assert seen[0] == [[None] * 6, [[]] * 6, [[]] * 6]
    every = list(values.values())
    assert seen[1] == [every, [[value] for value in every], [[(value, value)] for value in every]]


def test_what_is_deleted_or_cleared_is_gone() -> None:
    seen: list[Any] = []

    def function(ctx: Any, record: Any) -> None:  # noqa: ANN401
        state = ctx.state
        match record["amount"]:
            case 1:
                state.value.set(1)
                state.items.append(1)
                state.map.set("a", 1)
                state.map.set("b", 2)
            case 2:
                state.map.delete("a")
                state.map.delete("nothing")
            case 3:
                state.value.clear()
                state.items.clear()
            case 4:
                state.map.clear()
        seen.append(
            (
                state.value.get(),
                list(state.items),
                len(state.items),
                list(state.map),
                len(state.map),
                "a" in state.map,
                state.map.get("b", 9),
            )
        )

    state = (ValueState("value", LongType()), ListState("items", LongType()), MapState("map", StringType(), LongType()))
    steps: list[Step | Tick] = [[(0, record("A", n, n))] for n in (1, 2, 3, 4)]
    played(pipeline(function, state), steps)
    assert seen == [
        (1, [1], 1, ["a", "b"], 2, True, 2),
        (1, [1], 1, ["b"], 1, False, 2),
        (None, [], 0, ["b"], 1, False, 2),
        (None, [], 0, [], 0, False, 9),
    ]


def test_a_record_is_a_read_only_mapping_of_python_values() -> None:
    seen = []

    def function(ctx: Any, record: Any) -> None:  # noqa: ANN401
        seen.append((dict(record), len(record), ctx.key["user"], ctx.event_time, ctx.watermark))
        with pytest.raises(TypeError):
            record["user"] = "B"
        with pytest.raises(KeyError, match="no field 'amuont'; it has user, t, amount"):
            record["amuont"]

    played(pipeline(function), [[(0, record("A", 3, 2.5)), (0, record("A", 2, 1))]])
    assert seen == [
        ({"user": "A", "t": at(3), "amount": Decimal("2.50")}, 3, "A", at(3), None),
        ({"user": "A", "t": at(2), "amount": Decimal("1.00")}, 3, "A", at(2), at(2)),
    ]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (LongType(), 2**63),
        (LongType(), True),
        (LongType(), 1.0),
        (LongType(), "1"),
        (StringType(), 1),
        (StringType(), "a\0"),
        (StringType(), "\ud800"),
        (BooleanType(), 1),
        (DoubleType(), float("nan")),
        (DoubleType(), 10**400),
        (DoubleType(), "1"),
        (DecimalType(3, 2), Decimal("1.234")),
        (DecimalType(3, 2), Decimal(10)),
        (DecimalType(3, 2), 0.5),
        (TimestampType("micros"), datetime(2026, 1, 1)),  # noqa: DTZ001 - without a zone is the point
        (TimestampType("micros"), 1),
    ],
)
def test_a_value_of_another_type_ends_the_run_and_names_all(type_: Any, value: Any) -> None:  # noqa: ANN401
    def emits(ctx: Any, _: Any) -> None:  # noqa: ANN401
        ctx.emit(n=value)

    def sets(ctx: Any, _: Any) -> None:  # noqa: ANN401
        ctx.state.n.set(value)

    for function in (emits, sets):
        given_ = pipeline(function, (ValueState("n", type_),), (Field("n", type_),))
        with pytest.raises(RunError, match=r"TypeError.*n is .* which is not a") as raised:
            played(given_, [[(0, record("B", 1))], [(1, record("C", 1)), (1, record("A", 1))]])
        assert f".{function.__name__} failed at partition 0, offset 0 of spend, key user='B'" in str(raised.value)


def test_columns_are_emitted_whole_and_may_be_null() -> None:
    output = played(pipeline(lambda ctx, _: ctx.emit(n=None)), [[(0, record("A", 1))]])
    assert by_user(output) == {"A": [("insert", "on_time", 0, None)]}
    for values in ({}, {"n": 1, "m": 2}, {"m": 1}):
        with pytest.raises(RunError, match="emit takes n, but was given"):
            played(pipeline(lambda ctx, _, values=values: ctx.emit(**values)), [[(0, record("A", 1))]])  # type: ignore[misc]


def test_a_state_that_is_not_declared_is_told_with_those_that_are() -> None:
    states = (ValueState("n", LongType()), ListState("l", LongType()))
    for declared, told in ((states, "n, l"), ((), "none")):
        with pytest.raises(RunError, match=f"AttributeError: there is no state 'm'; process.* declares {told} "):
            played(pipeline(lambda ctx, _: ctx.state.m.clear(), declared), [[(0, record("A", 1))]])


def test_an_attribute_is_not_set_and_the_error_says_what_to_write() -> None:
    states = (ValueState("n", LongType()), ListState("l", LongType()), MapState("m", LongType(), LongType()))
    ways = ["ctx.state.n.set(value)", "ctx.state.l.append(value)", "ctx.state.m.set(key, value)"]

    def told(declared: tuple[KeyedState, ...], function: Callable[[Any, Any], None]) -> str:
        with pytest.raises(RunError, match="AttributeError") as raised:
            played(pipeline(function, declared), [[(0, record("A", 1))]])
        return str(raised.value)

    for name, way in zip("nlm", ways, strict=True):
        said = told(states, lambda ctx, _, name=name: setattr(ctx.state, name, 1))  # type: ignore[misc]
        assert f"ctx.state.{name} = ... does not set a state" in said
        assert f"lost; write {way} (" in said
    for where in ("state", "now", "count", "state.other"):
        *path, name = where.split(".")

        def function(ctx: Any, _: Any, path: list[str] = path, name: str = name) -> None:  # noqa: ANN401
            for one in path:
                ctx = getattr(ctx, one)
            setattr(ctx, name, 1)

        assert f"ctx.{where} = ..." in told(states, function)
        assert f"write {' or '.join(ways)} (" in told(states, function)
        assert "declare a state, process(..., state=" in told((), function)
    assert "write ctx.state.n.clear()" in told(states, lambda ctx, _: delattr(ctx.state, "n"))


def test_what_a_function_returns_is_refused_where_it_is_returned() -> None:
    function: Any = lambda ctx, _: ctx.timer(at=at(2)) or {"n": 1}  # noqa: E731
    for ttl in (None, 60_000_000):
        with pytest.raises(
            RunError, match=r"offset 0 of spend, key user='A': TypeError: it returned a value \(dict\), but must"
        ):
            played(pipeline(function, on_timer=count, ttl=ttl), [[(0, record("A", 1))]])
    ring: Any = lambda *_: 0  # noqa: E731
    with pytest.raises(
        RunError, match=r"in the timer '' of .*, key user='A': TypeError: it returned a value \(int\), but must"
    ):
        played(pipeline(lambda ctx, _: ctx.timer(at=at(2)), on_timer=ring), [[(0, record("A", 1))]])


def test_a_function_that_fails_leaves_the_state_as_it_was() -> None:
    armed = [True]

    def function(ctx: Any, record: Any) -> None:  # noqa: ANN401
        count(ctx, record)
        if record["amount"] == 13 and armed:
            msg = "thirteen"
            raise ValueError(msg)

    one = replace(pipeline(function), key_groups=1)
    host = MemoryHost(as_graph(one), [0])
    host.step(raw(0, 0, record("A", 1)))
    step = raw(0, 1, record("A", 2), record("B", 3, 13), record("C", 4))
    with pytest.raises(RunError) as raised:
        host.step(step)
    told = str(raised.value)
    assert "function failed at partition 0, offset 2 of spend, key user='B': ValueError: thirteen" in told
    assert "test_process.py:" in told
    armed.clear()
    again = StepOutput.concat(output.rows for output in host.step(step))
    assert by_user(again) == {
        "A": [("update_before", "on_time", 0, 1), ("update_after", "on_time", 1, 2)],
        "B": [("insert", "on_time", 0, 1)],
        "C": [("insert", "on_time", 0, 1)],
    }


@pytest.mark.parametrize(
    "read",
    [
        lambda state: 1 if state else 2,
        lambda state: not state,
        lambda state: state == 0,
        lambda state: state != 0,
        lambda state: state in (0, 1),
        lambda state: f"{state}",
        lambda state: {state: 1},
        lambda state: state < 1,
        lambda state: state + 1,
    ],
)
def test_a_value_state_is_no_value(read: Callable[[Any], object]) -> None:
    def function(ctx: Any, _: Any) -> None:  # noqa: ANN401 - as users write it
        read(ctx.state.seen)

    with pytest.raises(RunError, match=r"TypeError: .*(ctx\.state\.NAME\.get|not supported|unsupported|unhashable)"):
        played(pipeline(function, (ValueState("seen", LongType()),)), [[(0, record("A", 1))]])
