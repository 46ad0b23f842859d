"""What every source does: say its partitions, be read to its end, and be tailed by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Cut = Mapping[int, int]
"""Where a step ends: for each partition the number of records up to there (the next offset), counted from the
beginning of the log. A partition that is left out stays where the cut before it left it."""


class Source(Protocol):
    """A partitioned log; records come in the schema `windrow.core.schema.RAW`."""

    def partitions(self) -> list[int]:
        """Return the partitions in order; raise InputError or SourceError if the log cannot be read."""
        ...

    def read_all(self) -> Iterator[pa.RecordBatch]:
        """Read all that is in the log now: one partition after the other, each in the order of its offsets."""
        ...

    def stream(
        self, spark: SparkSession, max_records: int | None = None, cuts: Sequence[Cut] | None = None
    ) -> DataFrame:
        """Return a streaming frame of the log, one Spark task a partition and step.

        A step has at most `max_records` records; `cuts` prescribes where steps end instead (after the last of them
        everything comes).
        """
        ...
