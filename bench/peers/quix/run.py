"""The main job in Quix Streams: two processes of a consumer group, state in RocksDB; money as whole cents."""

from __future__ import annotations

import multiprocessing
import threading
import time
from datetime import UTC, datetime
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Any

from bench.peers.job import DELAY_SECONDS, WINDOW_SECONDS, Job, spread, told
from bench.peers.upsert import Upserts
from quixstreams import Application
from quixstreams.dataframe.windows.aggregations import Count, Sum
from quixstreams.sinks import BatchingSink, SinkBatch

PROCESSES = 2
_POLL_SECONDS = 0.05


class Results(BatchingSink):
    """Writes what has come between two commits."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._upserts = Upserts(address)

    def write(self, batch: SinkBatch) -> None:
        """Write a batch of one partition."""
        rows = []
        for item in batch:
            at = datetime.fromtimestamp(item.value["start"] / 1000, UTC).replace(tzinfo=None)
            rows.append((at, item.key.decode(), item.value["total"], item.value["events"]))
        self._upserts.write(rows)


def event_time(value: Any, headers: Any, timestamp: float, timestamp_type: Any) -> int:  # noqa: ANN401, ARG001 - Quix's
    """Return when it happened, in milliseconds."""
    return int(value["event_time"])


def work(number: int, job: Job, processed: SynchronizedArray[int]) -> None:
    """Be one process of the group, until both have processed all."""
    seen = 0

    def count(topic: str, partition: int, offset: int) -> None:  # noqa: ARG001 - Quix's
        nonlocal seen
        seen += 1
        counts[number] = seen

    counts: Any = processed.get_obj()
    application = Application(
        broker_address=job.servers,
        consumer_group=job.folder.name,
        auto_offset_reset="earliest",
        state_dir=job.folder / f"state-{number}",
        on_message_processed=count,
        loglevel="ERROR",
    )
    topic = application.topic(job.topic, timestamp_extractor=event_time)
    cents = application.dataframe(topic).apply(lambda value: round(value["amount"] * 100))
    windows = cents.tumbling_window(duration_ms=WINDOW_SECONDS * 1000, grace_ms=DELAY_SECONDS * 1000)
    sums = windows.agg(total=Sum(), events=Count()).final(closing_strategy="partition")
    if job.postgres is not None:
        sums.sink(Results(job.postgres))

    def stop_at_the_end() -> None:
        while sum(counts) < job.events:
            time.sleep(_POLL_SECONDS)
        application.stop()

    threading.Thread(target=stop_at_the_end, daemon=True).start()
    application.run()


def main(job: Job) -> None:
    """Run the group to the end of the topic."""
    processed = multiprocessing.get_context("fork").Array("q", PROCESSES)
    spread("Quix Streams", PROCESSES, work, job, processed)


if __name__ == "__main__":
    main(told())
