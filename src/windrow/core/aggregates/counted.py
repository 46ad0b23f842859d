"""Values with how often each came, in their order: quantiles and the most frequent.

An approximate quantile counts buckets in the place of values: a double's sign, exponent and first bits, so that a
bucket's middle is within `1 / 2**(BITS + 1)` of all in it. Counts add up, in any order.
"""

from __future__ import annotations

from fractions import Fraction

from windrow.core.aggregates import kernels
from windrow.core.aggregates.fold import Accumulator, Fold, Input
from windrow.core.aggregates.shown import shown
from windrow.core.duck import identifier


def quantile(name: str, column: str, of: Input, at: float) -> Fold:
    """Count every value."""
    return Fold(name, (_counts(column, of.sql, of.given, of.type),), _at(column, of.type, at))


def approx_quantile(name: str, column: str, of: Input, at: float) -> Fold:
    """Count buckets of values."""
    bucket, middle = kernels.bucket(), kernels.middle()
    scale = "" if of.scale is None else f" / {float(10**of.scale)!r}"
    finish = f"{middle}({_at(column, 'BIGINT', at)}){scale}"
    return Fold(name, (_counts(column, f"{bucket}({of.sql}::DOUBLE)", of.given, "BIGINT"),), finish)


def top_k(name: str, column: str, of: Input, k: int) -> Fold:
    """Count every value; show the `k` most frequent as [value, count], equal counts in the order of the values."""
    ranked = f"list_sort(list_transform({identifier(column)}, lambda e: {{c: -e.n, v: e.v}}))[:{k}]"
    pair = f"[to_json({shown('e.v', of)}), to_json(-e.c)]"
    finish = (
        f"CASE WHEN len({identifier(column)}) > 0 THEN to_json(list_transform({ranked}, lambda e: {pair}))::VARCHAR END"
    )
    return Fold(name, (_counts(column, of.sql, of.given, of.type),), finish)


def _counts(column: str, sql: str, given: str, type_: str) -> Accumulator:
    return Accumulator(column, f"{kernels.count(type_)}(list({sql}){given})", "list", f"{kernels.add(type_)}({{}})")


def _at(column: str, type_: str, at: float) -> str:
    # the fraction as it is written: 0.1 is a tenth
    return f"{kernels.rank(type_, Fraction(str(at)))}({identifier(column)})"
