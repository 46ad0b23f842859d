"""Lines of a log file as Arrow, a block at a time and no line by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from windrow.core.schema import MICROS, RAW

BATCH_ROWS = 65_536


def batches(block: bytes, partition: int, first: int) -> Iterator[pa.RecordBatch]:
    """Cut whole lines, the last with its newline, into RAW batches of at most `BATCH_ROWS` rows.

    The first line has the offset `first`; a value is a line's bytes without the newline; key and log time are null.
    """
    values = pc.split_pattern(pa.array([block], pa.binary()), b"\n").values
    lines = len(values) - 1  # nothing stands behind the last newline
    for at in range(0, lines, BATCH_ROWS):
        rows = min(BATCH_ROWS, lines - at)
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(partition, pa.int32()), rows),
                pa.arange(first + at, first + at + rows),
                pa.nulls(rows, MICROS),
                pa.nulls(rows, pa.binary()),
                values.slice(at, rows),
            ],
            schema=RAW,
        )
