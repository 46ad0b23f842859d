"""The name of the sink's table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import assert_never

from windrow.api.checks.finding import Finding, error
from windrow.model import AnyPipeline, PostgresSink, SqliteSink

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_TABLE = 48
"""PostgreSQL's 63 less what the names of companion tables add (``_changes`` ...)."""


def sink_table(pipeline: AnyPipeline) -> Iterator[Finding]:
    """The table has a plain name that leaves room for its companions'."""
    match pipeline.sink:
        case SqliteSink(_, table):
            yield from _table("sink.sqlite.table", table)
            if table.lower().startswith("sqlite_"):
                yield error("sink.sqlite.table", f"{table!r}: SQLite keeps names that begin with sqlite_ for itself")
        case PostgresSink(_, table):
            if "." in table:
                hint = "name the table alone; the schema is the url's search_path (?options=-csearch_path%3Dmy_schema)"
                yield error("sink.postgres.table", f"{table!r} names a schema: {hint}")
            else:
                yield from _table("sink.postgres.table", table)
        case _:
            assert_never(pipeline.sink)


def _table(where: str, name: str) -> Iterator[Finding]:
    if not _PLAIN.fullmatch(name) or len(name) > _LONGEST_TABLE:
        yield error(where, f"{name!r} must be at most {_LONGEST_TABLE} letters, digits and '_', no digit first")
    if name.lower().startswith("windrow_"):
        yield error(where, f"{name!r}: names that begin with windrow_ are windrow's own")
