"""Rounds of engines over the same log, and what each of them answers on a small one."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import psycopg
from bench.peers.engines import Engine, Sink
from bench.peers.environment import NotInstalledError, fetch_jars, python_of
from bench.peers.job import DELAY_SECONDS, TABLE, WINDOW_SECONDS, Job, command
from bench.peers.results import Answer, Run, Sums
from bench.peers.watch import FailedError, watch

from windrow.connectors.kafka.source import KafkaTopic
from windrow.model import KafkaSource
from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres
from windrow.tools.generate import LogSpec, write_kafka

ROOT = Path(__file__).parents[2]
DATABASE = "bench"
# of Flink's connector: times without a zone
CREATE = f"""
CREATE TABLE {TABLE} (window_start timestamp, user_id text, total numeric(38, 2), events bigint,
                      PRIMARY KEY (window_start, user_id))
"""
PARTITIONS = 4


@dataclass
class Servers:
    """A broker with topics by their size, and a database server; and how to run on them.

    The events of a topic span so many `hours`, a micro-batch takes `step` records, a run `limit` seconds at the most.
    """

    kafka: Kafka
    postgres: Postgres
    hours: float
    step: int
    limit: float
    topics: dict[str, int] = field(default_factory=dict)

    def topic(self, events: int, late_share: float | None = None) -> str:
        """Return the topic with so many events, filled first if it is not there; without late ones if so asked."""
        name = f"spend-{events}" if late_share is None else f"spend-{events}-{late_share}"
        if name not in self.topics:
            # event times are in the past: the topic must not let them go
            self.kafka.create_topic(name, PARTITIONS, {"retention.ms": "-1"})
            print(f"filling a topic with {events:,} events", flush=True)
            # no malformed records: PySpark's query would stop at the first time that is out of range
            spec = LogSpec(events=events, duration=round(self.hours * 3_600_000_000), malformed_share=0)
            if late_share is not None:
                spec = LogSpec(events=events, duration=spec.duration, malformed_share=0, late_share=late_share)
            write_kafka(spec, self.kafka.servers, name)
            self.topics[name] = events
        return name


@contextmanager
def servers(hours: float, step: int, limit: float) -> Iterator[Servers]:
    """Start a broker and a database server, for as long as it lasts."""
    with tempfile.TemporaryDirectory(prefix="windrow-compare-") as folder:
        kafka, postgres = Kafka(Path(folder)), Postgres()
        try:
            kafka.start()
            postgres.start()
            yield Servers(kafka, postgres, hours, step, limit)
        finally:
            kafka.stop()
            postgres.remove()


def run(on: Servers, engine: Engine, sink: Sink, topic: str, number: int = 0) -> Run:
    """Run an engine once, into an empty database; what went wrong is in the result."""
    events = on.topics[topic]
    with tempfile.TemporaryDirectory(prefix="windrow-engine-") as place:
        folder = Path(place)
        address = _fresh_database(on.postgres, engine) if sink == "postgres" else None
        results = f"results-{uuid.uuid4().hex[:12]}" if sink == "kafka" else None
        if results is not None:
            on.kafka.create_topic(results, PARTITIONS, {})
        lake = sink if sink in {"delta", "parquet"} else None
        name = engine.name.partition(":")[0]
        job = Job(name, on.kafka.servers, topic, events, folder, address, results, lake, on.step, engine.window)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TZ": "UTC"}
        try:
            fetch_jars(engine.script.parent)
            words = [str(python_of(engine.script.parent)), str(engine.script), *command(job)]
            figures = watch(words, environment, folder / "log", on.limit)
        except (FailedError, NotInstalledError) as exc:
            return Run(number, engine.name, sink, events, error=str(exc))
    kept = _sums(on.postgres).events if sink == "postgres" else 0
    if results is not None:
        written = sum(batch.num_rows for batch in KafkaTopic(KafkaSource(on.kafka.servers, results)).read_all())
        print(f"{engine.name}: {written:,} changes, {written / figures.seconds:,.0f} a second", flush=True)
    return Run(number, engine.name, sink, events, figures.seconds, figures.cpu, figures.memory, kept)


def answer(on: Servers, engine: Engine, topic: str) -> Answer:
    """Run an engine into PostgreSQL, and return what its table holds: in all, and of the windows that closed."""
    ran = run(on, engine, "postgres", topic)
    if ran.error:
        return Answer(engine.name, ran.error)
    closed = _sums(on.postgres, f" WHERE window_start < '{_closed(on.hours)}'")
    return Answer(engine.name, "", _sums(on.postgres), closed)


def _closed(hours: float) -> str:
    """Return a time well before which every partition's watermark is at the end of the log."""
    end = LogSpec().start / 1_000_000 + hours * 3600
    return datetime.fromtimestamp(end - 2 * DELAY_SECONDS - WINDOW_SECONDS, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _sums(server: Postgres, where: str = "") -> Sums:
    query = f"SELECT count(*), coalesce(sum(total), 0), coalesce(sum(events), 0) FROM {TABLE}{where}"
    with psycopg.connect(server.url_of(DATABASE)) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        row = connection.execute(query.encode()).fetchone()
    if row is None:
        message = "a count has a row"
        raise RuntimeError(message)
    return Sums(int(row[0]), str(Decimal(row[1]).quantize(Decimal("0.01"))), int(row[2]))


def _fresh_database(server: Postgres, engine: Engine) -> str:
    server.drop_database(DATABASE)
    address = server.create_database(DATABASE)
    if engine.kind != "windrow":  # windrow makes its tables itself
        with psycopg.connect(address) as connection:
            connection.execute(CREATE)
    return address
