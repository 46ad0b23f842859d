"""What DuckDB says of its functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from windrow.expressions.engine import database


@dataclass(frozen=True)
class Known:
    """All that goes by a function's name: kinds (scalar, macro ...), stabilities, and the definitions of macros."""

    kinds: frozenset[str]
    stabilities: frozenset[str]
    definitions: tuple[str, ...]


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Known]:
    """Return every function by its name in lower case."""
    rows = (
        database()
        .cursor()
        .execute("""
        SELECT lower(function_name), list(DISTINCT function_type), coalesce(list(DISTINCT stability), []),
            coalesce(list(DISTINCT macro_definition ORDER BY macro_definition), [])
        FROM duckdb_functions() GROUP BY ALL
    """)
    )
    return {
        name: Known(frozenset(kinds), frozenset(stabilities) - {None}, tuple(text for text in definitions if text))
        for name, kinds, stabilities, definitions in rows.fetchall()
    }
