"""What a clock journal says of the watermarks, so that a replay repeats it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windrow.core.micros import BEFORE_ALL, Micros

_RAISED = ("joined", "active")
LOST = "lost: "
"""How the reason of a row begins that says which records are gone; what happened follows."""


@dataclass(frozen=True)
class Floors:
    """Watermarks that a partition's records are not below, as (partition, offset, watermark) in that order.

    A watermark is true from its offset on.
    """

    rows: tuple[tuple[int, int, int], ...] = ()

    @staticmethod
    def of(journal: pa.Table) -> Floors:
        """Read a clock journal in `windrow.core.schema.CLOCKS`, by epoch where records were lost."""
        columns = zip(
            journal.column("partition").to_pylist(),
            journal.column("offset").to_pylist(),
            journal.column("low_watermark").cast(pa.int64()).to_pylist(),
            journal.column("reason").to_pylist(),
            strict=True,
        )
        rows: set[tuple[int, int, int]] = set()
        for partition, offset, low, reason in columns:
            if reason.startswith(LOST):
                # a log that begins anew has these offsets again
                rows = {row for row in rows if row[0] != partition or row[1] <= offset}
            if (reason in _RAISED or reason.startswith(LOST)) and low is not None:
                rows.add((partition, offset, low))
        return Floors(tuple(sorted(rows)))

    def at(self, partition: int, offsets: Micros) -> Micros:
        """Return the floor at each offset of a partition; `BEFORE_ALL` where there is none."""
        rows = np.array([row[1:] for row in self.rows if row[0] == partition], dtype=np.int64).reshape(-1, 2)
        lows = np.concatenate(([BEFORE_ALL], np.maximum.accumulate(rows[:, 1])))
        floors: Micros = lows[np.searchsorted(rows[:, 0], offsets, side="right")]
        return floors


NO_FLOORS = Floors()
