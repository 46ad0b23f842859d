"""Rows as JSON objects. Decimals are text and times ISO 8601, so nothing is rounded.

Times always have six fractional digits, so that they sort as text.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from windrow.connectors.tables import decimal_text


def json_objects(batch: pa.RecordBatch, infinite: Literal["null", "text"] = "null") -> pa.Array:
    """Return each row as a JSON object, as `json.dumps` writes it without spaces and with unescaped letters.

    JSON has no infinities and no NaN. They become `null` or, with ``infinite="text"``, the texts ``inf``, ``-inf`` and
    ``nan``.
    """
    if not batch.num_columns:
        return pa.array(["{}"] * batch.num_rows, pa.string())
    parts: list[pa.Array | str] = []
    for number, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        parts += [f"{',' if number else '{'}{json.dumps(name, ensure_ascii=False)}:", _json_values(column, infinite)]
    return pc.binary_join_element_wise(*parts, "}", "")


_ESCAPED = r'["\\\x00-\x1f]'


def _json_values(values: pa.Array, infinite: str) -> pa.Array:
    type_ = values.type
    if pa.types.is_timestamp(type_):
        # a step has few different times
        encoded = values.cast(pa.timestamp("us")).dictionary_encode()
        texts = pc.replace_substring(encoded.dictionary.cast(pa.string()), " ", "T")
        found = pc.binary_join_element_wise('"', texts, 'Z"', "").take(encoded.indices)
    elif pa.types.is_decimal(type_):
        found = pc.binary_join_element_wise('"', decimal_text(values), '"', "")
    elif pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        found = values.cast(pa.string())
    elif pa.types.is_list(type_):
        ends = pc.cumulative_sum(pc.list_value_length(values).fill_null(0))
        begins = pa.concat_arrays([pa.array([0], ends.type), ends])
        elements = pa.ListArray.from_arrays(begins, _json_values(values.flatten(), infinite))
        joined = pc.binary_join_element_wise("[", pc.binary_join(elements, ","), "]", "")
        found = pc.if_else(values.is_valid(), joined, None)
    elif pa.types.is_string(type_) and not pc.any(pc.match_substring_regex(values, _ESCAPED)).as_py():
        found = pc.binary_join_element_wise('"', values, '"', "")
    else:
        found = pa.array(
            [None if value is None else _json(value, infinite) for value in values.to_pylist()], pa.string()
        )
    return found.fill_null("null")


def _json(value: object, infinite: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "null" if infinite == "null" else f'"{value}"'
    return json.dumps(value, default=plain_text, ensure_ascii=False, separators=(",", ":"))


def plain_text(value: object) -> str:
    """Return the text that represents a value for which JSON has no type."""
    match value:
        case Decimal():
            return format(value, "f")
        case datetime():
            utc = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return f"{utc.isoformat(timespec='microseconds')}Z"
        case _:
            return str(value)
