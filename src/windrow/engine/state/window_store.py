"""Window store: the window operator's summary, and its panes in one blob per window (or slice)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windrow.engine.columns import MIN_TIME, Micros, pack, to_micros, unpack
from windrow.engine.schema import WINDOW
from windrow.engine.state.store import BlobStore


def load_panes(state: BlobStore, kind: str, windows: Collection[int], empty: pa.Table) -> pa.Table:
    """Return the stored panes of the given windows, with the columns of `empty`."""
    tables = [empty]
    for start in sorted(windows):
        blob = state.get(kind, start)
        if blob is not None:
            panes = unpack(blob)
            windows = pa.array(np.full(panes.num_rows, start, dtype=np.int64))
            tables.append(panes.append_column(WINDOW, windows).select(empty.column_names))
    return pa.concat_tables(tables)


def store_panes(state: BlobStore, kind: str, panes: pa.Table) -> None:
    """Store panes in a blob for each window, replacing the stored panes of these windows."""
    for start, part in split_by_window(panes):
        state.set(kind, start, pack(part.drop_columns(WINDOW)))


def windows_in(table: pa.Table) -> set[int]:
    """Return the windows that occur in the rows of a table."""
    return set(np.unique(to_micros(table.column(WINDOW))).tolist())


def window_numbers(windows: Collection[int]) -> Micros:
    """Return the numbers of windows as an array."""
    return np.fromiter(windows, dtype=np.int64, count=len(windows))


def is_in_windows(table: pa.Table, windows: Collection[int]) -> npt.NDArray[np.bool_]:
    """Return the mask of rows that are in the given windows."""
    return np.isin(to_micros(table.column(WINDOW)), window_numbers(windows))


def take_windows(table: pa.Table, windows: Collection[int]) -> pa.Table:
    """Return the rows that are in the given windows."""
    return table.filter(pa.array(is_in_windows(table, windows)))


def drop_windows(table: pa.Table, windows: Collection[int]) -> pa.Table:
    """Return the rows that are not in the given windows."""
    return table.filter(pa.array(~is_in_windows(table, windows)))


def split_by_window(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield each window of a table with its rows, in ascending order."""
    windows = to_micros(table.column(WINDOW))
    order = np.argsort(windows, kind="stable")
    table = table.take(pa.array(order))
    starts, firsts = np.unique(windows[order], return_index=True)
    lengths = np.diff(firsts, append=len(windows))
    for start, first, length in zip(starts.tolist(), firsts.tolist(), lengths.tolist(), strict=True):
        yield start, table.slice(first, length)


@dataclass
class WindowSummary:
    """The operator's summary; windows are identified by their number (see `windrow.engine.windows`).

    The set `open` has the windows that have panes or records of their own and have not fired. `waiting` has those in
    which late records wait, either for the window to fire or for more late records. `fired` has those that have fired
    and can still be revised. `slices` has, for each level, the starts of the slices that make up the windows. `pending`
    has, for each window, the processing time since which it has been waiting for an early pane; with early panes by
    event time, it has the watermark at which the pane is due. Windows that end by `forgotten_until` were dropped when
    the lateness was shorter than it is now.
    """

    open: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    fired: set[int] = field(default_factory=set)
    slices: dict[int, set[int]] = field(default_factory=dict)
    pending: dict[int, int] = field(default_factory=dict)
    forgotten_until: int = MIN_TIME

    def encode(self) -> dict[str, Any]:
        """Encode the summary as plain JSON values."""
        return {
            "open": sorted(self.open),
            "waiting": sorted(self.waiting),
            "fired": sorted(self.fired),
            "slices": [[level, sorted(starts)] for level, starts in sorted(self.slices.items()) if starts],
            "pending": sorted(self.pending.items()),
            "gone": self.forgotten_until,
        }

    @staticmethod
    def decode(fields: Any) -> WindowSummary:  # noqa: ANN401 - plain JSON
        """Decode the output of `encode`."""
        return WindowSummary(
            set(fields["open"]),
            set(fields["waiting"]),
            set(fields["fired"]),
            {level: set(starts) for level, starts in fields["slices"]},
            dict(fields["pending"]),
            fields["gone"],
        )
