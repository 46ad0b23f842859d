"""Sets of values: their size, their least, and an estimate of their size by the least of their hashes.

The estimate is KMV (Bar-Yossef et al., Counting Distinct Elements in a Data Stream, 2002; Beyer et al., On Synopses for
Distinct-Value Estimation Under Multiset Operations, 2007): of random hashes in [0, 1) the k-th least is near k / n.
The least hashes of a union are the least of the least, so merges are exact in any order.
"""

from __future__ import annotations

from windrow.core.aggregates.fold import Accumulator, Fold, Input
from windrow.core.aggregates.shown import json_array
from windrow.core.duck import identifier

HASHES = 1024
"""So many of the least hashes are kept; the estimate's standard error is 1 / sqrt(HASHES - 2), 3.1 %."""


def count_distinct(name: str, column: str, of: Input) -> Fold:
    """Keep every value once."""
    return Fold(name, (_set(column, of.sql, of.given),), f"coalesce(len({identifier(column)}), 0)")


def collect_set(name: str, column: str, of: Input, most: int) -> Fold:
    """Keep the least `most` of the values."""
    return Fold(name, (_set(column, of.sql, of.given, most),), json_array(identifier(column), of))


def approx_count_distinct(name: str, column: str, of: Input) -> Fold:
    """Keep the least `HASHES` of the values' hashes; they are 64 bits of the MD5 of the value's text."""
    hashed = f"md5_number_lower({of.sql}::VARCHAR)"
    kept = identifier(column)
    estimate = f"round({HASHES - 1} / (({kept}[{HASHES}]::DOUBLE + 1) / {float(2**64)!r}))::BIGINT"
    finish = f"CASE WHEN len({kept}) = {HASHES} THEN {estimate} ELSE coalesce(len({kept}), 0) END"
    return Fold(name, (_set(column, hashed, of.given, HASHES),), finish)


def _set(column: str, sql: str, given: str, most: int | None = None) -> Accumulator:
    cut = "" if most is None else f"[:{most}]"
    return Accumulator(
        column,
        f"list_sort(list(DISTINCT {sql}){given}){cut}",
        "list",
        f"list_sort(list_distinct(flatten({{}}))){cut}",
    )
