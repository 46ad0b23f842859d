"""Rows as a story writes them, so that what a host gave can be read, compared and pasted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from decimal import Decimal

from windrow.model import Pipeline, TimestampType
from windrow.testing.transcript.story import ChangeRow, DeadRow, LateRow, TableRow, Value
from windrow.testing.transcript.times import format_time

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def change_text(pipeline: Pipeline, row: ChangeRow) -> str:
    """Write an entry of the changelog."""
    return _flow([row.op, row.pane, _window(row.window), *_keys(pipeline, row.key), *map(_value, row.values)])


def table_text(pipeline: Pipeline, row: TableRow) -> str:
    """Write a row of the table."""
    return _flow([_window(row.window), *_keys(pipeline, row.key), *map(_value, row.values)])


def late_text(row: LateRow) -> str:
    """Write an expired record."""
    return _flow([str(row.partition), str(row.offset), _window(row.window)])


def dead_text(row: DeadRow) -> str:
    """Write a dead letter."""
    return _flow([str(row.partition), str(row.offset), json.dumps(row.reason)])


def _flow(cells: Iterable[str]) -> str:
    return f"[{', '.join(cells)}]"


def _window(window: tuple[int, int]) -> str:
    return f'"{format_time(window[0])}"'


def _keys(pipeline: Pipeline, key: tuple[Value, ...]) -> list[str]:
    types = [pipeline.decode.field(name).type for name in pipeline.key]
    return [
        f'"{format_time(value)}"' if isinstance(type_, TimestampType) and isinstance(value, int) else _value(value)
        for type_, value in zip(types, key, strict=True)
    ]


def _value(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT else json.dumps(value)
        case Decimal():
            # 7 and 7.00 are the same number
            text = f"{value:f}"
            return text.rstrip("0").rstrip(".") if "." in text else text
        case _:
            return repr(value)
