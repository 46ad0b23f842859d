"""Points in time as whole microseconds, in arithmetic that has an "earlier than everything"."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Micros = npt.NDArray[np.int64]

BEFORE_ALL: Final = -(2**63)
"""The clock of a partition without a record: minus infinity."""

AFTER_ALL: Final = 2**63 - 1
"""Where time is at the end of the input."""


def to_micros(column: pa.ChunkedArray | pa.Array) -> Micros:
    """View a column of int64 or timestamp[us] without nulls as a numpy array."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.cast(pa.int64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
