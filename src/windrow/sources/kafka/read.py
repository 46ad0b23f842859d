"""A topic read to its end, in process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from windrow.core.schema import MICROS, RAW
from windrow.errors import SourceError
from windrow.model import KafkaSource
from windrow.sources.kafka.client import quiet, settings, unreachable

_MESSAGES = 10_000
_WAIT = 0.05
"""Seconds to wait for that many messages; fewer come back then."""
_LAST_MILLI = 253_402_300_799_999
"""The end of the year 9999."""


def read_range(
    source: KafkaSource, ends: Mapping[int, tuple[int, int]], timeout: float = 60
) -> Iterator[pa.RecordBatch]:
    """Read the committed records between two offsets of each partition, in RAW batches of one partition each.

    Offsets may jump (compaction, transactions). Raise SourceError if nothing comes for `timeout` seconds.
    """
    left = {partition: end for partition, (begin, end) in ends.items() if begin < end}
    said: list[KafkaError] = []
    extra = {
        "group.id": "windrow",  # the client wants one; nothing is committed to it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 20,
        "error_cb": said.append,
    }
    consumer = Consumer(settings(source, extra), logger=quiet())
    try:
        consumer.assign([TopicPartition(source.topic, partition, ends[partition][0]) for partition in left])
        heard = time.monotonic()
        while left:
            messages = consumer.consume(_MESSAGES, _WAIT)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > timeout:
                raise SourceError(unreachable(source, said))
            records: dict[int, list[Message]] = {}
            for message in messages:
                partition, offset, error = message.partition(), message.offset(), message.error()
                if partition not in left or offset is None:
                    continue
                if error is None and offset < left[partition]:
                    records.setdefault(partition, []).append(message)
                elif error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its own name
                    msg = f"topic {source.topic}, partition {partition} at {source.servers}: {error.str()}"
                    raise SourceError(msg)
                if offset >= left[partition] - (error is None):  # the end of a partition says the next offset
                    consumer.incremental_unassign([TopicPartition(source.topic, partition)])
                    del left[partition]
            for partition, found in records.items():
                yield _batch(partition, found)
    finally:
        consumer.close()


def _batch(partition: int, messages: list[Message]) -> pa.RecordBatch:
    kinds, millis = zip(*(message.timestamp() for message in messages), strict=True)
    unknown = np.array(kinds) == TIMESTAMP_NOT_AVAILABLE
    micros = np.clip(np.array(millis, np.int64), 0, _LAST_MILLI) * 1000
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(partition, pa.int32()), len(messages)),
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array(micros, mask=unknown).cast(MICROS),
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
        ],
        schema=RAW,
    )
