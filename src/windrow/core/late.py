"""The late output: expired records, with how late they were and why."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from windrow.core import schema
from windrow.core.duck import identifier, literal, query
from windrow.core.records import END, OFFSET, PARTITION, TIME, WATERMARK, WINDOW
from windrow.model import AnyPipeline, DecimalType, Field, TimestampType


def late_rows(connection: duckdb.DuckDBPyConnection, pipeline: AnyPipeline, expired: pa.Table) -> pa.Table:
    """Return the rows of the late output for expired records with their windows and watermark, in log order."""
    if expired.num_rows == 0:
        return schema.LATE.empty_table()
    record = ", ".join(f"{literal(field.name)}: {_json(field)}" for field in pipeline.decode.fields)
    sql = f"""
        SELECT {literal(pipeline.source.label)} AS source, {PARTITION} AS "partition", {OFFSET} AS "offset",
            {TIME} AS event_time, {WINDOW} AS window_start, {END} AS window_end,
            ({WATERMARK} - {END}) // 1000 AS lateness_ms, 'expired' AS reason, to_json({{{record}}}) AS record
        FROM expired ORDER BY {PARTITION}, {OFFSET}, {WINDOW}
    """
    return query(connection, sql, expired=expired).cast(schema.LATE)


def _json(field: Field) -> str:
    """Return the SQL of a value that JSON holds whole: decimals as text, times in ISO 8601."""
    name = identifier(field.name)
    match field.type:
        case DecimalType():
            return f"{name}::VARCHAR"
        case TimestampType():
            return f"strftime({name} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')"
        case _:
            return name
