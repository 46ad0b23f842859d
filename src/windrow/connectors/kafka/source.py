"""A Kafka topic as a source, read through librdkafka. Only committed records are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from windrow import model as m
from windrow.connectors.cuts import Cut, Offset, Stage, StreamPlan
from windrow.connectors.kafka.options import TIMEOUT, client_options
from windrow.connectors.source import FoundLosses, Loss, Source
from windrow.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from windrow.connectors.kafka.client import Admin
    from windrow.connectors.kafka.stream import KafkaStreamReader

_NO_ID = "A" * 22
"""The topic id returned by a broker without topic ids: a UUID of zeros in base64."""


def preflight(source: m.KafkaSource, timeout: float = TIMEOUT) -> dict[int, tuple[int, int]]:
    """Return the first offset of each partition and the end of its committed records, within `timeout` seconds.

    Raise SourceError if no broker can be reached, the topic does not exist, or reading it is denied. Raise InputError
    for invalid options.
    """
    return _ends(_admin(source, timeout))


def log_ends(source: m.KafkaSource, timeout: float = TIMEOUT) -> dict[int, int]:
    """Return the end of each partition, including open transactions; raise the errors of `preflight`."""
    return _admin(source, timeout).log_ends()


def topic_settings(source: m.KafkaSource, timeout: float = TIMEOUT) -> dict[str, str]:
    """Return the topic's settings, such as ``retention.ms``; raise the errors of `preflight`."""
    return _admin(source, timeout).settings()


def partition_finder(source: m.KafkaSource) -> Callable[[], list[int]]:
    """Return a function that looks up the topic's partitions, in any process; raise InputError for invalid options."""
    return partial(_partitions, source.topic, client_options(source))


def _partitions(topic: str, settings: Mapping[str, str]) -> list[int]:
    from windrow.connectors.kafka.client import Admin  # noqa: PLC0415 - librdkafka only for a request

    return Admin(topic, settings, TIMEOUT).partitions()


def _admin(source: m.KafkaSource, timeout: float) -> Admin:
    from windrow.connectors.kafka.client import Admin  # noqa: PLC0415 - the same

    return Admin(source.topic, client_options(source), timeout)


def _ends(admin: Admin) -> dict[int, tuple[int, int]]:
    return admin.offsets(admin.partitions())


class KafkaTopic(Source):
    """The topic of a `KafkaSource`. Methods raise the errors of `preflight`."""

    def __init__(self, source: m.KafkaSource, *, has_headers: bool = False) -> None:
        self._source = source
        self._has_headers = has_headers
        self._kept: Admin | None = None
        self._keeping = Lock()

    @property
    def name(self) -> str:
        return self._source.topic

    def partitions(self) -> list[int]:
        return sorted(preflight(self._source))

    def read_all(self) -> Iterator[pa.RecordBatch]:
        """Read the topic to its current end, in RAW batches. With `start: latest`, there is nothing to read."""
        ends = preflight(self._source)
        return iter(()) if self._source.start == "latest" else self.read_ranges(ends)

    def read_from(self, partition: int, begin: int) -> Iterator[pa.RecordBatch]:
        first, end = self.ends()[partition]
        return self.read_ranges({partition: (max(first, begin), end)})

    def read_ranges(self, ends: Mapping[int, tuple[int, int]]) -> Iterator[pa.RecordBatch]:
        """Read a range of offsets of each partition, one partition after the other, in RAW batches."""
        from windrow.connectors.kafka.read import Reader  # noqa: PLC0415 - as above

        reader = Reader(self._source.topic, client_options(self._source), has_headers=self._has_headers)
        for partition, span in sorted(ends.items()):
            yield from reader.read({partition: span})

    def with_headers(self) -> KafkaTopic:
        return KafkaTopic(self._source, has_headers=True)

    def ends(self) -> dict[int, tuple[int, int]]:
        return _ends(self._shared_admin)

    def estimate_bytes(self, begin: Cut, end: Cut) -> int:
        from windrow.connectors.kafka.sizes import RecordSizes  # noqa: PLC0415 - as above

        sizes = RecordSizes(self._source.topic, client_options(self._source))
        return sizes.estimate(begin, end)

    def incomplete(self) -> list[str]:
        """Return an empty list, because a broker stores only complete records."""
        return []

    def beginning(self, start: Cut | None = None) -> Offset:
        latest = self._source.start == "latest" and start is None
        there = {partition: ends[latest] for partition, ends in self.ends().items()}
        return {self._source.topic: {str(number): at for number, at in sorted((there | dict(start or {})).items())}}

    def reader(self, plan: StreamPlan) -> KafkaStreamReader:
        from windrow.connectors.kafka.stream import KafkaStreamReader  # noqa: PLC0415 - Spark only when a stream is opened

        if plan.cuts is not None:
            msg = "steps of a Kafka topic cannot be prescribed; copy the topic to an embedded log"
            raise InputError(msg)
        settings = client_options(self._source)
        return KafkaStreamReader(self._source.topic, settings, plan, has_headers=self._has_headers)

    def batch(self, spark: SparkSession, begin: Cut, end: Cut, stage: Stage, ddl: str) -> DataFrame:
        from windrow.connectors.kafka.stream import range_reader  # noqa: PLC0415 - as above
        from windrow.connectors.stream_reader import frame_of  # noqa: PLC0415 - as above

        there = self.ends() if end.keys() - begin.keys() else {}
        ranges = [(number, begin[number] if number in begin else there[number][0], end[number]) for number in end]
        read = range_reader(self._source.topic, client_options(self._source), has_headers=self._has_headers)
        return frame_of(spark, [part for part in sorted(ranges) if part[1] < part[2]], read, stage, ddl)

    def identity(self, seconds: float = TIMEOUT) -> str | None:
        """Return the topic's id, which distinguishes it from other topics of the same name."""
        return self._shared_admin.topic_id(seconds)

    def find_losses(self, offset: Offset, identity: str | None) -> FoundLosses:
        """Report records that were lost to retention, to the loss of a broker, or because the topic was recreated."""
        made_anew = None if identity in (None, _NO_ID) else identity != self.identity()
        return find_losses(self._source.topic, offset, self.ends(), made_anew=made_anew)

    @property
    def _shared_admin(self) -> Admin:
        """A client shared by all requests, since several threads of a run ask for the ends every second."""
        with self._keeping:
            if self._kept is None:
                self._kept = _admin(self._source, TIMEOUT)
            return self._kept


def find_losses(topic: str, offset: Any, ends: Mapping[int, tuple[int, int]], *, made_anew: bool | None) -> FoundLosses:  # noqa: ANN401 - plain JSON
    """Compare a run's position, as Spark recorded it, with the first and last offsets of each partition.

    A partition that was added after the run began is read from offset 0. If the topic was recreated (`made_anew`), all
    its former records are lost, and reading continues at the first offset. Otherwise, a partition that ends before the
    position was truncated; its remaining records were already read, so reading continues at its end. If `made_anew` is
    None (unknown), a partition that ends before the position may belong to a new topic, so it is read from its first
    offset.
    """
    stands = {int(partition): int(at) for partition, at in offset.get(topic, {}).items()}
    moved: dict[str, int] = {}
    losses = []
    for partition, stood in sorted((dict.fromkeys(ends, 0) | stands).items()):
        first, end = ends.get(partition, (0, 0))
        if made_anew or stood < first:
            goes_on = first
        elif stood <= end:
            goes_on = stood
        else:
            goes_on = first if made_anew is None else end
        if partition in ends:
            moved[str(partition)] = goes_on
        if made_anew:
            what = f"the topic was made anew, read up to offset {stood} before"
        elif partition not in ends:
            what = f"it is gone, read up to offset {stood}"
        elif stood < first:
            what = f"offsets {stood} to {first - 1} are gone"
        else:
            what = f"it ends at offset {end}, and had been read up to {stood}"
        # a partition that was never read has lost nothing
        if (made_anew and stood > 0) or not first <= stood <= end:
            losses.append(Loss(partition, stood, goes_on, what))
    return FoundLosses(tuple(losses), {topic: moved})
