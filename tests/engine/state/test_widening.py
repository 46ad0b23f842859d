"""Which types are wider, and what cannot go on with one."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.runtime.spend import spend
from tests.short_forms import Pipeline, ProcessPipeline, operator_spec

from windrow.engine.schema import arrow_type
from windrow.engine.state.widening import StateChange, incompatible_fields, why_not_wider, widen
from windrow.errors import CheckpointError
from windrow.model import (
    Aggregate,
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    BooleanType,
    BottomKBy,
    CollectList,
    Count,
    CountDistinct,
    DataType,
    DecimalType,
    Decode,
    Derive,
    DoubleType,
    Field,
    Formula,
    Function,
    LogSource,
    LongType,
    Max,
    Process,
    SqliteSink,
    StringType,
    Sum,
    TimestampType,
    TopK,
    TopKBy,
    Variance,
)

PLAIN = spend(LogSource("data/spend"), SqliteSink("spend.db", "spend"))
OTHERS: list[DataType] = [
    StringType(),
    BooleanType(),
    LongType(),
    DoubleType(),
    *(TimestampType(unit) for unit in ("seconds", "millis", "micros", "iso")),
]
types = st.sampled_from(OTHERS) | st.integers(1, 38).flatmap(
    lambda precision: st.builds(DecimalType, st.just(precision), st.integers(0, precision))
)


def greatest(type_: DataType) -> Decimal:
    if not isinstance(type_, DecimalType):
        return Decimal(2**63)
    return Decimal((0, (9,) * type_.precision, -type_.scale))  # what computes it may round


@examples(500)
@example(DecimalType(30, 1), DecimalType(32, 3))
@given(types, types)
def test_a_type_is_wider_if_it_holds_the_greatest_and_the_finest_value(there: DataType, here: DataType) -> None:
    assert_wider_if_it_holds(there, here)


@pytest.mark.long
@settings(max_examples=30000)
@given(types, types)
def test_a_type_is_wider_if_it_holds_these_values_in_many_cases(there: DataType, here: DataType) -> None:
    assert_wider_if_it_holds(there, here)


def assert_wider_if_it_holds(there: DataType, here: DataType) -> None:
    numbers = isinstance(here, DecimalType) and isinstance(there, DecimalType | LongType)
    holds = numbers and _held(greatest(there), here) and (isinstance(there, LongType) or _held(_finest(there), here))
    assert (why_not_wider(there, here) is None) == (there == here or holds)


def _finest(type_: DataType) -> Decimal:
    return Decimal(1).scaleb(-type_.scale) if isinstance(type_, DecimalType) else Decimal(1)


def _held(value: Decimal, type_: DataType) -> bool:
    try:
        pa.scalar(value, arrow_type(type_))
    except pa.ArrowInvalid:
        return False
    return True


numbers = st.integers(-(10**12) + 1, 10**12 - 1).map(Decimal)
nested = st.lists(
    st.none() | st.lists(st.none() | st.fixed_dictionaries({"v": st.none() | numbers, "n": st.integers(0, 9)}))
)


@examples(60)
@given(nested, st.integers(0, 3), st.data())
def test_unscaled_decimals_in_lists_and_structs_grow_by_zeros(rows: Any, shift: int, data: st.DataObject) -> None:  # noqa: ANN401
    def of(precision: int) -> pa.DataType:
        return pa.list_(pa.struct([("v", pa.decimal128(precision, 0)), ("n", pa.int64())]))

    column = pa.chunked_array([pa.array(rows, of(12))])
    start = data.draw(st.integers(0, len(rows)))
    found = widen(column.slice(start), of(15), shift)
    assert found.type == of(15)
    assert found.to_pylist() == [
        row and [one and {**one, "v": one["v"] if one["v"] is None else one["v"] * 10**shift} for one in row]
        for row in rows[start:]
    ]


def test_a_sum_that_gets_too_many_digits_is_refused() -> None:
    column = pa.chunked_array([pa.array([Decimal(10**37)], pa.decimal128(38, 0))])
    with pytest.raises(CheckpointError, match="too many digits to add 2 after"):
        widen(column, pa.decimal128(38, 0), 2)


def changed(function: Function, there: DataType, here: DataType, *more: Aggregate, **parts: Any) -> dict[str, str]:  # noqa: ANN401
    """What is refused if the amount, which one aggregate is over, becomes of another type."""
    aggregates = (Aggregate("a", function), *more)
    fields = (*PLAIN.decode.fields[:2], Field("amount", here))
    pipeline: Pipeline = replace(PLAIN, decode=Decode(fields), aggregates=aggregates, **parts)
    return incompatible_fields(
        operator_spec(pipeline),
        StateChange(tuple(range(len(aggregates))), 0, same_records=False, were=(Field("amount", there),)),
    )


MONEY = DecimalType(12, 2)
DIGITS, PLACES, WHOLE = (MONEY, DecimalType(14, 2)), (MONEY, DecimalType(14, 4)), (LongType(), DecimalType(19, 0))


@pytest.mark.parametrize(
    ("function", "refused"),
    [
        (Sum("amount"), []),
        (Max("amount * 2"), [PLACES]),  # decimal(18,2), decimal(18,4)
        (CountDistinct("amount"), []),
        (Avg("amount"), [PLACES]),
        (Variance("amount"), [PLACES]),
        (ApproxQuantile("amount", 0.5), [PLACES]),
        (ApproxCountDistinct("amount"), [PLACES]),
        (TopK("amount", 3), [PLACES, WHOLE]),
        (CollectList("amount", 3), [PLACES, WHOLE]),
        (TopKBy("user_id", "amount", 3), [PLACES, WHOLE]),
        (BottomKBy("amount", "user_id", 3), [PLACES, WHOLE]),
        (Count(), []),
    ],
    ids=str,
)
def test_what_an_aggregate_knows_outlasts_a_wider_type_or_is_refused(
    function: Function, refused: list[tuple[DataType, DataType]]
) -> None:
    for there, here in (DIGITS, PLACES, WHOLE):
        found = changed(function, there, here)
        assert list(found) == (["amount"] if (there, here) in refused else [])
        assert all(why.startswith("aggregate.a ") for why in found.values())


def test_a_formula_over_what_changes_is_refused() -> None:
    formula = Aggregate("f", Formula("a * 2"))
    assert changed(Max("amount"), *DIGITS, formula) == {}
    assert changed(Max("amount"), *WHOLE, formula) == {
        "amount": "aggregate.f is a formula over a, whose type would change"
    }
    assert changed(CountDistinct("amount"), *WHOLE, formula) == {}


def test_a_derived_field_or_a_key_that_would_be_another_is_refused() -> None:
    derive = (Derive("part", "amount / 2"), Derive("size", "abs(amount)"))
    assert changed(Sum("size"), *DIGITS, derive=derive, key=("size",)) == {}
    assert changed(Sum("size"), *PLACES, derive=derive) == {}
    assert changed(Sum("part"), *PLACES, derive=derive, key=("size",)) == {
        "amount": "digits after the decimal point are part of a key "
        "(decimal(12,2) in the savepoint, decimal(14,4) here)"
    }
    assert changed(Sum("part"), *WHOLE, derive=derive, key=("amount",)) == {}
    text = (Derive("text", "cast(amount as varchar)"),)
    assert changed(Sum("amount"), *PLACES, derive=text, key=("text",)) == {
        "amount": "the key text is a text computed from it, which would change"
    }
    (why,) = changed(Sum("amount"), *PLACES, derive=(Derive("twice", "amount * 2"),)).values()
    assert why.startswith("derive.twice would be decimal(18,4), but is decimal(18,2) in the savepoint; not every")


def test_of_a_process_only_keys_and_derived_fields_can_be_refused() -> None:
    pipeline = ProcessPipeline(
        name=PLAIN.name,
        source=PLAIN.source,
        decode=Decode((*PLAIN.decode.fields[:2], Field("amount", DecimalType(14, 4)))),
        time=PLAIN.time,
        key=("user_id",),
        process=Process(print, state=(), returns=(Field("amount", StringType()),)),
        sink=PLAIN.sink,
    )
    plan = StateChange(same_records=False, were=(Field("amount", MONEY),))
    assert incompatible_fields(operator_spec(pipeline), plan) == {}
    assert list(incompatible_fields(operator_spec(replace(pipeline, key=("user_id", "amount"))), plan)) == ["amount"]
