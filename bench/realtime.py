"""From a purchase to the alert about it, in real time: ``python bench/realtime.py``.

So many purchases a second of 20,000 cards go to a Kafka topic, one in twenty of them suspicious; ``windrow run`` (a
process of its own, with Spark) writes alerts into another topic, and a consumer that reads committed records sees them.
The latency is from before the purchase is handed to the producer to the arrival of the alert, all by one clock. What
comes in the first seconds is not counted: code is compiled, and cards get their first purchases. The last line of each
case says by how much a sleep of 1 ms was late meanwhile: how busy the machine was.

The broker is that of the tests, on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from bench.closings import percentile
from confluent_kafka import Consumer, Producer, TopicPartition

from windrow.testing.servers.kafka import Kafka

CARDS = 20_000
_START = 120.0
_QUANTILES = (50, 95, 99, 99.9)


def feed(servers: str, topic: str, partitions: int, rate: int, seconds: float) -> None:
    """Produce purchases at a rate; print the quantiles of how late a sleep of 1 ms was, as JSON."""
    chance = random.Random(1)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "queue.buffering.max.messages": 1_000_000})
    began, number, late = time.monotonic(), 0, []
    while (passed := time.monotonic() - began) < seconds:
        while number < passed * rate:
            card, now = chance.randrange(CARDS), time.time_ns() // 1000
            amount = chance.lognormvariate(3, 0.3) * (10 if chance.random() < 0.05 else 1)  # noqa: PLR2004 - one in twenty
            record = {"id": str(number), "card": f"c{card}", "t": now, "amount": round(amount, 2), "sent": now}
            producer.produce(topic, json.dumps(record), f"c{card}", partition=card % partitions)
            number += 1
        producer.poll(0)
        before = time.perf_counter()
        time.sleep(0.001)
        late.append(1000 * (time.perf_counter() - before) - 1)
    producer.flush()
    print(json.dumps([percentile(late, one) for one in _QUANTILES]))


def watch(servers: str, topic: str, partitions: int, seconds: float, warm: float) -> list[float]:
    """Return the latencies, in milliseconds, of the alerts that come after the warm-up."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "fetch.wait.max.ms": 5})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found, began = [], time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        message = consumer.poll(0.05)
        now = time.time_ns() // 1000
        value = None if message is None or message.error() else message.value()
        if value is not None and passed > warm:
            found.append((now - json.loads(value)["sent"]) / 1000)
    consumer.close()
    return found


@contextmanager
def _process(words: Sequence[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, *words], env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def measure(kafka: Kafka, given: argparse.Namespace, partitions: int, rate: int, number: int) -> None:
    """Run one case, and print it."""
    topic = f"purchases-{number}"
    kafka.create_topic(topic, partitions, {"message.timestamp.type": "LogAppendTime"})
    kafka.create_topic(f"{topic}-alerts", partitions, {"message.timestamp.type": "LogAppendTime"})
    pipeline = str(Path(__file__).with_name("realtime_pipeline.py"))
    environment = {"BENCH_SERVERS": kafka.servers, "BENCH_TOPIC": topic, "BENCH_COMMIT": given.commit}
    with tempfile.TemporaryDirectory(prefix="windrow-realtime-") as folder:
        words = ["-m", "windrow", "run", pipeline, "--checkpoint", folder, "--json"]
        with _process(words, **environment) as run:
            _until_committed(kafka.servers, topic)
            seconds = given.warm + given.seconds
            feeding = ["--feed", kafka.servers, topic, str(partitions), str(rate), str(seconds)]
            with _process([__file__, *feeding]) as feeder:
                found = watch(kafka.servers, f"{topic}-alerts", partitions, seconds, given.warm)
                noise = json.loads(feeder.communicate(timeout=60)[0])
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=60)
    line = "".join(f"{percentile(found, one):9.1f}" for one in _QUANTILES)
    late = ", ".join(f"{one:.1f}" for one in noise)
    print(
        f"{partitions:10} {rate:9,} {len(found):7,}{line}{max(found, default=float('nan')):9.1f}   {late}", flush=True
    )


def _until_committed(servers: str, topic: str) -> None:
    """Wait until the run has begun: it commits where it begins."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"windrow-{topic}"})
    deadline = time.monotonic() + _START
    while consumer.committed([TopicPartition(topic, 0)], 10)[0].offset < 0:
        if time.monotonic() > deadline:
            message = "the run has not begun"
            raise RuntimeError(message)
        time.sleep(0.2)
    consumer.close()


def main() -> None:
    """Measure the cases, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=int, nargs="+", default=[100, 1_000, 3_000], help="purchases a second")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=60, help="how long each case is measured")
    parser.add_argument("--warm", type=float, default=15, help="seconds that are not counted")
    parser.add_argument("--commit", default="20ms", help="time between transactions")
    parser.add_argument("--feed", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.feed:
        servers, topic, partitions, rate, seconds = given.feed
        feed(servers, topic, int(partitions), int(rate), float(seconds))
        return
    with tempfile.TemporaryDirectory(prefix="windrow-kafka-") as folder:
        kafka = Kafka(Path(folder))
        kafka.start()
        try:
            quantiles = "".join(f"{f'p{one}':>9}" for one in _QUANTILES)
            print(f"partitions    rate/s  alerts{quantiles}      max   1 ms sleep late by (same quantiles)")
            for number, (partitions, rate) in enumerate(product(given.partitions, given.rates)):
                measure(kafka, given, partitions, rate, number)
        finally:
            kafka.stop()


if __name__ == "__main__":
    main()
