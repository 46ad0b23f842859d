"""Calls are cut where SQL cuts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.expressions import SqlCall, split_call


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("sum(amount)", SqlCall("sum", ("amount",), None)),
        (" count( ) ", SqlCall("count", (), None)),
        ("quantile(x, 0.99)", SqlCall("quantile", ("x", "0.99"), None)),
        ("count() where kind='a'", SqlCall("count", (), "kind='a'")),
        ("sum(a) WHERE b\n", SqlCall("sum", ("a",), "b")),
        ("sum(price * qty) where kind = 'buy'", SqlCall("sum", ("price * qty",), "kind = 'buy'")),
        ("sum(a, 'x)') where kind = 'b)'", SqlCall("sum", ("a", "'x)'"), "kind = 'b)'")),
        ("sum(f(a, b), [1, 2], {'c': 3})", SqlCall("sum", ("f(a, b)", "[1, 2]", "{'c': 3}"), None)),
        ('sum("a,b(")', SqlCall("sum", ('"a,b("',), None)),
        ("sum((a)) /* where ( */ where x", SqlCall("sum", ("(a)",), "x")),
        ("sum(größe * 2) where ä = 'ü'", SqlCall("sum", ("größe * 2",), "ä = 'ü'")),
        ("round(a / b, 2)", SqlCall("round", ("a / b", "2"), None)),
    ],
)
def test_a_call_has_a_name_arguments_and_a_condition(text: str, call: SqlCall) -> None:
    assert split_call(text) == call


@pytest.mark.parametrize(
    "text",
    [
        "total / events",
        "sum(a) / sum(b)",
        "sum(a",
        "sum(a) where",
        "sum",
        "(a)",
        "",
        "'sum'(a)",
        "sum(a) b",
        "sum('a",
        "-- sum(a)",
    ],
)
def test_any_other_text_is_no_call(text: str) -> None:
    assert split_call(text) is None


PARTS = st.lists(
    st.sampled_from(["a", "1.5", "'it''s, ('", '"q),("', "f(a, 'b')", "[x, y]", "-- c, (\n d", "'ß' || e"]),
    min_size=1,
    max_size=4,
)


@given(arguments=PARTS, where=st.none() | st.sampled_from(["a > 1", "b = ') where ('", "f(a, b) and (c)"]))
def test_what_is_put_together_comes_apart(arguments: list[str], where: str | None) -> None:
    text = f"fn({', '.join(arguments)}\n)" + ("" if where is None else f" where {where}")
    assert split_call(text) == SqlCall("fn", tuple(arguments), where)
