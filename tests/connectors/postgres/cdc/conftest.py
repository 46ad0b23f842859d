"""A table that is changed at random, and the log or topic into which it is followed."""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from windrow.connectors.kafka.source import KafkaTopic
from windrow.connectors.log.folder import LogFolder
from windrow.connectors.log.retention import apply, plan_trim
from windrow.connectors.postgres.cdc.follow import FollowedTables
from windrow.connectors.postgres.cdc.records import ChangePlace
from windrow.model import KafkaSource, LogSource, PostgresCdcSource
from windrow.testing.servers.kafka import Kafka

Change = tuple[str, int, int | None]
"""`op`, the id of the row, and its amount after that; None for one that is deleted."""


class Shop(ABC):
    """The table `orders` with an id and an amount, and what was done to it since it was first followed."""

    def __init__(self, url: str, into: LogSource | KafkaSource) -> None:
        self.url = url
        self.sql = psycopg.connect(url, autocommit=True)
        self.sql.execute("CREATE TABLE orders (id int PRIMARY KEY, amount bigint, note text)")
        self.source = PostgresCdcSource(url, "orders", into)
        self.done: list[Change] = []

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """Return what the log or topic has, in the order of the commits."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the log or topic."""

    @abstractmethod
    def trim(self, keep: int = 0) -> None:
        """Remove all records from the log or topic, of each partition except the last `keep`."""

    def follow(self) -> FollowedTables:
        return FollowedTables(self.source)

    def change(self, transaction: Sequence[Change]) -> None:
        """Apply changes in one transaction, and note those that changed a row."""
        noted: list[Change] = []
        with self.sql.transaction():
            for op, id_, amount in transaction:
                match op:
                    case "c":
                        found = self.sql.execute(
                            "INSERT INTO orders VALUES (%s, %s) ON CONFLICT DO NOTHING", (id_, amount)
                        )
                        noted += [("c", id_, amount)] * found.rowcount
                    case "u":
                        found = self.sql.execute("UPDATE orders SET amount = %s WHERE id = %s", (amount, id_))
                        noted += [("u", id_, amount)] * found.rowcount
                    case "d":
                        found = self.sql.execute("DELETE FROM orders WHERE id = %s", (id_,))
                        noted += [("d", id_, None)] * found.rowcount
                    case "k":  # the row gets a key that no other has
                        moved = self.sql.execute(
                            "UPDATE orders SET id = (SELECT max(id) + 1 FROM orders) WHERE id = %s "
                            "RETURNING id, amount",
                            (id_,),
                        ).fetchone()
                        noted += [] if moved is None else [("d", id_, None), ("c", *moved)]
        self.done += noted

    def changes(self) -> list[Change]:
        """Return what the log has after the snapshot; see that the places of changes only grow."""
        found: list[Change] = []
        last = ChangePlace()
        for record in self.records():
            place = ChangePlace.of_record(json.dumps(record).encode())
            if place is None:
                assert not found
                continue
            assert place > last
            last, row = place, record["after"] or record["before"]
            found.append((record["op"], row["id"], record["after"] and row["amount"]))
        return found

    def replica(self) -> dict[int, int | None]:
        """Return the table that the log makes."""
        rows: dict[int, int | None] = {}
        for record in self.records():
            if record["op"] == "t":
                rows.clear()
            elif record["op"] == "d":
                del rows[record["before"]["id"]]
            else:
                assert (record["after"]["id"] in rows) == (record["op"] == "u")
                rows[record["after"]["id"]] = record["after"]["amount"]
        return rows

    def table(self) -> dict[int, int | None]:
        return dict(self.sql.execute("SELECT id, amount FROM orders").fetchall())

    def restart(self) -> None:
        """Begin anew with an empty table, without log and slots."""
        slots = "FROM pg_replication_slots WHERE database = current_database()"
        self.sql.execute(f"SELECT pg_terminate_backend(active_pid, 10000) {slots} AND active".encode())
        self.sql.execute(f"SELECT pg_drop_replication_slot(slot_name) {slots}".encode())
        for [name] in self.sql.execute("SELECT pubname FROM pg_publication").fetchall():
            self.sql.execute(f"DROP PUBLICATION {name}".encode())
        self.sql.execute("DELETE FROM orders")
        self.done = []
        self.clear()


class LogShop(Shop):
    """One that is followed into an embedded log."""

    def __init__(self, url: str, folder: Path) -> None:
        self.log = folder / "log"
        super().__init__(url, LogSource(str(self.log)))

    def records(self) -> list[dict[str, Any]]:
        file = self.log / "partition-0.jsonl"
        if not file.exists():
            return []
        lines = file.read_bytes()[LogFolder(str(self.log)).first(0).byte :].splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def trim(self, keep: int = 0) -> None:
        folder = LogFolder(str(self.log))
        for change in plan_trim(folder, offsets={0: folder.first(0).line + len(self.records()) - keep}):
            apply(folder, change)

    def clear(self) -> None:
        for path in sorted(self.log.glob("*")) + sorted(self.log.glob(".*")):
            path.unlink()


class TopicShop(Shop):
    """One that is followed into a Kafka topic of three partitions."""

    def __init__(self, url: str, kafka: Kafka) -> None:
        self.kafka = kafka
        super().__init__(url, self._new_topic())

    @property
    def topic(self) -> KafkaSource:
        assert isinstance(self.source.into, KafkaSource)
        return self.source.into

    def partitions(self) -> list[list[tuple[str | None, dict[str, Any]]]]:
        """Return keys and values of each partition."""
        topic = KafkaTopic(self.topic)
        return [
            [
                (None if row["key"] is None else row["key"].decode(), json.loads(row["value"]))
                for batch in topic.read_from(partition, 0)
                for row in batch.to_pylist()
            ]
            for partition in topic.partitions()
        ]

    def records(self) -> list[dict[str, Any]]:
        found: list[tuple[ChangePlace, dict[str, Any]]] = []
        partition_of: dict[str | None, int] = {}
        truncations: dict[int, list[ChangePlace]] = {number: [] for number in range(3)}
        for number, rows in enumerate(self.partitions()):
            places = [ChangePlace.of_record(json.dumps(value).encode()) or ChangePlace() for _, value in rows]
            assert places == sorted(places)
            for place, (key, value) in zip(places, rows, strict=True):
                row = value["after"] or value["before"]
                assert key == ("{}" if row is None else json.dumps({"id": row["id"]}))
                assert partition_of.setdefault(key, number) == number or row is None
                truncations[number] += [place] if row is None else []
                found += [(place, value)] if number == 0 or row is not None else []
        # each partition has all truncations
        assert all(places == truncations[0] for places in truncations.values())
        return [value for _, value in sorted(found, key=lambda one: one[0])]

    def trim(self, keep: int = 0) -> None:
        for partition, (first, _) in KafkaTopic(self.topic).ends().items():
            values = [batch.column("offset") for batch in KafkaTopic(self.topic).read_from(partition, first)]
            offsets = [offset for value in values for offset in value.to_pylist()]
            if len(offsets) > keep:
                self.kafka.delete_before(self.topic.topic, partition, offsets[-keep] if keep else offsets[-1] + 1)

    def clear(self) -> None:
        self.source = replace(self.source, into=self._new_topic())

    def _new_topic(self) -> KafkaSource:
        name = f"orders-{uuid.uuid4().hex[:12]}"
        self.kafka.create_topic(name, 3)
        return KafkaSource(self.kafka.servers, name)


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[LogShop]:
    made = LogShop(database, tmp_path)
    yield made
    made.sql.close()


@pytest.fixture
def topic_shop(database: str, kafka: Kafka) -> Iterator[TopicShop]:
    made = TopicShop(database, kafka)
    yield made
    made.sql.close()
