"""The watermark at each record, as far as this step's own records move it."""

from __future__ import annotations

from typing import assert_never

import numpy as np
import pyarrow as pa

from windrow.core.micros import BEFORE_ALL, Micros, to_micros
from windrow.core.records import OFFSET, TIME, WATERMARK
from windrow.model import Adaptive, Delay, Punctuated, Watermark


class StepWatermark:
    """The running watermark of one partition in one step.

    What earlier steps knew is not here but in the state of the key groups: the watermark at a record is the greater of
    the two. An adaptive delay is theirs as well, as it depends on all earlier records.
    """

    def __init__(self, watermark: Watermark) -> None:
        self._watermark = watermark
        self.value: int = BEFORE_ALL

    def advance(self, good: pa.Table, marks: pa.Table) -> Micros:
        """Take the partition's next good records and marks; return the watermark at each of the records.

        A record's own time or mark counts only for the records after it.
        """
        match self._watermark:
            case Delay(micros):
                moves = to_micros(good.column(TIME)) - micros
                before = np.arange(len(moves))
            case Punctuated():
                moves = to_micros(marks.column(WATERMARK))
                before = np.searchsorted(to_micros(marks.column(OFFSET)), to_micros(good.column(OFFSET)))
            case Adaptive():
                return np.full(good.num_rows, BEFORE_ALL, dtype=np.int64)
            case _:
                assert_never(self._watermark)
        reached = np.maximum.accumulate(np.concatenate(([self.value], moves)))
        self.value = int(reached[-1])
        return reached[before]
