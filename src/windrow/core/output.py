"""What a step gives to the sink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from windrow.core import schema
from windrow.model import AnyPipeline


@dataclass(frozen=True)
class StepOutput:
    """All rows of one step (or of one key group in it), in the schemas of `windrow.core.schema`."""

    changes: pa.Table
    late: pa.Table
    dead: pa.Table
    clocks: pa.Table

    @staticmethod
    def empty(pipeline: AnyPipeline) -> StepOutput:
        """Return an output without rows."""
        return StepOutput(
            changes=schema.changes(pipeline).empty_table(),
            late=schema.LATE.empty_table(),
            dead=schema.DEAD.empty_table(),
            clocks=schema.CLOCKS.empty_table(),
        )

    @staticmethod
    def concat(parts: Iterable[StepOutput]) -> StepOutput:
        """Join the outputs of several key groups; there must be at least one."""
        rows = list(parts)
        return StepOutput(
            changes=pa.concat_tables([part.changes for part in rows]),
            late=pa.concat_tables([part.late for part in rows]),
            dead=pa.concat_tables([part.dead for part in rows]),
            clocks=pa.concat_tables([part.clocks for part in rows]),
        )
