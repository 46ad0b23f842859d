"""Tables of what the exact decoder found, one Python value at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import schema
from windrow.core.decode.exact import Bad, ExactDecoder, Good, PureMark
from windrow.model import DataType, TimestampType

Rows = npt.NDArray[np.int64]
"""Positions in the raw table."""


@dataclass(frozen=True)
class Found:
    """What became of some raw records: for each kind of outcome its rows (positions in the raw table) and columns.

    `times` and `marks` are microseconds; `columns` holds the declared fields, in order, of the good rows.
    """

    good_rows: Rows
    times: pa.Array
    columns: list[pa.Array]
    mark_rows: Rows
    marks: pa.Array
    dead_rows: Rows
    log_times: pa.Array
    reasons: pa.Array


def decode_exactly(decoder: ExactDecoder, raw: pa.Table, rows: Rows) -> Found:
    """Decode the given rows of a table in `schema.RAW` one by one."""
    values = raw.column("value").take(pa.array(rows)).to_pylist()
    log_times = raw.column("log_time").take(pa.array(rows)).cast(pa.int64()).to_pylist()
    good: list[tuple[int, Good]] = []
    marks: list[tuple[int, int]] = []
    dead: list[tuple[int, Bad]] = []
    for row, value, log_time in zip(rows.tolist(), values, log_times, strict=True):
        outcome = decoder.decode(value, log_time)
        match outcome:
            case Good(_, _, mark):
                good.append((row, outcome))
                if mark is not None:
                    marks.append((row, mark))
            case PureMark(mark):
                marks.append((row, mark))
            case Bad():
                dead.append((row, outcome))
            case _:
                assert_never(outcome)
    return Found(
        good_rows=_rows([row for row, _ in good]),
        times=pa.array([record.time for _, record in good], pa.int64()),
        columns=[
            _column([record.values[i] for _, record in good], field.type) for i, field in enumerate(decoder.fields)
        ],
        mark_rows=_rows([row for row, _ in marks]),
        marks=pa.array([mark for _, mark in marks], pa.int64()),
        dead_rows=_rows([row for row, _ in dead]),
        log_times=pa.array([bad.log_time for _, bad in dead], pa.int64()).cast(schema.MICROS),
        reasons=pa.array([bad.reason for _, bad in dead], pa.string()),
    )


def _rows(rows: Sequence[int]) -> Rows:
    return np.array(rows, dtype=np.int64)


def _column(values: Sequence[object], type_: DataType) -> pa.Array:
    if isinstance(type_, TimestampType):
        return pc.cast(pa.array(values, pa.int64()), schema.MICROS)
    return pa.array(values, schema.arrow_type(type_))
