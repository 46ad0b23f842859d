"""What a graph means, in the most obvious plain Python: each stream is a query over the records up to a watermark.

A stream at the logical time w is the function ``rows(name, w)`` of the records whose watermark is at most w. The final
table of a window is that at infinity, its on-time pane that at the last watermark before its end. There are no clocks
and no state here, and no code of the operators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.model import (
    Aggregate,
    Count,
    DeduplicateNode,
    Graph,
    Hopping,
    Max,
    Punctuated,
    SelectNode,
    SourceNode,
    SplitNode,
    Sum,
    Tumbling,
    WindowNode,
)
from windrow.testing.oracle.clock import Clock

FOREVER = 10**18
BEGINNING = -(10**18)
MINUTE = 60_000_000
HOUR = 60 * MINUTE

Values = dict[str, Any]
Condition = Callable[[Values], bool]


@dataclass(frozen=True)
class Record:
    """A record, or a row of a window: event time, watermark, place in the log, fields."""

    time: int
    watermark: float
    partition: int
    offset: int
    values: Values


class GraphOracle:
    """Answers for a graph over a log: the records of each partition, as (time, fields) in order.

    `conditions` evaluates the texts of the conditions in the graph. `floors` are what the clock journal says of a
    partition's watermark: from which offset on it was at least how much.
    """

    def __init__(
        self,
        graph: Graph,
        log: Mapping[int, Sequence[tuple[int, Values]]],
        conditions: Mapping[str, Condition],
        floors: Mapping[int, Sequence[tuple[int, int]]] | None = None,
    ) -> None:
        self._graph = graph
        self._conditions = conditions
        self._known: dict[tuple[str, int], list[Record]] = {}
        self._records: list[Record] = []
        for partition, records in log.items():
            how = graph.source_of(partition).time.watermark
            clock = Clock(how, (floors or {}).get(partition, ()))
            for offset, (time, values) in enumerate(records):
                self._records.append(Record(time, max(BEGINNING, clock.at(offset)), partition, offset, values))
                clock.data(offset, time)
                if isinstance(how, Punctuated) and values[how.field] is not None:
                    clock.mark(values[how.field])

    def rows(self, name: str, until: int) -> list[Record]:
        """Return a stream as of a logical time."""
        if (name, until) not in self._known:
            self._known[name, until] = self._rows(name, until)
        return self._known[name, until]

    def _rows(self, name: str, until: int) -> list[Record]:
        node = self._graph.producer(name)
        match node:
            case SourceNode(lateness=lateness):
                return [
                    one
                    for one in self._records
                    if self._graph.source_of(one.partition) == node
                    and one.watermark <= until
                    and (lateness is None or one.watermark < one.time + lateness)
                ]
            case SelectNode(inputs=inputs, where=where):
                given = [one for stream in inputs for one in self.rows(stream, until)]
                return [one for one in given if where is None or self._conditions[where](one.values)]
            case SplitNode():
                return self._split(node, name, until)
            case DeduplicateNode():
                accepted, duplicates = self._deduplicated(node, until)
                return duplicates if name.endswith(".duplicates") else accepted
            case WindowNode():
                panes = self._panes(node, self.rows(node.input, until))
                return [
                    Record(end - 1, end - 1, 0, 0, dict(zip(node.key, key, strict=True)) | values | {"window_end": end})
                    for (_, end, key), values in panes.items()
                    if end - 1 <= until
                ]
            case _:
                raise TypeError(node)

    def table(self, name: str) -> dict[tuple[int, int, tuple[Any, ...]], Values]:
        """Return the final table of a window: by start, end and key."""
        node = self._window(name)
        return self._panes(node, self.rows(node.input, FOREVER))

    def on_time(self, name: str) -> dict[tuple[int, int, tuple[Any, ...]], Values]:
        """Return the on-time panes of a window."""
        node = self._window(name)
        times = [one.time for one in self._records]
        windows = {
            one
            for time in range(min(times, default=0), max(times, default=0) + HOUR, MINUTE)
            for one in windows_of(node.window, time)
        }
        found = {}
        for start, end in windows:
            panes = self._panes(node, self.rows(node.input, end - 1))
            found.update({group: values for group, values in panes.items() if group[:2] == (start, end)})
        return found

    def _window(self, name: str) -> WindowNode:
        node = self._graph.producer(name)
        assert isinstance(node, WindowNode)
        return node

    def _split(self, node: SplitNode, name: str, until: int) -> list[Record]:
        found = []
        for one in self.rows(node.input, until):
            held = next(
                (output.name for output in node.outputs if self._conditions[output.sql](one.values)), node.other
            )
            if f"{node.name}.{held}" == name:
                found.append(one)
        return found

    def _deduplicated(self, node: DeduplicateNode, until: int) -> tuple[list[Record], list[Record]]:
        times: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        accepted, duplicates = [], []
        for one in sorted(self.rows(node.input, until), key=lambda one: (one.watermark, one.partition, one.offset)):
            key = tuple(one.values[name] for name in node.key)
            if any(abs(one.time - other) < node.within for other in times[key]):
                duplicates.append(one)
            else:
                times[key].append(one.time)
                accepted.append(one)
        return accepted, duplicates

    def _panes(self, node: WindowNode, records: Sequence[Record]) -> dict[tuple[int, int, tuple[Any, ...]], Values]:
        over_windows = "window_end" in (records[0].values if records else {})
        groups: defaultdict[tuple[int, int, tuple[Any, ...]], list[Values]] = defaultdict(list)
        for one in records:
            for start, end in windows_of(node.window, one.time):
                if over_windows or one.watermark < end + node.emit.lateness:
                    groups[start, end, tuple(one.values[name] for name in node.key)].append(one.values)
        return {group: {item.name: aggregate(item, rows) for item in node.aggregates} for group, rows in groups.items()}


def windows_of(window: object, time: int) -> list[tuple[int, int]]:
    """Return the windows of a time."""
    match window:
        case Tumbling(size):
            return [(time // size * size, time // size * size + size)]
        case Hopping(size, slide):
            last = time // slide * slide
            return [(start, start + size) for start in range(last, time - size, -slide)]
        case _:
            raise TypeError(window)


def aggregate(item: Aggregate, rows: Sequence[Values]) -> Any:  # noqa: ANN401 - a number
    """Return a result."""
    match item.function:
        case Count():
            return len(rows)
        case Sum(of):
            return sum(row[of] for row in rows)
        case Max(of):
            return max(row[of] for row in rows)
        case _:
            raise TypeError(item)
