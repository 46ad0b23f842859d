"""Hopping windows of slices: each record is aggregated once, and windows that fire combine slices.

Slices are merged into nodes of `_FAN` slices, these into nodes of `_FAN` times as many and so on, each once and not
before a window needs it, so a window is made of few parts. (Such a tree is in Tangwongsan, Hirzel, Schneider, Wu:
General Incremental Sliding-Window Aggregation, VLDB 2015.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

from windrow.core import duck
from windrow.core.micros import Micros, to_micros
from windrow.core.operators.pane_store import by_window, in_window, load_panes, store_panes, windows_in
from windrow.core.operators.statements import Statements
from windrow.core.operators.window_summary import WindowSummary
from windrow.core.records import WINDOW
from windrow.core.state import State
from windrow.core.windows import Hops, expand, hops_of
from windrow.model import Hopping

SLICES: Final = "slices"
"""The kind of their blobs; that of the nodes of a level has its number behind."""

_FAN = 4


class Slices:
    """The slices (level 0) and nodes (the levels above) of hopping windows, known by level and start."""

    def __init__(
        self, window: Hopping, connection: duckdb.DuckDBPyConnection, statements: Statements, no_panes: pa.Table
    ) -> None:
        self._window = window
        self._duck = connection
        self._sql = statements
        self._no_panes = no_panes

    def add(self, records: pa.Table, parts: pa.Table, summary: WindowSummary, state: State) -> None:
        """Add records that are on time for all windows of their slice, and parts of slices made of such."""
        touched = windows_in(records) | windows_in(parts)
        if not touched:
            return
        known = summary.slices.setdefault(0, set())
        stored = load_panes(state, _kind(0), touched & known, self._no_panes)
        store_panes(state, _kind(0), self._sql.added(self._duck, records, parts, stored))
        known |= touched

    def parts(self, windows: Collection[int], summary: WindowSummary, state: State, *, low: int) -> pa.Table:
        """Return what the panes of windows are to be merged of, under these windows; what stays of use is stored."""
        filled = self._filled(summary)
        cover = [
            (window, level, start)
            for window in sorted(windows)
            for level, start in self._cover(window)
            if start in filled[level]
        ]
        wanted: dict[int, set[int]] = defaultdict(set)
        for _, level, start in cover:
            wanted[level].add(start)
        for level in range(max(wanted, default=0), 0, -1):
            for start in wanted[level] - summary.slices.get(level, set()):
                wanted[level - 1].update(set(self._children(level, start)) & filled[level - 1])
        nodes: dict[int, dict[int, pa.Table]] = {-1: {}}
        for level in sorted(wanted):
            nodes[level] = self._level(level, wanted[level], nodes.get(level - 1, {}), summary, state, low=low)
        tables = [in_window(nodes[level][start].drop_columns(WINDOW), window) for window, level, start in cover]
        return pa.concat_tables([self._no_panes, *(table.select(self._no_panes.column_names) for table in tables)])

    def forget(self, summary: WindowSummary, state: State, *, low: int) -> None:
        """Drop what no window that ends after a time is made of."""
        for level, starts in summary.slices.items():
            gone = {start for start, done in zip(starts, self._done(starts, low), strict=True) if done}
            for start in sorted(gone):
                state.drop(_kind(level), start)
            summary.slices[level] = starts - gone

    def _level(
        self,
        level: int,
        wanted: set[int],
        below: dict[int, pa.Table],
        summary: WindowSummary,
        state: State,
        *,
        low: int,
    ) -> dict[int, pa.Table]:
        """Return nodes of a level: those that are stored, and the others made of the level below."""
        known = summary.slices.get(level, set())
        found = dict(by_window(load_panes(state, _kind(level), wanted & known, self._no_panes)))
        missing = sorted(wanted - known)
        if missing:
            parts = [
                in_window(below[child].drop_columns(WINDOW), start)
                for start in missing
                for child in self._children(level, start)
                if child in below
            ]
            made = duck.query(self._duck, self._sql.merge, panes=pa.concat_tables(parts))
            found |= by_window(made)
            stays = {start for start, done in zip(missing, self._done(missing, low), strict=True) if not done}
            store_panes(
                state, _kind(level), made.filter(pa.array(np.isin(to_micros(made.column(WINDOW)), list(stays))))
            )
            summary.slices.setdefault(level, set()).update(stays)
        return found

    def _filled(self, summary: WindowSummary) -> dict[int, set[int]]:
        """Return the starts of all nodes by level that have something in them."""
        slices, offset = _array(summary.slices.get(0, ())), self._window.offset
        levels: dict[int, set[int]] = defaultdict(set)
        length, level = self._window.slice, 0
        while length <= self._window.size:
            levels[level] = set(((slices - offset) // length * length + offset).tolist())
            length, level = length * _FAN, level + 1
        return levels

    def _cover(self, window: int) -> Iterator[tuple[int, int]]:
        """Yield the level and start of the fewest nodes that make a window."""
        first = (window - self._window.offset) // self._window.slice
        last = first + self._window.size // self._window.slice
        level, length = 0, self._window.slice
        while first < last:
            while first < last and first % _FAN:
                yield level, first * length + self._window.offset
                first += 1
            while first < last and last % _FAN:
                last -= 1
                yield level, last * length + self._window.offset
            first, last, level, length = first // _FAN, last // _FAN, level + 1, length * _FAN

    def _children(self, level: int, start: int) -> range:
        length = self._window.slice * _FAN ** (level - 1)
        return range(start, start + _FAN * length, length)

    def _done(self, starts: Collection[int], low: int) -> list[bool]:
        """Return for each start of a slice or node whether the last window that can hold it ends by a time."""
        done: list[bool] = (hops_of(self._window, _array(starts)).last + self._window.size <= low).tolist()
        return done


def windows_of_slices(window: Hopping, slices: Collection[int], after: int) -> set[int]:
    """Return the windows of slices that end after a time."""
    first, last = hops_of(window, np.sort(_array(slices)))
    # each window once: of two slices next to each other, the second has few that the first has not
    first[1:] = np.maximum(first[1:], last[:-1] + window.slide)
    _, starts = expand(window, Hops(first, last))
    return set(starts[starts + window.size > after].tolist())


def _kind(level: int) -> str:
    return SLICES if level == 0 else f"{SLICES}{level}"


def is_node(kind: str) -> bool:
    """Return whether blobs of a kind are nodes above the slices."""
    return kind.startswith(SLICES) and kind != SLICES


def _array(starts: Collection[int]) -> Micros:
    return np.fromiter(starts, dtype=np.int64, count=len(starts))
