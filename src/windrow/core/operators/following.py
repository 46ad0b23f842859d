"""Triggers that are asked in Python, record by record."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from windrow.core.micros import Micros
from windrow.core.operators.early_statements import COUNT, MEMORY, NTH, PANES, ROW, SINCE, WAITING
from windrow.core.operators.panes import PaneStep
from windrow.core.operators.triggers import ask
from windrow.core.records import TIME, WINDOW
from windrow.model import PaneSoFar, Trigger

_Known = tuple[int, int, int, int | None, str | None]
"""Of a window and key before the step: records, pending ones, early panes, since when it waits, what is remembered."""


class Found(NamedTuple):
    """What a trigger said.

    By record: its chunk (how many early panes of its window and key the step has had before it), and whether an early
    pane follows it. By window and key: its first row in what was told, what the trigger remembers, and whether an early
    pane is due by processing time.
    """

    chunks: pa.Array
    early: pa.Array
    firsts: pa.Array
    memories: pa.Array
    due: pa.Array


class _Followed:
    """The trigger of one window and key in one step."""

    def __init__(self, trigger: Trigger, bounds: tuple[int, int], known: _Known) -> None:
        self._bounds = bounds
        self._records, self._waiting, self._panes, self._since, memory = known
        self._before = self._panes
        self._asked = ask(trigger)
        if memory is not None:
            self._asked.memory = json.loads(memory)

    def at_record(self, time: int) -> tuple[int, bool]:
        """Return a record's chunk, and whether an early pane follows it."""
        chunk = self._panes - self._before
        self._records += 1
        self._waiting += 1
        says = self._asked.at_record(PaneSoFar(*self._bounds, self._records, self._waiting, self._panes, time))
        if says:
            self._begin_anew()
        return chunk, says

    def at_tick(self, now: int, latest: int) -> bool:
        """Return whether an early pane is due."""
        if self._waiting == 0:
            return False
        says = self._asked.at_tick(now - (latest if self._since is None else self._since))
        if says:
            self._begin_anew()
        return says

    @property
    def memory(self) -> str:
        """What the trigger remembers."""
        return json.dumps(self._asked.memory)

    def _begin_anew(self) -> None:
        self._panes += 1
        self._waiting, self._since = 0, None
        self._asked.begin_anew()


def follow(trigger: Trigger, told: pa.Table, ends: Micros, step: PaneStep) -> Found:
    """Ask a trigger at each on-time record in log order, and at the step's tick; `ends` are those of told windows."""
    chunks = np.zeros(step.on_time.num_rows, dtype=np.int64)
    early = np.zeros(step.on_time.num_rows, dtype=np.bool_)
    firsts: list[int] = []
    followed: list[_Followed] = []
    windows: list[int] = []
    columns = (told.column(name).to_pylist() for name in (WINDOW, ROW, TIME, NTH, COUNT, WAITING, PANES, SINCE, MEMORY))
    for place, (window, row, time, nth, *known) in enumerate(zip(*columns, strict=True)):
        if nth is None or nth == 1:
            firsts.append(place)
            windows.append(window)
            followed.append(_Followed(trigger, (window, int(ends[place])), tuple(known)))
        if nth is not None:
            chunks[row], early[row] = followed[-1].at_record(time)
    now, latest = step.time.now, step.time.latest
    due = [
        now is not None and latest is not None and window not in step.firing and one.at_tick(now, latest)
        for window, one in zip(windows, followed, strict=True)
    ]
    return Found(
        pa.array(chunks),
        pa.array(early),
        pa.array(firsts, pa.int64()),
        pa.array([one.memory for one in followed], pa.string()),
        pa.array(due, pa.bool_()),
    )
