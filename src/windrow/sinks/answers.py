"""Two pipelines' answers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pyarrow as pa

from windrow.errors import InputError
from windrow.model import AnyPipeline, Pipeline
from windrow.sinks import open_database
from windrow.sinks.compare import Comparison, compare
from windrow.sinks.database import Bounds, Database, Snapshot
from windrow.sinks.layout import Table, layout

_TOLD = ("pane", "revision")
"""What tells how an answer came about, and is no part of it."""


@dataclass(frozen=True)
class Compared:
    """What a comparison found in the windows within `bounds`; `only_here` and `only_there` are columns."""

    found: Comparison
    bounds: Bounds
    key: tuple[str, ...]
    columns: tuple[str, ...]
    only_here: tuple[str, ...]
    only_there: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether rows and columns are the same."""
        return self.found.is_same and not self.only_here and not self.only_there


def compare_answers(
    here: AnyPipeline, there: AnyPipeline, bounds: Bounds, *, limit: int, panes: bool = False
) -> Compared:
    """Compare the result tables of two pipelines' sinks; with `panes` also pane and revision.

    Where one of them is a replay from a time on, only the windows that end after it are compared. Raise InputError if
    there is no such table, or if their keys are not the same.
    """
    tables = layout(here, here.sink).result, layout(there, there.sink).result
    databases = open_database(here.sink), open_database(there.sink)
    replays = (database.replayed(table.name) for database, table in zip(databases, tables, strict=True))
    since = [one.since for one in replays if one is not None and one.since is not None]
    bounds = replace(bounds, after=max([*since, *([] if bounds.after is None else [bounds.after])], default=None))
    key = ("window_start", "window_end", *here.key, *(("revision",) if _discards(here) else ()))
    with ExitStack() as held:
        # two tables in one database as they are at one moment
        first = held.enter_context(databases[0].snapshot())
        is_one = replace(here.sink, table="", key=()) == replace(there.sink, table="", key=())
        snapshots = (first, first if is_one else held.enter_context(databases[1].snapshot()))
        columns = [
            _columns(snapshot, database, table, key)
            for snapshot, database, table in zip(snapshots, databases, tables, strict=True)
        ]
        left_out = () if panes else tuple(name for name in _TOLD if name not in key)
        both = [
            name
            for name in tables[0].columns
            if name in columns[0] and name in columns[1] and name in tables[1].columns and name not in left_out
        ]
        one, other = (
            snapshot.rows(_only(table, both), key, bounds) for snapshot, table in zip(snapshots, tables, strict=True)
        )
        found = compare(one, other, key, limit)
    return Compared(
        found=found,
        bounds=bounds,
        key=key,
        columns=tuple(name for name in both if name not in key),
        only_here=tuple(name for name in columns[0] if name not in columns[1]),
        only_there=tuple(name for name in columns[1] if name not in columns[0]),
    )


def _columns(snapshot: Snapshot, database: Database, table: Table, key: Sequence[str]) -> list[str]:
    """Return the columns that a table has; raise InputError if it lacks those of the key."""
    columns = snapshot.columns(table.name)
    if not columns:
        msg = f"there is no table {table.name!r} in {database.place}: make one with `windrow run` or `windrow replay`"
        raise InputError(msg)
    missing = [name for name in key if name not in columns]
    if missing:
        msg = f"table {table.name!r} has no column {missing[0]!r}, so its rows have another key: compare another table"
        raise InputError(msg)
    return columns


def _only(table: Table, columns: Sequence[str]) -> Table:
    return Table(table.name, pa.schema([table.schema.field(name) for name in columns]), table.key)


def _discards(pipeline: AnyPipeline) -> bool:
    return isinstance(pipeline, Pipeline) and pipeline.emit.mode == "discard"
