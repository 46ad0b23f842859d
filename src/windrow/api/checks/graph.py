"""Checks of a graph: its names, what flows where, and each stream and sink by the rules of a pipeline."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from windrow.api.checks.base import Finding, error
from windrow.model import AnyPipeline, Graph, KeyedNode, Node, SinkNode, SourceNode, sink_pipelines

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def section_of(node: Node) -> str:
    """Return the section of a graph file that a node is in."""
    match node:
        case SourceNode():
            return "sources"
        case SinkNode():
            return "sinks"
        case _:
            return "streams"


def graph_findings(graph: Graph, validate: Callable[[AnyPipeline], Sequence[Finding]]) -> list[Finding]:
    """Return what is wrong with a graph; `validate` checks a stream and one of its sinks as a pipeline."""
    found = [finding for rule in (_names, _inputs, _outputs, _tables, _ends) for finding in rule(graph)]
    if found:
        return found
    keyed = {node.name: node for node in graph.keyed}
    of_parts: dict[Finding, None] = {}
    for sink in graph.sinks:
        for finding in validate(sink_pipelines(graph)[sink.name]):
            of_parts[replace(finding, where=_where(finding.where, graph, keyed[sink.input], sink))] = None
    return list(of_parts)


def _where(where: str, graph: Graph, stream: KeyedNode, sink: SinkNode) -> str:
    """Return where a part of a pipeline stands in a graph."""
    section, _, rest = where.partition(".")
    own = any(one.name == rest for one in stream.derive)
    if section in {"source", "decode", "time"} or (section == "derive" and not own):
        return f"sources.{graph.origin.name}.{where}"
    if section in {"name", "key_groups"}:
        return where
    return f"sinks.{sink.name}.{where}" if section == "sink" else f"streams.{stream.name}.{where}"


def _names(graph: Graph) -> Iterator[Finding]:
    counts = Counter(node.name for node in graph.nodes)
    for node in graph.nodes:
        where = f"{section_of(node)}.{node.name}"
        if not _NAME.fullmatch(node.name):
            yield error(
                where, "a name has 1 to 100 letters, digits, '.', '_' or '-', and starts with a letter or digit"
            )
        elif counts[node.name] > 1:
            yield error(where, f"the name {node.name!r} is given twice; choose another one")


def _inputs(graph: Graph) -> Iterator[Finding]:
    sources = [node.name for node in graph.nodes if isinstance(node, SourceNode)]
    if len(sources) != 1:
        yield error("sources", f"a graph has one source, not {len(sources)}; make a graph for each")
    streams = [node.name for node in graph.keyed]
    for node in graph.nodes:
        if isinstance(node, SourceNode):
            continue
        what, known = ("stream", streams) if isinstance(node, SinkNode) else ("source", sources)
        if node.input not in known:
            names = f"name one of {', '.join(known)}" if known else f"there is no {what}"
            yield error(f"{section_of(node)}.{node.name}.from", f"{node.input!r} is not a {what}; {names}")


def _outputs(graph: Graph) -> Iterator[Finding]:
    if not graph.keyed:
        yield error("streams", "there is no stream; add one")
    for node in graph.keyed:
        if not graph.sinks_of(node.name):
            yield error(f"streams.{node.name}", f"its rows go nowhere; add a sink from {node.name!r}, or remove it")


def _tables(graph: Graph) -> Iterator[Finding]:
    """Two sinks may not write one table: each step would overwrite the other's rows."""
    taken: dict[tuple[object, str], str] = {}
    for node in graph.sinks:
        place = replace(node.sink, table="", key=(), changelog=True), node.sink.table.lower()
        other = taken.setdefault(place, node.name)
        if other != node.name:
            yield error(
                f"sinks.{node.name}.sink", f"the table {node.sink.table!r} is written by {other!r}; name another"
            )


def _ends(graph: Graph) -> Iterator[Finding]:
    if len({node.at_end for node in graph.keyed}) > 1:
        first = graph.keyed[0]
        for node in graph.keyed:
            if node.at_end != first.at_end:
                yield error(
                    f"streams.{node.name}.emit",
                    f"at_end is {node.at_end}, but {first.at_end} for {first.name!r}; all streams end alike",
                )
