"""The programs of docs/compare on the log there, and what each of them writes: ``python -m bench.same_log``.

Flink and Kafka Streams read it from a topic of one partition, of a broker that is started for it. Each engine has its
own environment and jars in ``bench/peers``, which are made when they are first needed.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

from bench.peers.environment import fetch_jars, python_of
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.waiting import wait_until

from windrow.connectors.kafka.source import KafkaTopic
from windrow.model import KafkaSource
from windrow.runtime.spark.jars import java
from windrow.testing.servers.kafka import Kafka

ROOT = Path(__file__).parent.parent
PEERS = ROOT / "bench" / "peers"
PAGES = ROOT / "docs" / "compare"
LOG = PAGES / "spend.jsonl"
_SECONDS = 240.0


def beam(mode: str) -> str:
    """Run the program in Beam: `live` or `bounded`."""
    with tempfile.TemporaryDirectory(prefix="windrow-beam-") as folder:
        database = Path(folder) / "spend.db"
        _run([str(python_of(PEERS / "beam")), str(PAGES / "beam.py"), str(LOG), str(database), mode])
        return tables_of(database)


def flink(strategy: str) -> str:
    """Run the program in Flink SQL, whose watermarks are emitted `on-event` or `on-periodic`."""
    fetch_jars(PEERS / "flink")
    jars = sorted(map(str, (PEERS / "flink" / "jars").glob("flink-sql-connector-kafka-*.jar")))
    with _topics("totals", "late", "dead") as servers:
        _produce(servers, _lines())
        _run([str(python_of(PEERS / "flink")), str(PAGES / "flink.py"), servers, strategy, *jars])
        written = _records(servers, "totals", "late", "dead")
    # the rows of a watermark come in any order, and a value has its key too
    return _text({topic: sorted(value for _, value in records) for topic, records in written.items()})


def kafka_streams(*stops: int) -> str:
    """Compile the program in Kafka Streams and run it; it is stopped, and started again, at the offsets `stops`."""
    fetch_jars(PEERS / "kafka_streams")
    path = f"{PEERS / 'kafka_streams' / 'jars'}/*"
    with tempfile.TemporaryDirectory(prefix="windrow-streams-") as folder, _topics("totals", "dead") as servers:
        compiler = java().resolve().with_name("javac")
        _run([str(compiler), "-cp", path, "-d", folder, str(PAGES / "SpendTotals.java")])
        command = [str(java()), "-cp", f"{folder}:{path}", "SpendTotals", servers, f"{folder}/state"]
        for first, end in pairwise([0, *stops, len(_lines())]):
            _produce(servers, _lines()[first:end])
            program = subprocess.Popen(command)
            try:
                wait_until(partial(_has_committed, servers, end), f"{end} records to be committed", _SECONDS)
            finally:
                program.terminate()
                program.wait(_SECONDS)
        written = _records(servers, "totals", "dead")
    return _text({topic: map(" ".join, records) for topic, records in written.items()})


ENGINES: dict[str, Callable[[], str]] = {
    "beam": lambda: beam("live"),
    "beam, bounded": lambda: beam("bounded"),
    "flink": lambda: flink("on-event"),
    "flink, on-periodic": lambda: flink("on-periodic"),
    "kafka streams": kafka_streams,
    "kafka streams, restarted": lambda: kafka_streams(12),
}


def tables_of(database: Path) -> str:
    """Return the rows of the tables `spend` and `dead`."""
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT * FROM spend ORDER BY window_start, user_id").fetchall()
        dead = connection.execute("SELECT * FROM dead").fetchall()
    return _text({"spend": (" ".join(map(str, row)) for row in rows), "dead": (row[0] for row in dead)})


def _records(servers: str, *topics: str) -> dict[str, list[tuple[str, str]]]:
    """Return the records of topics in order, as key (without one: empty) and value."""
    return {
        topic: [
            ((key or b"").decode(), value.decode())
            for batch in KafkaTopic(KafkaSource(servers, topic)).read_all()
            for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
        ]
        for topic in topics
    }


def _text(parts: Mapping[str, Iterable[str]]) -> str:
    return "".join(f"{line}\n" for name, lines in parts.items() for line in (f"{name}:", *lines))


@contextmanager
def _topics(*results: str) -> Iterator[str]:
    """Start a broker with the empty topics `spend` and those for results; yield its address."""
    with tempfile.TemporaryDirectory(prefix="windrow-same-log-") as folder:
        kafka = Kafka(Path(folder))
        kafka.start()
        try:
            for topic in ("spend", *results):
                kafka.create_topic(topic, 1, {"retention.ms": "-1"})
            yield kafka.servers
        finally:
            kafka.stop()


def _lines() -> list[str]:
    return LOG.read_text(encoding="utf-8").splitlines()


def _produce(servers: str, lines: list[str]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for line in lines:
        producer.produce("spend", line, json.loads(line)["user_id"])
    producer.flush(30)


def _has_committed(servers: str, end: int) -> bool:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "spend-totals"})
    try:
        return bool(consumer.committed([TopicPartition("spend", 0)], timeout=10)[0].offset == end)
    except KafkaException:
        return False  # the group has no coordinator before its first member
    finally:
        consumer.close()


def _run(command: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"TZ": "UTC"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if ran.returncode:
        message = f"{command[1]} failed: {ran.stderr[-2000:]}"
        raise RuntimeError(message)


def main() -> int:
    """Print what engines write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", default=list(ENGINES), metavar="ENGINE", help=f"of: {', '.join(ENGINES)}")
    for name in parser.parse_args().engines:
        print(f"== {name}\n{ENGINES[name]()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
