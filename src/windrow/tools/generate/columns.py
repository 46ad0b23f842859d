"""Columns of bytes from which generated records are assembled, and the batches built from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.engine.schema import MICROS, RAW
from windrow.tools.generate.spec import LogCounts

Longs = npt.NDArray[np.int64]

CHUNK = 131_072
"""Maximum number of records in a batch."""


class Portion(NamedTuple):
    """Events that are written together: a batch of `RAW` for each log, their counts, and label lines."""

    batches: tuple[pa.RecordBatch, ...]
    counts: LogCounts
    labels: bytes = b""


class Events:
    """Base class of dataclasses whose fields are columns of events, among them `arrival`."""

    arrival: Longs

    def take(self, rows: Longs) -> Self:
        """Return the events in the given rows."""
        return type(self)(**{name: column[rows] for name, column in vars(self).items()})

    def by_arrival(self) -> Iterator[Self]:
        """Yield the events in order of arrival, in chunks."""
        order = np.argsort(self.arrival, kind="stable")
        for at in range(0, len(order), CHUNK):
            yield self.take(order[at : at + CHUNK])


def raw_batch(
    partition: npt.NDArray[np.int32] | Longs, offsets: Longs, arrival: Longs, keys: pa.Array, values: pa.Array
) -> pa.RecordBatch:
    """Return records as a batch of `RAW`, and advance `offsets`, which holds the next offset of each partition.

    Arrival times are microseconds.
    """
    order = np.argsort(partition, kind="stable")
    counts = np.bincount(partition, minlength=len(offsets))
    offset = np.empty(len(partition), dtype=np.int64)
    offset[order] = (
        np.arange(len(partition)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(offsets, counts)
    )
    offsets += counts
    columns = [pa.array(partition.astype(np.int32)), pa.array(offset), pa.array(arrival).cast(MICROS), keys, values]
    return pa.record_batch(columns, schema=RAW)


def digits(numbers: Longs) -> pa.Array:
    """Format integers as text."""
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def repeat(value: bytes, count: int) -> pa.Array:
    """Return a column with the same value in each of `count` rows."""
    return pa.repeat(pa.scalar(value, pa.binary()), count)


def join(*parts: object) -> pa.Array:
    """Concatenate binary columns and constants row by row."""
    columns = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.binary()))


def pad(numbers: Longs, width: int) -> pa.Array:
    """Format integers as text with leading zeros."""
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0").cast(pa.binary())


def hundredths(cents: Longs) -> pa.Array:
    """Format hundredths as decimal numbers with two decimal places."""
    return join(digits(cents // 100), b".", _CENTS.take(pa.array(cents % 100)))


_CENTS = pa.array([b"%02d" % cents for cents in range(100)], pa.binary())


def text(values: pa.Array) -> pa.Array:
    """Return values as JSON strings. They must not contain characters that JSON escapes."""
    return join(b'"', values, b'"')


def record(fields: dict[str, pa.Array]) -> pa.Array:
    """Return JSON objects with the given fields."""
    parts: list[object] = []
    for name, values in fields.items():
        parts += [(', "' if parts else '{"').encode() + name.encode() + b'": ', values]
    return join(*parts, b"}")
