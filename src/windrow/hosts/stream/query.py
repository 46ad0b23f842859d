"""The query: source, clock stage, key groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from windrow.core.watermarks.journal import NO_BOUNDS, WatermarkBounds
from windrow.hosts.stream.carrier import Carrier
from windrow.hosts.stream.checkpoint import Checkpoint
from windrow.hosts.stream.slots import slots
from windrow.hosts.stream.stages import KeyGroupProcessor, SpreadProcessor, clock_stage
from windrow.hosts.stream.telling import TellingReader
from windrow.hosts.stream.ticks import TickDataSource
from windrow.hosts.stream.wire import OUTPUT_DDL, PACKET_DDL
from windrow.model import AnyPipeline, is_salted, needs_ticks
from windrow.sources.base import Cut, Source
from windrow.sources.spark import stream_of


def key_group_outputs(
    spark: SparkSession,
    pipeline: AnyPipeline,
    source: Source,
    checkpoint: Checkpoint,
    carrier: Carrier,
    *,
    max_records: int | None = None,
    cuts: Sequence[Cut] | None = None,
    ticks: int | None = None,
    floors: WatermarkBounds = NO_BOUNDS,
    ends: int | None = None,
    size: Path | None = None,
) -> DataFrame:
    """Return the streaming frame of what the key groups give, one row a group and step (`OUTPUT_DDL`).

    Its tables, and the records on their way to the key groups, are what the carrier makes of them.

    The records of the partition `ticks`, if there is one, are ticks. The end of the input is told where it is said
    how many `ends` were told before the run. A file `size` says how many records the next step takes, if there is one.
    """
    begin, stage = checkpoint.note(None), clock_stage(pipeline, carrier, floors, ticks)
    tasks = spark.sparkContext.defaultParallelism
    reader = source.reader(stage, begin.at, tasks=tasks, max_records=max_records, cuts=cuts)
    telling = TellingReader(reader, begin, pipeline.key_groups, ends=ends, size=size)
    packets = stream_of(spark, "windrow", telling, PACKET_DDL)
    if needs_ticks(pipeline):
        spark.dataSource.register(TickDataSource)
        clock = spark.readStream.format(TickDataSource.name()).option("key_groups", pipeline.key_groups)
        packets = packets.union(clock.load())
    known = checkpoint.partitions, None if checkpoint.follows is None else checkpoint.start.absolute()
    if is_salted(pipeline):
        packets = _by_key_group(packets, pipeline, SpreadProcessor(pipeline, *known), PACKET_DDL)
    operators = KeyGroupProcessor(pipeline, *known, carrier)
    return _by_key_group(packets, pipeline, operators, OUTPUT_DDL)


def _by_key_group(packets: DataFrame, pipeline: AnyPipeline, processor: StatefulProcessor, ddl: str) -> DataFrame:
    numbers = f.array(*map(f.lit, slots(pipeline.key_groups)))
    slotted = packets.withColumn("slot", f.element_at(numbers, f.col("key_group") + 1))
    return slotted.groupBy("slot").transformWithStateInPandas(
        statefulProcessor=processor, outputStructType=ddl, outputMode="Append", timeMode="None"
    )
