"""Values in options, typed as the columns that they are compared with."""

from __future__ import annotations

import pyarrow as pa

from windrow.errors import InputError
from windrow.sinks.database import Value, read_value

_KINDS = (
    (pa.types.is_string, "text in UTF-8"),
    (pa.types.is_boolean, "true or false"),
    (pa.types.is_integer, "a whole number of {0.bit_width} bits"),
    (pa.types.is_floating, "a number"),
    (pa.types.is_decimal, "a decimal({0.precision},{0.scale})"),
    (pa.types.is_timestamp, "a time, such as 2026-01-31 or 2026-01-31T10:05 (UTC)"),
)


def typed_value(field: pa.Field, text: str, option: str) -> Value:
    """Read the value in ``COLUMN=VALUE``, which an option has, by the column's type; raise InputError if it is none."""
    value = read_value(field, text)
    if value is None:
        kind = next((kind.format(field.type) for is_kind, kind in _KINDS if is_kind(field.type)), None)
        needs = "holds bytes, which are not compared" if kind is None else f"is {kind}"
        msg = f"{option} {f'{field.name}={text}'!r}: column {field.name!r} {needs}"
        raise InputError(msg)
    return value
