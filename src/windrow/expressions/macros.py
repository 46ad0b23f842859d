"""Macros of the expression database, and limits on what an expression may allocate for one record.

A record that would exceed a limit becomes a dead letter on every machine, instead of causing a crash where memory is
short.
"""

from __future__ import annotations

from typing import Final

MAX_LENGTH: Final = 1_000_000
"""Maximum length of a text whose length is an argument, in bytes, characters or bits."""

MAX_ITEMS: Final = 100_000
"""Maximum number of items of a list whose length is an argument."""

MAX_IN_LAMBDA: Final = 100
"""Maximum for both within a lambda, which is called for each item of a list, and within a nested lambda."""

MAX_MADE: Final = 10_000_000
"""Maximum number of bytes and items that a call may allocate for one record if it can grow faster than the record."""

LIMIT: Final = "limit: "
"""Prefix of the text in a bounded function's cast, which fails on purpose with the text in its error message."""

MAX_DIGITS: Final = 100_000
"""Maximum number of digits of a BIGNUM; the time of its operations grows with the square of this number."""

MAX_SLOTS: Final = 10_000
"""Maximum number of items of a fixed-size array, which takes memory for all items even if it is null."""

MAX_DEPTH: Final = 127
"""Maximum depth of nested lists and objects for JSON functions that take memory for each level."""

SIZES: Final[dict[str, tuple[int, ...]]] = {
    "repeat": (1,),
    "lpad": (1,),
    "rpad": (1,),
    "range": (0, 1, 2),
    "generate_series": (0, 1, 2),
    "list_resize": (1,),
    "array_resize": (1,),
    "bar": (3,),
    "bitstring": (1,),
    "equi_width_bins": (2,),
}
"""For each bounded function, the positions of the arguments that determine the size of its value."""

FORMATS: Final = frozenset({"format", "printf"})
"""Functions whose first argument can request any width."""

EAGER: Final[dict[str, tuple[int, ...]]] = {
    "date_diff": (3,),
    "date_part": (2,),
    "date_sub": (3,),
    "date_trunc": (2,),
    "datediff": (3,),
    "datepart": (2,),
    "datesub": (3,),
    "datetrunc": (2,),
    "json_contains": (2,),
    "make_timestamptz": (6, 7),
    "strftime": (2,),
    "strptime": (2,),
    "time_bucket": (2, 3),
    "timezone": (2,),
}
"""Functions, with their numbers of arguments, that either fail or return null if one argument is wrong and one is null.

The result depends on whether DuckDB stores the argument as a constant for all rows, and therefore on the other rows. If
several arguments depend on the record, the call is replaced with a call of the macro `NULL_CHECKED` + name.
"""

NULL_CHECKED: Final = "null_checked_"

# the haversine formula on a sphere of 6,371 km; for opposite places the sum may be above 1 by its last digits
_SUM = """
    sin(radians(lat1 - lat2) / 2) ** 2 + cos(radians(lat1)) * cos(radians(lat2)) * sin(radians(lon1 - lon2) / 2) ** 2
"""
_KM = f"12742 * asin(sqrt(({_SUM}) * 0.999999999999998::DOUBLE))"


def _null_check_macro(function: str) -> str:
    """Return a macro that is null if any argument is null, before the function evaluates the other arguments."""
    overloads = []
    for number in EAGER[function]:
        # `invoke` computes each argument once
        args, names = (", ".join(f"{letter}{place}" for place in range(number)) for letter in "ap")
        is_null = " OR ".join(f"p{place} IS NULL" for place in range(number))
        value = f"CASE WHEN {is_null} THEN NULL ELSE {function}({names}) END"
        overloads.append(f"({args}) AS invoke(lambda {names}: {value}, {args})")
    return f"CREATE MACRO {NULL_CHECKED}{function}{', '.join(overloads)}"


_MICROS = "(epoch_us(b)::DOUBLE - epoch_us(a)::DOUBLE) / nullif(epoch(c) * 1000000, 0)"
_LENGTH_OF_RANGE = (
    "(a) AS a::DOUBLE, (a, b) AS b::DOUBLE - a::DOUBLE, "
    "(a BIGINT, b BIGINT, c BIGINT) AS (b::DOUBLE - a::DOUBLE) / nullif(c, 0)::DOUBLE, "
    f"(a TIMESTAMP, b TIMESTAMP, c INTERVAL) AS {_MICROS}, (a TIMESTAMPTZ, b TIMESTAMPTZ, c INTERVAL) AS {_MICROS}"
)

# `json_structure` fails for JSON that is nested deeper; for items of different structure it gives no more than "JSON"
_DEPTH_OF_STRUCTURE = f"CASE WHEN contains(t, '\"JSON\"') THEN {MAX_DEPTH} ELSE json_brackets(t) END"
_DEPTH = f"""CASE WHEN json_brackets(x) <= 8 THEN json_brackets(x)
    ELSE invoke(lambda t: {_DEPTH_OF_STRUCTURE}, CAST(json_structure(x) AS VARCHAR)) END"""
# it recurses into nested values until the stack overflows
_CONTAINS = "CASE WHEN json_depth(CAST(p AS VARCHAR)) >= 0 THEN system.main.json_contains(p, q) END"

MACROS: Final = (
    f"CREATE MACRO km(lat1, lon1, lat2, lon2) AS {_KM}",
    "CREATE MACRO hours(since, until) AS (epoch_us(until) - epoch_us(since)) / 3600000000",
    f"CREATE MACRO length_of_range{_LENGTH_OF_RANGE}",
    "CREATE MACRO json_brackets(x) AS strlen(x) - strlen(translate(x, '[{', ''))",
    f"CREATE MACRO json_depth(x) AS {_DEPTH}",
    f"CREATE MACRO json_contains(a, b) AS invoke(lambda p, q: {_CONTAINS}, a, b)",
    *map(_null_check_macro, EAGER),
    # DuckDB returns the order of its hash table, which differs between releases
    "CREATE MACRO list_distinct(l) AS list_sort(system.main.list_distinct(l))",
    "CREATE MACRO array_distinct(l) AS list_sort(system.main.list_distinct(l))",
)
"""Macros of the expression database.

These are ``km``, the distance between two places in kilometres, ``hours``, the hours between two times, the measures
that `growth.py` uses, and replacements for some of DuckDB's functions.
"""

OWN_FUNCTIONS: Final = frozenset({"km", "hours"})
"""Functions that windrow adds to those of DuckDB."""
