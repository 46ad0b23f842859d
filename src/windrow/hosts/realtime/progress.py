"""How far a realtime run is: the committed offsets of its consumer group against the ends of its topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from windrow.errors import WindrowError
from windrow.hosts.realtime.topics import group_of, source_of
from windrow.hosts.reports import OnStep, StepReport, Stopwatch, lag
from windrow.model import Runnable
from windrow.sources.kafka import preflight
from windrow.sources.kafka.client import client_of
from windrow.sources.kafka.options import TIMEOUT, client_options

REPORT_SECONDS = 1.0
"""Between two reports, and how long one waits for the ends of the topic."""


class Progress:
    """Asks how far the consumer group and the topic are."""

    def __init__(self, pipeline: Runnable, partitions: Sequence[int], on_trouble: Callable[[str], None]) -> None:
        self._source = source_of(pipeline)
        settings = {**client_options(self._source), "error_cb": lambda _: None}
        self._admin = client_of(AdminClient, self._source.topic, settings)
        self._asked = ConsumerGroupTopicPartitions(
            group_of(pipeline), [TopicPartition(self._source.topic, number) for number in partitions]
        )
        self._on_trouble = on_trouble
        self._is_down = False
        self._watch = Stopwatch()
        self._epoch = -1
        self._last: Mapping[int, int] = {}

    def report(self, on_step: OnStep) -> None:
        """Report what was committed since the last report; nothing if no broker answers, or none is."""
        try:
            (answer,) = self._admin.list_consumer_group_offsets([self._asked], request_timeout=TIMEOUT).values()
            offsets = {one.partition: one.offset for one in answer.result(TIMEOUT).topic_partitions if one.offset >= 0}
            ends = preflight(self._source, REPORT_SECONDS)
        except (KafkaException, WindrowError) as exc:
            if not self._is_down:
                self._on_trouble(f"{exc}; the tasks try again")
            self._is_down = True
            return
        self._is_down = False
        behind = lag(ends, offsets)
        if offsets == self._last and any(behind.values()):
            return  # a report is of what was committed
        self._epoch += 1
        records = sum(at - self._last.get(number, at) for number, at in offsets.items())
        self._last = offsets
        seconds = self._watch.lap()
        on_step(
            StepReport(
                epoch=self._epoch,
                records=records,
                late=0,
                expired=0,
                dead=0,
                inserts=0,
                revisions=0,
                open_windows=0,
                watermarks={},
                offsets=dict(offsets),
                low_watermark=None,
                idle=[],
                seconds=seconds,
                took=seconds,
                lag=dict(behind),
            )
        )
