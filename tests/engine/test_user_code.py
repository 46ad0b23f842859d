"""Code of a user's that misbehaves: the run ends with one error that says where, and which no run retries.

Functions and triggers are named with the record and its key, aggregates with their method.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.engine.outputs import play
from tests.engine.pipelines import MAIN, main, raw, record
from tests.graphs import as_graph
from tests.short_forms import ProcessPipeline

from windrow.engine.changelog import StepOutput
from windrow.errors import (
    LimitError,
    PipelineError,
    RunError,
    SinkUnavailableError,
    SourceUnavailableError,
    StoppedError,
    WorkerLostError,
)
from windrow.model import (
    Aggregate,
    BooleanType,
    Custom,
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
    When,
)
from windrow.runtime.memory import MemoryHost
from windrow.terminal.interrupts import raise_interrupt

LONG, DOUBLE, TEXT, DECIMAL, TIME = LongType(), DoubleType(), StringType(), DecimalType(12, 2), TimestampType("micros")
STEPS = [[(0, record("A", 1))], [(0, record("A", 2))], [(0, record("A", 3))]]
PLACE = "at partition 0, offset 0 of spend, key user='A'"


class NoTextError(Exception):
    def __str__(self) -> str:
        msg = "no text"
        raise ValueError(msg)


class ExitingTextError(Exception):
    def __str__(self) -> str:  # noqa: PLE0307 - it misbehaves
        sys.exit(0)


class NumberTextError(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value] # noqa: PLE0307 - the same


class NoRepr:
    def __repr__(self) -> str:
        msg = "no repr"
        raise ValueError(msg)


class OwnBaseError(BaseException):
    """What an `except Exception` does not catch."""


UNPRINTABLE: Any = (1, 2, 3, 4)
"""The place of a SyntaxError of which no stack can be printed."""
RAISED: list[tuple[BaseException, str]] = [
    (SystemExit(0), "SystemExit: 0"),
    (SystemExit(), "SystemExit"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (GeneratorExit(), "GeneratorExit"),
    (asyncio.CancelledError(), "CancelledError"),
    (OwnBaseError("own"), "OwnBaseError: own"),
    (StopIteration(), "StopIteration"),
    (NoTextError(), "NoTextError: its __str__ raised ValueError"),
    (ExitingTextError(), "ExitingTextError: its __str__ raised SystemExit"),
    (NumberTextError(), "NumberTextError: its __str__ raised TypeError"),
    (RunError("mine"), "RunError: mine"),
    (LimitError("mine"), "LimitError: mine"),
    (PipelineError("mine"), "PipelineError: mine"),
    (StoppedError(), "StoppedError: the explanation was stopped because the request was closed; ask again"),
    (SourceUnavailableError("mine"), "SourceUnavailableError: mine"),
    (SinkUnavailableError("mine"), "SinkUnavailableError: mine"),
    (WorkerLostError("mine"), "WorkerLostError: mine"),
    (ConnectionResetError("mine"), "ConnectionResetError: mine"),
    (OSError(28, "No space left"), "OSError: [Errno 28] No space left"),
    (TimeoutError("mine"), "TimeoutError: mine"),
    (ModuleNotFoundError("mine", name="mine"), "ModuleNotFoundError: mine"),
    (MemoryError(), "MemoryError"),
    (RecursionError("mine"), "RecursionError: mine"),
    (ValueError("\ud800"), "ValueError: \\ud800"),
    (ValueError("a\nwindrow.errors.SinkUnavailableError: b"), "ValueError: a windrow.errors.SinkUnavailableError: b"),
    (ValueError("x" * 10_000), f"ValueError: {'x' * 2000}..."),
    (SyntaxError("mine", UNPRINTABLE), "SyntaxError: mine (line 2)"),
    (ExceptionGroup("mine", [ValueError("a")]), "ExceptionGroup: mine (1 sub-exception)"),
]
IDS = [said[:40] for _, said in RAISED]


def thrower(error: BaseException) -> Callable[..., NoReturn]:
    def throws(*_: object) -> NoReturn:
        raise error

    return throws


def process(
    function: Any,  # noqa: ANN401 - what it returns is tried
    state: tuple[KeyedState, ...] = (),
    returns: DataType = LONG,
    **more: Any,  # noqa: ANN401 - fields of any type
) -> ProcessPipeline:
    calls = Process(function, state, (Field("n", returns),), **more)
    return ProcessPipeline(
        "process", MAIN.source, MAIN.decode, MAIN.time, MAIN.key, calls, MAIN.sink, key_groups=MAIN.key_groups
    )


@contextmanager
def failing(said: str) -> Iterator[None]:
    """Expect an error that begins so, which no run retries, and which Spark's worker could write."""
    with pytest.raises(RunError) as raised:
        yield
    assert type(raised.value) is RunError
    assert not raised.value.passes
    assert str(raised.value).encode().startswith(said.encode())
    assert str(raised.value).endswith("; what was committed stays; fix it and start again")


NAME = f"{__name__}.thrower.<locals>.throws"


@pytest.mark.parametrize(("error", "said"), RAISED, ids=IDS)
def test_what_a_function_raises_is_said_with_its_place(error: BaseException, said: str) -> None:
    with failing(f"the function {NAME} failed {PLACE}: {said} ({__file__}:"):
        play(process(thrower(error)), STEPS, "fire")


@pytest.mark.parametrize(("error", "said"), RAISED, ids=IDS)
def test_so_is_what_a_timer_raises(error: BaseException, said: str) -> None:
    def sets(ctx: Any, _: Any) -> None:  # noqa: ANN401 - as users write it
        ctx.timer(at=ctx.event_time + timedelta(minutes=1), name="t")

    at = "1970-01-01T00:02:00+00:00"
    with failing(f"the function {NAME} failed in the timer 't' of {at}, key user='A': {said} ("):
        play(process(sets, on_timer=thrower(error)), STEPS[:1], "fire")


@pytest.mark.parametrize(("error", "said"), RAISED, ids=IDS)
def test_so_is_what_a_trigger_raises(error: BaseException, said: str) -> None:
    pipeline = main(emit=replace(MAIN.emit, early=When(thrower(error))))
    with pytest.raises(RunError) as raised:
        play(pipeline, STEPS, "fire")
    assert str(raised.value).startswith(f"the trigger {NAME} failed {PLACE}, PaneSoFar(")
    assert f"): {said} ({__file__}:" in str(raised.value)


@dataclass(frozen=True)
class Own:
    """An aggregate that counts; each of its methods can be another."""

    returns: DataType = LONG
    new: Callable[[], Any] = lambda: 0
    add: Callable[[Any, Any], Any] = lambda state, columns: state + len(columns["amount"])
    join: Callable[[Any, Any], Any] = lambda one, other: one + other
    end: Callable[[Any], Any] = lambda state: state

    def zero(self) -> Any:  # noqa: ANN401 - whatever is tried
        return self.new()

    def step(self, state: Any, columns: Mapping[str, pa.Array]) -> Any:  # noqa: ANN401
        return self.add(state, columns)

    def merge(self, one: Any, other: Any) -> Any:  # noqa: ANN401
        return self.join(one, other)

    def finish(self, state: Any) -> Any:  # noqa: ANN401
        return self.end(state)


METHODS = {"new": "zero", "add": "step", "join": "merge", "end": "finish"}


def aggregated(own: Own, **methods: Any) -> list[Any]:  # noqa: ANN401 - a method
    """Return the results of an aggregate with other methods."""
    own = replace(own, **methods)
    pipeline = main(aggregates=(Aggregate("n", Custom(own, ("amount",))),))
    results: list[Any] = StepOutput.concat(play(pipeline, STEPS, "fire")).changes.column("n").to_pylist()
    return results


@pytest.mark.parametrize(("error", "said"), RAISED, ids=IDS)
def test_what_an_aggregate_raises_names_it_and_its_method(error: BaseException, said: str) -> None:
    # each in one method, as each error is in all methods of some other test
    called = list(METHODS)[len(said) % len(METHODS)]
    with failing(f"key user='A': the aggregate 'n' failed in {METHODS[called]}(): {said} ({__file__}:"):
        aggregated(Own(), **{called: thrower(error)})


@pytest.mark.parametrize("called", METHODS)
def test_an_aggregate_that_exits_does_not_end_the_run_in_silence(called: str) -> None:
    with failing(f"key user='A': the aggregate 'n' failed in {METHODS[called]}(): SystemExit: 0 ("):
        aggregated(Own(), **{called: thrower(SystemExit(0))})


NOT_A: list[tuple[DataType, object, str]] = [
    (LONG, 1.5, "1.5 (float), which is not a long"),
    (LONG, True, "True (bool), which is not a long"),
    (LONG, np.True_, "np.True_ (bool), which is not a long"),
    (LONG, 2**63, "9223372036854775808 (int), which is not a long (64 bits)"),
    (LONG, "5", "'5' (str), which is not a long"),
    (LONG, [1], "[1] (list), which is not a long"),
    (LONG, Decimal(5), "Decimal('5') (Decimal), which is not a long"),
    (DOUBLE, float("nan"), "nan (float), which is not a double (finite)"),
    (DOUBLE, float("-inf"), "-inf (float), which is not a double (finite)"),
    (DOUBLE, np.float32("inf"), "np.float32(inf) (float32), which is not a double (finite)"),
    (DECIMAL, Decimal("NaN"), "Decimal('NaN') (Decimal), which is not a decimal(12,2) (finite)"),
    (DECIMAL, Decimal("sNaN"), "Decimal('sNaN') (Decimal), which is not a decimal(12,2) (finite)"),
    (DECIMAL, Decimal("Infinity"), "Decimal('Infinity') (Decimal), which is not a decimal(12,2) (finite)"),
    (DECIMAL, 1.5, "1.5 (float), which is not a decimal(12,2); pass a Decimal or an int"),
    (DECIMAL, Decimal("1.005"), "Decimal('1.005') (Decimal), which is not a decimal(12,2)"),
    (TEXT, "a\0", r"'a\x00' (str), which is not a string (text without U+0000)"),
    (TEXT, "\ud800", r"'\ud800' (str), which is not a string (half of a surrogate pair is not a character)"),
    (TEXT, b"a", "b'a' (bytes), which is not a string (text without U+0000)"),
    (BooleanType(), 1, "1 (int), which is not a boolean"),
    (TIME, 5, "5 (int), which is not a timestamp; pass a datetime with a time zone"),
    (TIME, pd.NaT, "NaT (NaTType), which is not a timestamp; pass a datetime with a time zone"),
    (
        TIME,
        pd.Timestamp("2026-01-01T00:00:00.000000001Z"),
        "Timestamp('2026-01-01 00:00:00.000000001+0000', tz='UTC') (Timestamp), which is not a timestamp in whole",
    ),
]


@pytest.mark.parametrize(("type_", "value", "said"), NOT_A, ids=[said for *_, said in NOT_A])
def test_a_value_is_of_its_type_wherever_it_is_given(type_: DataType, value: object, said: str) -> None:
    def emits(ctx: Any, _: Any) -> None:  # noqa: ANN401
        ctx.emit(n=value)

    def sets(ctx: Any, _: Any) -> None:  # noqa: ANN401
        ctx.state.s.set(value)

    def appends(ctx: Any, _: Any) -> None:  # noqa: ANN401
        ctx.state.s.append(value)

    def puts(ctx: Any, _: Any) -> None:  # noqa: ANN401
        ctx.state.s.set("k", value)

    def has_key(ctx: Any, _: Any) -> None:  # noqa: ANN401
        ctx.state.s.set(value, 1)

    tried: list[tuple[Any, tuple[KeyedState, ...], str]] = [
        (emits, (), "n"),
        (sets, (ValueState("s", type_),), "state s"),
        (appends, (ListState("s", type_),), "state s"),
        (puts, (MapState("s", TEXT, type_),), "state s"),
        (has_key, (MapState("s", type_, LONG),), "a key of state s"),
    ]
    for function, state, what in tried:
        name = f"{__name__}.{function.__qualname__}"
        with failing(f"the function {name} failed {PLACE}: TypeError: {what} is {said}"):
            play(process(function, state, type_), STEPS, "fire")
    with failing(f"key user='A': the aggregate 'n' failed in finish(): TypeError: the result is {said}"):
        aggregated(Own(type_, end=lambda _: value))


IS_A: list[tuple[DataType, object, object]] = [
    (LONG, np.int64(5), 5),
    (DOUBLE, np.float32(0.5), 0.5),
    (DOUBLE, 3, 3.0),
    (DECIMAL, 3, Decimal("3.00")),
    (DECIMAL, np.int64(3), Decimal("3.00")),
    (BooleanType(), np.True_, True),
    (TEXT, np.str_("a"), "a"),
    (TIME, datetime(2026, 1, 1, 3, tzinfo=timezone(timedelta(hours=3))), datetime(2026, 1, 1, tzinfo=UTC)),
    (TIME, pd.Timestamp("2026-01-01T00:00:00Z"), datetime(2026, 1, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize(("type_", "value", "kept"), IS_A)
def test_a_value_of_numpy_or_pandas_is_what_it_says(type_: DataType, value: object, kept: object) -> None:
    def function(ctx: Any, _: Any) -> None:  # noqa: ANN401
        before = ctx.state.s.get()
        assert before is None or (type(before), before) == (type(kept), kept)
        ctx.state.s.set(value)
        ctx.emit(n=value)

    # in the state the type is that of the value after a step, too
    output = StepOutput.concat(play(process(function, (ValueState("s", type_),), type_), STEPS, "fire"))
    assert set(output.changes.column("n").to_pylist()) == {kept}
    assert aggregated(Own(type_, end=lambda _: value)) == [kept]


def test_a_result_of_an_aggregate_may_be_a_scalar_of_arrow() -> None:
    assert aggregated(Own(end=pa.scalar)) == [3]


JSON = "use None, booleans, finite numbers, strings, lists, and dicts with string keys"
STATES: list[tuple[object, str]] = [
    ((1, 2), "(1, 2) would be [1, 2] when read back from JSON"),
    ({"a": [(1,)]}, "{'a': [(1,)]} would be {'a': [[1]]} when read back from JSON"),
    ({1: 2}, "{1: 2} would be {'1': 2} when read back from JSON"),
    ({None: 2}, "{None: 2} would be {'null': 2} when read back from JSON"),
    ({1, 2}, "{1, 2} cannot be stored as JSON (Object of type set is not JSON serializable)"),
    (b"a", "b'a' cannot be stored as JSON (Object of type bytes is not JSON serializable)"),
    (datetime(2026, 1, 1, tzinfo=UTC), "datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc) cannot be"),
    (Decimal("1.5"), "Decimal('1.5') cannot be stored as JSON (Object of type Decimal is not JSON serializable)"),
    (float("nan"), "nan cannot be stored as JSON (Out of range float values are not JSON compliant"),
    ({"a": float("inf")}, "{'a': inf} cannot be stored as JSON (Out of range float values are not JSON compliant"),
    (np.int64(3), "np.int64(3) cannot be stored as JSON (Object of type int64 is not JSON serializable)"),
]


@pytest.mark.parametrize("called", ["new", "add", "join"])
@pytest.mark.parametrize(("state", "said"), STATES, ids=[said[:30] for _, said in STATES])
def test_a_state_that_would_be_another_when_it_is_read_is_refused_at_once(
    called: str, state: object, said: str
) -> None:
    with failing(f"key user='A': the aggregate 'n' failed in {METHODS[called]}(): TypeError: the state {said}"):
        aggregated(Own(end=lambda _: 1), **{called: lambda *_: state})


def test_a_state_is_the_same_in_every_cut() -> None:
    state = {"a": [1, 1.5, None, True, "x\0\ud800"], "b": {}}
    seen: list[object] = []

    def join(one: object, other: object) -> object:
        seen.extend([one, other])
        return one

    assert aggregated(Own(add=lambda *_: state, join=join, end=lambda kept: int(kept == state))) == [1]
    assert all(one == state for one in seen)


def test_a_zero_that_is_shared_is_not_changed_by_a_step() -> None:
    shared: list[int] = []

    def add(state: list[int], columns: Mapping[str, pa.Array]) -> list[int]:
        state.extend([1] * len(columns["amount"]))
        return state

    steps = [[(0, record("A", 1)), (0, record("B", 1)), (0, record("A", 1)), (0, record("C", 7))]]
    own = Own(new=lambda: shared, add=add, end=len)
    pipeline = main(aggregates=(Aggregate("n", Custom(own, ("amount",))),))
    changes = StepOutput.concat(play(pipeline, steps, "fire")).changes.to_pylist()
    assert sorted((one["user"], one["n"]) for one in changes) == [("A", 2), ("B", 1), ("C", 1)]
    assert shared == []


@pytest.mark.parametrize("called", ["add", "join", "end"])
def test_a_zero_that_has_changed_is_refused(called: str) -> None:
    shared: list[int] = []

    def changes(*_: object) -> int:
        shared.append(7)
        return 1

    own = Own(new=lambda: shared, add=lambda _, columns: len(columns["amount"]))
    said = "ValueError: it returned [] at first, but now [7"
    with failing(f"key user='A': the aggregate 'n' failed in zero(): {said}"):
        aggregated(own, **{called: changes})


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            lambda ctx, _: ctx.emit(5),
            "TypeError: emit takes n, but was given int without a name: write ctx.emit(n=...)",
        ),
        (
            lambda ctx, _: ctx.emit({"n": 5}),
            "TypeError: emit takes n, but was given dict without a name: write ctx.emi",
        ),
        (
            lambda ctx, _: ctx.emit(5, n=5),
            "TypeError: emit takes n, but was given int without a name, n: write ctx.emi",
        ),
        (lambda ctx, _: ctx.emit(), "TypeError: emit takes n, but was given nothing: write ctx.emit(n=...)"),
        (lambda ctx, _: ctx.emit(m=5), "TypeError: emit takes n, but was given m: write ctx.emit(n=...)"),
        (lambda ctx, _: ctx.emit(n=NoRepr()), "ValueError: no repr"),
        (lambda *_: 5, "TypeError: it returned a value (int), but must return nothing"),
        (lambda *_: False, "TypeError: it returned a value (bool), but must return nothing"),
        (lambda _, given: given["m"], "KeyError: \"a record has no field 'm'; it has user, t, amount"),
        (
            lambda _, given: given.__setitem__("user", "B"),
            "AttributeError: 'Record' object has no attribute '__setitem",
        ),
        (lambda ctx, _: ctx.key.__setitem__("user", "B"), "AttributeError: 'mappingproxy' object has no attribute"),
        (lambda: None, "TypeError: "),
        (lambda *_: sys.exit(), "SystemExit"),
        (lambda *_: exit(0), "SystemExit: 0"),  # noqa: PLR1722 - the other way to say it
    ],
)
def test_a_function_that_is_called_or_calls_wrongly_is_told(function: Any, said: str) -> None:  # noqa: ANN401
    with failing(f"the function {__name__}.<lambda> failed {PLACE}: {said}"):
        play(process(function), STEPS, "fire")


@pytest.mark.parametrize(("value", "name"), [(None, "NoneType"), ("no", "str"), (1, "int"), ([], "list")])
def test_a_trigger_says_true_or_false(value: object, name: str) -> None:
    pipeline = main(emit=replace(MAIN.emit, early=When(lambda _: value)))  # type: ignore[arg-type,return-value]
    with pytest.raises(RunError, match=rf"TypeError: it returned {name}, but must return True or False"):
        play(pipeline, STEPS, "fire")


def test_a_key_of_any_text_is_named() -> None:
    host = MemoryHost(as_graph(process(thrower(ValueError("no")))), [0])
    user = "it's\n\u2028 \U0001f600"
    with pytest.raises(RunError, match=re.escape(f"key user={user!r}: ValueError: no")):
        host.step(raw(0, 0, record(user, 1)))


@pytest.mark.parametrize("handler", [signal.default_int_handler, raise_interrupt])
def test_a_signal_interrupts_a_function(handler: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    monkeypatch.setattr("logging.disable", lambda: None)
    kept = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            play(process(lambda *_: signal.raise_signal(signal.SIGINT)), STEPS, "fire")
    finally:
        signal.signal(signal.SIGINT, kept)
