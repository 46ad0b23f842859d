"""Previews: the first rows that a pipeline makes of the first records of its log, without its sinks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from windrow.core.changelog import concat_by_sink, empty_by_sink, reason_kinds
from windrow.core.schema import RAW
from windrow.expressions import sink_views
from windrow.hosts.memory import MemoryHost
from windrow.model import Runnable, as_graph
from windrow.sinks.tables import layout, net_changes
from windrow.sources import Source, open_sources, with_lists

RECORDS = 10_000
"""Records that are read, of all partitions together; unless there are more partitions."""


@dataclass(frozen=True)
class Preview:
    """The first rows of each table by its sink (of the only one by its own name), by key, and the counts behind them.

    `records` were read, to the end of the log if it `is_whole`. `late` counts records that came late, `expired` records
    and windows that they missed, `dead` the dead letters by the kind of their reason.
    """

    tables: dict[str, pa.Table]
    records: int
    is_whole: bool
    late: int
    expired: int
    dead: dict[str, int]


def preview(pipeline: Runnable, rows: int) -> Preview:
    """Run the first records of each partition in this process, as if the log ended there: all windows fire.

    Nothing is written. The verdicts are those of a log of these records alone. Raise a WindrowError if the log cannot
    be read.
    """
    pipeline = with_lists(pipeline, lambda _: None)
    source = open_sources(pipeline)
    spans = dict(sorted(source.ends().items()))
    most = max(1, RECORDS // max(1, len(spans)))
    raw = [RAW.empty_table(), *(table for number in spans for table in _first(source, number, spans[number], most))]
    host = MemoryHost(pipeline, spans, is_reported=False)
    records = pa.concat_tables(raw)
    groups = [*host.step(records), *host.end()]
    outputs = concat_by_sink(empty_by_sink(pipeline), (group.by_sink for group in groups))
    tables = {}
    for name, view in sink_views(as_graph(pipeline)).items():
        result = layout(view, view.sink).result
        net = net_changes(outputs[name].changes, result.key)
        tables[name or result.name] = net.inserts.select(list(result.columns)).slice(0, rows)
    return Preview(
        tables,
        records.num_rows,
        is_whole=all(end - first <= most for first, end in spans.values()),
        late=sum(group.stats.late for group in groups),
        expired=sum(group.stats.expired for group in groups),
        dead=reason_kinds(output.dead for output in outputs.values()),
    )


def _first(source: Source, partition: int, span: tuple[int, int], most: int) -> Iterator[pa.Table]:
    """Yield the first records of a partition, `most` at the most."""
    begin, end = span
    left = most if end > begin else 0
    for batch in source.read_from(partition, begin) if left else ():
        yield pa.Table.from_batches([batch.slice(0, left)], schema=RAW)
        left -= batch.num_rows
        if left <= 0:
            return
