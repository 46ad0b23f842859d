"""Bytes to text, where they are text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def valid_text(values: pa.Array) -> pa.Array:
    """Return binary values as strings; those that are not UTF-8 become null."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        invalid = np.zeros(len(values), dtype=bool)
        _mark_invalid(values, 0, invalid)
        return pc.if_else(pa.array(invalid), pa.scalar(None, pa.binary()), values).cast(pa.string())


def _mark_invalid(values: pa.Array, start: int, invalid: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    """Halve until the values that are not UTF-8 stand alone: Arrow says that there are some, not which."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        if len(values) == 1:
            invalid[start] = True
            return
        half = len(values) // 2
        _mark_invalid(values.slice(0, half), start, invalid)
        _mark_invalid(values.slice(half), start + half, invalid)
