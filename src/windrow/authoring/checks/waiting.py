"""Checks of which sources of a graph wait for others: for silent ones, and for those with a longer delay."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from windrow.declare.findings import Finding, warning
from windrow.model import (
    Delay,
    DelayByPartition,
    FollowedSource,
    Graph,
    JoinNode,
    KeyedNode,
    LookupNode,
    ResultNode,
    TableNode,
    format_duration,
)


def waiting(graph: Graph) -> Iterator[Finding]:
    """Yield where a source that is silent, or further behind than another one, holds that one back."""
    if len(graph.sources) > 1:
        yield from _silent(graph)
        yield from _behind(graph)


def _silent(graph: Graph) -> Iterator[Finding]:
    for node in graph.sources:
        if node.time.idle is not None:
            continue
        below = graph.below(node)
        if isinstance(node.source, FollowedSource) or any(isinstance(one, TableNode) for one in below):
            what = "a table seldom changes, and what depends on it and on other sources waits until it does"
        elif any(isinstance(one, JoinNode) and one.how != "inner" for one in below):
            what = "a record is without a partner once the watermark says so, and a partition that is silent stops that"
        else:
            continue
        yield warning(f"sources.{node.name}.time", f"has no `idle`: {what}; give 1m or so")


def _behind(graph: Graph) -> Iterator[Finding]:
    """Yield each pair of neighbours by delay that meet where records come by watermark, once."""
    said: set[tuple[str, str]] = set()
    for node in graph.keyed:
        if not (graph.is_ordered(node) or isinstance(node, ResultNode)):
            continue
        for (short, quick), (long, slow) in pairwise(sorted(_delays(graph, node))):
            # a version that waits for the records that look it up delays nothing
            is_version = isinstance(node, LookupNode) and quick not in graph.feeding(node.left)
            if short != long and not is_version and (quick, slow) not in said:
                said.add((quick, slow))
                yield warning(
                    f"sources.{slow}.time.delay",
                    f"is {format_duration(long)}, and {format_duration(short)} for {quick!r}, whose records wait "
                    f"{format_duration(long - short)} longer for it in {node.name!r}; give both alike delays",
                )


def _delays(graph: Graph, node: KeyedNode) -> Iterator[tuple[int, str]]:
    """Yield the longest delay of each source that a node waits for, if the pipeline says how long that is."""
    feeding = graph.feeding(node.name)
    for source in graph.sources:
        mark = source.time.watermark
        if source.name in feeding and isinstance(mark, Delay | DelayByPartition):
            yield (mark.micros if isinstance(mark, Delay) else mark.longest), source.name
