"""Throughput over Kafka: windrow beside plain PySpark, and the stages before it: ``python bench/throughput.py``.

Starts a broker, fills a topic (10,000 users over ten days, 4 partitions, keyed by user), and runs the engines of
``bench/engines.py`` in turn, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.servers.kafka import Kafka

from windrow.testing.generator import Spec, write_kafka

TOPIC = "spend"
DAY = 86_400_000_000
_ENGINES = Path(__file__).with_name("engines.py")


def measure(events: int, rounds: int, engines: list[str], step: int) -> dict[str, list[float]]:
    """Return the seconds of each engine's rounds."""
    seconds: dict[str, list[float]] = {engine: [] for engine in engines}
    with tempfile.TemporaryDirectory(prefix="windrow-kafka-") as folder:
        broker = Kafka(Path(folder))
        broker.start()
        try:
            # event times are in the past: the topic must not let them go
            broker.create_topic(TOPIC, 4, {"retention.ms": "-1"})
            print(f"filling the topic with {events:,} events", flush=True)
            # no malformed records: plain PySpark's query would stop at the first time that is out of range
            write_kafka(Spec(events=events, duration=10 * DAY, malformed_share=0), broker.servers, TOPIC)
            for number in range(rounds):
                for engine in engines:
                    seconds[engine].append(_run(engine, broker.servers, step))
                    print(f"round {number + 1}: {engine} {seconds[engine][-1]:.1f} s", flush=True)
        finally:
            broker.stop()
    return seconds


def _run(engine: str, servers: str, step: int) -> float:
    command = [sys.executable, str(_ENGINES), engine, "--servers", servers, "--topic", TOPIC, "--step", str(step)]
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return float(json.loads(result.stdout.splitlines()[-1])["seconds"])


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step", type=int, default=1_000_000)
    parser.add_argument("--engines", nargs="+", default=["windrow", "pyspark", "clock", "read"])
    arguments = parser.parse_args()
    seconds = measure(arguments.events, arguments.rounds, arguments.engines, arguments.step)
    medians = {engine: statistics.median(times) for engine, times in seconds.items()}
    print(f"\n{'engine':10} {'median s':>9} {'events/s':>10}   all")
    for engine, median in medians.items():
        print(f"{engine:10} {median:9.1f} {arguments.events / median:10,.0f}   {seconds[engine]}")
    if {"windrow", "pyspark"} <= medians.keys():
        pairs = [b / a for a, b in zip(seconds["windrow"], seconds["pyspark"], strict=True)]
        print(
            f"windrow is {statistics.median(pairs):.2f} times as fast as plain PySpark (pairs: "
            f"{', '.join(f'{pair:.2f}' for pair in pairs)})"
        )


if __name__ == "__main__":
    main()
