"""Checks of which sources of a graph wait for others: for silent ones, and for those with a longer delay."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from windrow import model as m
from windrow.declare.findings import Finding, warning


def waiting(graph: m.Graph) -> Iterator[Finding]:
    """Yield where a source that is silent, or further behind than another one, holds that one back."""
    if len(graph.sources) > 1:
        yield from _silent(graph)
        yield from _behind(graph)


def _silent(graph: m.Graph) -> Iterator[Finding]:
    for node in graph.sources:
        if node.time.idle is not None:
            continue
        below = graph.below(node)
        if isinstance(node.source, m.FollowedSource) or any(isinstance(one, m.TableNode) for one in below):
            what = "a table seldom changes, and what depends on it and on other sources waits until it does"
        elif any(isinstance(one, m.JoinNode) and one.how != "inner" for one in below):
            what = "a record is without a partner once the watermark says so, and a partition that is silent stops that"
        else:
            continue
        yield warning(f"sources.{node.name}.time", f"has no `idle`: {what}; give 1m or so")


def _behind(graph: m.Graph) -> Iterator[Finding]:
    """Yield each pair of neighbours by delay that meet where records come by watermark, once."""
    said: set[tuple[str, str]] = set()
    for node in graph.keyed:
        if not (graph.is_ordered(node) or isinstance(node, m.ResultNode)):
            continue
        for (short, quick), (long, slow) in pairwise(sorted(_delays(graph, node))):
            # a version that waits for the records that look it up delays nothing
            is_version = isinstance(node, m.LookupNode) and quick not in graph.feeding(node.left)
            if short != long and not is_version and (quick, slow) not in said:
                said.add((quick, slow))
                yield warning(
                    f"sources.{slow}.time.delay",
                    f"is {m.format_duration(long)}, and {m.format_duration(short)} for {quick!r}, whose records wait "
                    f"{m.format_duration(long - short)} longer for it in {node.name!r}; give both alike delays",
                )


def _delays(graph: m.Graph, node: m.KeyedNode) -> Iterator[tuple[int, str]]:
    """Yield the longest delay of each source that a node waits for, if the pipeline says how long that is."""
    feeding = graph.feeding(node.name)
    for source in graph.sources:
        mark = source.time.watermark
        if source.name in feeding and isinstance(mark, m.Delay | m.DelayByPartition):
            yield (mark.micros if isinstance(mark, m.Delay) else mark.longest), source.name
