"""Custom aggregates in Python: states are JSON, and a call is made for each window and key, not for each record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial, reduce
from itertools import count
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine.aggregates.accumulators import Accumulator, AggregateSql, ArgumentSql
from windrow.engine.aggregates.kernels import register, whole
from windrow.engine.columns import reinterpret, unscale_array
from windrow.engine.duckdb_sql import identifier
from windrow.engine.schema import arrow_type
from windrow.engine.user_code import raise_user_code_error
from windrow.engine.value_codec import value_codec
from windrow.expressions.engine import sql_type

T = TypeVar("T")

_numbers = count()


def custom(
    name: str, column: str, aggregate: m.CustomAggregate, names: tuple[str, ...], of: tuple[ArgumentSql, ...]
) -> AggregateSql:
    """Return the SQL of a custom aggregate; records without a value for an argument are skipped."""
    number = next(_numbers)
    fields = ", ".join(f"c{place}: {one.sql}" for place, one in enumerate(of))
    types = ", ".join(f"c{place} {one.type}" for place, one in enumerate(of))
    lacking = [one for one in of if one.nullable]
    given = f" FILTER (WHERE {' AND '.join(f'{one.sql} IS NOT NULL' for one in lacking)})" if lacking else ""
    calls = AggregateCalls(name, aggregate)
    begin = register(f"__begin_{number}", partial(_begin, calls, names, of), [f"STRUCT({types})[]"], "VARCHAR")
    merge = register(f"__merge_{number}", partial(_merge, calls), ["VARCHAR[]"], "VARCHAR")
    finish = register(f"__finish_{number}", partial(_finish, calls), ["VARCHAR"], _sql(aggregate.returns))
    state = Accumulator(column, f"{begin}(list({{{fields}}}){given})", "list", f"{merge}({{}})")
    return AggregateSql(name, (state,), f"{finish}({identifier(column)})")


def _sql(returns: m.DataType) -> str:
    return sql_type(m.DecimalType(returns.precision, 0) if isinstance(returns, m.DecimalType) else returns)


def _begin(calls: AggregateCalls, names: tuple[str, ...], of: tuple[ArgumentSql, ...], records: pa.Array) -> pa.Array:
    lists = whole(records)
    entries = lists.flatten()
    columns = [_scaled(entries.field(place), one) for place, one in enumerate(of)]
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
    """Calls the methods of an aggregate; a state is JSON, which is read anew for each call.

    So a method sees the same whatever it was that made a state: a call just before, or one of a run that has ended. A
    state that is not equal when it is read again is refused.
    """

    def __init__(self, name: str, aggregate: m.CustomAggregate) -> None:
        self._name = name
        self._aggregate = aggregate
        self._zero: str | None = None
        self.returns = aggregate.returns
        self._accept = value_codec(arrow_type(self.returns), "the result").accept

    def step(self, records: Mapping[str, pa.Array]) -> str:
        """Return the state of some records."""
        state = json.loads(self._empty())
        return self._call("step", lambda: _encoded(self._aggregate.step(state, records)))

    def merge(self, one: str, other: str) -> str:
        """Return the state of the records of both."""
        return self._call("merge", lambda: _encoded(self._aggregate.merge(json.loads(one), json.loads(other))))

    def finish(self, state: str | None) -> Any:  # noqa: ANN401 - of the type that the aggregate returns
        """Return the result of a state; None is that of no records."""
        given = json.loads(self._empty() if state is None else state)

        def finished() -> Any:  # noqa: ANN401 - the same
            result = self._aggregate.finish(given)
            if isinstance(result, pa.Scalar):
                result = result.as_py()
            return None if result is None else self._accept(result)

        return self._call("finish", finished)

    def check_zero(self) -> None:
        """Raise RunError if `zero` returns another state than it first did: records are in it that are not its own."""
        if self._zero is not None:
            self._call("zero", self._same_zero)

    def _empty(self) -> str:
        if self._zero is None:
            self._zero = self._call("zero", lambda: _encoded(self._aggregate.zero()))
        return self._zero

    def _same_zero(self) -> None:
        before, now = json.loads(self._empty()), self._aggregate.zero()
        if now != before:
            msg = f"it returned {_shown(before)} before, and now {_shown(now)}: return a new state in each call"
            raise ValueError(msg)

    def _call(self, method: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except BaseException as exc:  # noqa: BLE001 - raised again with the name
            raise_user_code_error(exc, f"the aggregate {self._name!r} failed in {method}()")


def _encoded(state: Any) -> str:  # noqa: ANN401 - the user's own
    try:
        text = json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as exc:
        msg = f"the state {_shown(state)} cannot be kept as JSON ({exc}): {_STATE}"
        raise TypeError(msg) from exc
    kept = json.loads(text)
    if kept != state:
        msg = f"the state {_shown(state)} would be {_shown(kept)} when it is read again: {_STATE}"
        raise TypeError(msg)
    return text


_STATE: Final = "use None, booleans, finite numbers, texts, lists, and dicts whose keys are texts"
_SHOWN: Final = 80


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _scaled(column: pa.Array, of: ArgumentSql) -> pa.Array:
    """Return the values with their scale, if they are decimals."""
    return column if of.scale is None else reinterpret(column, pa.decimal128(column.type.precision, of.scale))
