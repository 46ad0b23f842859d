"""Gives a topic so many events a second, of now, and says when each window closed: ``python bench/feed.py``.

It ends when its stdin does, and prints one line of JSON: for each partition when the record that brought its watermark
to a window's end was handed to the producer, and when the broker had it, by the window's start in milliseconds. Seconds
are those of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from bench.closings import Edges
from confluent_kafka import KafkaError, Message, Producer

from windrow.tools.generate.events import key_bytes, render

_TICK = 0.01
_FLUSH = 30.0
_PRODUCER = {"acks": "all", "enable.idempotence": True, "linger.ms": 2, "log_level": 3}


@dataclass
class Feeder:
    """Sends events that lie exponentially distributed before now, and notes which of them close windows."""

    producer: Producer
    topic: str
    users: int
    partitions: int
    disorder: float
    edges: Edges
    handed: list[dict[int, float]] = field(init=False)
    acked: list[dict[int, float]] = field(init=False)

    def __post_init__(self) -> None:
        self.handed = [{} for _ in range(self.partitions)]
        self.acked = [{} for _ in range(self.partitions)]
        self._random = np.random.default_rng(1)

    def send(self, count: int) -> None:
        """Send some events of now."""
        users = self._random.integers(0, self.users, count)
        times = time.time_ns() // 1_000_000 - self._random.exponential(self.disorder, count).astype(np.int64)
        cents = np.clip(self._random.lognormal(7.0, 1.0, count), 1, 99_999_999).astype(np.int64)
        keys = key_bytes(self.users).take(pa.array(users))
        values = render(keys, times, cents, np.zeros(count, np.int64), None)
        partitions = users % self.partitions
        closing: dict[int, list[int]] = defaultdict(list)
        for partition in range(self.partitions):
            rows = np.flatnonzero(partitions == partition)
            for row, start in self.edges.passed(partition, times[rows]):
                closing[int(rows[row])].append(start)
        columns = (partitions, keys, values)
        for row, (partition, key, value) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            if row in closing:
                self._close(partition, key, value, closing[row])
            else:
                self.producer.produce(self.topic, value, key, partition)

    def _close(self, partition: int, key: bytes, value: bytes, starts: list[int]) -> None:
        def note(error: KafkaError | None, message: Message) -> None:
            del message
            if error is None:
                self.acked[partition].update(dict.fromkeys(starts, time.monotonic()))

        self.handed[partition].update(dict.fromkeys(starts, time.monotonic()))
        self.producer.produce(self.topic, value, key, partition, on_delivery=note)


def feed(feeder: Feeder, rate: float, over: threading.Event) -> int:
    """Send so many events a second until it is over; return how many they were."""
    began, sent = time.monotonic(), 0
    while not over.is_set():
        due = int((time.monotonic() - began) * rate)
        feeder.send(due - sent)
        sent = due
        feeder.producer.poll(_TICK)  # it waits, and notes what the broker has
    left = feeder.producer.flush(_FLUSH)
    if left:
        msg = f"the broker did not take {left} events"
        raise RuntimeError(msg)
    return sent


def main() -> None:
    """Feed until stdin ends, and print when windows closed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rate", type=float, required=True, help="events a second")
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--disorder", type=float, default=100.0, help="milliseconds, in the mean")
    parser.add_argument("--size", type=int, required=True, help="of windows, in milliseconds")
    parser.add_argument("--delay", type=int, required=True, help="of watermarks, in milliseconds")
    given = parser.parse_args()
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    producer = Producer({"bootstrap.servers": given.servers, **_PRODUCER})
    edges = Edges(given.size, given.delay)
    feeder = Feeder(producer, given.topic, given.users, given.partitions, given.disorder, edges)
    sent = feed(feeder, given.rate, over)
    print(json.dumps({"sent": sent, "handed": feeder.handed, "acked": feeder.acked}))


if __name__ == "__main__":
    main()
