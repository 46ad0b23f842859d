"""A log that is given in steps, written to a folder: what a host on Spark plays a story from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from windrow import model as m
from windrow.connectors.cuts import Cut


def write_log(
    graph: m.Graph, steps: Sequence[Sequence[tuple[int, bytes]]], folder: Path, upto: int | None = None
) -> tuple[m.Graph, list[Cut]]:
    """Write the records of the first `upto` steps, or of all, to a folder that may have some of them.

    Return the pipeline over what is written, and the cut after each step.
    """
    logs: dict[int, list[bytes]] = {partition: [] for step in steps for partition, _ in step}
    cuts: list[Cut] = []
    for step in steps[:upto]:
        for partition, value in step:
            logs[partition].append(value + b"\n")
        cuts.append({partition: len(values) for partition, values in logs.items()})
    for source in graph.sources:
        (folder / source.source.label).mkdir(exist_ok=True)
    for partition, values in logs.items():
        number = partition % m.MAX_PARTITIONS if len(graph.sources) > 1 else partition
        path = folder / graph.source_of(partition).source.label / f"partition-{number}.jsonl"
        path.write_bytes(b"".join(values))
    return graph.map_nodes(lambda node: _written(node, folder)), cuts


def _written(node: m.Node, folder: Path) -> m.Node:
    return replace(node, source=_log(node.source, folder)) if isinstance(node, m.SourceNode) else node


def _log(source: m.Source, folder: Path) -> m.LogSource:
    return m.LogSource(str(folder / source.label), "debezium" if source.format == "debezium" else "json")
