"""Debezium's envelope: the change of a database row, as a JSON object.

    {"before": {...}, "after": {...}, "source": {"ts_ms": ..., "lsn": ...}, "op": "u", "ts_ms": ..., "transaction": ...}

The operation `op` is c (created), u (updated), r (read by a snapshot), d (deleted) or t (all rows of the table were
removed by TRUNCATE); other operations change no row. The converter may wrap the envelope in an object with a schema:
``{"schema": {...}, "payload": {...}}``. The columns of a row are in `after`. Those of a deleted row are in `before`;
with PostgreSQL, it has only the key unless the table uses REPLICA IDENTITY FULL, and the other columns are null or have
placeholder values.

An update may change the key of a row in a table. In that case the row in `before` is deleted, at the place and event
time of the record, and the row in `after` is inserted. If there is no `before`, the key counts as unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from windrow import model as m
from windrow.engine.decode.values import BadValueError, NumberText, Value, convert, value_at

BEFORE, AFTER, SOURCE, PAYLOAD, OPERATION = "before", "after", "source", "payload", "op"
DELETE: Final = "d"
UPDATE: Final = "u"
TRUNCATE: Final = "t"
EACH_PARTITION: Final = "each_partition"
"""The member of a truncation that windrow writes: true, as each partition of the log or topic has the record."""
ROW_OPERATIONS: Final = ("c", UPDATE, "r", DELETE)
TIME_OF_CHANGE: Final = (SOURCE, "ts_ms")
"""Path of the time of the change in the database, in milliseconds."""
TIME_OF_CHANGE_TYPE: Final = m.TimestampType("millis")
UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Debezium's placeholder for an unchanged value that PostgreSQL stores outside the row (TOAST) and does not log."""
_IN_NO_BYTES: Final = re.compile(r"\.|E-")
"""Occurs in every number with a scale as Java writes it: a decimal point or a negative exponent (``0E-8``)."""
_NO_NUMBERS: Final = frozenset({"NaN", "Infinity", "-Infinity"})
"""Values of PostgreSQL's numeric that no decimal can hold."""
_NO_ROW: Final = {
    "t": "a truncation, which names no rows: those of the table stay until their keys are deleted",
    "m": "a logical message",
}


def envelope_of(record: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the envelope in a record without the schema around it, or None if the payload is null."""
    if OPERATION in record or PAYLOAD not in record:
        return record
    payload = record[PAYLOAD]
    return None if payload is None else _object(PAYLOAD, payload)


def operation(envelope: Mapping[str, object], *, with_truncations: bool = False) -> str:
    """Return the operation on the row; raise BadValueError if it is missing or does not change a row.

    A truncation is returned only if `with_truncations` is set, or if each partition has the truncation.
    """
    found = envelope.get(OPERATION)
    if found is None:
        msg = f"{'null' if OPERATION in envelope else 'missing'}: {OPERATION} (of Debezium's envelope)"
        raise BadValueError(msg)
    name = "" if not isinstance(found, str) or isinstance(found, NumberText) else found
    is_truncation = name == TRUNCATE and (with_truncations or envelope.get(EACH_PARTITION) is True)
    if name not in ROW_OPERATIONS and not is_truncation:
        msg = f"no change of a row: {OPERATION} is {_NO_ROW.get(name, 'unknown: c, u, r or d was expected')}"
        raise BadValueError(msg)
    return name


def require_row(envelope: Mapping[str, object], side: str) -> None:
    """Raise BadValueError unless the envelope has a row on this side, which is `before` or `after`."""
    if envelope.get(side) is None:
        msg = f"{'null' if side in envelope else 'missing'}: {side} (of Debezium's envelope)"
        raise BadValueError(msg)
    _object(side, envelope[side])


def time_of_change(field: m.Field, envelope: Mapping[str, object]) -> Value:
    """Return the time of a change in microseconds, which is the event time of a row's deletion and of a truncation.

    The time in the row's own columns is older.
    """
    value, path = value_at(envelope, TIME_OF_CHANGE), ".".join(TIME_OF_CHANGE)
    if value is None:
        what = "truncation" if envelope.get(OPERATION) == TRUNCATE else "deleted row"
        msg = f"missing: {path} ({field.name} of a {what})"
        raise BadValueError(msg)
    return convert(path, TIME_OF_CHANGE_TYPE, value)


def require_known(field: m.Field, value: object) -> None:
    """Raise BadValueError for a text that the database did not log, or for a decimal that is encoded as bytes.

    Bytes are in base64, which can look like a whole number but contains neither a point nor a negative exponent.
    """
    if isinstance(value, NumberText):
        return
    if value == UNAVAILABLE or (isinstance(value, list) and UNAVAILABLE in value):
        msg = f"unavailable: {field.name}: unchanged and not in the log (TOAST); set REPLICA IDENTITY FULL"
        raise BadValueError(msg)
    if isinstance(value, str) and has_point(field.type) and not (_IN_NO_BYTES.search(value) or value in _NO_NUMBERS):
        msg = f"wrong type: {field.name}: bytes of a decimal; set decimal.handling.mode to string or double"
        raise BadValueError(msg)


def has_point(type_: m.DataType) -> bool:
    """Return True if Debezium writes numbers of this type with a decimal point or a negative exponent."""
    return isinstance(type_, m.DecimalType) and type_.scale > 0


def columns_of_key(key: object) -> Mapping[str, object]:
    """Return the columns in a record's key; raise BadValueError if the key is not an object."""
    columns = _object("the key", key)
    return _object("the key", columns[PAYLOAD]) if columns.keys() == {"schema", PAYLOAD} else columns


def _object(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        msg = f"wrong type: {name} is not an object"
        raise BadValueError(msg)
    return value
