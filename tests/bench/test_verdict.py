"""The verdict on what PostgreSQL holds of a topic: it is right, and any row that is changed is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from bench.soak import pipeline
from bench.verdict import verdict
from tests.runtime.runs import Runner
from tests.runtime.spend import events

from windrow.authoring.load import open_pipeline
from windrow.testing.servers.kafka import Kafka

DAMAGE = [
    "UPDATE user_spend SET total = total + 0.01 WHERE ctid = (SELECT max(ctid) FROM user_spend)",
    "DELETE FROM user_spend WHERE ctid = (SELECT min(ctid) FROM user_spend)",
    "INSERT INTO user_spend SELECT window_start, window_end, 'nobody', 1, 1, 'on_time', 0 FROM user_spend LIMIT 1",
    "DELETE FROM user_spend_changes WHERE ctid = (SELECT max(ctid) FROM user_spend_changes)",
    "UPDATE user_spend_changes SET events = events + 1 WHERE ctid = (SELECT max(ctid) FROM user_spend_changes)",
    "DELETE FROM user_spend_late WHERE ctid = (SELECT min(ctid) FROM user_spend_late)",
    "INSERT INTO user_spend_late SELECT * FROM user_spend_late LIMIT 1",
    "DELETE FROM user_spend_dead WHERE ctid = (SELECT min(ctid) FROM user_spend_dead)",
    "INSERT INTO user_spend_dead SELECT * FROM user_spend_dead LIMIT 1",
]


@pytest.mark.long
def test_every_damage_is_seen(kafka: Kafka, topic: Callable[..., str], database: str, tmp_path: Path) -> None:
    name = topic(3)
    values = events(3000, late_share=0.05)
    for partition in range(3):
        kafka.produce(name, partition, [value for number, value in values if number == partition])
    file = tmp_path / "pipeline.yaml"
    text = pipeline(kafka.servers, name, database)
    # the events are of a day that is past
    file.write_text(text.replace(", future: 1h", "").replace("tumbling: 10s", "tumbling: 5m"))
    Runner(tmp_path / "checkpoint").bounded(open_pipeline(str(file)).runnable())
    found = verdict(file, database)
    assert found.is_right, found.said
    assert "0 expired" not in found.said
    assert "0 dead" not in found.said
    for damage in DAMAGE:
        with psycopg.connect(database) as connection:
            tables = ("user_spend", "user_spend_changes", "user_spend_late", "user_spend_dead")
            for table in tables:
                connection.execute(f"CREATE TABLE kept_{table} AS TABLE {table}".encode())
            assert connection.execute(damage.encode()).rowcount == 1, damage
            connection.commit()
            assert not verdict(file, database).is_right, damage
            for table in tables:
                connection.execute(f"TRUNCATE {table}; INSERT INTO {table} TABLE kept_{table}".encode())
                connection.execute(f"DROP TABLE kept_{table}".encode())
    assert verdict(file, database).is_right
