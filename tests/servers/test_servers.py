"""The servers are real, keep what they were given, and leave nothing behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from windrow.testing.servers.kafka import Kafka
from windrow.testing.servers.postgres import Postgres
from windrow.testing.servers.process import ServerError, ServerProcess

SECONDS = 30.0


def read(kafka: Kafka, topic: str, partition: int, isolation: str = "read_committed") -> list[tuple[int, bytes | None]]:
    """Everything in a partition, up to its end, with offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.servers,
            "group.id": "tests",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes | None]] = []
    try:
        while True:
            message = consumer.poll(SECONDS)
            assert message is not None, "no record and no end of the partition in time"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error  # noqa: SLF001 - the client's own name for it
                return found
            offset = message.offset()
            assert offset is not None
            found.append((offset, message.value()))
    finally:
        consumer.close()


def test_kafka_keeps_records_in_their_partitions(kafka: Kafka, topic: Callable[..., str]) -> None:
    name = topic(3)
    kafka.produce(name, 0, [b"a", b"b"])
    kafka.produce(name, 2, [b"c", None])
    assert read(kafka, name, 0) == [(0, b"a"), (1, b"b")]
    assert read(kafka, name, 1) == []
    assert read(kafka, name, 2) == [(0, b"c"), (1, None)]


def test_aborted_records_take_offsets_and_are_not_seen(kafka: Kafka, topic: Callable[..., str]) -> None:
    name = topic(1)
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": name})
    producer.init_transactions(SECONDS)
    for value, end in (
        (b"kept", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
        (b"kept too", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(name, value, partition=0)
        producer.flush(SECONDS)  # an abort would else drop it before it was sent
        end(SECONDS)
    assert read(kafka, name, 0) == [(0, b"kept"), (4, b"kept too")]
    assert read(kafka, name, 0, "read_uncommitted") == [(0, b"kept"), (2, b"aborted"), (4, b"kept too")]


def test_a_topic_can_grow(kafka: Kafka, topic: Callable[..., str]) -> None:
    name = topic(1)
    kafka.add_partitions(name, 2)
    kafka.produce(name, 1, [b"new"])
    assert read(kafka, name, 1) == [(0, b"new")]


def test_topic_settings_are_taken(kafka: Kafka, topic: Callable[..., str]) -> None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic(1, cleanup_policy="compact"))
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    found = admin.describe_configs([resource])[resource].result(SECONDS)
    assert found["cleanup.policy"].value == "compact"


def test_a_topic_that_nobody_made_is_not_there(kafka: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    error = admin.list_topics("nobody-made-this", timeout=SECONDS).topics["nobody-made-this"].error
    assert error is not None
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.long
@pytest.mark.parametrize("end", [Kafka.stop, Kafka.kill])
def test_kafka_comes_back_with_its_data(kafka: Kafka, topic: Callable[..., str], end: Callable[[Kafka], None]) -> None:
    name, servers = topic(1), kafka.servers
    kafka.produce(name, 0, [b"before"])
    end(kafka)
    kafka.start()
    assert kafka.servers == servers
    kafka.produce(name, 0, [b"after"])
    assert read(kafka, name, 0) == [(0, b"before"), (1, b"after")]


def test_a_database_is_empty_and_real(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE t (k text PRIMARY KEY, v numeric(38, 2), at timestamptz)")
        connection.execute("INSERT INTO t VALUES ('a', 1.10, '2026-01-01T00:00:00Z') ON CONFLICT DO NOTHING")
        found = connection.execute("SELECT k, v::text, extract(epoch FROM at)::bigint FROM t").fetchall()
    assert found == [("a", "1.10", 1767225600)]


@pytest.mark.parametrize("end", [Postgres.stop, Postgres.kill])
def test_postgres_comes_back_with_its_data(postgres: Postgres, database: str, end: Callable[[Postgres], None]) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS n")
    end(postgres)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(database)
    postgres.start()
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT n FROM t").fetchall() == [(1,)]


def test_a_server_that_ends_early_tells_why(tmp_path: Path) -> None:
    process = ServerProcess(["sh", "-c", "echo no such luck; exit 3"], tmp_path / "server.log")
    with pytest.raises(ServerError, match=r"(?s)ended with status 3.*no such luck"):
        process.wait_until(lambda: False, SECONDS)
    process.stop()


def test_a_server_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    process = ServerProcess(["sleep", "600"], tmp_path / "server.log")
    with pytest.raises(ServerError, match="was not ready after 0 s"):
        process.wait_until(lambda: False, 0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.parametrize(
    "end", ["pass", "raise KeyboardInterrupt", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_no_server_outlives_the_tests(tmp_path: Path, end: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as here:
        here.settimeout(SECONDS)
        server = f"import socket; socket.create_connection(('127.0.0.1', {here.getsockname()[1]})).recv(1)"
        tests = f"""
import sys
from pathlib import Path
from windrow.testing.servers.process import ServerProcess
ServerProcess([sys.executable, "-c", {server!r}], Path({str(tmp_path)!r}) / "server.log")
input()
{end}
"""
        with subprocess.Popen(
            [sys.executable, "-c", tests], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            connection, _ = here.accept()
            process.communicate("end\n", SECONDS)
        with connection:
            connection.settimeout(SECONDS)
            assert connection.recv(1) == b""  # it hung up
