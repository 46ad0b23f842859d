"""What a pipeline computes of a record, and of what types its results are."""

from dataclasses import replace
from typing import Any

import pytest
from tests.engine.pipelines import MAIN
from tests.short_forms import Pipeline, operator_spec

from windrow.errors import PipelineError
from windrow.expressions import arguments, computed, nullable_fields, record_fields, results
from windrow.model import (
    Aggregate,
    Avg,
    Count,
    DecimalType,
    Derive,
    DoubleType,
    EventTime,
    Field,
    Formula,
    Function,
    LongType,
    Max,
    Min,
    Punctuated,
    StringType,
    Sum,
    TimestampType,
)


def of(function: Function, where: str | None = None, **changes: Any) -> Pipeline:  # noqa: ANN401 - fields of any type
    return replace(MAIN, aggregates=(Aggregate("a", function, where),), **changes)


def test_a_field_is_taken_as_it_is_and_an_expression_is_computed_once() -> None:
    pipeline = replace(
        MAIN,
        aggregates=(
            Aggregate("a", Sum("amount")),
            Aggregate("b", Sum("amount * 2")),
            Aggregate("c", Avg("amount * 2")),
            Aggregate("d", Sum("amount"), "user = 'A'"),
        ),
    )
    assert [(one.name, one.label) for one in computed(operator_spec(pipeline))] == [("__e0", "b"), ("__e1", "d")]
    assert [one.column for given in arguments(operator_spec(pipeline)) for one in given] == [
        "amount",
        "__e0",
        "__e0",
        "__e1",
    ]


def test_derived_fields_come_first_and_can_be_aggregated() -> None:
    pipeline = of(Max("initial || '!'"), derive=(Derive("initial", "user[1]"),), key=("initial",))
    assert record_fields(operator_spec(pipeline))[-1] == Field("initial", StringType())
    assert [(one.name, one.key) for one in computed(operator_spec(pipeline))] == [("initial", True), ("__e0", False)]


@pytest.mark.parametrize(
    ("function", "where", "type_", "nullable"),
    [
        (Count(), None, LongType(), False),
        (Count(), "user = 'A'", LongType(), False),
        (Sum("amount"), None, DecimalType(38, 2), False),
        (Sum("amount"), "user = 'A'", DecimalType(38, 2), True),
        (Avg("amount"), None, DecimalType(38, 8), False),
        (Min("user"), None, StringType(), False),
        (Max("nullif(user, 'A')"), None, StringType(), True),
        (Sum("amount / 3"), None, DoubleType(), True),
    ],
)
def test_a_result_can_be_null_where_nothing_may_count(
    function: Function, where: str | None, type_: object, *, nullable: bool
) -> None:
    (result,) = results(operator_spec(of(function, where)))
    assert (result.type, result.nullable) == (type_, nullable)


@pytest.mark.parametrize("where", [None, "user = 'A'"])
def test_decimals_of_which_expressions_have_no_type_are_passed_on(where: str | None) -> None:
    type_ = DecimalType(38, 38)
    fields = replace(MAIN.decode, fields=(*MAIN.decode.fields, Field("wide", type_)))
    spec = operator_spec(of(Max("wide"), where, decode=fields, derive=(Derive("same", "wide"),)))
    assert {record_fields(spec)[-1].type, *(result.type for result in results(spec))} == {type_}
    assert {argument.type for given in arguments(spec) for argument in given} == {type_}


def test_a_punctuation_that_may_be_lacking_can_be_null() -> None:
    fields = replace(MAIN.decode, fields=(*MAIN.decode.fields, Field("w", TimestampType("micros"))))
    pipeline = of(Max("w"), decode=fields, time=EventTime("t", Punctuated("w")))
    assert nullable_fields(operator_spec(pipeline)) == {"w"}
    assert [result.nullable for result in results(operator_spec(pipeline))] == [True]


def test_a_formula_has_the_type_that_sql_gives_it() -> None:
    plain = (Aggregate("total", Sum("amount")), Aggregate("events", Count()))
    formulas = (Aggregate("mean", Formula("total / events")), Aggregate("more", Formula("events + 1")))
    found = results(operator_spec(replace(MAIN, aggregates=(*formulas, *plain))))
    assert [result.type for result in found[:2]] == [DoubleType(), LongType()]
    assert [result.nullable for result in found] == [True, True, False, False]


@pytest.mark.parametrize(
    ("function", "where", "why"),
    [
        (Count(), "amount", "'amount' is not a condition"),
        (Sum("amount"), "user", "'user' is not a condition"),
        (Sum("amont"), "user = 'A'", "'amont' is not a field; did you mean 'amount'?"),
        (Sum("amount) THEN (1"), "user = 'A'", "is not an SQL expression"),
        (Formula("total / 2"), None, "'total' is not a field"),
    ],
)
def test_what_is_wrong_is_told_of_its_own_text(function: Function, where: str | None, why: str) -> None:
    with pytest.raises(PipelineError) as refused:
        results(operator_spec(of(function, where)))
    assert why in refused.value.message
