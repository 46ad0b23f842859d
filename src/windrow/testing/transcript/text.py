"""Rows as a story writes them, so that what a host gave can be read, compared and pasted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from decimal import Decimal

from windrow.model import Pipeline, TimestampType
from windrow.testing.transcript.story import ChangeRow, DeadRow, LateRow, TableRow, Value
from windrow.testing.transcript.times import format_time
from windrow.testing.transcript.types import key_types, result_types
from windrow.testing.transcript.windows import window_text

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def change_text(pipeline: Pipeline, row: ChangeRow) -> str:
    """Write an entry of the changelog."""
    return _flow([row.op, row.pane, window_text(pipeline, row.window), *_cells(pipeline, row)])


def table_text(pipeline: Pipeline, row: TableRow) -> str:
    """Write a row of the table."""
    return _flow([window_text(pipeline, row.window), *_cells(pipeline, row)])


def late_text(pipeline: Pipeline, row: LateRow) -> str:
    """Write an expired record."""
    return _flow([str(row.partition), str(row.offset), window_text(pipeline, row.window)])


def dead_text(row: DeadRow) -> str:
    """Write a dead letter."""
    return _flow([str(row.partition), str(row.offset), json.dumps(row.reason)])


def _flow(cells: Iterable[str]) -> str:
    return f"[{', '.join(cells)}]"


def _cells(pipeline: Pipeline, row: ChangeRow | TableRow) -> list[str]:
    """Write key and values, times as such."""
    types = [*key_types(pipeline), *result_types(pipeline)]
    return [
        f'"{format_time(value)}"' if isinstance(type_, TimestampType) and isinstance(value, int) else _value(value)
        for type_, value in zip(types, [*row.key, *row.values], strict=True)
    ]


def _value(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT else json.dumps(value)
        case Decimal() | float():
            # 7 and 7.00 are the same number; of a double it is the shortest that reads back as it
            text = f"{Decimal(repr(value)) if isinstance(value, float) else value:f}"
            return text.rstrip("0").rstrip(".") if "." in text else text
        case None:
            return "null"
        case _:
            return repr(value)
