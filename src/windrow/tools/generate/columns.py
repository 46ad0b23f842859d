"""Columns of bytes, of which generated records are put together, and the offsets of records."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.tools.generate.spec import Made

Longs = npt.NDArray[np.int64]

CHUNK = 131_072
"""Records in a batch, at the most."""


class Portion(NamedTuple):
    """Events that are written together: a batch of `RAW` for each log, how many they are, and lines of labels."""

    batches: tuple[pa.RecordBatch, ...]
    made: Made
    labels: bytes = b""


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


def padded(numbers: Longs, width: int) -> pa.Array:
    """Return numbers as text, with zeros before them."""
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0").cast(pa.binary())


def hundredths(cents: Longs) -> pa.Array:
    """Return hundredths as text with two decimal places."""
    return join(digits(cents // 100), b".", _CENTS.take(pa.array(cents % 100)))


_CENTS = pa.array([b"%02d" % cents for cents in range(100)], pa.binary())


def text(values: pa.Array) -> pa.Array:
    """Return values, of which none has a character that JSON escapes, as JSON texts."""
    return join(b'"', values, b'"')


def record(fields: dict[str, pa.Array]) -> pa.Array:
    """Return JSON objects."""
    parts: list[object] = []
    for name, values in fields.items():
        parts += [(', "' if parts else '{"').encode() + name.encode() + b'": ', values]
    return join(*parts, b"}")
