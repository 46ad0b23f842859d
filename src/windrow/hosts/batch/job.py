"""The Spark job of a batch run: source, clock stage, key groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from pyspark.sql import DataFrame, Row, SparkSession

from windrow.core.watermarks.journal import NO_BOUNDS, WatermarkBounds
from windrow.hosts.batch.plan import Plan
from windrow.hosts.batch.stages import clock_stage, key_group_stage, spread_stage
from windrow.hosts.batch.wire import PACKET_DDL, RESULT_DDL
from windrow.hosts.stream.carrier import Carrier
from windrow.model import AnyPipeline, is_salted
from windrow.sources import Source


@dataclass(frozen=True)
class Job:
    """What is read by a plan, and judged; the rest as in `BatchSettings`."""

    pipeline: AnyPipeline
    source: Source
    plan: Plan
    floors: WatermarkBounds = NO_BOUNDS
    since: int | None = None
    keeps_state: bool = False

    def results(self, spark: SparkSession, carrier: Carrier) -> Iterator[tuple[int, list[Row]]]:
        """Compute all steps, then yield the number of each that has something with the rows of its key groups.

        With `keeps_state`, each group's state follows at the number of steps and its own.
        """
        plan, cut, groups = self.plan, self.plan.cut, self.pipeline.key_groups
        if not len(cut):
            return
        clocks = clock_stage(self.pipeline, self.floors, cut)
        packets = self.source.batch(spark, plan.begin, plan.end, clocks, PACKET_DDL)
        if is_salted(self.pipeline):
            spread = spread_stage(self.pipeline, plan.partitions, cut)
            packets = _by_key_group(packets, groups).mapInArrow(spread, PACKET_DDL)
        stage = key_group_stage(
            self.pipeline, plan.partitions, cut, since=self.since, carrier=carrier, keeps_state=self.keeps_state
        )
        results = _by_key_group(packets, groups).mapInArrow(stage, RESULT_DDL)
        # from here on they wait on disk, and come to the driver a step at a time
        by_step = results.repartitionById(len(cut) + groups * self.keeps_state, "position")
        for position, rows in groupby(by_step.toLocalIterator(), lambda row: row.position):
            yield position, sorted(rows, key=lambda row: row.key_group)


def _by_key_group(packets: DataFrame, groups: int) -> DataFrame:
    """Make one Spark partition of each key group, in the order of the steps: Spark spills, and not we."""
    return packets.repartitionById(groups, "key_group").sortWithinPartitions("slice")
