"""Throughput over Kafka: windrow beside plain PySpark, and the stages before it: ``python bench/throughput.py``.

Starts a broker, fills a topic (10,000 users, 4 partitions, keyed by user), and runs the engines of
``bench/engines.py`` in turn, each in a process of its own. An engine ``windrow:{session: 5m}`` is windrow with that
window.
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
HOUR = 3_600_000_000
_ENGINES = Path(__file__).with_name("engines.py")


def measure(events: int, hours: float, rounds: int, engines: list[str], options: list[str]) -> dict[str, list[float]]:
    """Return the seconds of each engine's rounds over a topic whose event times span some hours."""
    seconds: dict[str, list[float]] = {engine: [] for engine in engines}
    with tempfile.TemporaryDirectory(prefix="windrow-kafka-") as folder:
        broker = Kafka(Path(folder))
        broker.start()
        try:
            # event times are in the past: the topic must not let them go
            broker.create_topic(TOPIC, 4, {"retention.ms": "-1"})
            print(f"filling the topic with {events:,} events", flush=True)
            # no malformed records: plain PySpark's query would stop at the first time that is out of range
            write_kafka(Spec(events=events, duration=round(hours * HOUR), malformed_share=0), broker.servers, TOPIC)
            for number in range(rounds):
                for engine in engines:
                    seconds[engine].append(_run(engine, broker.servers, options))
                    print(f"round {number + 1}: {engine} {seconds[engine][-1]:.1f} s", flush=True)
        finally:
            broker.stop()
    return seconds


def _run(engine: str, servers: str, options: list[str]) -> float:
    name, _, window = engine.partition(":")
    command = [sys.executable, str(_ENGINES), name, "--servers", servers, "--topic", TOPIC, *options]
    if window:
        command += ["--window", window]
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return float(json.loads(result.stdout.splitlines()[-1])["seconds"])


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hours", type=float, default=240, help="how much event time the events span")
    parser.add_argument("--step", default="1000000", help="records a step, at the most")
    parser.add_argument("--lateness", default="1h")
    parser.add_argument("--engines", nargs="+", default=["windrow", "pyspark", "clock", "read"])
    arguments = parser.parse_args()
    options = ["--step", arguments.step, "--lateness", arguments.lateness]
    seconds = measure(arguments.events, arguments.hours, arguments.rounds, arguments.engines, options)
    medians = {engine: statistics.median(times) for engine, times in seconds.items()}
    width = max(map(len, medians))
    print(f"\n{'engine':{width}} {'median s':>9} {'events/s':>10}   all")
    for engine, median in medians.items():
        print(f"{engine:{width}} {median:9.1f} {arguments.events / median:10,.0f}   {seconds[engine]}")
    first, *others = seconds
    for other in others:
        pairs = [b / a for a, b in zip(seconds[first], seconds[other], strict=True)]
        print(
            f"{other} takes {statistics.median(pairs):.2f} times as long as {first} "
            f"(pairs: {', '.join(f'{pair:.2f}' for pair in pairs)})"
        )


if __name__ == "__main__":
    main()
