"""The main job in Bytewax: two processes of a cluster, one worker each; JSON by orjson, money as whole cents."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import orjson
from bench.peers.job import DELAY_SECONDS, WINDOW_SECONDS, Job, spread, told
from bench.peers.upsert import Row, Upserts
from bytewax.connectors.kafka import KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.run import cli_main

PROCESSES = 2
FLUSH = 5_000
"""Rows that are written at once."""
START = datetime(2026, 1, 1, tzinfo=UTC)
LENGTH = timedelta(seconds=WINDOW_SECONDS)

Event = tuple[datetime, int]
Sums = tuple[int, int]


class Part(StatelessSinkPartition[tuple[str, tuple[int, Sums]]]):
    """Takes the results of a worker."""

    def __init__(self, address: str | None) -> None:
        self._upserts = None if address is None else Upserts(address)
        self._rows: list[Row] = []

    def write_batch(self, items: list[tuple[str, tuple[int, Sums]]]) -> None:
        """Keep what has come, until there is enough to write."""
        if self._upserts is None:
            return
        for user, (window, (cents, events)) in items:
            self._rows.append(((START + window * LENGTH).replace(tzinfo=None), user, cents, events))
        if len(self._rows) >= FLUSH:
            self._flush(self._upserts)

    def close(self) -> None:
        """Write the rest."""
        if self._upserts is not None:
            self._flush(self._upserts)
            self._upserts.close()

    def _flush(self, upserts: Upserts) -> None:
        upserts.write(self._rows)
        self._rows.clear()


class Results(DynamicSink[tuple[str, tuple[int, Sums]]]):
    """Drops results, or writes them into PostgreSQL."""

    def __init__(self, address: str | None) -> None:
        self._address = address

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Part:  # noqa: ARG002 - Bytewax's
        """Return a worker's part."""
        return Part(self._address)


def parse(messages: list[KafkaSourceMessage[bytes, bytes]]) -> Iterable[tuple[str, Event]]:
    """Parse a batch of records."""
    for message in messages:
        record = orjson.loads(message.value)
        at = datetime.fromtimestamp(record["event_time"] / 1000, UTC)
        yield record["user_id"], (at, round(record["amount"] * 100))


def flow(job: Job) -> Dataflow:
    """Return the dataflow."""
    built = Dataflow("spend")
    source = KafkaSource([job.servers], [job.topic], tail=False, batch_size=10_000)
    events = op.flat_map_batch("parse", op.input("kafka", built, source), parse)
    # windows of the past are not waited for by the system's clock: a user's next event, or the end, closes them
    clock = windowing.EventClock(
        ts_getter=lambda event: event[0],
        wait_for_system_duration=timedelta(seconds=DELAY_SECONDS),
        to_system_utc=lambda _: None,
    )
    sums = windowing.fold_window(
        "sums",
        events,
        clock,
        windowing.TumblingWindower(length=LENGTH, align_to=START),
        builder=lambda: (0, 0),
        folder=lambda state, event: (state[0] + event[1], state[1] + 1),
        merger=lambda one, other: (one[0] + other[0], one[1] + other[1]),
        ordered=False,
    )
    op.output("results", sums.down, Results(job.postgres))
    return built


def work(number: int, job: Job, addresses: list[str]) -> None:
    """Be one process of the cluster."""
    cli_main(flow(job), process_id=number, addresses=addresses, epoch_interval=timedelta(seconds=10))


def addresses() -> list[str]:
    """Return free ones on loopback."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(PROCESSES)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


def main(job: Job) -> None:
    """Run the cluster to the end of the topic."""
    spread("Bytewax", PROCESSES, work, job, addresses())


if __name__ == "__main__":
    main(told())
