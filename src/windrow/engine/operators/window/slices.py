"""Slices of overlapping windows: each record is aggregated once, and a window that fires merges its slices.

Slices are merged into nodes of `_FANOUT` slices, these into nodes of `_FANOUT` times as many slices, and so on. A node
is created only once, when a window first needs it, so a window consists of few parts. Source: Tangwongsan, Hirzel,
Schneider, Wu: General Incremental Sliding-Window Aggregation, VLDB 2015 (the tree of partial aggregates).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql
from windrow.engine.columns import to_micros
from windrow.engine.operators.window.sql import WindowSql
from windrow.engine.schema import WINDOW
from windrow.engine.state import window_store
from windrow.engine.state.store import OperatorState
from windrow.engine.state.window_store import WindowSummary, load_panes, store_panes, take_windows, windows_in
from windrow.engine.windows import Hops, distance, expand, hops_of, window_bounds

SLICE_KIND: Final = "slices"
"""The kind of blobs with slices. For nodes of a higher level, the number of the level is appended."""

_FANOUT = 4


class SliceStep(NamedTuple):
    """The state of a key group in a step, and the time up to which windows have fired."""

    summary: WindowSummary
    state: OperatorState
    low: int


class SliceTree:
    """The slices (level 0) and nodes (higher levels) of overlapping windows, identified by level and start."""

    def __init__(
        self, window: m.Sliced, connection: duckdb_sql.Connection, statements: WindowSql, no_panes: pa.Table
    ) -> None:
        self._window = window
        self._duck = connection
        self._sql = statements
        self._no_panes = no_panes

    def update(self, windows: Collection[int], records: pa.Table, parts: pa.Table, step: SliceStep) -> pa.Table:
        """Add records that are on time for all windows of their slice, and partial slices made from such records.

        Return the panes whose merge gives the panes of `windows`; each has the number of its window. Only slices and
        nodes of windows that end after `step.low` remain stored.
        """
        summary, state = step.summary, step.state
        touched, known = windows_in(records) | windows_in(parts), summary.slices.get(0, set())
        slices = self._no_panes
        if touched:
            stored = load_panes(state, _kind_of_level(0), touched & known, self._no_panes)
            slices = self._sql.add_records(self._duck, records, parts, stored)
            summary.slices[0] = known | touched
        panes = self._parts(windows, slices, known - touched, step)
        self._expire(known, step)
        store_panes(state, _kind_of_level(0), take_windows(slices, touched & summary.slices.get(0, set())))
        return panes

    def _parts(self, windows: Collection[int], slices: pa.Table, stored: Collection[int], step: SliceStep) -> pa.Table:
        """Return the parts that windows consist of, taken from `slices` and from the slices that are `stored`."""
        filled = self._filled_nodes(step.summary)
        cover: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for window in windows:
            for level, start in self._cover(window):
                if start in filled[level]:
                    cover[level].append((window, start))
        wanted = defaultdict(set, {level: {start for _, start in pairs} for level, pairs in cover.items()})
        for level in range(max(wanted, default=0), 0, -1):
            for start in wanted[level] - step.summary.slices.get(level, set()):
                wanted[level - 1].update(set(self._children(level, start)) & filled[level - 1])
        loaded = load_panes(step.state, _kind_of_level(0), wanted[0] & set(stored), self._no_panes)
        nodes = pa.concat_tables([slices, loaded])
        found = [self._no_panes]
        for level in sorted(wanted):
            if level:
                nodes = self._nodes_of_level(level, wanted[level], nodes, step)
            found.append(_panes_by_window(nodes, cover[level]))
        return pa.concat_tables(found)

    def _nodes_of_level(self, level: int, wanted: set[int], below: pa.Table, step: SliceStep) -> pa.Table:
        """Return the wanted nodes of a level; nodes that are not stored are merged from the level below."""
        known = step.summary.slices.get(level, set())
        nodes = load_panes(step.state, _kind_of_level(level), wanted & known, self._no_panes)
        missing = sorted(wanted - known)
        if missing:
            pairs = [(start, child) for start in missing for child in self._children(level, start)]
            made = duckdb_sql.query(self._duck, self._sql.merge, panes=_panes_by_window(below, pairs))
            stays = set(missing) - self._expired_starts(missing, step.low)
            store_panes(step.state, _kind_of_level(level), take_windows(made, stays))
            step.summary.slices.setdefault(level, set()).update(stays)
            nodes = pa.concat_tables([nodes, made.select(nodes.column_names)])
        return nodes

    def _expire(self, known: Collection[int], step: SliceStep) -> None:
        """Drop the slices and nodes that no open window needs. Of the slices, only `known` ones are in the state."""
        for level, starts in step.summary.slices.items():
            expired = self._expired_starts(starts, step.low)
            for start in sorted(expired if level else expired & set(known)):
                step.state.drop(_kind_of_level(level), start)
            step.summary.slices[level] = starts - expired

    def _filled_nodes(self, summary: WindowSummary) -> dict[int, set[int]]:
        """Map each level to the starts of its nodes that contain rows."""
        slices, offset = window_store.window_numbers(summary.slices.get(0, ())), self._window.offset
        levels: dict[int, set[int]] = defaultdict(set)
        length, level = self._window.slice, 0
        while length <= self._window.size:
            levels[level] = set(((slices - offset) // length * length + offset).tolist())
            length, level = length * _FANOUT, level + 1
        return levels

    def _cover(self, window: int) -> Iterator[tuple[int, int]]:
        """Yield the level and start of each node in the smallest set of nodes that covers a window."""
        starts, ends = window_bounds(self._window, np.array([window]))
        first, last = (int(bound - self._window.offset) // self._window.slice for bound in (starts[0], ends[0]))
        level, length = 0, self._window.slice
        while first < last:
            while first < last and first % _FANOUT:
                yield level, first * length + self._window.offset
                first += 1
            while first < last and last % _FANOUT:
                last -= 1
                yield level, last * length + self._window.offset
            first, last, level, length = first // _FANOUT, last // _FANOUT, level + 1, length * _FANOUT

    def _children(self, level: int, start: int) -> range:
        length = self._window.slice * _FANOUT ** (level - 1)
        return range(start, start + _FANOUT * length, length)

    def _expired_starts(self, starts: Collection[int], low: int) -> set[int]:
        """Return the starts of slices or nodes that belong only to windows that end at or before `low`."""
        numbers = window_store.window_numbers(starts)
        last = hops_of(self._window, numbers).last
        return set(numbers[window_bounds(self._window, last).ends <= low].tolist())


def windows_of_slices(window: m.Sliced, slices: Collection[int], after: int) -> set[int]:
    """Return the windows that contain any of the slices and end after the given time."""
    first, last = hops_of(window, np.sort(window_store.window_numbers(slices)))
    # each window once: a slice has few windows that the slice before it does not have
    first[1:] = np.maximum(first[1:], last[:-1] + distance(window))
    _, windows = expand(window, Hops(first, last))
    return set(windows[window_bounds(window, windows).ends > after].tolist())


def _panes_by_window(nodes: pa.Table, pairs: Sequence[tuple[int, int]]) -> pa.Table:
    """Return, for each pair of a window and the start of a node, the panes of the node with the window's number."""
    windows, starts = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    order = np.argsort(to_micros(nodes.column(WINDOW)), kind="stable")
    found = to_micros(nodes.column(WINDOW))[order]
    first, end = np.searchsorted(found, starts, side="left"), np.searchsorted(found, starts, side="right")
    lengths = end - first
    places = np.arange(lengths.sum()) + np.repeat(first - (np.cumsum(lengths) - lengths), lengths)
    panes = nodes.take(pa.array(order[places]))
    return panes.set_column(panes.column_names.index(WINDOW), WINDOW, pa.array(np.repeat(windows, lengths)))


def _kind_of_level(level: int) -> str:
    return SLICE_KIND if level == 0 else f"{SLICE_KIND}{level}"


def is_slice_node(kind: str) -> bool:
    """Return True if blobs of this kind are nodes above the slices."""
    return kind.startswith(SLICE_KIND) and kind != SLICE_KIND
