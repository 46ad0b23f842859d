"""The main job in Pathway, on two threads of its engine: with a cut-off, or with all windows kept for ever."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from bench.peers.job import DELAY_SECONDS, DONE, READY, TABLE, WINDOW_SECONDS, Job, tell, told

os.environ["PATHWAY_THREADS"] = "2"

import pathway as pw


class Event(pw.Schema):
    """A purchase."""

    user_id: str
    event_time: int
    amount: float


def main(job: Job) -> None:
    """Run it to the end of the topic."""
    kafka = {"bootstrap.servers": job.servers, "group.id": job.folder.name, "auto.offset.reset": "earliest"}
    events = pw.io.kafka.read(kafka, topic=job.topic, schema=Event, format="json", mode="static")
    # a window is cut off when any record of the topic is so much later: what is read of one partition cuts off others
    cutoff = pw.temporal.exactly_once_behavior(shift=DELAY_SECONDS * 1000) if job.engine == "pathway-cutoff" else None
    windows = events.windowby(
        pw.this.event_time,
        window=pw.temporal.tumbling(duration=WINDOW_SECONDS * 1000),
        instance=pw.this.user_id,
        behavior=cutoff,
    )
    sums = windows.reduce(
        window_start=pw.this._pw_window_start.dt.from_timestamp(unit="ms"),  # noqa: SLF001 - Pathway's name
        user_id=pw.this._pw_instance,  # noqa: SLF001
        total=pw.reducers.sum(pw.this.amount),
        events=pw.reducers.count(),
    )
    if job.postgres is None:
        pw.io.null.write(sums)
    else:
        parts = urlsplit(job.postgres)
        address = {"host": parts.hostname, "port": parts.port, "dbname": parts.path[1:], "user": parts.username}
        pw.io.postgres.write(
            sums,
            address,
            TABLE,
            init_mode="replace",
            output_table_type="snapshot",
            primary_key=[sums.window_start, sums.user_id],
        )
    tell(READY)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    tell(DONE)


if __name__ == "__main__":
    main(told())
