"""Whether two SQLite files hold the same results."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import zip_longest
from pathlib import Path

from windrow.model import AnyPipeline
from windrow.sinks.layout import layout
from windrow.sinks.quote import quote, quote_all


def differences(pipeline: AnyPipeline, one: Path, other: Path) -> list[str]:
    """Return a line for each table of the pipeline that is not the same in both files, with its first difference.

    How the log was cut into steps is left aside: epochs, and with them the order of rows of different keys.
    """
    return list(_differences(pipeline, one, other))


def _differences(pipeline: AnyPipeline, one: Path, other: Path) -> Iterator[str]:
    tables = layout(pipeline, pipeline.sink)
    key = ("window_start", "window_end", *pipeline.key)
    for table, order in (
        (tables.result, quote_all(tables.result.key)),
        (tables.changes, quote_all((*key, "epoch", "seq"))),
        (tables.late, quote_all(("source", "partition", "offset", "window_start"))),
        (tables.dead, quote_all(("source", "partition", "offset"))),
    ):
        columns = [column for column in table.columns if column not in {"epoch", "seq"}]
        sql = f"SELECT {quote_all(columns)} FROM {quote(table.name)} ORDER BY {order}"
        with closing(_open(one)) as left, closing(_open(other)) as right:
            for a, b in zip_longest(left.execute(sql), right.execute(sql)):
                if a != b:
                    yield f"{table.name}: {a} in {one.name}, {b} in {other.name}"
                    break


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)
