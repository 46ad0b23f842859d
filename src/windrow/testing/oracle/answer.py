"""Input and output of the oracle, as plain Python values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple, Self, SupportsFloat

from windrow import model as m

Value = str | bool | int | float | Decimal | None
"""A field or a result; times are microseconds since the epoch, UTC. None is null."""

WindowKey = tuple[Value, ...]
"""Window start and end in microseconds, then the key's fields."""


class Near(float):
    """A result that may be a little off, as a sketch is: equal to numbers that are within a part of it."""

    within: float

    def __new__(cls, value: SupportsFloat, within: float) -> Self:
        """Return a number that is equal to others up to the part `within` of it away."""
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
    """Why a formula has no value, in the place of the value: the row is a dead letter."""

    __slots__ = ()


@dataclass(frozen=True)
class WindowedSource:
    """What is defined here: the records of a source in the windows of a node, and the pipeline's name."""

    name: str
    source: m.SourceNode
    node: m.WindowNode

    @staticmethod
    def of(graph: m.Graph) -> WindowedSource:
        """Return what a graph of one source and one window is."""
        (source,), (node,) = graph.sources, graph.keyed
        if not isinstance(node, m.WindowNode):
            raise TypeError(node)
        return WindowedSource(graph.name, source, node)


@dataclass(frozen=True)
class LogRecord:
    """A record as it lies in a partition of the log.

    `log_time` is the broker's timestamp in microseconds; a log source has it in the JSON (``_log_time``) instead.
    `value` is None for a tombstone, of a log source also in the JSON (``_value``, with the key in ``_key``).
    """

    offset: int
    log_time: int | None
    value: bytes | None
    key: bytes | None = None


@dataclass(frozen=True)
class Journal:
    """The moves of clocks that the log does not explain.

    `floors` says, by partition, from which offset on its watermark was at least how much; `low` is where the low
    watermark stood at the end, None if the partitions' watermarks say it.
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
    """All that a pipeline says of a log.

    `table` has ``(*values, pane, revision)`` of the last change; in mode discard the revision ends its keys too.
    `on_time` holds the values of the on-time panes that fired; `dead` the reason up to the colon, by (partition,
    offset); `changelog` is as one record a step in (partition, offset) order and ``late: each`` write it, which is a
    promise for one partition only, and without early panes by processing time. As far as it is, `dead_rows` says how
    many revisions of a row are dead letters, by the window and the key as a reason names them. Decimals compare by
    value, whatever their scale.
    """

    table: dict[WindowKey, tuple[Value, ...]]
    on_time: dict[WindowKey, tuple[Value, ...]]
    late: set[Missed]
    dead: dict[tuple[int, int], str]
    changelog: dict[WindowKey, list[Change]]
    dead_rows: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class JudgedRecord:
    """A record's coordinates, its event time, the watermark that it is judged by, and its fields.

    `inputs` has for each aggregate the value it takes, None if it takes none of this record. `end` is where its own
    window would end if it were a session alone.
    """

    partition: int
    offset: int
    time: int
    watermark: float
    fields: Mapping[str, Value]
    inputs: tuple[Value, ...]
    end: int = 0
