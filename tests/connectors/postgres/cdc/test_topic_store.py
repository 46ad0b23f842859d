"""The changes of a table in a Kafka topic, each once, in the order of their commits by key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.connectors.postgres.cdc.conftest import TopicShop
from tests.connectors.postgres.cdc.test_crashes import Killed, killed_at
from tests.connectors.postgres.cdc.test_follow import following
from tests.waiting import wait_until

from windrow.connectors.kafka import producer as transactions
from windrow.connectors.kafka.producer import TransactionalProducer
from windrow.connectors.kafka.source import preflight, topic_settings
from windrow.connectors.open_sources import open_source
from windrow.connectors.postgres.cdc import topic_store
from windrow.connectors.postgres.cdc.follow import FollowedTables
from windrow.connectors.postgres.cdc.records import ChangePlace, ChangeRecord, RecordWriter
from windrow.connectors.postgres.cdc.topic_store import TopicStore
from windrow.connectors.postgres.client import Server
from windrow.errors import InputError, SourceError, SourceUnavailableError, WindrowError
from windrow.model import KafkaSource, LogSource


def refused(shop: TopicShop, match: str, error: type[WindrowError] = SourceError) -> None:
    with pytest.raises(error, match=match) as caught:
        shop.follow().update()
    assert type(caught.value) is error


def test_records_are_those_of_a_log_and_rows_keep_their_partition(topic_shop: TopicShop, tmp_path: Path) -> None:
    shop = topic_shop
    shop.sql.execute("ALTER TABLE orders ADD COLUMN price numeric, ADD COLUMN at timestamptz, ADD COLUMN tags text[]")
    shop.sql.execute(
        "INSERT INTO orders SELECT n, n, 'a', 1.50, '2026-01-01 00:00:00.5Z', '{a,b}' FROM generate_series(1, 40) n"
    )
    by_log = replace(shop.source, into=LogSource(str(tmp_path / "log")))
    shop.follow().update()
    FollowedTables(by_log).update()
    for _ in range(3):
        shop.change([("u", 1, 5), ("u", 2, 6), ("k", 3, None), ("d", 4, None), ("u", 5, 7), ("c", 4, 9)])
    assert shop.changes() == []
    shop.follow().update()
    FollowedTables(by_log).update()
    assert shop.changes() == shop.done
    assert shop.replica() == shop.table()
    assert all(len(rows) > 3 for rows in shop.partitions())
    shop.sql.execute("TRUNCATE orders")
    shop.follow().update()
    FollowedTables(by_log).update()
    lines = [row for batch in open_source(by_log).read_all() for row in batch.to_pylist()]
    records = [row for batch in open_source(shop.source).read_all() for row in batch.to_pylist()]
    of_log = {row["value"].partition(b", ")[2]: row["log_time"] for row in lines if b'"op": "r"' not in row["value"]}
    of_topic = {row["value"][1:]: row["log_time"] for row in records if b'"op": "r"' not in row["value"]}
    assert len(of_topic) == len(shop.done) + 1
    assert sorted(of_topic) == sorted(of_log)
    assert [row["value"].partition(b', "source"')[0].partition(b"{")[2] for row in records[:1]] == [
        b'"before": null, "after": {"id": %d, "amount": %d, "note": "a", "price": 1.50, '
        b'"at": "2026-01-01T00:00:00.5Z", "tags": ["a", "b"]}' % ((key := int(records[0]["key"][7:-1])), key)
    ]
    assert {row["log_time"].timestamp() * 1000 for row in records if row["key"] == b"{}"} == {
        shop.records()[-1]["ts_ms"]
    }


@pytest.mark.parametrize("is_after", [False, True])
def test_a_commit_that_is_interrupted_loses_and_repeats_nothing(topic_shop: TopicShop, *, is_after: bool) -> None:
    shop = topic_shop
    shop.change([("c", 1, 10), ("c", 2, 20)])
    commits = [(TransactionalProducer, "commit")]
    # 0 is the state, 1 that with the publication, 2 the copy
    with killed_at(2, is_after=is_after, points=commits), pytest.raises(Killed):
        shop.follow().update()
    assert len(shop.records()) == 2 * is_after
    shop.done = []
    shop.change([("u", 1, 11), ("d", 2, None), ("c", 3, 30)])
    with killed_at(0, is_after=is_after, points=commits), pytest.raises(Killed):
        shop.follow().update()
    shop.follow().update()
    assert shop.replica() == shop.table()
    assert shop.changes() == (shop.done if is_after else [])
    shop.change([("u", 3, 31)])
    with killed_at(0, is_after=is_after, points=commits), pytest.raises(Killed):
        shop.follow().update()
    shop.follow().update()
    assert shop.replica() == shop.table()
    assert shop.changes() == (shop.done if is_after else shop.done[-1:])


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_copy_that_fails_midway_ends_the_run(
    topic_shop: TopicShop, monkeypatch: pytest.MonkeyPatch, *, is_copied: bool
) -> None:
    shop = topic_shop
    shop.change([("c", 1, 10), ("c", 2, 20)])
    if is_copied:
        shop.follow().update()
        shop.change([("u", 1, 11), ("c", 3, 30)])
    real = RecordWriter.snapshot_rows, RecordWriter.rows

    def failing(writer: RecordWriter, rows: Iterator[Any], *args: Any) -> Iterator[Any]:  # noqa: ANN401 - any of both
        yield next(real[is_copied](writer, iter([next(rows)]), *args))
        msg = "it is gone"
        raise SourceUnavailableError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(RecordWriter, ("snapshot_rows", "rows")[is_copied], failing)
        with pytest.raises(SourceUnavailableError, match="it is gone"):
            shop.follow().recopy()
    shop.follow().recopy()
    assert shop.replica() == shop.table()


def test_a_copy_that_is_committed_after_its_run_gave_up_is_not_made_twice(
    topic_shop: TopicShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = topic_shop
    shop.change([("c", 1, 10), ("c", 2, 20)])
    start, commit, abandon = TransactionalProducer.start, TransactionalProducer.commit, TransactionalProducer.abandon
    lost: list[TransactionalProducer] = []
    commits = 0

    def commit_late(producer: TransactionalProducer) -> None:
        nonlocal commits
        commits += 1
        if commits == 3:  # 1 is the state, 2 that with the publication, 3 the copy
            lost.append(producer)
            raise Killed
        commit(producer)

    def start_after(producer: TransactionalProducer) -> None:
        if lost:  # a broker ends a commit that it has begun before another producer may start
            commit(lost.pop())
        start(producer)

    monkeypatch.setattr(TransactionalProducer, "start", start_after)
    monkeypatch.setattr(TransactionalProducer, "commit", commit_late)
    monkeypatch.setattr(TransactionalProducer, "abandon", lambda one: None if one in lost else abandon(one))
    with pytest.raises(Killed):
        shop.follow().update()
    assert shop.records() == []
    shop.done = []
    shop.change([("u", 1, 11)])
    shop.follow().update()
    assert shop.replica() == shop.table()
    assert shop.changes() == shop.done


def test_what_retention_removes_before_it_is_confirmed_does_not_come_again(topic_shop: TopicShop) -> None:
    shop = topic_shop
    shop.follow().update()
    shop.change([("c", 1, 10), ("u", 1, 11)])
    with killed_at(0, is_after=True, points=[(TopicStore, "append")]), pytest.raises(Killed):
        shop.follow().update()
    assert shop.changes() == shop.done
    for partition, (first, end) in preflight(shop.topic).items():
        if first < end:
            shop.kafka.delete_before(shop.topic.topic, partition, end)
    shop.change([("u", 1, 12)])
    shop.follow().update()
    assert shop.changes() == [("u", 1, 12)]


def test_a_topic_that_is_missing_is_created_and_what_is_added_to_it_stays_empty(topic_shop: TopicShop) -> None:
    shop = topic_shop
    shop.source = replace(shop.source, into=KafkaSource(shop.kafka.servers, f"{shop.topic.topic}.new"))
    shop.change([("c", 1, 10)])
    shop.follow().update()
    settings = topic_settings(shop.topic)
    assert (settings["retention.ms"], settings["cleanup.policy"]) == ("-1", "delete")
    beside = replace(shop.topic, topic=f"{shop.topic.topic}.position")
    assert topic_settings(beside)["cleanup.policy"] == "compact"
    shop.kafka.add_partitions(shop.topic.topic, 3)
    shop.done = []
    shop.change([("c", id_, 10) for id_ in range(2, 20)])
    shop.follow().update()
    assert [len(rows) for rows in shop.partitions()] == [19, 0, 0]
    assert shop.changes() == shop.done


def test_topics_of_something_else_are_refused(topic_shop: TopicShop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = topic_shop
    monkeypatch.setattr(topic_store, "TIMEOUT", 2.0)
    own = shop.source
    shop.kafka.produce(shop.topic.topic, 1, [b"{}"])
    refused(shop, "has records, but .*position does not name their table: use another topic", InputError)
    assert shop.sql.execute("SELECT * FROM pg_replication_slots").fetchall() == []
    shop.clear()
    name = shop.topic.topic
    shop.kafka.create_topic(f"{name}.position", 1)
    refused(shop, "has cleanup.policy=delete, and would lose state", InputError)
    shop.clear()
    shop.follow().update()
    shop.sql.execute("CREATE TABLE others (id int PRIMARY KEY)")
    followed = shop.source
    shop.source = replace(followed, table="others")
    refused(shop, "belongs to the table public.orders", InputError)
    shop.source = replace(own, into=KafkaSource("127.0.0.1:1", "orders"))
    refused(shop, "no Kafka broker can be reached", SourceUnavailableError)
    shop.source = followed
    admin = AdminClient({"bootstrap.servers": shop.kafka.servers, "log_level": 0})
    admin.delete_topics([shop.topic.topic])[shop.topic.topic].result(30)
    wait_until(lambda: shop.topic.topic not in admin.list_topics(timeout=10).topics, "the topic to be deleted")
    refused(shop, "no longer exists at .*, so changes are lost", SourceUnavailableError)
    shop.kafka.create_topic(shop.topic.topic, 3)
    refused(shop, "is not the topic into which public.orders was copied")


def test_a_run_that_has_lost_its_lock_is_fenced(topic_shop: TopicShop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = topic_shop
    monkeypatch.setattr(topic_store, "BUSY_SECONDS", 0.3)
    shop.follow().update()
    record = ChangeRecord(ChangePlace(1 << 40, 1), 1, "{}")
    with ExitStack() as stack:
        first, second = (stack.enter_context(Server(shop.url, "source").connect()) for _ in range(2))
        zombie, heir = (TopicStore(shop.topic, "orders", sql) for sql in (first, second))
        stack.enter_context(zombie.opened())
        state = zombie.resume()
        assert zombie.state() == state
        zombie.append([record], replace(state, number=1))
        refused(shop, "another run follows the table orders into the topic", SourceUnavailableError)
        shop.sql.execute(f"SELECT pg_terminate_backend({first.info.backend_pid}, 10000)".encode())
        stack.enter_context(heir.opened())
        assert heir.resume() == replace(state, number=1)
        with pytest.raises(SourceUnavailableError, match=r"was ended, .* or by another run"):
            zombie.append([record], replace(state, number=2))
        assert heir.resume() == replace(state, number=1)


@pytest.mark.long
def test_a_broker_that_is_lost_is_an_error_that_passes(topic_shop: TopicShop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = topic_shop
    shop.follow().update()
    table = shop.follow()
    with following(table) as wait:
        wait(lambda: table.lag is not None)
        monkeypatch.setattr(transactions, "_BEGIN_SECONDS", 1.0)
        shop.kafka.stop()
        shop.change([("c", 1, 10)])
        with pytest.raises(SourceUnavailableError):
            wait(lambda: False)
    monkeypatch.undo()
    shop.kafka.start()
    shop.change([("u", 1, 11)])
    table.update()
    assert shop.changes() == shop.done
