"""Tables as of an event time: what the records of the log up to then make of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from windrow.hosts.memory import MemoryRun
from windrow.model import Graph, Runnable, SinkNode, SqliteSink
from windrow.sinks import open_sinks
from windrow.sources import with_lists


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
