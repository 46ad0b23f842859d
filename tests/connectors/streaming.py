"""Run a source's stream and keep what each step read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from windrow.connectors.cuts import Offset, StreamPlan
from windrow.connectors.source import Source
from windrow.connectors.stream_reader import stream_of

DDL = "partition int NOT NULL, offset long NOT NULL, log_time timestamp, key binary, value binary"
"""`windrow.engine.schema.RAW` in Spark's terms."""

Records = dict[int, list[tuple[int, bytes | None]]]
"""Offsets and values by partition, in the order in which they were read."""


def records(parts: Iterable[pa.RecordBatch | pa.Table]) -> Records:
    found: Records = defaultdict(list)
    for part in parts:
        rows = zip(*(part[name].to_pylist() for name in ("partition", "offset", "value")), strict=True)
        for partition, offset, value in rows:
            found[partition].append((offset, value))
    return dict(found)


def raw(source: Source, spark: SparkSession, begin: Offset | None = None, **how: Any) -> DataFrame:  # noqa: ANN401 - as `StreamPlan` has it
    """Return the streaming frame of a source's records as they are."""

    def same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    begin = source.beginning() if begin is None else begin
    tasks = spark.sparkContext.defaultParallelism
    return stream_of(spark, "windrow_raw", source.reader(StreamPlan(same, begin, tasks, **how)), DDL)


class Stream:
    """A stream of a source; `steps` holds what was read, step by step."""

    def __init__(self, frame: DataFrame, checkpoint: Path) -> None:
        self.steps: list[pa.Table] = []
        self._writer = (frame.writeStream.foreachBatch(lambda step, _: self.steps.append(step.toArrow()))).option(
            "checkpointLocation", str(checkpoint)
        )

    def run(self) -> list[pa.Table]:
        """Read to the end of what is there."""
        assert self._writer.trigger(availableNow=True).start().awaitTermination(120)
        return self.steps

    def live(self, play: Callable[[StreamingQuery], None]) -> list[pa.Table]:
        """Read live while `play` does something."""
        query = self._writer.trigger(processingTime="50 milliseconds").start()
        try:
            play(query)
            query.processAllAvailable()
        finally:
            query.stop()
        return self.steps
