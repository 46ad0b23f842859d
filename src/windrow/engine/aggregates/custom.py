"""Custom aggregates in Python. States are JSON, and methods are called for each window and key, not for each record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial, reduce
from itertools import count
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine.aggregates.accumulators import Accumulator, AggregateParts, ArgumentSql, not_null, unscaled_sql_type
from windrow.engine.aggregates.kernels import register
from windrow.engine.columns import reinterpret, unscale_array, whole
from windrow.engine.duckdb_sql import identifier
from windrow.engine.schema import arrow_type
from windrow.engine.user_code import raise_user_code_error, shorten_repr
from windrow.engine.value_codec import value_codec

T = TypeVar("T")

_numbers = count()


def custom(
    name: str, column: str, aggregate: m.CustomAggregate, names: tuple[str, ...], of: tuple[ArgumentSql, ...]
) -> AggregateParts:
    """Return the SQL of a custom aggregate, which skips records in which an argument is null."""
    number = next(_numbers)
    fields = ", ".join(f"c{place}: {argument.sql}" for place, argument in enumerate(of))
    types = ", ".join(f"c{place} {argument.type}" for place, argument in enumerate(of))
    calls = AggregateCalls(name, aggregate)
    begin = register(f"__begin_{number}", partial(_begin, calls, names, of), [f"STRUCT({types})[]"], "VARCHAR")
    merge = register(f"__merge_{number}", partial(_merge, calls), ["VARCHAR[]"], "VARCHAR")
    finish = register(f"__finish_{number}", partial(_finish, calls), ["VARCHAR"], unscaled_sql_type(aggregate.returns))
    state = Accumulator(column, f"{begin}(list({{{fields}}}){not_null(*of)})", "list", f"{merge}({{}})")
    return (state,), f"{finish}({identifier(column)})"


def _begin(calls: AggregateCalls, names: tuple[str, ...], of: tuple[ArgumentSql, ...], records: pa.Array) -> pa.Array:
    lists = whole(records)
    entries = lists.flatten()
    columns = [_scale(entries.field(place), argument) for place, argument in enumerate(of)]
    ends = np.cumsum(lists.value_lengths().fill_null(0).to_numpy()).tolist()
    states = []
    for start, end in zip([0, *ends], ends, strict=False):
        some = {name: column.slice(start, end - start) for name, column in zip(names, columns, strict=True)}
        states.append(calls.step(some) if end > start else None)
    calls.check_zero()
    return pa.array(states, pa.string())


def _merge(calls: AggregateCalls, lists: pa.Array) -> pa.Array:
    merged = []
    for states in whole(lists).to_pylist():
        known = [state for state in states or () if state is not None]
        merged.append(reduce(calls.merge, known) if known else None)
    calls.check_zero()
    return pa.array(merged, pa.string())


def _finish(calls: AggregateCalls, states: pa.Array) -> pa.Array:
    results = pa.array([calls.finish(state) for state in states.to_pylist()], arrow_type(calls.returns))
    calls.check_zero()
    return unscale_array(results)


class AggregateCalls:
    """Calls the methods of an aggregate with a state that is parsed from JSON for each call.

    This way a method cannot tell whether a state comes from the previous call or from an earlier run. A state that
    changes when it is written and parsed again is an error.
    """

    def __init__(self, name: str, aggregate: m.CustomAggregate) -> None:
        self._name = name
        self._aggregate = aggregate
        self._zero: str | None = None
        self.returns = aggregate.returns
        self._accept = value_codec(arrow_type(self.returns), "the result").accept

    def step(self, records: Mapping[str, pa.Array]) -> str:
        """Return the state of the given records."""
        state = json.loads(self._empty())
        return self._call("step", lambda: _encode(self._aggregate.step(state, records)))

    def merge(self, state: str, other: str) -> str:
        """Return the state of the combined records of two states."""
        return self._call("merge", lambda: _encode(self._aggregate.merge(json.loads(state), json.loads(other))))

    def finish(self, state: str | None) -> Any:  # noqa: ANN401 - of the type that the aggregate returns
        """Return the result of a state; None stands for the state without records."""
        own = json.loads(self._empty() if state is None else state)

        def finish() -> Any:  # noqa: ANN401 - the same
            result = self._aggregate.finish(own)
            if isinstance(result, pa.Scalar):
                result = result.as_py()
            return None if result is None else self._accept(result)

        return self._call("finish", finish)

    def check_zero(self) -> None:
        """Raise RunError if the result of `zero` has changed since its first call: a method modified the object."""
        if self._zero is not None:
            self._call("zero", self._compare_zero)

    def _empty(self) -> str:
        if self._zero is None:
            self._zero = self._call("zero", lambda: _encode(self._aggregate.zero()))
        return self._zero

    def _compare_zero(self) -> None:
        before, now = json.loads(self._empty()), self._aggregate.zero()
        if now != before:
            texts = shorten_repr(before), shorten_repr(now)
            msg = f"it returned {texts[0]} at first, but now {texts[1]}: return a new state in each call"
            raise ValueError(msg)

    def _call(self, method: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except BaseException as exc:  # noqa: BLE001 - raised again with the name
            raise_user_code_error(exc, f"the aggregate {self._name!r} failed in {method}()")


def _encode(state: Any) -> str:  # noqa: ANN401 - the user's own
    try:
        text = json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as exc:
        msg = f"the state {shorten_repr(state)} cannot be stored as JSON ({exc}): {_STATE}"
        raise TypeError(msg) from exc
    kept = json.loads(text)
    if kept != state:
        msg = f"the state {shorten_repr(state)} would be {shorten_repr(kept)} when read back from JSON: {_STATE}"
        raise TypeError(msg)
    return text


_STATE: Final = "use None, booleans, finite numbers, strings, lists, and dicts with string keys"


def _scale(column: pa.Array, of: ArgumentSql) -> pa.Array:
    return column if of.scale is None else reinterpret(column, pa.decimal128(column.type.precision, of.scale))
