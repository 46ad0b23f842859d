"""Custom aggregates in Python: states are JSON, and a call is made for each window and key, not for each record."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.core.aggregates.accumulators import Accumulator, AggregateSql, ArgumentSql
from windrow.core.aggregates.kernels import register, whole
from windrow.core.columns import reinterpret, unscale_array
from windrow.core.duckdb_sql import identifier
from windrow.core.schema import arrow_type
from windrow.errors import RunError
from windrow.expressions.engine import sql_type
from windrow.model import CustomAggregate, DataType, DecimalType

_numbers = count()


def custom(
    name: str, column: str, aggregate: CustomAggregate, names: tuple[str, ...], of: tuple[ArgumentSql, ...]
) -> AggregateSql:
    """Return the SQL of a custom aggregate; records without a value for an argument are skipped."""
    number = next(_numbers)
    fields = ", ".join(f"c{place}: {one.sql}" for place, one in enumerate(of))
    types = ", ".join(f"c{place} {one.type}" for place, one in enumerate(of))
    lacking = [one for one in of if one.nullable]
    given = f" FILTER (WHERE {' AND '.join(f'{one.sql} IS NOT NULL' for one in lacking)})" if lacking else ""
    begin = register(f"__begin_{number}", _begin(name, aggregate, names, of), [f"STRUCT({types})[]"], "VARCHAR")
    merge = register(f"__merge_{number}", _merge(name, aggregate), ["VARCHAR[]"], "VARCHAR")
    finish = register(f"__finish_{number}", _finish(name, aggregate), ["VARCHAR"], _sql(aggregate.returns))
    state = Accumulator(column, f"{begin}(list({{{fields}}}){given})", "list", f"{merge}({{}})")
    return AggregateSql(name, (state,), f"{finish}({identifier(column)})")


def _sql(returns: DataType) -> str:
    return sql_type(DecimalType(returns.precision, 0) if isinstance(returns, DecimalType) else returns)


def _begin(
    name: str, aggregate: CustomAggregate, names: tuple[str, ...], of: tuple[ArgumentSql, ...]
) -> Callable[[pa.Array], pa.Array]:
    def begin(records: pa.Array) -> pa.Array:
        lists = whole(records)
        entries = lists.flatten()
        columns = [_scaled(entries.field(place), one) for place, one in enumerate(of)]
        ends = np.cumsum(lists.value_lengths().fill_null(0).to_numpy()).tolist()
        states = []
        for start, end in zip([0, *ends], ends, strict=False):
            some = {name: column.slice(start, end - start) for name, column in zip(names, columns, strict=True)}
            states.append(_encoded(aggregate.step(aggregate.zero(), some)) if end > start else None)
        return pa.array(states, pa.string())

    return _named(name, "step", begin)


def _merge(name: str, aggregate: CustomAggregate) -> Callable[[pa.Array], pa.Array]:
    def merge(lists: pa.Array) -> pa.Array:
        merged = []
        for states in whole(lists).to_pylist():
            known = [json.loads(state) for state in states or () if state is not None]
            merged.append(_encoded(reduce(aggregate.merge, known)) if known else None)
        return pa.array(merged, pa.string())

    return _named(name, "merge", merge)


def _finish(name: str, aggregate: CustomAggregate) -> Callable[[pa.Array], pa.Array]:
    def finish(states: pa.Array) -> pa.Array:
        known = (aggregate.zero() if state is None else json.loads(state) for state in states.to_pylist())
        results = pa.array([aggregate.finish(state) for state in known], arrow_type(aggregate.returns))
        return unscale_array(results)

    return _named(name, "finish", finish)


def _named(name: str, method: str, function: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    """Wrap a function so that errors of the aggregate's own code name the aggregate and the method."""

    def named(column: pa.Array) -> pa.Array:
        try:
            return function(column)
        except Exception as exc:
            said = " ".join(str(exc).split())
            msg = (
                f"the aggregate {name!r} failed in {method}(): {type(exc).__name__}: {said}; what was committed stays; "
                "mend it and start again"
            )
            raise RunError(msg) from exc

    return named


def _encoded(state: Any) -> str:  # noqa: ANN401 - the user's own
    return json.dumps(state, allow_nan=False)


def _scaled(column: pa.Array, of: ArgumentSql) -> pa.Array:
    """Return the values with their scale, if they are decimals."""
    return column if of.scale is None else reinterpret(column, pa.decimal128(column.type.precision, of.scale))
