"""The loops of the realtime host against a real broker, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from tests.hosts.realtime_jobs import (
    deduplicated_graph,
    ends_of,
    expected,
    feed,
    open_jobs,
    process_pipeline,
    until_read,
    window_pipeline,
    written,
)
from tests.servers.kafka import Kafka

from windrow.hosts.realtime.run import serve
from windrow.model import Runnable

Make = Callable[[str, str, str], Runnable]


@pytest.mark.parametrize("make", [process_pipeline, window_pipeline, deduplicated_graph])
def test_it_writes_what_the_memory_host_gives(kafka: Kafka, topic: Callable[..., str], make: Make) -> None:
    source = topic(2)
    pipeline = make(kafka.servers, source, f"p-{uuid4().hex[:8]}")
    for first in (0, 400):
        # the second time from the state of the first
        feed(kafka, source, first, 400, partitions=2)
        jobs = open_jobs(pipeline)
        serve(jobs, until_read(jobs, ends_of(pipeline)))
    for name, values in expected(pipeline).items():
        assert written(kafka.servers, name) == values
