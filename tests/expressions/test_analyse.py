"""What an expression is, what it gives, and why it is refused."""

import pytest

from windrow.errors import PipelineError
from windrow.expressions import analyse
from windrow.model import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    Field,
    LongType,
    StringType,
    TimestampType,
)

FIELDS = (
    Field("price", DecimalType(12, 2)),
    Field("qty", LongType()),
    Field("kind", StringType()),
    Field("t", TimestampType("millis")),
    Field("x", DoubleType()),
    Field("ok", BooleanType()),
    Field("user name", StringType()),
)


@pytest.mark.parametrize(
    ("text", "type_", "columns", "nullable"),
    [
        ("qty", LongType(), ("qty",), False),
        ('"user name"', StringType(), ("user name",), False),
        ("price * qty", DecimalType(28, 2), ("price", "qty"), False),
        ("price * 1.5", DecimalType(14, 3), ("price",), False),
        ("price / qty", DoubleType(), ("price", "qty"), True),
        ("x::FLOAT", DoubleType(), ("x",), False),
        ("qty::SMALLINT", LongType(), ("qty",), False),
        ("kind = 'buy' AND qty > 3", BooleanType(), ("kind", "qty"), False),
        ("kind IN ('a', 'b')", BooleanType(), ("kind",), False),
        ("qty BETWEEN 1 AND 3", BooleanType(), ("qty",), False),
        ("kind IS NULL", BooleanType(), ("kind",), False),
        ("NOT ok", BooleanType(), ("ok",), False),
        ("split_part(kind, '/', 3)", StringType(), ("kind",), False),
        ("nullif(kind, 'x')", StringType(), ("kind",), True),
        ("coalesce(nullif(kind, 'x'), 'y')", StringType(), ("kind",), False),
        ("CASE WHEN ok THEN price END", DecimalType(12, 2), ("ok", "price"), True),
        ("CASE WHEN ok THEN 1 ELSE qty END", LongType(), ("ok", "qty"), False),
        ("TRY_CAST(kind AS BIGINT)", LongType(), ("kind",), True),
        ("date_trunc('day', t)", TimestampType("iso"), ("t",), False),
        ("t AT TIME ZONE 'Europe/Berlin'", TimestampType("iso"), ("t",), True),
        ("list_max(list_transform([qty], lambda y: y + 1))", LongType(), ("qty",), True),
        ("kind -- a comment", StringType(), ("kind",), False),
        ("'a'", StringType(), (), False),
    ],
)
def test_the_type_the_columns_and_the_nulls_are_known(
    text: str, type_: DataType, columns: tuple[str, ...], *, nullable: bool
) -> None:
    found = analyse(text, FIELDS)
    assert (found.type, found.columns, found.nullable) == (type_, columns, nullable)


def test_what_is_of_a_field_that_can_be_null_can_be_null() -> None:
    assert analyse("qty + 1", FIELDS, frozenset(["qty"])).nullable
    assert not analyse("qty + 1", FIELDS, frozenset(["kind"])).nullable


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the expression is empty"),
        ("qty +", "is not an SQL expression: syntax error"),
        ("price) + (qty", "is not an SQL expression: syntax error"),
        ("price, qty", "is not a single SQL expression"),
        ("price AS p", "is not a single SQL expression"),
        ("price; SELECT 2", "is not a single SQL expression"),
        ("qty WHERE ok", "is not a single SQL expression"),
        ("qty FROM t", "is not a single SQL expression"),
        ("qty ORDER BY qty", "is not a single SQL expression"),
        ("Price", "'Price' is not a field; did you mean 'price'?"),
        ("prize * qty", "'prize' is not a field; did you mean 'price'?"),
        ("zzz", "'zzz' is not a field; the fields are price, qty, kind, t, x, ok, user name"),
        ("kind.foo", "'kind.foo' is not a field; fields have no parts"),
        ("sum(qty)", "calls sum(), an aggregate function"),
        ("row_number() OVER ()", "has a window function"),
        ("(SELECT 1)", "has a subquery"),
        ("qty IN (SELECT 1)", "has a subquery"),
        ("$1", "has a parameter"),
        ("?", "has a parameter"),
        ("*", "has a *"),
        ("unnest([qty])", "calls unnest(), which returns rows"),
        ("random()", "has random(), which can differ between runs"),
        ("now()", "has now(), which can differ between runs"),
        ("current_timestamp", "has current_timestamp, which can differ between runs"),
        ("CASE WHEN ok THEN uuid() END", "has uuid(), which can differ between runs"),
        ("current_setting('threads')", "has current_setting(), which can differ between runs"),
        ("version()", "has version(), which can differ between runs"),
        ("current_localtimestamp()", "has current_localtimestamp(), which can differ between runs"),
        (
            "age(t)",
            "has age(), which can differ between runs; results must depend on the log alone; call it with",
        ),
        ("lowr(kind)", "Scalar Function with name lowr does not exist"),
        ("kind + ok", "No function matches"),
        ("t::DATE", "has the SQL type DATE, which no field can have; cast it to timestamp or varchar"),
        (
            "[qty]",
            "has the SQL type BIGINT[], which no field can have; take a part of it, or make it JSON text: to_json(...)",
        ),
        (
            "{'a': qty}",
            "has the SQL type STRUCT(a BIGINT), which no field can have; take a part of it, or make it JSON",
        ),
        ("md5_number_lower(kind)", "has the SQL type UBIGINT, which no field can have; cast it to bigint or decimal"),
        ("NULL", 'has the SQL type "NULL", which no field can have'),
    ],
)
def test_what_is_no_function_of_the_record_is_refused(text: str, why: str) -> None:
    with pytest.raises(PipelineError) as refused:
        analyse(text, FIELDS)
    assert why in refused.value.message
    assert "\n" not in refused.value.message


def test_a_field_that_is_a_word_of_sql_is_told_how_to_be_written() -> None:
    fields = (Field("at", TimestampType("millis")), Field("end", LongType()))
    with pytest.raises(
        PipelineError, match='at, end are SQL keywords: to mean a field, write "at" and "end" in double quotes'
    ):
        analyse("CAST(at AS VARCHAR) || end", fields)
    with pytest.raises(PipelineError, match=r"syntax error at or near .1.$"):
        analyse("(1", fields)
    assert analyse('CAST("at" AS VARCHAR)', fields).columns == ("at",)


def test_a_field_may_be_called_like_a_clock() -> None:
    assert analyse("current_date", (Field("current_date", LongType()),)).columns == ("current_date",)
