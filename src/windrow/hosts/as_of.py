"""Tables as of an event time: what the records of the log up to then make of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from windrow.hosts.memory import MemoryRun
from windrow.model import MAX_PARTITIONS, Graph, Runnable, SinkNode, SqliteSink, as_graph
from windrow.sinks import open_sinks
from windrow.sources import open_sources, with_lists
from windrow.sources.log import LogFolder


@contextmanager
def tables_as_of(pipeline: Runnable, until: int) -> Iterator[Runnable]:
    """Yield the pipeline into a database of its own, with the records up to `until` (microseconds, inclusive).

    The log is read from its first record; watermarks are those of the whole log, so verdicts are as in a replay without
    the clock journal. Raise a WindrowError if it cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="windrow-") as folder:
        past = _into(with_lists(pipeline, lambda _: None), Path(folder))
        with closing(open_sinks(past)) as sinks:
            MemoryRun(past, sinks, None, until=until).run(lambda _: None)
        yield past


def missing_of(pipeline: Runnable) -> list[str]:
    """Say of which partitions the beginning is gone, or older records of keys: tables of the past lack them."""
    graph, found = as_graph(pipeline), []
    for partition, (first, _) in sorted(open_sources(pipeline).ends().items()):
        folder, name = graph.source_of(partition).source.folder, graph.partition_name(partition)
        if first:
            found.append(f"partition {name} begins at offset {first:,}: the table lacks what was before")
        elif folder is not None and LogFolder(folder).kept(partition % MAX_PARTITIONS).segment is not None:
            found.append(f"partition {name} was compacted: the table lacks rows of keys that have newer records")
    return found


def _into(pipeline: Runnable, folder: Path) -> Runnable:
    """Return the pipeline with each table in a SQLite database of its own."""
    if not isinstance(pipeline, Graph):
        sink = SqliteSink(str(folder / "as_of.db"), pipeline.sink.table)
        return replace(pipeline, sink=sink, mode="micro-batch")
    nodes = tuple(
        replace(node, sink=SqliteSink(str(folder / f"{number}.db"), node.sink.table))
        if isinstance(node, SinkNode)
        else node
        for number, node in enumerate(pipeline.nodes)
    )
    return replace(pipeline, nodes=nodes)
