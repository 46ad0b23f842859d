"""Macros of the database of expressions: functions of windrow's own, and bounds on what DuckDB's own can allocate.

A bounded function has the name of DuckDB's, and fails where its arguments ask for more than a fixed size. So a record
with an odd number is a dead letter on every machine, and exhausts the memory of none.
"""

from __future__ import annotations

from typing import Final

MAX_LENGTH: Final = 1_000_000
"""The length of a text that follows from an argument, in bytes, characters or bits."""

MAX_ITEMS: Final = 100_000
"""The number of a list's items that follows from an argument."""

MAX_IN_LAMBDA: Final = 100
"""The same of both within a lambda, which is called for each item of a list, and within one in that."""

MAX_GROWTH: Final = 100_000_000
"""The bytes that a text may have after parts of it are replaced, if each character was one of the parts."""

MAX_MADE: Final = 10_000_000
"""The bytes and items that an expression may make of one record where they grow faster than the record."""

LIMIT: Final = "limit: "
"""What begins the text that a bounded function fails to cast."""

MAX_PAIRS: Final = 10_000_000
"""The product of the lengths of two texts whose edit distance is computed; time and memory grow with it."""

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
"""The arguments of each bounded function from which the size follows."""

FORMATS: Final = frozenset({"format", "printf"})
"""Functions whose first argument can ask for any width."""

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
"""Functions, with the numbers of their arguments, that fail for a wrong argument beside a null, or are null.

Which of them depends on whether DuckDB holds the argument as a constant of all rows: on the rows beside. A call in
which several arguments depend on the record is made by the macro of the name with `NULL_CHECKED` before it.
"""

NULL_CHECKED: Final = "null_checked_"

# the haversine formula on a sphere of 6,371 km; for opposite places the sum may be above 1 by its last digits
_SUM = """
    sin(radians(lat1 - lat2) / 2) ** 2 + cos(radians(lat1)) * cos(radians(lat2)) * sin(radians(lon1 - lon2) / 2) ** 2
"""
_KM = f"12742 * asin(sqrt(({_SUM}) * 0.999999999999998::DOUBLE))"


def _limited(function: str, value: str, size: str, type_: str = "BIGINT", unit: str = "items") -> str:
    """Return the SQL of an argument that fails where `size`, which follows from it, is too large."""
    most = MAX_ITEMS if unit == "items" else MAX_LENGTH
    text = f"{LIMIT}{function}() makes at most {most:,} {unit}"
    return f"CASE WHEN {size} > {most} THEN CAST('{text}' AS {type_}) ELSE {value} END"


def _series(function: str) -> str:
    """Return the macro of a function that makes a list from a start to a stop by a step."""

    def made(*arguments: str, size: str, type_: str = "BIGINT") -> str:
        *before, last = arguments
        return f"system.main.{function}({', '.join([*before, _limited(function, last, size, type_)])})"

    long = made("a", "b", "c", size="(b::DOUBLE - a::DOUBLE) / nullif(c, 0)::DOUBLE")
    micros = "(epoch_us(b)::DOUBLE - epoch_us(a)::DOUBLE) / nullif(epoch(c) * 1000000, 0)"
    times = made("a", "b", "c", size=micros, type_="INTERVAL")
    return (
        f"CREATE MACRO {function}(a) AS {made('a', size='a::DOUBLE')}, "
        f"(a, b) AS {made('a', 'b', size='b::DOUBLE - a::DOUBLE')}, "
        f"(a BIGINT, b BIGINT, c BIGINT) AS {long}, "
        f"(a TIMESTAMP, b TIMESTAMP, c INTERVAL) AS {times}, (a TIMESTAMPTZ, b TIMESTAMPTZ, c INTERVAL) AS {times}"
    )


def _replace(function: str, parts: str, *more: str) -> str:
    """Return the overload of a function that replaces parts of a text `s`, at most `parts` of them, by `t`."""
    text = f"CAST(CAST('{LIMIT}{function}() makes at most {MAX_GROWTH:,} bytes' AS BIGINT) AS VARCHAR)"
    new = f"CASE WHEN ({parts})::DOUBLE * strlen(t) > {MAX_GROWTH} THEN {text} ELSE t END"
    return f"(s, f, t{''.join(f', {one}' for one in more)}) AS system.main.{function}(s, f, {', '.join([new, *more])})"


def _null_checked(function: str) -> str:
    """Return the macro that gives null where an argument is null, before the function looks at the others."""

    def overload(number: int) -> str:
        names = [f"a{place}" for place in range(number)]
        is_null = " OR ".join(f"{name} IS NULL" for name in names)
        given = ", ".join(names)
        return f"({given}) AS CASE WHEN {is_null} THEN NULL ELSE system.main.{function}({given}) END"

    return f"CREATE MACRO {NULL_CHECKED}{function}{', '.join(map(overload, EAGER[function]))}"


def _distance(function: str) -> str:
    text = f"CAST(CAST('{LIMIT}{function}() compares at most {MAX_PAIRS:,} pairs of characters' AS BIGINT) AS VARCHAR)"
    pairs = f"strlen(a)::DOUBLE * strlen(b) > {MAX_PAIRS}"
    return f"CREATE MACRO {function}(a, b) AS system.main.{function}(a, CASE WHEN {pairs} THEN {text} ELSE b END)"


def _resize(function: str) -> str:
    size = _limited(function, "n", "n")
    filled = _limited(function, f"({size})", "strlen(CAST(v AS VARCHAR))::DOUBLE * n::DOUBLE", unit="bytes")
    return (
        f"CREATE MACRO {function}(l, n) AS system.main.{function}(l, {size}), "
        f"(l, n, v) AS system.main.{function}(l, {filled}, v)"
    )


def _pad(function: str) -> str:
    size = _limited(function, "n", "n", "INTEGER", "characters")
    return f"CREATE MACRO {function}(s, n, p) AS system.main.{function}(s, {size}, p)"


_REPEATED = _limited("repeat", "n", "strlen(CAST(s AS VARCHAR))::DOUBLE * n::DOUBLE", unit="bytes")
_LENGTH = "strlen(s) + 1"
_BAR = _limited("bar", "width", "width::DOUBLE", "DOUBLE", "characters")
_BITS = _limited("bitstring", "n", "n", "INTEGER", "bits")
_BINS = _limited("equi_width_bins", "n", "n")

MACROS: Final = (
    f"CREATE MACRO km(lat1, lon1, lat2, lon2) AS {_KM}",
    "CREATE MACRO hours(since, until) AS (epoch_us(until) - epoch_us(since)) / 3600000000",
    f"CREATE MACRO repeat(s, n) AS system.main.repeat(s, {_REPEATED})",
    _pad("lpad"),
    _pad("rpad"),
    _series("range"),
    _series("generate_series"),
    _resize("list_resize"),
    _resize("array_resize"),
    *map(_distance, ("levenshtein", "editdist3", "damerau_levenshtein")),
    f"CREATE MACRO bar(x, a, b) AS system.main.bar(x, a, b), (x, a, b, width) AS system.main.bar(x, a, b, {_BAR})",
    f"CREATE MACRO bitstring(s, n) AS system.main.bitstring(s, {_BITS})",
    f"CREATE MACRO replace{_replace('replace', 'strlen(s) / nullif(strlen(f), 0)')}",
    f"CREATE MACRO regexp_replace{', '.join(_replace('regexp_replace', _LENGTH, *more) for more in ((), ('o',)))}",
    *map(_null_checked, EAGER),
    # in the order of a hash table, which differs between releases
    "CREATE MACRO list_distinct(l) AS list_sort(system.main.list_distinct(l))",
    "CREATE MACRO array_distinct(l) AS list_sort(system.main.list_distinct(l))",
    f"CREATE MACRO equi_width_bins(least, most, n, nice) AS system.main.equi_width_bins(least, most, {_BINS}, nice)",
)
"""The macros that expressions have: ``km``, the distance of two places in kilometres, ``hours``, the hours from one
time to another, and the bounded functions.
"""

OWN_FUNCTIONS: Final = frozenset({"km", "hours"})
"""Functions that DuckDB does not have."""
