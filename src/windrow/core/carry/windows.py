"""States of window aggregates, all but those of sessions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from windrow.core import duck
from windrow.core.carry.columns import Columns
from windrow.core.carry.groups import Address, Groups, stored
from windrow.core.carry.plan import Plan
from windrow.core.operators.slices import SLICES, is_node
from windrow.core.operators.window_summary import WindowSummary
from windrow.core.packing import unpack
from windrow.core.state import MemoryState
from windrow.model import Pipeline


def carry_windows(pipeline: Pipeline, plan: Plan, states: list[MemoryState]) -> list[MemoryState]:
    """Take over panes, slices and records that wait."""
    connection = duck.connect()
    columns, groups = Columns(pipeline, plan, connection), Groups(pipeline, connection)
    summaries = [WindowSummary.decode(blob) for state in states if (blob := state.summary()) is not None]
    for state in states:
        for (kind, bucket), blob in state.items():
            # what slices were merged into is made of them again: one key group may have had it, and another not
            if not is_node(kind):
                table = unpack(blob)
                fitted = columns.records(table) if kind == "waiting" else columns.panes(table)
                groups.add((kind, bucket), fitted)
    together = _together(summaries)
    together.gone = plan.gone(together.gone, together.clocks.low, pipeline.emit.lateness)
    made = []
    for tables in groups.tables():
        state = stored(tables)
        state.set_summary(_of(together, set(tables)).encode())
        made.append(state)
    return made


def _together(summaries: list[WindowSummary]) -> WindowSummary:
    """Return what all key groups know; time is the same in each."""
    pending: dict[int, int] = {}
    for summary in summaries:
        for window, since in summary.pending.items():
            pending[window] = min(since, pending.get(window, since))
    return replace(
        summaries[0],
        open={window for summary in summaries for window in summary.open},
        fired={window for summary in summaries for window in summary.fired},
        pending=pending,
    )


def _of(together: WindowSummary, addresses: set[Address]) -> WindowSummary:
    """Return what a key group knows that has blobs at some addresses."""
    there: defaultdict[str, set[int]] = defaultdict(set)
    for kind, bucket in addresses:
        there[kind].add(bucket)
    own = there["panes"] | there["waiting"]
    return replace(
        together,
        open=together.open & own,
        waiting=there["waiting"],
        fired=together.fired & own,
        slices={0: there[SLICES]},
        pending={window: since for window, since in together.pending.items() if window in own},
    )
