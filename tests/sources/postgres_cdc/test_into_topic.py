"""The changes of a table in a Kafka topic, each once, in the order of their commits by key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.sources.postgres_cdc.conftest import TopicShop

from windrow.errors import SourceError, WindrowError
from windrow.model import LogSource
from windrow.sources import open_source
from windrow.sources.postgres_cdc import FollowedTable


def refused(shop: TopicShop, match: str, error: type[WindrowError] = SourceError) -> None:
    with pytest.raises(error, match=match) as caught:
        shop.follow().update()
    assert type(caught.value) is error


def test_records_are_those_of_a_log_and_rows_keep_their_partition(topic_shop: TopicShop, tmp_path: Any) -> None:
    shop = topic_shop
    shop.sql.execute("ALTER TABLE orders ADD COLUMN price numeric, ADD COLUMN at timestamptz, ADD COLUMN tags text[]")
    shop.sql.execute(
        "INSERT INTO orders SELECT n, n, 'a', 1.50, '2026-01-01 00:00:00.5Z', '{a,b}' FROM generate_series(1, 40) n"
    )
    by_log = replace(shop.source, into=LogSource(str(tmp_path / "log")))
    shop.follow().update()
    FollowedTable(by_log).update()
    for _ in range(3):
        shop.change([("u", 1, 5), ("u", 2, 6), ("k", 3, None), ("d", 4, None), ("u", 5, 7), ("c", 4, 9)])
    shop.sql.execute("TRUNCATE orders")
    shop.follow().update()
    FollowedTable(by_log).update()
    assert [len(rows) > 3 for rows in shop.partitions()] == [True] * 3
    [lines] = [[row for batch in open_source(by_log).read_all() for row in batch.to_pylist()]]
    records = [row for batch in open_source(shop.source).read_all() for row in batch.to_pylist()]
    plain = {row["value"].decode().partition(", ")[2]: row["log_time"] for row in lines}
    changes = [row for row in records if b'"snapshot": "false"' in row["value"]]
    assert len(changes) == 3 * 6 + 3 + 1
    for row in changes:
        assert row["value"].decode()[1:] in plain
    copied = [row["value"] for row in records if b'"snapshot": "true"' in row["value"]]
    assert len(copied) == 40
    assert b'"price": 1.50, "at": "2026-01-01T00:00:00.500000Z", "tags": ["a", "b"]' in copied[0].replace(
        b".5Z", b".500000Z"
    )
    shop.records()
