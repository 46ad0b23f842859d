"""Results that are JSON."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from decimal import Decimal

from windrow.model import DataType, DecimalType, TimestampType
from windrow.testing.oracle.answer import Value

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def list_text(values: Sequence[Value], type_: DataType) -> str:
    """Return a JSON array of values."""
    return f"[{','.join(_text(value, type_) for value in values)}]"


def counted_text(values: Sequence[tuple[Value, int]], type_: DataType) -> str:
    """Return a JSON array of values with their counts."""
    return f"[{','.join(f'[{_text(value, type_)},{count}]' for value, count in values)}]"


def _text(value: Value, type_: DataType) -> str:
    """Return a value as JSON holds it whole: decimals as text, times in ISO 8601."""
    if isinstance(type_, TimestampType) and isinstance(value, int):
        moment = EPOCH + dt.timedelta(microseconds=value)
        return json.dumps(f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z")
    if isinstance(type_, DecimalType) and isinstance(value, Decimal):
        return json.dumps(f"{value:.{type_.scale}f}")
    return json.dumps(value, ensure_ascii=False)
