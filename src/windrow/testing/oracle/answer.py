"""Input and output of the oracle, as plain Python values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple, Self, SupportsFloat

from windrow import model as m

Value = str | bool | int | float | Decimal | None
"""A field or a result; times are microseconds since the epoch, UTC, null is None."""

WindowKey = tuple[Value, ...]
"""Window start and end in microseconds, then the key's fields."""


class Near(float):
    """An approximate result, as of a sketch: equal to numbers within a fraction of it."""

    within: float

    def __new__(cls, value: SupportsFloat, within: float) -> Self:
        """Return a number that equals others whose relative difference is at most `within`."""
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
    """The error of a formula, in place of its value: the row is a dead letter."""

    __slots__ = ()


@dataclass(frozen=True)
class WindowedSource:
    """The records of a source in the windows of a node, and the pipeline's name."""

    name: str
    source: m.SourceNode
    node: m.WindowNode

    @staticmethod
    def of(graph: m.Graph) -> WindowedSource:
        """Return the parts of a graph with one source and one window."""
        (source,), (node,) = graph.sources, graph.keyed
        if not isinstance(node, m.WindowNode):
            raise TypeError(node)
        return WindowedSource(graph.name, source, node)


@dataclass(frozen=True)
class LogRecord:
    """A record of a partition of the log.

    `log_time` is the broker's timestamp in microseconds; a log source has it in the JSON (``_log_time``) instead.
    `value` is None for a tombstone, of a log source also in the JSON (``_value``, with the key in ``_key``).
    """

    offset: int
    log_time: int | None
    value: bytes | None
    key: bytes | None = None


@dataclass(frozen=True)
class Journal:
    """The moves of clocks that do not follow from the log.

    `floors` has, by partition, (offset, watermark): from that offset on the watermark was at least that. `low` is the
    low watermark at the end, None if it follows from the partitions' watermarks.
    """

    floors: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    low: int | None = None


class Change(NamedTuple):
    """One entry of the changelog of a window and key."""

    op: str
    pane: str
    revision: int
    values: tuple[Value, ...]


class Missed(NamedTuple):
    """An expired record and the window that it missed; times are microseconds, `lateness_ms` is rounded down."""

    partition: int
    offset: int
    window_start: int
    window_end: int
    lateness_ms: int


@dataclass(frozen=True)
class Answer:
    """All results of a pipeline over a log.

    `table` has ``(*values, pane, revision)`` of the last change; in mode discard its keys end with the revision.
    `on_time` has the values of the on-time panes that fired; `dead` the reason up to the colon, by (partition, offset);
    `changelog` is that of one record a step in (partition, offset) order with ``late: each``, which is only defined for
    one partition without early panes by processing time. Then `dead_rows` has the number of revisions of a row that are
    dead letters, by the window and the key as a reason names them. Decimals compare by value, whatever their scale.
    """

    table: dict[WindowKey, tuple[Value, ...]]
    on_time: dict[WindowKey, tuple[Value, ...]]
    late: set[Missed]
    dead: dict[tuple[int, int], str]
    changelog: dict[WindowKey, list[Change]]
    dead_rows: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class JudgedRecord:
    """A record's coordinates, its event time, the watermark by which it is judged, and its fields.

    `inputs` has the value for each aggregate, None if the aggregate ignores the record. `end` is the end of its window
    if it were a session alone.
    """

    partition: int
    offset: int
    time: int
    watermark: float
    fields: Mapping[str, Value]
    inputs: tuple[Value, ...]
    end: int = 0
