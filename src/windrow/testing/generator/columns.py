"""Columns of bytes, of which generated records are put together, and the offsets of records."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Longs = npt.NDArray[np.int64]

CHUNK = 131_072
"""Records in a batch, at the most."""


def next_offsets(partition: Longs, offsets: Longs) -> Longs:
    """Return an offset for each record, and count `offsets` (the next one of each partition) up."""
    order = np.argsort(partition, kind="stable")
    counts = np.bincount(partition, minlength=len(offsets))
    offset = np.empty(len(partition), dtype=np.int64)
    offset[order] = (
        np.arange(len(partition)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(offsets, counts)
    )
    offsets += counts
    return offset


def digits(numbers: Longs) -> pa.Array:
    """Return numbers as text."""
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def repeat(value: bytes, count: int) -> pa.Array:
    """Return the same value in all rows."""
    return pa.repeat(pa.scalar(value, pa.binary()), count)


def join(*parts: object) -> pa.Array:
    """Put binary columns and constants together, row by row."""
    columns = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.binary()))
