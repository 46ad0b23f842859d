"""The verdict on what PostgreSQL holds of a topic: it is right, and any row that is changed is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from bench.poison import poison
from bench.verdict import CHECKS, pipeline, truth
from tests.runtime.runs import Runner

from windrow.authoring.load import open_pipeline
from windrow.testing.servers.kafka import Kafka
from windrow.tools.generate import LogSpec, write_kafka

SPEC = LogSpec(events=6_000, users=40, partitions=2, duration=600_000_000, late_share=0.05, duplicate_share=0.05)
DAMAGE = [
    "UPDATE spent SET total = total + 0.01 WHERE ctid = (SELECT max(ctid) FROM spent)",
    "DELETE FROM spent WHERE ctid = (SELECT min(ctid) FROM spent)",
    "INSERT INTO spent SELECT window_start, window_end, 'nobody', 1, 1, 1, 'on_time', 0 FROM spent LIMIT 1",
    "DELETE FROM spent_changes WHERE ctid = (SELECT max(ctid) FROM spent_changes)",
    "UPDATE spent_changes SET events = events + 1 WHERE ctid = (SELECT max(ctid) FROM spent_changes)",
    "DELETE FROM copies WHERE ctid = (SELECT min(ctid) FROM copies)",
    "DELETE FROM codes WHERE ctid = (SELECT min(ctid) FROM codes)",
    "UPDATE newest SET revision = revision + 1 WHERE ctid = (SELECT min(ctid) FROM newest)",
    *(
        statement
        for table in ("spent", "copies", "codes", "newest")
        for statement in (
            f"DELETE FROM {table}_late WHERE ctid = (SELECT min(ctid) FROM {table}_late)",
            f"INSERT INTO {table}_late SELECT * FROM {table}_late LIMIT 1",
            f"DELETE FROM {table}_dead WHERE ctid = (SELECT min(ctid) FROM {table}_dead)",
            f"INSERT INTO {table}_dead SELECT * FROM {table}_dead LIMIT 1",
        )
    ),
]


@pytest.mark.long
def test_every_damage_is_seen(kafka: Kafka, topic: Callable[..., str], database: str, tmp_path: Path) -> None:
    name = topic(2)
    write_kafka(SPEC, kafka.servers, name)
    for partition in range(2):
        now = (SPEC.start + SPEC.duration) // 1000
        kafka.produce(name, partition, poison(f"p{partition}-", now).values())
    file = tmp_path / "pipeline.yaml"
    file.write_text(pipeline(kafka.servers, name, database))
    Runner(tmp_path / "checkpoint").bounded(open_pipeline(str(file)).runnable())
    with truth(file) as right:
        found = right.verdict(database)
        assert found.is_right, found.said
        assert set(found.rows) == {check.name for check in CHECKS}
        assert all(found.rows.values()), found.said
        for damage in DAMAGE:
            with psycopg.connect(database) as connection:
                for table in found.rows:
                    connection.execute(f"CREATE TABLE kept_{table} AS TABLE {table}".encode())
                assert connection.execute(damage.encode()).rowcount == 1, damage
            assert not right.verdict(database).is_right, damage
            with psycopg.connect(database) as connection:
                for table in found.rows:
                    connection.execute(f"TRUNCATE {table}; INSERT INTO {table} TABLE kept_{table}".encode())
                    connection.execute(f"DROP TABLE kept_{table}".encode())
        assert right.verdict(database).is_right
