"""The exact path over a batch: every row by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import numpy as np
import pyarrow as pa

from windrow.core import schema
from windrow.core.decode.exact import Bad, ExactDecoder, Good, PureMark
from windrow.core.decode.rows import DeadRows, GoodRows, MarkRows, Rows
from windrow.model import DataType, TimestampType


def decode_exactly(decoder: ExactDecoder, raw: pa.RecordBatch, rows: Rows) -> tuple[GoodRows, MarkRows, DeadRows]:
    """Decode the given rows of a batch in `schema.RAW`; the marks are the pure ones."""
    values = raw.column("value").take(pa.array(rows)).to_pylist()
    log_times = raw.column("log_time").take(pa.array(rows)).cast(pa.int64()).to_pylist()
    good: list[tuple[int, Good]] = []
    marks: list[tuple[int, PureMark]] = []
    dead: list[tuple[int, Bad]] = []
    for row, value, log_time in zip(rows.tolist(), values, log_times, strict=True):
        outcome = decoder.decode(value, log_time)
        match outcome:
            case Good():
                good.append((row, outcome))
            case PureMark():
                marks.append((row, outcome))
            case Bad():
                dead.append((row, outcome))
            case _:
                assert_never(outcome)
    return (
        GoodRows(
            rows=_rows([row for row, _ in good]),
            times=pa.array([record.time for _, record in good], pa.int64()),
            columns=[
                _column([record.values[i] for _, record in good], field.type) for i, field in enumerate(decoder.fields)
            ],
            marks=pa.array([record.mark for _, record in good], pa.int64()),
        ),
        MarkRows(_rows([row for row, _ in marks]), pa.array([pure.mark for _, pure in marks], pa.int64())),
        DeadRows(
            rows=_rows([row for row, _ in dead]),
            log_times=pa.array([bad.log_time for _, bad in dead], pa.int64()).cast(schema.MICROS),
            reasons=pa.array([bad.reason for _, bad in dead], pa.string()),
        ),
    )


def _rows(rows: Sequence[int]) -> Rows:
    return np.array(rows, dtype=np.int64)


def _column(values: Sequence[object], type_: DataType) -> pa.Array:
    if isinstance(type_, TimestampType):
        return pa.array(values, pa.int64()).cast(schema.MICROS)
    return pa.array(values, schema.arrow_type(type_))
