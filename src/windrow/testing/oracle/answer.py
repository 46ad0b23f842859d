"""Input and output of the oracle as plain Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple, Self, SupportsFloat

from windrow import model as m

Value = str | bool | int | float | Decimal | None
"""The value of a field or a result. Times are microseconds since the epoch, UTC; null is None."""

WindowKey = tuple[Value, ...]
"""The window's start and end in microseconds, followed by the key's fields."""


class Near(float):
    """An approximate result, for example from a sketch. It equals all numbers within a relative tolerance."""

    within: float

    def __new__(cls, value: SupportsFloat, within: float) -> Self:
        """Return a number that equals others if the relative difference is at most `within`."""
        near = super().__new__(cls, value)
        near.within = within
        return near

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int | float | Decimal):
            return NotImplemented
        return abs(float(other) - float(self)) <= self.within * abs(float(self))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = float.__hash__


class Failed(str):
    """The error of a formula, in place of its value. The row becomes a dead letter."""

    __slots__ = ()


@dataclass(frozen=True)
class WindowedSource:
    """A source, a node that assigns its records to windows, and the pipeline's name."""

    name: str
    source: m.SourceNode
    node: m.WindowNode

    @staticmethod
    def of(graph: m.Graph) -> WindowedSource:
        """Return the parts of a graph that has one source and one keyed node.

        Raise TypeError if the node has no windows.
        """
        (source,), (node,) = graph.sources, graph.keyed
        if not isinstance(node, m.WindowNode):
            raise TypeError(node)
        return WindowedSource(graph.name, source, node)


@dataclass(frozen=True)
class LogRecord:
    """A record in a partition of the log.

    `log_time` is the broker's timestamp in microseconds. A log source has it in the JSON (``_log_time``) instead.
    `value` is None for a tombstone. A log source may also have a tombstone in the JSON (``_value``, with the key in
    ``_key``). `headers` has the headers in order. With `is_defect`, the engine fails for the record unexpectedly.
    """

    offset: int
    log_time: int | None
    value: bytes | None
    key: bytes | None = None
    is_defect: bool = False
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True)
class Journal:
    """The movements of clocks that do not follow from the log.

    `floors` maps each partition to pairs (offset, watermark): from that offset on, the watermark was at least that
    value. `low` is the low watermark at the end, or None if it follows from the watermarks of the partitions.
    """

    floors: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    low: int | None = None


class Change(NamedTuple):
    """An entry in the changelog of a window and key."""

    op: str
    pane: str
    revision: int
    values: tuple[Value, ...]


class Missed(NamedTuple):
    """An expired record and the window that it missed. Times are microseconds; `lateness_ms` is rounded down."""

    partition: int
    offset: int
    window_start: int
    window_end: int
    lateness_ms: int


@dataclass(frozen=True)
class Answer:
    """All results of a pipeline for a log.

    Rows of `table` are ``(*values, pane, revision)`` of the last change; in mode discard the table's keys end with the
    revision. `on_time` has the values of the on-time panes that fired. `dead` maps (partition, offset) to the reason up
    to the colon. `changelog` is the changelog if records are read one per step, ordered by partition and offset, with
    ``late: each``; it is only defined for one partition without early panes by processing time. In that case,
    `dead_rows` maps each row, written as window and key as in a reason, to the number of its revisions that are dead
    letters. Decimals are compared by value, whatever their scale.
    """

    table: dict[WindowKey, tuple[Value, ...]]
    on_time: dict[WindowKey, tuple[Value, ...]]
    late: set[Missed]
    dead: dict[tuple[int, int], str]
    changelog: dict[WindowKey, list[Change]]
    dead_rows: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class JudgedRecord:
    """A record's position, its event time, the watermark that it is compared with, and its fields.

    `inputs` has the value for each aggregate, or None if the aggregate ignores the record. `end` is the end of the
    session that the record would form alone.
    """

    partition: int
    offset: int
    time: int
    watermark: float
    fields: Mapping[str, Value]
    inputs: tuple[Value, ...]
    end: int = 0
