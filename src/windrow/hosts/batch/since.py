"""Results of a part of time."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from windrow.core.changelog import StepOutput
from windrow.core.operators.base import GroupOutput
from windrow.core.schema import MICROS


def ending_after(since: int, output: GroupOutput) -> GroupOutput:
    """Leave out rows of windows that end by a time, and do not count them."""
    changes, late = (_after(since, table) for table in (output.rows.changes, output.rows.late))
    operations = changes.column("op")
    stats = replace(
        output.stats,
        expired=late.num_rows,
        inserts=pc.sum(pc.equal(operations, "insert")).as_py() or 0,
        revisions=pc.sum(pc.equal(operations, "update_after")).as_py() or 0,
    )
    return GroupOutput(StepOutput(changes, late, output.rows.dead, output.rows.clocks), stats)


def _after(since: int, table: pa.Table) -> pa.Table:
    return table.filter(pc.greater(table.column("window_end"), pa.scalar(since, pa.int64()).cast(MICROS)))
