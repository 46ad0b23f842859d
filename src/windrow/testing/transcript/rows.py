"""Reads expected rows from a story's file, and formats a host's rows as they are written in a story."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TypeVar

from windrow import model as m
from windrow.declare.yaml_node import YamlNode
from windrow.testing.transcript.records import partition_number
from windrow.testing.transcript.story import ChangeRow, DeadRow, LateRow, Tabled, TableRow, Value
from windrow.testing.transcript.times import format_time, read_window_bounds, window_text
from windrow.testing.transcript.values import ALERT, each, key_types, read_result, read_value, result_types

T = TypeVar("T")

OPS = ("insert", "update_before", "update_after", "delete")
PANES = ("early", "on_time", "late")


def read_rows(node: YamlNode, pipeline: Tabled, read: Callable[[YamlNode, Tabled], T]) -> tuple[T, ...]:
    """Read a list of rows with `read`; raise a PipelineError that lists all problems."""
    return each(node.items(), lambda item: read(item, pipeline))


def read_change(node: YamlNode, pipeline: Tabled) -> ChangeRow:
    """Read ``[op, pane, window, key..., values...]``, or ``[op, pane, time, key..., subject, rule, text]``."""
    op, pane, window, *rest = _cells(node, ["op", "pane", *_columns(pipeline)])
    key, values = _key_and_values(rest, pipeline)
    return ChangeRow(op.choice(OPS), pane.choice(PANES), read_window_bounds(window, pipeline), key, values)


def read_table_row(node: YamlNode, pipeline: Tabled) -> TableRow:
    """Read ``[window, key..., values...]``, or ``[time, key..., subject, rule, text]``."""
    window, *rest = _cells(node, _columns(pipeline))
    key, values = _key_and_values(rest, pipeline)
    return TableRow(read_window_bounds(window, pipeline), key, values)


def read_late(node: YamlNode, pipeline: Tabled) -> LateRow:
    """Read ``[partition, offset, window]``."""
    partition, offset, window = _cells(node, ["partition", "offset", "window"])
    return LateRow(_partition(partition), _offset(offset), read_window_bounds(window, pipeline))


def read_missed(node: YamlNode, pipeline: Tabled) -> LateRow:
    """Read ``[partition, offset, window]``, or ``[partition, offset]`` if no stream has a window for the record."""
    columns = ["partition", "offset"]
    if len(node.items()) != len(columns):
        return read_late(node, pipeline)
    partition, offset = _cells(node, columns)
    return LateRow(_partition(partition), _offset(offset), None)


def read_dead(node: YamlNode, _: Tabled) -> DeadRow:
    """Read ``[partition, offset, reason]``, where `reason` is the beginning of the reason.

    Partition and offset are null if the dead letter is a row without a record.
    """
    partition, offset, reason = _cells(node, ["partition", "offset", "reason"])
    if partition.is_null and offset.is_null:
        return DeadRow(None, None, reason.text())
    return DeadRow(_partition(partition), _offset(offset), reason.text())


def _partition(node: YamlNode) -> int | str:
    """Read the number of a partition, or ``SOURCE/NUMBER``."""
    source, slash, number = node.text().rpartition("/")
    return f"{source}/{partition_number(number, node)}" if slash else partition_number(number, node)


def _columns(pipeline: Tabled) -> list[str]:
    if isinstance(pipeline.node, m.RulesNode):
        return ["time", *pipeline.key, *ALERT, "text"]
    return ["window", *pipeline.key, *(aggregate.name for aggregate in pipeline.node.aggregates)]


def _cells(node: YamlNode, columns: list[str]) -> list[YamlNode]:
    cells = node.items()
    if len(cells) != len(columns):
        msg = f"{node.called} must be [{', '.join(columns)}], and has {len(cells)} values instead of {len(columns)}"
        raise node.error(msg)
    return [YamlNode(cell.node, cell.file, f"{node.called}.{name}") for cell, name in zip(cells, columns, strict=True)]


def _key_and_values(cells: list[YamlNode], pipeline: Tabled) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    types = key_types(pipeline)
    parts = len(types)
    return (
        tuple(read_value(cell, type_) for cell, type_ in zip(cells[:parts], types, strict=True)),
        tuple(read_result(cell, type_) for cell, type_ in zip(cells[parts:], result_types(pipeline), strict=True)),
    )


def _offset(node: YamlNode) -> int:
    number = node.number()
    if number < 0:
        msg = f"{node.called} must be an offset (0, 1, 2 ...), not {number}"
        raise node.error(msg)
    return number


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def change_text(pipeline: Tabled, row: ChangeRow) -> str:
    """Format an entry of the changelog."""
    return _flow([row.op, row.pane, window_text(pipeline, row.window), *_cell_texts(pipeline, row)])


def table_text(pipeline: Tabled, row: TableRow) -> str:
    """Format a row of the table."""
    return _flow([window_text(pipeline, row.window), *_cell_texts(pipeline, row)])


def late_text(pipeline: Tabled, row: LateRow) -> str:
    """Format an expired record."""
    window = [] if row.window is None else [window_text(pipeline, row.window)]
    return _flow([str(row.partition), str(row.offset), *window])


def dead_text(row: DeadRow) -> str:
    """Format a dead letter."""
    place = ["null" if number is None else str(number) for number in (row.partition, row.offset)]
    return _flow([*place, json.dumps(row.reason)])


def _flow(cells: Iterable[str]) -> str:
    return f"[{', '.join(cells)}]"


def _cell_texts(pipeline: Tabled, row: ChangeRow | TableRow) -> list[str]:
    """Format key and values, with times written as in stories."""
    types = [*key_types(pipeline), *result_types(pipeline)]
    return [
        f'"{format_time(value)}"' if isinstance(type_, m.TimestampType) and isinstance(value, int) else _value(value)
        for type_, value in zip(types, [*row.key, *row.values], strict=True)
    ]


def _value(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT else json.dumps(value)
        case Decimal() | float():
            # 7 and 7.00 are the same number; a double is written in the shortest form that reads back as it
            text = f"{Decimal(repr(value)) if isinstance(value, float) else value:f}"
            return text.rstrip("0").rstrip(".") if "." in text else text
        case None:
            return "null"
        case _:
            return repr(value)
