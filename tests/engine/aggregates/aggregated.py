"""Records of every type, all functions over them, and their results in plain Python."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from tests.engine.pipelines import MAIN
from tests.short_forms import Pipeline

from windrow.model import (
    Aggregate,
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    BoolAnd,
    BooleanType,
    BoolOr,
    BottomKBy,
    CollectList,
    CollectSet,
    Count,
    CountDistinct,
    Custom,
    DataType,
    DecimalType,
    Decode,
    DoubleType,
    Field,
    First,
    Formula,
    Function,
    Last,
    LongType,
    Max,
    MaxBy,
    Min,
    MinBy,
    Quantile,
    Stddev,
    StringType,
    Sum,
    TimestampType,
    TopK,
    TopKBy,
    Variance,
)

FIELDS = (
    Field("user", StringType()),
    Field("t", TimestampType("micros")),
    Field("amount", DecimalType(12, 2)),
    Field("wide", DecimalType(28, 4)),
    Field("n", LongType()),
    Field("s", StringType()),
    Field("b", BooleanType()),
    Field("x", DoubleType()),
)
CONDITION = "s <> 'no'"


@dataclass(frozen=True)
class Rec:
    """A record; `time` and `amount` in microseconds and cents, `wide` in ten-thousandths."""

    partition: int
    offset: int
    time: int
    amount: int
    wide: int
    n: int
    s: str
    b: bool
    x: float

    def values(self) -> dict[str, Any]:
        return {
            "user": "A",
            "t": self.time,
            "amount": Decimal(self.amount).scaleb(-2),
            "wide": Decimal(self.wide).scaleb(-4, Context(prec=40)),
            "n": self.n,
            "s": self.s,
            "b": self.b,
            "x": self.x,
        }

    def line(self) -> bytes:
        return json.dumps(self.values(), default=str).encode()


@st.composite
def logs(draw: st.DrawFn) -> list[Rec]:
    """Records of up to three partitions with few different values, among them the widest."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 2),
                st.integers(0, 6),
                st.integers(-3, 3) | st.just(10**12 - 1),
                st.integers(-2, 2) | st.sampled_from([10**28 - 1, 1 - 10**28, 10**14, -(10**14) - 1]),
                st.integers(-2, 2) | st.sampled_from([2**63 - 1, -(2**63)]),
                st.sampled_from(["no", "a", "ä", "", '"\\']),
                st.booleans(),
                st.integers(-4, 4).map(lambda half: half / 2),
            ),
            min_size=1,
            max_size=12,
        )
    )
    return [Rec(row[0], number, *row[1:]) for number, row in enumerate(rows)]


class Span:
    """The greatest less the least, of amounts: a custom aggregate."""

    returns: DataType = DecimalType(13, 2)

    def zero(self) -> Any:  # noqa: ANN401 - as the protocol has it, here and below
        return None

    def step(self, state: Any, columns: Mapping[str, pa.Array]) -> Any:  # noqa: ANN401
        cents = [int(amount.scaleb(2)) for amount in columns["amount"].to_pylist()]
        return self.merge(state, [min(cents), max(cents)])

    def merge(self, one: Any, other: Any) -> Any:  # noqa: ANN401
        return [min(one[0], other[0]), max(one[1], other[1])] if one and other else one or other

    def finish(self, state: Any) -> Any:  # noqa: ANN401
        return None if state is None else Decimal(state[1] - state[0]).scaleb(-2)


@dataclass(frozen=True)
class Case:
    """A function and what it is in plain Python, of records in log order; of none, `nothing`."""

    function: Function
    plain: Callable[[list[Rec]], Any]
    nothing: Any = None


def _of(name: str, records: list[Rec]) -> list[Any]:
    return [record.values()[name] for record in records]


def _by_time(records: list[Rec]) -> list[Rec]:
    return sorted(records, key=lambda record: (record.time, record.partition, record.offset))


def _ranked(records: list[Rec], of: str, measure: str, *, reverse: bool = False) -> list[list[Any]]:
    """Return values with their measures, in the order of these, equal ones by time."""
    rows = [[_of(of, [record])[0], _of(measure, [record])[0]] for record in _by_time(records)]
    # a sort is stable, also in reverse
    return sorted(rows, key=lambda row: row[1], reverse=reverse)


def _by_log(records: list[Rec]) -> list[Rec]:
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _mean(values: list[Any], digits: int) -> Decimal:
    exact = Fraction(sum(map(Fraction, values))) / len(values)
    unit = abs(exact) * 10**digits
    whole = math.floor(unit + Fraction(1, 2))
    return Decimal(whole if exact >= 0 else -whole).scaleb(-digits, Context(prec=60))


def _quantile(values: list[Any], at: str) -> Any:  # noqa: ANN401
    place = math.ceil(Fraction(at) * len(values))
    return sorted(values)[max(place, 1) - 1]


def _variance(values: list[Any]) -> float | None:
    if len(values) < 2:
        return None
    exact = list(map(Fraction, values))
    mean = sum(exact) / Fraction(len(exact))
    return float(sum((value - mean) ** 2 for value in exact) / (len(exact) - 1))


def _stddev(values: list[Any]) -> float | None:
    variance = _variance(values)
    return None if variance is None else math.sqrt(variance)


def _top(values: list[Any], k: int) -> list[list[Any]]:
    return [[value, count] for value, count in sorted(Counter(values).items(), key=lambda e: (-e[1], e[0]))[:k]]


def _json(value: Any) -> str:  # noqa: ANN401
    return json.dumps(value, default=str, separators=(",", ":"), ensure_ascii=False)


def _iso(micros: int) -> str:
    return f"1970-01-01T00:00:00.{micros:06}Z"


def _near(values: list[Any]) -> float:
    """The middle of the bucket that holds the median."""
    mantissa, exponent = math.frexp(abs(float(_quantile(values, "0.5"))))
    middle = math.ldexp((math.floor(mantissa * 128) + 0.5) / 128, exponent)
    return math.copysign(middle, _quantile(values, "0.5")) if mantissa else 0.0


EXACT = (
    Case(Count(), len, 0),
    Case(Sum("amount"), lambda rs: sum(_of("amount", rs))),
    Case(Sum("wide"), lambda rs: Decimal(sum(r.wide for r in rs)).scaleb(-4, Context(prec=40))),
    Case(Sum("n"), lambda rs: Decimal(sum(_of("n", rs)))),
    Case(Sum("amount * 2"), lambda rs: 2 * sum(_of("amount", rs))),
    Case(Avg("amount"), lambda rs: _mean(_of("amount", rs), 8)),
    Case(Avg("n"), lambda rs: _mean(_of("n", rs), 6)),
    Case(Min("amount"), lambda rs: min(_of("amount", rs))),
    Case(Max("n"), lambda rs: max(_of("n", rs))),
    Case(Min("s"), lambda rs: min(_of("s", rs))),
    Case(Max("b"), lambda rs: max(_of("b", rs))),
    Case(Max("t"), lambda rs: max(_of("t", rs))),
    Case(Min("x"), lambda rs: min(_of("x", rs))),
    Case(CountDistinct("amount"), lambda rs: len(set(_of("amount", rs))), 0),
    Case(CountDistinct("s"), lambda rs: len(set(_of("s", rs))), 0),
    Case(ApproxCountDistinct("s"), lambda rs: len(set(_of("s", rs))), 0),
    Case(ApproxCountDistinct("t"), lambda rs: len(set(_of("t", rs))), 0),
    Case(Quantile("amount", 0.5), lambda rs: _quantile(_of("amount", rs), "0.5")),
    Case(Quantile("n", 0.1), lambda rs: _quantile(_of("n", rs), "0.1")),
    Case(Quantile("x", 0.9), lambda rs: _quantile(_of("x", rs), "0.9")),
    Case(Quantile("t", 1.0), lambda rs: max(_of("t", rs))),
    Case(ApproxQuantile("amount", 0.5), lambda rs: _near([r.amount for r in rs]) / 100),
    Case(ApproxQuantile("x", 0.5), lambda rs: _near(_of("x", rs))),
    Case(TopK("s", 2), lambda rs: _json(_top(_of("s", rs), 2))),
    Case(TopK("amount", 2), lambda rs: _json(_top(_of("amount", rs), 2))),
    Case(TopK("b", 1), lambda rs: _json(_top(_of("b", rs), 1))),
    Case(First("amount"), lambda rs: _by_time(rs)[0].values()["amount"]),
    Case(First("s", "log"), lambda rs: _by_log(rs)[0].s),
    Case(Last("b"), lambda rs: _by_time(rs)[-1].b),
    Case(Last("n", "log"), lambda rs: _by_log(rs)[-1].n),
    Case(MaxBy("s", "amount"), lambda rs: max(_by_time(rs), key=lambda r: r.amount).s),
    Case(MaxBy("amount", "b"), lambda rs: max(_by_time(rs), key=lambda r: r.b).values()["amount"]),
    Case(MinBy("n", "s"), lambda rs: min(_by_time(rs), key=lambda r: r.s).n),
    Case(TopKBy("s", "amount", 2), lambda rs: _json(_ranked(rs, "s", "amount", reverse=True)[:2])),
    Case(TopKBy("n", "t", 3), lambda rs: _json([[n, _iso(t)] for n, t in _ranked(rs, "n", "t", reverse=True)[:3]])),
    Case(BottomKBy("b", "x", 2), lambda rs: _json(_ranked(rs, "b", "x")[:2])),
    Case(CollectList("s", 3, "log"), lambda rs: _json(_of("s", _by_log(rs))[:3])),
    Case(CollectList("wide", 3), lambda rs: _json(_of("wide", _by_time(rs))[:3])),
    Case(CollectList("t", 2), lambda rs: _json(list(map(_iso, _of("t", _by_time(rs))[:2])))),
    Case(CollectList("n", 100), lambda rs: _json(_of("n", _by_time(rs)))),
    Case(CollectSet("s", 2), lambda rs: _json(sorted(set(_of("s", rs)))[:2])),
    Case(CollectSet("x", 100), lambda rs: _json(sorted(set(_of("x", rs))))),
    Case(Variance("amount"), lambda rs: _variance(_of("amount", rs))),
    Case(Variance("wide"), lambda rs: _variance(_of("wide", rs))),
    Case(Stddev("n"), lambda rs: _stddev(_of("n", rs))),
    Case(BoolAnd("b"), lambda rs: all(_of("b", rs))),
    Case(BoolOr("b or n > 1"), lambda rs: any(r.b or r.n > 1 for r in rs)),
    Case(Custom(Span(), ("amount",)), lambda rs: max(_of("amount", rs)) - min(_of("amount", rs))),
)
"""Functions whose results are the same to the last bit however records are merged."""

INEXACT = (
    Case(Sum("x"), lambda rs: math.fsum(_of("x", rs))),
    Case(Avg("x"), lambda rs: math.fsum(_of("x", rs)) / len(rs)),
    Case(Variance("x"), lambda rs: _variance(_of("x", rs))),
    Case(Stddev("x"), lambda rs: _stddev(_of("x", rs))),
)
"""Those that depend on the order in their last digits."""

CASES = {
    f"{'if_' if where else ''}{number}_{type(case.function).__name__.lower()}": (case, where)
    for where in (None, CONDITION)
    for number, case in enumerate(EXACT + INEXACT)
}
"""By the name of the result column, with and without a condition."""

HALF = Formula('"1_sum" / 2')

PIPELINE: Pipeline = replace(
    MAIN,
    decode=Decode(FIELDS),
    aggregates=(
        *(Aggregate(name, case.function, where) for name, (case, where) in CASES.items()),
        Aggregate("half", HALF),
    ),
)


def plain_result(name: str, records: list[Rec]) -> Any:  # noqa: ANN401
    """The result of that name of some records, as Arrow's `to_pylist` gives it but for times."""
    case, where = CASES[name]
    counting = [record for record in records if where is None or record.s != "no"]
    return case.plain(counting) if counting else case.nothing
