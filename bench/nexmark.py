"""Nexmark's queries in windrow and in Flink SQL, over the same topics and cores: ``python bench/nexmark.py``.

Starts a broker, fills a topic for each of persons, auctions and bids, and runs each query in turn on each engine, to no
sink, in a process of its own. Before that, both run over a few events, and their rows are compared with those that
DuckDB finds by the query's SQL (tests/docs/nexmark.sql). Prints events/s (of all three topics, whichever the query
reads), CPU seconds and memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench.peers.environment import fetch_jars, python_of
from bench.peers.measure import PARTITIONS, ROOT
from bench.peers.nexmark_job import NexmarkJob
from bench.peers.watch import FailedError, Figures, watch
from tests.docs.nexmark import EXAMPLES, answer, plain, rows_of

from windrow.testing.servers.kafka import Kafka
from windrow.tools.generate import NexmarkSpec, write_kafka, write_log

ENGINES = ("windrow", "flink")
QUERIES = ("q1", "q3", "q4", "q5", "q7", "q8")
CHECKED = 5_000
"""Events on which the answers are compared."""


@dataclass(frozen=True)
class Logs:
    """Topics with so many events."""

    servers: str
    topic: str
    spec: NexmarkSpec


@contextmanager
def broker() -> Iterator[Kafka]:
    """Start a broker, for as long as it lasts."""
    with tempfile.TemporaryDirectory(prefix="windrow-nexmark-") as folder:
        kafka = Kafka(Path(folder))
        try:
            kafka.start()
            yield kafka
        finally:
            kafka.stop()


def fill(kafka: Kafka, topic: str, events: int, per_second: int) -> Logs:
    """Fill topics with so many events in all, and so many a second of event time."""
    spec = NexmarkSpec(events=events, partitions=PARTITIONS, duration=events * 1_000_000 // per_second)
    print(f"filling topics with {events:,} events", flush=True)
    for log in spec.logs:
        # event times are in the past: the topic must not let them go
        kafka.create_topic(f"{topic}-{log}", PARTITIONS, {"retention.ms": "-1"})
    write_kafka(spec, kafka.servers, topic)
    return Logs(kafka.servers, topic, spec)


def run(engine: str, query: str, logs: Logs, folder: Path, arguments: argparse.Namespace, *, rows: bool) -> Figures:
    """Run a query on an engine in a folder; raise FailedError or NotInstalledError."""
    place = ROOT / "bench" / "peers" / engine
    fetch_jars(place)
    job = NexmarkJob(query, logs.servers, logs.topic, folder, arguments.step, rows)
    words = [str(python_of(place)), str(place / "nexmark.py"), *job.command]
    path = os.pathsep.join([str(ROOT), *([os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else [])])
    return watch(words, {**os.environ, "PYTHONPATH": path, "TZ": "UTC"}, folder / "log", arguments.limit)


def check(engine: str, query: str, logs: Logs, arguments: argparse.Namespace) -> str:
    """Return how an engine's rows compare with DuckDB's."""
    with tempfile.TemporaryDirectory(prefix="windrow-nexmark-") as made:
        folder = Path(made)
        write_log(logs.spec, folder / "logs")
        columns, expected = answer(query, folder / "logs")
        try:
            run(engine, query, logs, folder, arguments, rows=True)
        except FailedError as exc:
            return f"failed: {exc}"
        found = Counter(map(str, _rows(engine, query, folder, columns)))
        wanted = Counter(map(str, map(_alike, expected)))
    if found == wanted:
        return f"the same {len(expected)} rows as DuckDB's"
    more, less = (found - wanted).total(), (wanted - found).total()
    return f"ANOTHER answer than DuckDB's: {less} rows missing, {more} too many, of {len(expected)}"


def _rows(engine: str, query: str, folder: Path, columns: list[str]) -> list[tuple[object, ...]]:
    if engine == "windrow":
        return [_alike(row) for row in rows_of(query, folder / "nexmark.db", columns)]
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    return [_alike(tuple(row[name] for name in columns)) for row in rows]


def _alike(row: tuple[object, ...]) -> tuple[object, ...]:
    """Return a row with numbers and times written as DuckDB's are in `plain`."""
    return tuple(_one(value) for value in row)


def _one(value: object) -> object:
    if isinstance(value, int | float):
        return round(float(value), 3)
    if not isinstance(value, str):
        return plain(value)
    try:
        return round(float(value), 3)
    except ValueError:
        pass
    try:
        return plain(datetime.fromisoformat(value))
    except ValueError:
        return value


def measure(arguments: argparse.Namespace) -> int:
    """Check the answers, and measure round by round; return 1 if an answer is another or a run failed."""
    wrong = 0
    with broker() as kafka:
        if not arguments.no_check:
            few = fill(kafka, "checked", CHECKED, per_second=50)
            for query in arguments.queries:
                for engine in arguments.engines:
                    told = check(engine, query, few, arguments)
                    wrong |= not told.startswith("the same")
                    print(f"{query}, {engine}: {told}", flush=True)
        logs = fill(kafka, "nexmark", arguments.events, arguments.per_second)
        for number in range(arguments.rounds):
            for query in arguments.queries:
                for engine in arguments.engines if number % 2 == 0 else reversed(arguments.engines):
                    with tempfile.TemporaryDirectory(prefix="windrow-nexmark-") as folder:
                        try:
                            took = run(engine, query, logs, Path(folder), arguments, rows=False)
                        except FailedError as exc:
                            wrong = 1
                            print(f"round {number + 1}, {query}, {engine}: failed: {exc}", flush=True)
                            continue
                    print(
                        f"round {number + 1}, {query}, {engine}: {took.seconds:.1f} s, "
                        f"{arguments.events / took.seconds:,.0f} events/s, "
                        f"{took.cpu:.1f} CPU s, {took.memory:,.0f} MiB",
                        flush=True,
                    )
    return int(wrong)


def main() -> int:
    """Measure what is asked for."""
    there = [query for query in QUERIES if (EXAMPLES / f"{query}.yaml").exists()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=there)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--events", type=int, default=5_000_000, help="of all three kinds")
    parser.add_argument("--per-second", type=int, default=1_000, help="events of a second of event time")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--step", type=int, default=1_000_000, help="records a micro-batch of windrow, at the most")
    parser.add_argument("--limit", type=float, default=1800, help="seconds that a run may take")
    parser.add_argument("--no-check", action="store_true", help="do not compare the answers first")
    return measure(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
