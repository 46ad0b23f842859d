"""The least and the greatest value, and whether all or any are true: what merges as it begins."""

from __future__ import annotations

from windrow.core.aggregates.fold import Accumulator, Fold, Input
from windrow.core.duck import identifier


def extreme(name: str, column: str, of: Input, call: str) -> Fold:
    """Apply one of SQL's min, max, bool_and and bool_or."""
    return Fold(name, (Accumulator(column, f"{call}({of.sql})", call),), identifier(column))
