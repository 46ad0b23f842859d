"""Names in SQL."""

from __future__ import annotations

from windrow.errors import PipelineError


def quote(name: str) -> str:
    """Write a name so that SQL reads it as a name, whatever is in it; raise PipelineError if no SQL could."""
    if not name or "\x00" in name:
        msg = f"{name!r} cannot name a table or a column: give it a name without U+0000"
        raise PipelineError(msg)
    return '"' + name.replace('"', '""') + '"'


def quote_all(names: tuple[str, ...] | list[str]) -> str:
    """Write names as a list for SQL."""
    return ", ".join(quote(name) for name in names)
