"""Columns of the result tables that have a name each."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.api.checks.named import is_name, results
from windrow.model import AnyPipeline

RESERVED = ("window_start", "window_end", "pane", "revision", "op", "epoch", "seq")
"""The columns that the result table and its changelog have of themselves."""

_LONGEST = 63


def result_columns(pipeline: AnyPipeline) -> Iterator[Finding]:
    """Keys and results are columns: their names fit a database, and differ by more than case."""
    seen: dict[str, str] = {}
    keys = [(f"key.{index}", name) for index, name in enumerate(dict.fromkeys(pipeline.key))]
    for where, name in keys + results(pipeline):
        if not is_name(name) or len(name.encode(errors="replace")) > _LONGEST:
            yield error(where, f"{name!r} cannot name a column; use at most {_LONGEST} printable characters")
        if name.startswith("__"):
            yield error(where, f"{name!r} begins with two underscores, as windrow's own columns do; rename it")
        folded = name.lower()
        if folded in RESERVED:
            yield error(where, f"{name!r} is a column that every result has ({', '.join(RESERVED)}); use another name")
        elif folded in seen:
            yield error(where, f"{name!r} and {seen[folded]!r} are one column to SQL, which ignores case; rename one")
        seen[folded] = name
