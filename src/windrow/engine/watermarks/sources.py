"""Time settings of sources: their event time, which sources depend on each other, and the ends of their streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from windrow import model as m
from windrow.engine.columns import MIN_TIME
from windrow.engine.windows import hops_of, window_bounds, windows_of
from windrow.expressions import stream_of


@dataclass(frozen=True)
class SourceTimes:
    """The time settings of a graph's sources, which are numbered in the order of the graph.

    Sources in the same group of `connected` feed a common operator, directly or through other sources. A partition that
    joins or becomes active again gets a watermark `above` microseconds above its source's low watermark. This is 1 if
    an operator processes the records in watermark order, because it may already have processed the records at the low
    watermark. `by_reading` has the sources that are files whose rows have the time of reading.
    """

    graph: m.Graph
    times: tuple[m.EventTime, ...]
    connected: tuple[tuple[int, ...], ...]
    above: tuple[int, ...]
    by_reading: frozenset[int]

    @staticmethod
    @lru_cache(maxsize=32)
    def of(graph: m.Graph) -> SourceTimes:
        """Return the time settings of a graph."""
        feeds = [sources_of(graph, node) for node in graph.keyed]
        connected = [{number} for number in range(len(graph.sources))]
        for feed in feeds:
            joined = [group for group in connected if group.intersection(feed)]
            connected = [group for group in connected if group not in joined] + [set().union(*joined)]
        in_order = {
            number for node, feed in zip(graph.keyed, feeds, strict=True) if graph.is_ordered(node) for number in feed
        }
        return SourceTimes(
            graph,
            tuple(source.time for source in graph.sources),
            tuple(tuple(sorted(group)) for group in sorted(connected, key=min)),
            tuple(int(number in in_order) for number in range(len(graph.sources))),
            frozenset(number for number, source in enumerate(graph.sources) if source.is_by_reading),
        )

    def source(self, partition: int) -> int:
        """Return the number of a partition's source."""
        return m.source_number(partition, len(self.times))

    def time(self, partition: int) -> m.EventTime:
        """Return the event time settings of a partition."""
        return self.times[self.source(partition)]

    def watermark(self, partition: int) -> m.PartitionWatermark:
        """Return the watermark settings of a partition."""
        return self.graph.watermark_of(partition)

    def connected_with(self, source: int) -> tuple[int, ...]:
        """Return the sources that a source is connected with, including itself."""
        return next(group for group in self.connected if source in group)


def sources_of(graph: m.Graph, node: m.KeyedNode | m.SinkNode) -> tuple[int, ...]:
    """Return the numbers of the sources that feed a node."""
    feeding = {source for name in node.inputs for source in stream_of(graph, name).sources}
    return tuple(number for number, source in enumerate(graph.sources) if source in feeding)


def stream_ends(graph: m.Graph, ended: Mapping[int, int], timers: Mapping[str, int]) -> dict[str, int]:
    """Return the greatest event time that each stream's rows can have at the last end of the input.

    This is the event time at which the sources ended (`ended`, by their numbers). However, rows of a window are at the
    window's end, and a process node can have emitted rows at the times in `timers`. The result does not depend on keys,
    so it is the same in all key groups.
    """
    found: dict[str, int] = {}
    for node in graph.nodes:
        if isinstance(node, m.SinkNode):
            continue
        if isinstance(node, m.SourceNode):
            at = ended.get(graph.sources.index(node), MIN_TIME)
        else:
            at = max(found[name] for name in node.inputs)
        if isinstance(node, m.WindowNode) and at != MIN_TIME:
            at = max(at, _last_time(node.window, at))
        elif isinstance(node, m.ProcessNode):
            at = max(at, timers.get(node.name, MIN_TIME))
        found |= dict.fromkeys(m.outputs_of(node), at)
    return found


def _last_time(window: m.Window, time: int) -> int:
    """Return the last microsecond of all windows that begin no later than a time."""
    times = np.array([time])
    match window:
        case m.Global():
            return time  # its rows have no time
        case m.Hopping() | m.Cumulate():
            return int(window_bounds(window, hops_of(window, times).last).ends[0]) - 1
        case _:
            return int(windows_of(window, times).ends[0]) - 1
