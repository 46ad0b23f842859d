"""Columns of fields from texts: a number, a time or a text as the exact decoder reads it, where that is plain."""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.decode.field_columns import FieldColumn, holds_mask, nothing_trusted, times_column, valid_mask
from windrow.engine.decode.values import MICROS_PER_UNIT

_ISO = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|\+00:00)?$"
_WHOLE = "^-?(?:0|[1-9][0-9]{0,17})$"
_NUMBER = r"^-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?$"


def iso_micros(duck: duckdb_sql.Connection, texts: pa.Array) -> pa.Array:
    """Return dates and times as microseconds; null where a text is not in the most usual form."""
    sql = "SELECT epoch_us(TRY_CAST(text AS TIMESTAMP)) AS micros FROM texts"
    return duckdb_sql.query(duck, sql, texts=pa.table({"text": _like(texts, _ISO)})).column("micros").combine_chunks()


class TextColumns:
    """Converts texts; one that is no text is null, and not trusted."""

    def __init__(self) -> None:
        self._duck = duckdb_sql.Connection()

    def convert(self, type_: m.DataType, texts: pa.Array) -> FieldColumn:
        """Return texts as values of a type; booleans and arrays have no text."""
        match type_:
            case m.StringType():
                return FieldColumn(texts, valid_mask(texts) & ~holds_mask(pc.match_substring(texts, "\0")))
            case m.LongType():
                values = _like(texts, _WHOLE).cast(pa.int64())
            case m.TimestampType(unit="iso"):
                return times_column(iso_micros(self._duck, texts), 1)
            case m.TimestampType(unit):
                return times_column(_like(texts, _WHOLE).cast(pa.int64()), MICROS_PER_UNIT[unit])
            case m.DoubleType():
                # there is one zero, not two
                values = pc.add(_like(texts, _NUMBER).cast(pa.float64()), 0.0)
            case m.DecimalType(precision, scale):
                before = f"0|[1-9][0-9]{{0,{precision - scale - 1}}}" if precision > scale else "0"
                behind = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
                values = _like(texts, f"^-?(?:{before}){behind}$").cast(schema.arrow_type(type_))
            case m.BooleanType() | m.ArrayType():
                return nothing_trusted(type_, len(texts))
            case _:
                assert_never(type_)
        return FieldColumn(values, valid_mask(values))


def _like(texts: pa.Array, pattern: str) -> pa.Array:
    """Return the texts that match a pattern, and null for the others."""
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, pa.string()))
