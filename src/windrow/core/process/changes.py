"""Rows that functions emit as a table of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from windrow.core import schema
from windrow.core.windows import GLOBAL_END, GLOBAL_START
from windrow.model import ProcessPipeline

_OPS = pa.array(["insert", "update_before", "update_after", "delete"])
_INSERT, _BEFORE, _AFTER, _DELETE = range(4)
_PANES = pa.array(["on_time", "early"])


class Change(NamedTuple):
    """A change of a key's row: what it was, with its revision, and what it is; None where there is none."""

    early: bool
    key: tuple[Any, ...]
    revision: int
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None


def change_rows(pipeline: ProcessPipeline, changes: Sequence[Change]) -> pa.Table:
    """Return changes, in their order, in the schema of the pipeline's changelog; their window is all time."""
    fields = schema.changes(pipeline)
    if not changes:
        return fields.empty_table()
    had = np.array([change.before is not None for change in changes])
    has = np.array([change.after is not None for change in changes])
    revisions = np.array([change.revision for change in changes], dtype=np.int32)
    # a change is a row of what was and one of what is; the place of a change in `changes` is `index` for its rows
    there = np.stack([had, has], axis=1)
    index = np.nonzero(there)[0]
    ops = np.stack([np.where(has, _BEFORE, _DELETE), np.where(had, _AFTER, _INSERT)], axis=1)[there]
    counted = np.stack([revisions, revisions + had], axis=1)[there]
    panes = np.array([change.early for change in changes], dtype=np.int8)[index]
    rows = [row for change in changes for row in (change.before, change.after) if row is not None]
    keys = [change.key for change in changes]
    given = {
        "op": _OPS.take(pa.array(ops)),
        "pane": _PANES.take(pa.array(panes)),
        "revision": pa.array(counted, pa.int32()),
        "window_start": _bound(GLOBAL_START, len(rows)),
        "window_end": _bound(GLOBAL_END, len(rows)),
    }
    places = pa.array(index)
    given |= {
        name: pa.array([key[number] for key in keys], fields.field(name).type).take(places)
        for number, name in enumerate(pipeline.key)
    }
    given |= {
        field.name: pa.array([row[number] for row in rows], fields.field(field.name).type)
        for number, field in enumerate(pipeline.process.returns)
    }
    return pa.table(given, schema=fields)


def _bound(micros: int, length: int) -> pa.Array:
    return pa.array(np.full(length, micros, dtype=np.int64)).cast(schema.MICROS)
