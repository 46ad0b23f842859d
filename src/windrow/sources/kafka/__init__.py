"""A Kafka topic: through Spark's own connector as a stream, through librdkafka otherwise; committed records only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from windrow.errors import InputError
from windrow.model import KafkaSource
from windrow.sources.base import Cut
from windrow.sources.kafka.losses import find_losses
from windrow.sources.kafka.options import range_options, spark_options, start_option
from windrow.sources.loss import Found

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from windrow.sources.base import Stage
    from windrow.sources.kafka.client import Admin

__all__ = ["KafkaTopic", "preflight", "spark_options"]


_TIMEOUT = 10.0
"""Seconds that a broker is asked for."""


def preflight(source: KafkaSource, timeout: float = _TIMEOUT) -> dict[int, tuple[int, int]]:
    """Return each partition's first offset and the end of what is committed, asking for at most `timeout` seconds.

    Raise SourceError for a broker that cannot be reached and a topic that is not there or may not be read, and
    InputError for options that are wrong.
    """
    return _ends(_admin(source, timeout))


def _admin(source: KafkaSource, timeout: float) -> Admin:
    from windrow.sources.kafka.client import Admin  # noqa: PLC0415 - librdkafka only when a broker is asked

    return Admin(source, timeout)


def _ends(admin: Admin) -> dict[int, tuple[int, int]]:
    return admin.offsets(admin.partitions())


class KafkaTopic:
    """The connector of a `KafkaSource`; see `windrow.sources.Source`."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._kept: Admin | None = None
        self._keeping = Lock()

    @property
    def name(self) -> str:
        """The topic."""
        return self._source.topic

    def partitions(self) -> list[int]:
        """Return the partitions in order; raise as `preflight` does."""
        return sorted(preflight(self._source))

    def read_all(self) -> Iterator[pa.RecordBatch]:
        """Read the topic to the end that it has now, in RAW batches; with `start: latest` that is nothing."""
        from windrow.sources.kafka.read import read_range  # noqa: PLC0415 - as above

        ends = preflight(self._source)
        if self._source.start == "latest":
            ends = {partition: (end, end) for partition, (_, end) in ends.items()}
        return read_range(self._source, ends)

    def ends(self) -> dict[int, tuple[int, int]]:
        """Return each partition's first offset and the end of what is committed; raise as `preflight` does.

        A run asks every second, and for the topic's id in each step: by one client, which it keeps.
        """
        return _ends(self._asked)

    def stream(
        self,
        spark: SparkSession,
        max_records: int | None = None,
        cuts: Sequence[Cut] | None = None,
        start: Cut | None = None,
    ) -> DataFrame:
        """Return a streaming frame of the topic; see `windrow.sources.Source.stream`. Kafka cannot be cut."""
        from windrow.sources.kafka.spark import raw_columns  # noqa: PLC0415 - Spark only when a stream is opened

        if cuts is not None:
            msg = "steps of a Kafka topic cannot be prescribed; copy the topic to an embedded log"
            raise InputError(msg)
        options = spark_options(self._source, max_records)
        if start is not None:
            options |= start_option(self._source, self.partitions(), start)
        return raw_columns(spark.readStream.format("kafka").options(**options).load())

    def batch(self, spark: SparkSession, begin: Cut, end: Cut, stage: Stage, ddl: str) -> DataFrame:
        """Return a frame of what a stage makes of a range; see `windrow.sources.Source.batch`."""
        from windrow.sources.kafka.spark import raw_columns  # noqa: PLC0415 - as above

        options = range_options(self._source, begin, end)
        return raw_columns(spark.read.format("kafka").options(**options).load()).mapInArrow(stage, ddl)

    def identity(self, seconds: float = _TIMEOUT) -> str | None:
        """Return the topic's id, which another topic of the same name does not have; raise as `preflight` does."""
        return self._asked.topic_id(seconds)

    def find_losses(self, offset: Any, identity: str | None) -> Found:  # noqa: ANN401 - see `Source`
        """Return what is gone: by retention, or since the topic was made anew."""
        made_anew = identity is not None and identity != self.identity()
        return find_losses(self._source.topic, offset, self.ends(), made_anew=made_anew)

    @property
    def _asked(self) -> Admin:
        """The client that is asked again and again, from several threads."""
        with self._keeping:
            if self._kept is None:
                self._kept = _admin(self._source, _TIMEOUT)
            return self._kept
