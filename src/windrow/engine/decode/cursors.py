"""Cursors into many binary records, which read one field of all records at once.

A record with unexpected bytes is marked in `failed`, and its cursor stops. Its neighbours are not affected, as each
record has its own end. All reads expect their `rows` in ascending order.
"""

from __future__ import annotations

from copy import copy
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Longs = npt.NDArray[np.int64]

_PAD: Final = 16
"""Padding before and after the records, so that a window around any of their bytes is within the buffer."""
_U: Final = np.uint64
_ENDS: Final = _U(0x8080808080808080)
_LONGEST: Final = 10
"""Maximum number of bytes of a variable-length integer of 64 bits."""


_LARGE: Final = 1024
"""Mean size of ranges that are copied one by one."""


class Cursors:
    """Cursors into binary values without nulls, one for each value, starting at byte `skip`."""

    def __init__(self, values: pa.Array, skip: int = 0) -> None:
        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
        first, last = int(ends[0]), int(ends[-1])
        self.data = np.zeros(last - first + 2 * _PAD, dtype=np.uint8)
        if last > first:
            self.data[_PAD:-_PAD] = np.frombuffer(data, dtype=np.uint8)[first:last]
        self._windows = np.ndarray((len(self.data) - 7,), np.dtype("<u8"), self.data, strides=(1,))
        self.at: Longs = ends[:-1] - first + _PAD + skip
        self.end: Longs = ends[1:] - first + _PAD
        self.failed: Mask = self.at > self.end
        self.at = np.minimum(self.at, self.end)

    def fail(self, rows: Rows, mask: Mask) -> None:
        """Mark the rows for which the mask is true as failed."""
        if mask.any():
            self.failed[rows[mask]] = True

    def at_end(self) -> Mask:
        """Return the mask of records that were read to their end without a failure."""
        at_end: Mask = ~self.failed & (self.at == self.end)
        return at_end

    def within(self, at: Longs, sizes: Longs) -> Cursors:
        """Return cursors for ranges of the same bytes, given the positions and sizes of the ranges."""
        inner = copy(self)
        inner.at, inner.end, inner.failed = at.copy(), at + sizes, np.zeros(len(at), dtype=np.bool_)
        return inner

    def without_failed(self, rows: Rows) -> Rows:
        """Return the rows that have not failed."""
        failed = self.failed[rows]
        return rows[~failed] if failed.any() else rows

    def skip(self, rows: Rows, count: Longs | int) -> Longs:
        """Advance the cursors by `count` bytes and return their old positions.

        A row whose record is too short is marked as failed, and its cursor does not move.
        """
        at = self.at[rows]
        to = at + count
        beyond = (to > self.end[rows]) | (to < at)
        if beyond.any():
            self.fail(rows, beyond)
            to = np.where(beyond, at, to)
        self.at[rows] = to
        return at

    def byte(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """Read one byte of each row."""
        return self.data[self.skip(rows, 1)]

    def words(self, at: Longs) -> npt.NDArray[np.uint64]:
        """Return the 8 bytes from each position as a little-endian integer."""
        return self._windows[at]

    def varint(self, rows: Rows) -> npt.NDArray[np.uint64]:
        """Read variable-length integers (little-endian base 128) of at most 64 bits; rows that fail get 0."""
        at = self.at[rows]
        first = self.data[at]
        if (first < 0x80).all():  # noqa: PLR2004 - the last byte of an integer
            value = first.astype(_U)
            length: Longs | int = 1
        else:
            value, length = self._long_varint(at)
        to = at + length
        beyond = to > self.end[rows]
        if beyond.any():
            self.fail(rows, beyond)
            to, value = np.where(beyond, at, to), np.where(beyond, _U(0), value)
        self.at[rows] = to
        return value

    def _long_varint(self, at: Longs) -> tuple[npt.NDArray[np.uint64], Longs]:
        """Return the integers at some positions, and their lengths.

        An integer of more than 64 bits gets a length that is beyond the end of any record.
        """
        word = self._windows[at]
        stops = ~word & _ENDS
        # all bits up to the highest of the last byte; all 64 if the last byte is not among these 8
        within = stops ^ (stops - _U(1))
        length = (np.bitwise_count(within) >> 3).astype(np.int64)
        value = word & within & ~_ENDS
        value = (value & _U(0x007F007F007F007F)) | ((value & _U(0x7F007F007F007F00)) >> _U(1))
        value = (value & _U(0x00003FFF00003FFF)) | ((value & _U(0x3FFF00003FFF0000)) >> _U(2))
        value = (value & _U(0x000000000FFFFFFF)) | ((value & _U(0x0FFFFFFF00000000)) >> _U(4))
        rest = np.flatnonzero(stops == 0)
        if len(rest):
            ninth, tenth = (self.data[at[rest] + more].astype(_U) for more in (8, 9))
            is_ninth = ninth < 0x80  # noqa: PLR2004 - as above
            value[rest] |= (ninth & _U(0x7F)) << _U(56)
            value[rest] |= np.where(is_ninth, _U(0), tenth << _U(63))
            length[rest] = np.where(is_ninth, _LONGEST - 1, np.where(tenth <= 1, _LONGEST, len(self.data)))
        return value, length

    def are_varints(self) -> Mask:
        """Return the mask of records whose rest consists of variable-length integers of at most 64 bits."""
        sizes = self.end - self.at
        ends = np.cumsum(sizes)
        whole = ~self.failed
        some = np.flatnonzero(sizes)
        if not len(some):
            return whole
        data = self._bytes(self.at, sizes)
        stops = np.flatnonzero(data < 0x80)  # noqa: PLR2004 - the last byte of an integer
        whole[some] &= data[ends[some] - 1] < 0x80  # noqa: PLR2004 - the same
        lengths = np.diff(stops, prepend=-1)
        wrong = (lengths > _LONGEST) | ((lengths == _LONGEST) & (data[stops] > 1))
        whole[np.searchsorted(ends, stops[wrong], side="right")] = False
        return whole

    def _bytes(self, at: Longs, sizes: Longs) -> npt.NDArray[np.uint8]:
        """Return ranges of bytes, one after the other."""
        if sizes.sum() >= _LARGE * len(at):
            return np.concatenate(
                [self.data[first:end] for first, end in zip(at.tolist(), (at + sizes).tolist(), strict=True)]
            )
        return np.frombuffer(self.texts(at, sizes).buffers()[2], np.uint8)

    def texts(self, at: Longs, lengths: Longs) -> pa.Array:
        """Return ranges of bytes, given their positions and lengths, as binary values."""
        ends = np.zeros(len(at) + 1, dtype=np.int32)
        np.cumsum(lengths, out=ends[1:])
        places = np.ones(ends[-1], dtype=np.int64)
        there = np.flatnonzero(lengths)
        if len(there):
            starts, sizes = at[there], lengths[there]
            # each position is the one before plus 1, except for the first of a value
            places[0] = starts[0]
            places[ends[there[1:]]] = starts[1:] - (starts[:-1] + sizes[:-1]) + 1
            np.cumsum(places, out=places)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(self.data.take(places))]
        return pa.Array.from_buffers(pa.binary(), len(at), buffers)


def unzigzag(values: npt.NDArray[np.uint64]) -> Longs:
    """Decode integers in zigzag encoding, which has the sign in the last bit."""
    return ((values >> _U(1)) ^ (_U(0) - (values & _U(1)))).view(np.int64)
