"""The sizes that `growth.py` declares for the values of functions, held against what DuckDB makes of odd texts."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from tests.expressions.hostile import FIELDS, calls, names

from windrow.expressions.engine import database
from windrow.expressions.sizes import Sizes, size_sql
from windrow.expressions.syntax import parse

_LENGTH = 300
_TEXTS = (
    *(
        one * _LENGTH
        for one in ("a", "\x01", '"', "'", "\\", "1", "%", "%c ", "%A", "(", ".", ", ", " ", "-", "A", "0.", "{")
    ),
    *(
        f"[{','.join([one] * _LENGTH)}]"
        for one in ("1e20", "1e-9", "null", "''", '""', "true", "[]", "{}", '"\\u0001"')
    ),
    '{"a":' * 50 + "1" + "}" * 50,
    "{" + ",".join(f'"{number}":1' for number in range(_LENGTH)) + "}",
    f"LINESTRING({','.join(['1e300 1e300'] * _LENGTH)})",
    "1" + "0" * _LENGTH,
)
_WIDE = tuple(one * _LENGTH for one in ("ü", "ß", "İ", "ɐ", "\U0001f600", "\u0958", "\ufb2c", "e\u0301"))
_SHORT = 500
"""A fixed value, or a text that says what is wrong, has so many bytes and items."""


def measured(value: object) -> int:
    """Return the number of a value's bytes and items."""
    match value:
        case str():
            return len(value.encode())
        case bytes():
            return len(value)
        case dict():
            return sum(measured(key) + measured(one) for key, one in value.items())
        case list() | tuple():
            return sum(1 + measured(one) for one in value)
        case _:
            return 1


def outcomes(call: str, texts: tuple[str, ...]) -> Iterator[tuple[str, int, float]]:
    """Yield each text with the size of the value that a call makes of it, and the one that is declared."""
    size = size_sql(Sizes(FIELDS).of(parse(call), {}).size)
    for text in texts:
        of = f"(SELECT ?::VARCHAR s, {len(text)}::BIGINT n, 1e300 x, 1.5::DECIMAL(18, 3) d, true b, now() t)"
        try:
            ((value, most),) = database().cursor().execute(f"SELECT {call}, {size} FROM {of}", [text]).fetchall()
        except (duckdb.Error, UnicodeDecodeError):
            continue
        yield text, measured(value), most


@pytest.mark.long
@pytest.mark.parametrize("name", names())
def test_no_value_is_larger_than_its_function_declares(name: str) -> None:
    for call in calls(name):
        for text, size, most in outcomes(call, _TEXTS):
            assert size <= most + _SHORT, (call, text[:20])
        for text, size, most in outcomes(call, _WIDE):
            assert size <= 4 * most + _SHORT, (call, text[:20])
