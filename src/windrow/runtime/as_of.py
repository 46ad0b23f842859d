"""Tables in a database of their own: as of an event time, or of the first records of the log."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from windrow import model as m
from windrow.connectors.log.source import LogFolder
from windrow.connectors.open_sinks import open_sinks
from windrow.connectors.open_sources import followers, open_sources, with_lists
from windrow.connectors.source import Source
from windrow.runtime.memory import MemoryRun
from windrow.telemetry.reports import Totals

FIRST = 10_000
"""Records of a preview, if nothing else is said."""


@contextmanager
def tables_as_of(graph: m.Graph, until: int) -> Iterator[m.Graph]:
    """Yield the pipeline into a database of its own, with the records up to `until` (microseconds, inclusive).

    The log is read from its first record; watermarks are those of the whole log, so verdicts are as in a replay without
    the clock journal. Raise a WindrowError if it cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="windrow-") as folder:
        past = _into(with_lists(graph, lambda _: None), Path(folder))
        with closing(open_sinks(past)) as sinks:
            MemoryRun(past, sinks, None, until=until).run(lambda _: None)
        yield past


@dataclass(frozen=True)
class FirstTables:
    """A pipeline in a database of its own that has run over the first records of its log.

    `totals` is what was counted of them. `share` is how many records of each partition were read at the most, None if
    these are all of the log. `notes` are warnings about the lists of its rules.
    """

    pipeline: m.Graph
    totals: Totals
    share: int | None
    notes: tuple[str, ...]


@contextmanager
def tables_of_first(graph: m.Graph, most: int = FIRST) -> Iterator[FirstTables]:
    """Yield the tables of about the first `most` records, as if the log ended there: all windows fire.

    Each partition has its share of them. A file is read as it is now if no run has followed it. Raise a WindrowError if
    the log cannot be read.
    """
    notes: list[str] = []
    totals, share = Totals(), None

    def read(source: Source) -> Iterator[pa.RecordBatch]:
        nonlocal share
        share = yield from read_first(source, most)

    with tempfile.TemporaryDirectory(prefix="windrow-") as folder:
        past = _into(with_lists(graph, notes.append), Path(folder)).ending("fire")
        past, own = _following(past, Path(folder))
        for name, follower in followers(past).items():
            if name in own:
                follower.update()
        with closing(open_sinks(past)) as sinks:
            MemoryRun(past, sinks, None, read=read).run(totals.add)
        yield FirstTables(past, totals, share, tuple(notes))


def read_first(source: Source, most: int) -> Generator[pa.RecordBatch, None, int | None]:
    """Read about the first `most` records, of each partition its share, which is returned if one has more than it."""
    partitions = source.partitions()
    share = -(-most // max(1, len(partitions)))
    has_more = False
    for partition in partitions:
        left = share
        for batch in source.read_from(partition, 0):
            yield batch.slice(0, left)
            has_more |= batch.num_rows > left
            left -= min(left, batch.num_rows)
            if has_more and not left:
                break
    return share if has_more else None


def _following(graph: m.Graph, folder: Path) -> tuple[m.Graph, set[str]]:
    """Return the pipeline with a log in a folder for each file that has none yet, and the names of these sources."""
    own: set[str] = set()

    def log_of(name: str, source: m.Source) -> m.Source:
        if not isinstance(source, m.FileSource) or Path(source.log).exists():
            return source
        own.add(name)
        return replace(source, log=str(folder / f"log-{len(own)}"))

    following = graph.map_nodes(
        lambda node: replace(node, source=log_of(node.name, node.source)) if isinstance(node, m.SourceNode) else node
    )
    return following, own


def missing_of(graph: m.Graph) -> list[str]:
    """Say of which partitions the beginning is gone, or older records of keys: tables of the past lack them."""
    found = []
    for partition, (first, _) in sorted(open_sources(graph).ends().items()):
        folder, name = graph.source_of(partition).source.folder, graph.partition_name(partition)
        if first:
            found.append(f"partition {name} begins at offset {first:,}: the table lacks what was before")
        elif folder is not None and LogFolder(folder).retained(partition % m.MAX_PARTITIONS).segment is not None:
            found.append(f"partition {name} was compacted: the table lacks rows of keys that have newer records")
    return found


def _into(graph: m.Graph, folder: Path) -> m.Graph:
    """Return the pipeline with each table in a SQLite database of its own."""
    own = {
        node.name: replace(node, sink=m.SqliteSink(str(folder / f"{number}.db"), node.sink.table))
        for number, node in enumerate(graph.sinks)
    }
    moved = graph.map_nodes(lambda node: own[node.name] if isinstance(node, m.SinkNode) else node)
    return replace(moved, mode="micro-batch")
