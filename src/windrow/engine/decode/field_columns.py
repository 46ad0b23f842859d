"""Columns of fields as a fast reader makes them, with masks of the values that are surely right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import schema
from windrow.engine.decode.cursors import Longs, Rows
from windrow.engine.decode.values import MAX_TIMESTAMP, MICROS_PER_UNIT, MIN_TIMESTAMP

Mask = npt.NDArray[np.bool_]
Path = tuple[str, ...]
Wanted: TypeAlias = "Mapping[str, Wanted] | m.DataType"
"""What to read at one name of a record: a value of a type, or for a nested record the same of its names."""
_LONG_DIGITS: Final = 18
"""Decimals of so many digits fit 64 bits."""


@dataclass(frozen=True)
class FieldColumn:
    """A field as read: its values, and a mask of those that are surely right."""

    values: pa.Array
    trusted: Mask


Read: TypeAlias = "dict[Path, FieldColumn]"
"""Columns by their paths, of as many values as there were rows; that of a single value has the path ()."""


@dataclass(frozen=True)
class ReadColumns:
    """The columns of some rows by their paths, and a mask of the rows whose bytes are a record, and no more."""

    rows: Rows
    columns: Mapping[Path, FieldColumn]
    is_record: Mask


def wanted_tree(types: Mapping[Path, m.DataType]) -> dict[str, Any]:
    """Return the types of fields by their paths, none of which leads through another."""
    found: dict[str, Any] = {}
    for path, type_ in types.items():
        inner = found
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = type_
    return found


def leaves(wanted: Mapping[str, Wanted]) -> list[tuple[Path, m.DataType]]:
    """Return the paths and types of what is read within a record."""
    return [
        ((name, *path), type_)
        for name, part in wanted.items()
        for path, type_ in (leaves(part) if isinstance(part, Mapping) else [((), part)])
    ]


def nothing_trusted(type_: m.DataType, count: int) -> FieldColumn:
    """Return so many values that the exact decoder must read."""
    return FieldColumn(pa.nulls(count, schema.arrow_type(type_)), np.zeros(count, dtype=np.bool_))


def nothing_there(type_: m.DataType, count: int) -> FieldColumn:
    """Return the column of a field that so many records do not have."""
    return FieldColumn(pa.nulls(count, schema.arrow_type(type_)), np.ones(count, dtype=np.bool_))


def number_column(wanted: Wanted, values: Longs, nanos: int | None) -> FieldColumn | None:
    """Return whole numbers as values of a type; those of times have units of so many nanoseconds."""
    match wanted:
        case m.LongType():
            return FieldColumn(pa.array(values), np.ones(len(values), dtype=np.bool_))
        case m.DoubleType():
            return FieldColumn(pa.array(values.astype(np.float64)), np.ones(len(values), dtype=np.bool_))
        case m.DecimalType():
            return decimals_column(wanted, values, 0)
        case m.TimestampType(unit) if nanos is not None or unit != "iso":
            factor = MICROS_PER_UNIT[unit] if nanos is None else nanos // 1000
            return times_column(pa.array(values), factor) if factor else None
        case _:
            return None


def doubles_column(doubles: npt.NDArray[np.floating[Any]]) -> FieldColumn:
    """Return floats as doubles; one that is not finite is not trusted, and there is one zero, not two."""
    is_finite = np.isfinite(doubles)
    return FieldColumn(pa.array(np.where(is_finite, doubles, 0).astype(np.float64) + 0.0), is_finite)


def decimals_column(type_: m.DecimalType, unscaled: Longs, scale: int) -> FieldColumn:
    """Return decimals with some scale as those of a type; one whose digits do not fit is not trusted."""
    more = type_.scale - scale
    if abs(more) > _LONG_DIGITS:
        return nothing_trusted(type_, len(unscaled))
    most = 10 ** max(min(type_.precision, _LONG_DIGITS) - max(more, 0), 0)
    if more >= 0:
        trusted = (unscaled < most) & (unscaled > -most)
        words = np.where(trusted, unscaled, 0) * 10**more
    else:
        words, rest = np.divmod(unscaled, 10**-more)
        trusted = (rest == 0) & (words < most) & (words > -most)
        words = np.where(trusted, words, 0)
    halves = np.empty((len(words), 2), dtype=np.int64)  # 128 bits, the lower half first
    halves[:, 0] = words
    halves[:, 1] = words >> 63
    values = pa.Array.from_buffers(schema.arrow_type(type_), len(words), [None, pa.py_buffer(halves)])
    return FieldColumn(values, trusted)


def times_column(values: pa.Array, factor: int) -> FieldColumn:
    """Return whole units of `factor` microseconds as times."""
    units = values.fill_null(0).to_numpy()
    in_range = (units >= -(-MIN_TIMESTAMP // factor)) & (units <= MAX_TIMESTAMP // factor)
    trusted = valid_mask(values) & in_range
    micros = np.where(in_range, units, 0) * factor
    return FieldColumn(pa.array(micros).cast(schema.MICROS), trusted)


def valid_mask(values: pa.Array) -> Mask:
    """Return the mask of the values that are not null."""
    return to_mask(values.is_valid()) if values.null_count else np.ones(len(values), dtype=bool)


def to_mask(array: pa.Array) -> Mask:
    """Return an Arrow array of booleans without nulls as a mask."""
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask


def holds_mask(array: pa.Array) -> Mask:
    """Return the mask of the values that are true; false in the place of nulls."""
    return to_mask(pc.fill_null(array, fill_value=False))


def valid_text(values: pa.Array) -> pa.Array:
    """Return binary values as strings; those that are not UTF-8 become null."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        invalid = np.zeros(len(values), dtype=bool)
        _mark_invalid(values, 0, invalid)
        return pc.if_else(pa.array(invalid), pa.scalar(None, pa.binary()), values).cast(pa.string())


def _mark_invalid(values: pa.Array, start: int, invalid: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    """Search the values that are not UTF-8 by halving: Arrow says that there are some, but not which."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        if len(values) == 1:
            invalid[start] = True
            return
        half = len(values) // 2
        _mark_invalid(values.slice(0, half), start, invalid)
        _mark_invalid(values.slice(half), start + half, invalid)
