"""Panes in the state: one blob a window (or slice)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa

from windrow.core.micros import Micros, to_micros
from windrow.core.operators.verdicts import Mask
from windrow.core.packing import pack, unpack
from windrow.core.records import WINDOW
from windrow.core.state import State


def load_panes(state: State, kind: str, windows: Collection[int], empty: pa.Table) -> pa.Table:
    """Return the stored panes of some windows, with the columns of `empty`."""
    tables = [empty]
    for start in sorted(windows):
        blob = state.get(kind, start)
        if blob is not None:
            tables.append(in_window(unpack(blob), start).select(empty.column_names))
    return pa.concat_tables(tables)


def store_panes(state: State, kind: str, panes: pa.Table) -> None:
    """Store panes under their windows, in the place of what is there."""
    for start, part in by_window(panes):
        state.set(kind, start, pack(part.drop_columns(WINDOW)))


def in_window(panes: pa.Table, start: int) -> pa.Table:
    """Put panes into a window."""
    return panes.append_column(WINDOW, pa.array(np.full(panes.num_rows, start, dtype=np.int64)))


def windows_in(table: pa.Table) -> set[int]:
    """Return the windows that a table has rows of."""
    return set(np.unique(to_micros(table.column(WINDOW))).tolist())


def within(windows: Micros, starts: Collection[int]) -> Mask:
    """Return which windows are among some."""
    return np.isin(windows, np.fromiter(starts, dtype=np.int64, count=len(starts)))


def by_window(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Split a table at its windows, in their order."""
    windows = to_micros(table.column(WINDOW))
    order = np.argsort(windows, kind="stable")
    table = table.take(pa.array(order))
    starts, firsts = np.unique(windows[order], return_index=True)
    lengths = np.diff(firsts, append=len(windows))
    for start, first, length in zip(starts.tolist(), firsts.tolist(), lengths.tolist(), strict=True):
        yield start, table.slice(first, length)
