"""A real Kafka broker (KRaft, single node) on the loopback interface."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from windrow.runtime.spark.jars import broker_jars, java
from windrow.testing.servers.process import Server, ServerError, ServerProcess, free_port

_CALL_SECONDS = 30.0
_FOREVER = 2**63 - 1

# The broker accepts and keeps records with any timestamp, because stories and tests choose their own times.
_PROPERTIES = f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{{controller}}
listeners=PLAINTEXT://127.0.0.1:{{broker}},CONTROLLER://127.0.0.1:{{controller}}
advertised.listeners=PLAINTEXT://127.0.0.1:{{broker}}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={{logs}}
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.retention.ms=-1
log.message.timestamp.before.max.ms={_FOREVER}
log.message.timestamp.after.max.ms={_FOREVER}
log.cleaner.backoff.ms=100
log.segment.delete.delay.ms=0
"""
_QUICK_START = "-XX:TieredStopAtLevel=1"


class Kafka(Server):
    """A broker that keeps its data in a folder. It keeps its port and its data when it is restarted.

    If `is_short`, the broker starts quickly, because its code is not compiled for throughput. The folder may contain
    the data of an earlier broker, even one with a different port.
    """

    name = "the broker"

    def __init__(self, folder: Path, *, is_short: bool = False, port: int | None = None) -> None:
        super().__init__(port)
        self._folder = folder.resolve()
        self._options = ["-Xmx512m", *([_QUICK_START] if is_short else [])]
        self._properties = self._folder / "server.properties"
        self._is_set_up = False

    @property
    def servers(self) -> str:
        """The address to give to clients."""
        return f"127.0.0.1:{self._port}"

    def _launch(self) -> ServerProcess:
        if not self._properties.exists():
            self._format()
        elif not self._is_set_up:
            self._properties.write_text(self._settings())
        self._is_set_up = True
        command = [*self._java(*self._options), "kafka.Kafka", str(self._properties)]
        return ServerProcess(command, self._folder / "kafka.log")

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until each of its partitions has a leader."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin = self._admin()  # it must live until the result arrives
        admin.create_topics([topic])[name].result(_CALL_SECONDS)
        self._wait_for_partitions(name, partitions)

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions of a topic to `total`, and wait until each has a leader."""
        admin = self._admin()
        admin.create_partitions([NewPartitions(name, total)])[name].result(_CALL_SECONDS)
        self._wait_for_partitions(name, total)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records of a partition before an offset, as retention does."""
        admin, at = self._admin(), TopicPartition(topic, partition, offset)
        admin.delete_records([at])[at].result(_CALL_SECONDS)

    def produce(self, topic: str, partition: int, values: Iterable[bytes | None]) -> None:
        """Append values to a partition in order, and wait until the broker has stored them.

        Raise ServerError if some were not stored.
        """
        failed: list[object] = []
        # without retries: a fault fails rather than writing records twice or out of order
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "retries": 0})
        for value in values:
            producer.produce(
                topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error) if error else None
            )
            producer.poll(0)
        left = producer.flush(_CALL_SECONDS)
        if failed or left:
            message = f"{left} records for {topic}-{partition} were not written: {failed[:1]}"
            raise ServerError(message)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0, "reconnect.backoff.max.ms": 200})

    def _is_ready(self) -> bool:
        try:
            return bool(self._admin().list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _wait_for_partitions(self, topic: str, partitions: int) -> None:
        admin = self._admin()

        def all_led() -> bool:
            found = admin.list_topics(topic, timeout=_CALL_SECONDS).topics[topic].partitions
            return len(found) == partitions and all(partition.leader >= 0 for partition in found.values())

        self._running.wait_until(all_led, _CALL_SECONDS)

    def _format(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        text = self._settings()
        part = self._properties.with_suffix(".part")
        part.write_text(text)
        ran = subprocess.run(  # noqa: S603 - Java, with arguments of our own
            [
                *self._java(_QUICK_START),
                "kafka.tools.StorageTool",
                "format",
                "--cluster-id",
                "d2luZHJvdy10ZXN0cy0wMA",
                "--config",
                str(part),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            message = f"cannot format the broker's storage:\n{ran.stdout}{ran.stderr}"
            raise ServerError(message)
        part.rename(self._properties)

    def _settings(self) -> str:
        return _PROPERTIES.format(broker=self._port, controller=free_port(), logs=self._folder / "data")

    def _java(self, *options: str) -> list[str]:
        jars = os.pathsep.join(str(jar) for jar in broker_jars())
        return [str(java()), *options, "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp", jars]
