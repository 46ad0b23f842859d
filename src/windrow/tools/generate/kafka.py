"""Writes generated logs to Kafka topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from windrow import model as m
from windrow.connectors.kafka.options import client_options
from windrow.errors import InputError, SourceError
from windrow.tools.generate.events import portions
from windrow.tools.generate.log import labels_beside
from windrow.tools.generate.spec import AnySpec, LivePace, LogCounts, Progress

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_TIMEOUT = 5.0
_FLUSH = 60.0
_PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "batch.num.messages": 50_000,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 500_000,
    "message.timeout.ms": 60_000,
    "delivery.report.only.error": True,
}


def write_kafka(
    spec: AnySpec,
    servers: str,
    topic: str,
    *,
    options: tuple[tuple[str, str], ...] = (),
    labels: Path | None = None,
    pace: LivePace | None = None,
    progress: Progress = None,
) -> LogCounts:
    """Append the log to a topic and return the record counts so far; `progress` is called with them after each portion.

    If the topic does not exist, it is created with the number of partitions in the spec. If the spec has several logs,
    each has a topic of its own, ``TOPIC-LOG``. The key of a record is its user or card (for Nexmark its person or
    auction), and its timestamp is the time of arrival. `labels` is the folder for fraud labels. Raise InputError if the
    topic has a different number of partitions or an option is wrong, and SourceError if the broker cannot be reached or
    rejects the records.
    """
    feed = portions(spec, pace)
    sources = [m.KafkaSource(servers, f"{topic}-{log}" if log else topic, options=options) for log in spec.logs]
    for source in sources:
        _ensure_topic(source, spec.partitions)
    producer = TopicWriter(sources[0])
    total = LogCounts()
    try:
        with labels_beside(spec, labels) as write_labels:
            for batches, counts, lines in feed:
                write_labels(lines)
                for source, batch in zip(sources, batches, strict=True):
                    producer.send(source.topic, batch)
                total += counts
                if progress is not None:
                    progress(total)
    finally:
        producer.flush()
    producer.check()
    return total


class TopicWriter:
    """Appends batches of records to the topics of a broker."""

    def __init__(self, source: m.KafkaSource) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415 - librdkafka only when a topic is written

        from windrow.connectors.kafka.client import client_of  # noqa: PLC0415 - as above

        self._source = source
        self._refused: list[KafkaError] = []
        options = {**client_options(source), **_PRODUCER, "on_delivery": self._on_delivery}
        self._client = client_of(Producer, source.topic, options)

    def send(self, topic: str, batch: pa.RecordBatch) -> None:
        """Send a batch, waiting while the buffer is full."""
        millis = batch.column("log_time").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        columns = (batch.column("partition"), batch.column("key"), batch.column("value"), millis)
        produce, poll = self._client.produce, self._client.poll
        for partition, key, value, timestamp in zip(*(column.to_pylist() for column in columns), strict=True):
            while True:
                try:
                    produce(topic, value, key, partition, timestamp=timestamp)
                    break
                except BufferError:
                    poll(0.1)
                    self.check()
        poll(0)
        self.check()

    def flush(self) -> None:
        """Wait until all records are acknowledged or rejected; raise SourceError if this takes too long."""
        if self._client.flush(_FLUSH):
            msg = f"{self._where} did not accept all records within {_FLUSH:.0f} s; is the broker running?"
            raise SourceError(msg)

    def check(self) -> None:
        """Raise SourceError if a record was rejected."""
        if self._refused:
            msg = f"{self._where} rejected {len(self._refused)} records: {self._refused[0].str()}"
            raise SourceError(msg)

    @property
    def _where(self) -> str:
        return f"topic {self._source.topic} at {self._source.servers}"

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None:
            self._refused.append(error)


def _ensure_topic(source: m.KafkaSource, partitions: int) -> None:
    from confluent_kafka import KafkaException  # noqa: PLC0415 - librdkafka only when a topic is written
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # noqa: PLC0415 - as above

    from windrow.connectors.kafka.client import client_of, unreachable  # noqa: PLC0415 - as above

    errors: list[KafkaError] = []
    admin = client_of(AdminClient, source.topic, {**client_options(source), "error_cb": errors.append})
    try:
        known = admin.list_topics(timeout=_TIMEOUT).topics
    except KafkaException as exc:
        raise SourceError(unreachable(source.servers, errors or [exc.args[0]])) from exc
    if source.topic in known:
        found = len(known[source.topic].partitions)
        if found != partitions:
            msg = f"topic {source.topic} has {found} partitions, not {partitions}: use {found}, or choose another topic"
            raise InputError(msg)
        return
    try:
        admin.create_topics([NewTopic(source.topic, partitions)])[source.topic].result(_TIMEOUT)
    except KafkaException as exc:
        msg = f"topic {source.topic} cannot be created at {source.servers}: {exc.args[0].str()}"
        raise SourceError(msg) from exc
