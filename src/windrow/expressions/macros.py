"""Macros of the database of expressions: functions of windrow's own, and bounds on what DuckDB's own can allocate.

A bounded function has the name of DuckDB's, and fails where its arguments ask for more than a fixed size. So a record
with an odd number is a dead letter on every machine, and exhausts the memory of none.
"""

from __future__ import annotations

from typing import Final

MOST: Final = 1_000_000
"""The size of a value that follows from an argument: bytes of a text that is repeated, characters, items of a list."""

MOST_IN_LAMBDA: Final = 1_000
"""The same within a lambda, which is called for each item of a list."""

LIMIT: Final = "limit: "
"""What begins the text that a bounded function fails to cast."""

MOST_PAIRS: Final = 10_000_000
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

# the haversine formula on a sphere of 6,371 km; for opposite places the sum may be above 1 by its last digits
_SUM = """
    sin(radians(lat1 - lat2) / 2) ** 2 + cos(radians(lat1)) * cos(radians(lat2)) * sin(radians(lon1 - lon2) / 2) ** 2
"""
_KM = f"12742 * asin(sqrt(({_SUM}) * 0.999999999999998::DOUBLE))"


def _limited(function: str, value: str, size: str, type_: str = "BIGINT", unit: str = "items") -> str:
    """Return the SQL of an argument that fails where `size`, which follows from it, is above `MOST`."""
    text = f"{LIMIT}{function}() makes at most {MOST:,} {unit}"
    return f"CASE WHEN {size} > {MOST} THEN CAST('{text}' AS {type_}) ELSE {value} END"


def _series(function: str) -> str:
    """Return the macro of a function that makes a list from a start to a stop by a step."""

    def made(*arguments: str, size: str, type_: str = "BIGINT") -> str:
        *before, last = arguments
        return f"system.main.{function}({', '.join([*before, _limited(function, last, size, type_)])})"

    long = made("a", "b", "c", size="(b::DOUBLE - a::DOUBLE) / c::DOUBLE")
    micros = "(epoch_us(b)::DOUBLE - epoch_us(a)::DOUBLE) / (epoch(c) * 1000000)"
    times = made("a", "b", "c", size=micros, type_="INTERVAL")
    return (
        f"CREATE MACRO {function}(a) AS {made('a', size='a::DOUBLE')}, "
        f"(a, b) AS {made('a', 'b', size='b::DOUBLE - a::DOUBLE')}, "
        f"(a BIGINT, b BIGINT, c BIGINT) AS {long}, "
        f"(a TIMESTAMP, b TIMESTAMP, c INTERVAL) AS {times}, (a TIMESTAMPTZ, b TIMESTAMPTZ, c INTERVAL) AS {times}"
    )


def _distance(function: str) -> str:
    text = f"CAST(CAST('{LIMIT}{function}() compares at most {MOST_PAIRS:,} pairs of characters' AS BIGINT) AS VARCHAR)"
    pairs = f"strlen(a)::DOUBLE * strlen(b) > {MOST_PAIRS}"
    return f"CREATE MACRO {function}(a, b) AS system.main.{function}(a, CASE WHEN {pairs} THEN {text} ELSE b END)"


def _resize(function: str) -> str:
    size = _limited(function, "n", "n")
    return (
        f"CREATE MACRO {function}(l, n) AS system.main.{function}(l, {size}), "
        f"(l, n, v) AS system.main.{function}(l, {size}, v)"
    )


def _pad(function: str) -> str:
    size = _limited(function, "n", "n", "INTEGER", "characters")
    return f"CREATE MACRO {function}(s, n, p) AS system.main.{function}(s, {size}, p)"


_REPEATED = _limited("repeat", "n", "strlen(CAST(s AS VARCHAR))::DOUBLE * n::DOUBLE", unit="bytes")
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
    f"CREATE MACRO equi_width_bins(least, most, n, nice) AS system.main.equi_width_bins(least, most, {_BINS}, nice)",
)
"""The macros that expressions have: ``km``, the distance of two places in kilometres, ``hours``, the hours from one
time to another, and the bounded functions.
"""

OWN_FUNCTIONS: Final = frozenset({"km", "hours"})
"""Functions that DuckDB does not have."""
