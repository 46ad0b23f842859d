"""The DuckDB that understands expressions, and computes: one a process."""

from __future__ import annotations

import atexit
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


@lru_cache(maxsize=1)
def database() -> duckdb.DuckDBPyConnection:
    """Open DuckDB in memory with one thread: Spark's tasks are the parallelism, and one thread keeps the order.

    Its time zone is UTC and not the machine's, as a time's text must be the same everywhere.
    """
    import duckdb  # noqa: PLC0415 - it is heavy, and a pipeline without expressions is checked without it

    opened = duckdb.connect(
        config={"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    opened.execute("SET GLOBAL TimeZone = 'UTC'")
    atexit.register(_close)
    return opened


def _close() -> None:
    """Let go of the functions in Python that are registered with it while the interpreter is still there."""
    database().close()
    database.cache_clear()
