"""The rows that a story expects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from windrow.api.yaml.node import YamlNode
from windrow.model import Pipeline
from windrow.testing.transcript.cells import read_result, read_value
from windrow.testing.transcript.each import each
from windrow.testing.transcript.records import partition_number
from windrow.testing.transcript.story import ChangeRow, DeadRow, LateRow, TableRow, Value
from windrow.testing.transcript.types import key_types, result_types
from windrow.testing.transcript.windows import read_window

T = TypeVar("T")

OPS = ("insert", "update_before", "update_after", "delete")
PANES = ("early", "on_time", "late")


def read_rows(spot: YamlNode, pipeline: Pipeline, read: Callable[[YamlNode, Pipeline], T]) -> tuple[T, ...]:
    """Read a list of rows; raise PipelineError for all that are wrong."""
    return each(spot.items(), lambda item: read(item, pipeline))


def read_change(spot: YamlNode, pipeline: Pipeline) -> ChangeRow:
    """Read ``[op, pane, window, key..., values...]``."""
    op, pane, window, *rest = _cells(spot, ["op", "pane", "window", *_columns(pipeline)])
    key, values = _key_and_values(rest, pipeline)
    return ChangeRow(op.choice(OPS), pane.choice(PANES), read_window(window, pipeline), key, values)


def read_table_row(spot: YamlNode, pipeline: Pipeline) -> TableRow:
    """Read ``[window, key..., values...]``."""
    window, *rest = _cells(spot, ["window", *_columns(pipeline)])
    key, values = _key_and_values(rest, pipeline)
    return TableRow(read_window(window, pipeline), key, values)


def read_late(spot: YamlNode, pipeline: Pipeline) -> LateRow:
    """Read ``[partition, offset, window]``."""
    partition, offset, window = _cells(spot, ["partition", "offset", "window"])
    return LateRow(partition_number(partition.text(), partition), _offset(offset), read_window(window, pipeline))


def read_dead(spot: YamlNode, _: Pipeline) -> DeadRow:
    """Read ``[partition, offset, reason]``, where the reason may be cut short."""
    partition, offset, reason = _cells(spot, ["partition", "offset", "reason"])
    return DeadRow(partition_number(partition.text(), partition), _offset(offset), reason.text())


def _columns(pipeline: Pipeline) -> list[str]:
    return [*pipeline.key, *(aggregate.name for aggregate in pipeline.aggregates)]


def _cells(spot: YamlNode, columns: list[str]) -> list[YamlNode]:
    cells = spot.items()
    if len(cells) != len(columns):
        msg = f"{spot.called} must be [{', '.join(columns)}], and has {len(cells)} values instead of {len(columns)}"
        raise spot.error(msg)
    return [YamlNode(cell.node, cell.file, f"{spot.called}.{name}") for cell, name in zip(cells, columns, strict=True)]


def _key_and_values(cells: list[YamlNode], pipeline: Pipeline) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    parts = len(pipeline.key)
    return (
        tuple(read_value(cell, type_) for cell, type_ in zip(cells[:parts], key_types(pipeline), strict=True)),
        tuple(read_result(cell, type_) for cell, type_ in zip(cells[parts:], result_types(pipeline), strict=True)),
    )


def _offset(spot: YamlNode) -> int:
    number = spot.number()
    if number < 0:
        msg = f"{spot.called} must be an offset (0, 1, 2 ...), not {number}"
        raise spot.error(msg)
    return number
