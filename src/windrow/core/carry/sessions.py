"""States of session aggregates."""

from __future__ import annotations

import pyarrow as pa

from windrow.core import duck
from windrow.core.aggregates import unscale
from windrow.core.carry.columns import Columns
from windrow.core.carry.groups import Groups
from windrow.core.carry.plan import Plan
from windrow.core.operators.session_moment import Rules
from windrow.core.operators.session_state import SessionSummary, StoredSessions
from windrow.core.operators.session_values import SessionValues
from windrow.core.packing import unpack
from windrow.core.records import record_schema
from windrow.core.state import MemoryState
from windrow.model import Pipeline, Session


def carry_sessions(pipeline: Pipeline, plan: Plan, states: list[MemoryState]) -> list[MemoryState]:
    """Take over atoms, bucket by bucket: which one a key is in does not depend on its key group."""
    connection = duck.connect()
    columns, groups = Columns(pipeline, plan, connection), Groups(pipeline, connection)
    together = next(SessionSummary.decode(blob) for state in states if (blob := state.summary()) is not None)
    together.gone = plan.gone(together.gone, together.clocks.low, pipeline.emit.lateness)
    for state in states:
        for (kind, bucket), blob in state.items():
            groups.add((kind, bucket), columns.panes(unpack(blob)))
    sessions = _stored(pipeline)
    made = []
    for tables in groups.tables():
        state, together.buckets = MemoryState(), {}
        for (_, bucket), rows in tables.items():
            # with a shorter lateness there is something to forget at once
            sessions.put(state, together, bucket, rows, now=pipeline.emit.lateness < plan.lateness)
        state.set_summary(together.encode())
        made.append(state)
    return made


def _stored(pipeline: Pipeline) -> StoredSessions:
    if not isinstance(pipeline.window, Session):
        msg = f"{pipeline.window} is no session window"
        raise TypeError(msg)
    no_records: pa.Table = unscale(record_schema(pipeline).empty_table())
    rules = Rules(pipeline.window.gap, pipeline.emit.lateness, pipeline.emit.late)
    values = SessionValues(pipeline, duck.connect(), no_records)
    return StoredSessions(rules, no_records.select(list(pipeline.key)), values.none)
