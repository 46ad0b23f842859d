"""The event times of a partition's records, packed small: every key group gets all of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from windrow.core.micros import Micros, to_micros
from windrow.core.packing import pack, unpack

_UNITS = (1_000_000, 1_000, 1)
"""Those in which times are mostly written: seconds, milliseconds, microseconds."""
_WIDTHS = ((pa.uint8(), 1 << 8), (pa.uint16(), 1 << 16), (pa.uint32(), 1 << 32))


def pack_times(offsets: Micros, times: Micros) -> bytes:
    """Write some records' offsets, which ascend, and event times.

    A time is a multiple of a unit above the least one, an offset the gap to the one before; both are as narrow as they
    can be, and without gaps there is nothing of them.
    """
    least = int(times.min())
    above = times - least
    unit = next(unit for unit in _UNITS if not (above % unit).any())
    gaps = np.diff(offsets, prepend=offsets[0] - 1) - 1
    gap = _narrow(gaps) if gaps.any() else pa.nulls(len(gaps))
    metadata = {"first": str(offsets[0]), "least": str(least), "unit": str(unit)}
    return pack(pa.table({"gap": gap, "time": _narrow(above // unit)}).replace_schema_metadata(metadata))


def unpack_times(blob: bytes) -> tuple[Micros, Micros]:
    """Read the offsets and times that `pack_times` wrote."""
    table = unpack(blob)
    first, least, unit = (int(table.schema.metadata[name]) for name in (b"first", b"least", b"unit"))
    gap = table.column("gap")
    gaps = np.zeros(len(gap), dtype=np.int64) if pa.types.is_null(gap.type) else to_micros(gap)
    return first - 1 + np.cumsum(gaps + 1), least + to_micros(table.column("time")) * unit


def _narrow(values: Micros) -> pa.Array:
    most = int(values.max())
    width = next((width for width, above in _WIDTHS if most < above), pa.int64())
    return pa.array(values).cast(width)
