"""Runs over a table of a PostgreSQL database: a replica of it, and an aggregate, by the log alone."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.graphs import Runnable, as_graph
from tests.runtime.runs import Runner, Scene, read

from windrow.authoring.pipeline_file import read_document
from windrow.errors import InputError, SourceError
from windrow.model import Graph, KafkaSource, LogSource, SourceNode
from windrow.runtime.launch import launch
from windrow.runtime.run import RunSettings
from windrow.telemetry.reports import Fault, Lag
from windrow.testing.servers.kafka import Kafka
from windrow.tools.redrive.copies import check_redrivable

PIPELINE = """
name: replica
sources:
  orders:
    source: {postgres_cdc: {url: "URL", table: orders, log: FOLDER/log}}
    decode: {id: long, customer: string, amount: "decimal(12,2)", at: {type: timestamp_millis, path: source.ts_ms}}
    time: {field: at, delay: 1s}
streams:
  order: {from: orders, table: {key: id}}
  spending: {from: order, key: customer, window: {global: {}}, aggregate: {orders: count(), total: sum(amount)}}
sinks:
  to_orders: {from: order, sink: {sqlite: {path: FOLDER/replica.db, table: orders}}}
  to_spending: {from: spending, sink: {sqlite: {path: FOLDER/replica.db, table: spending}}}
"""


class Shop:
    def __init__(self, url: str, folder: Path, into: str = "log: FOLDER/log") -> None:
        self.sql = psycopg.connect(url, autocommit=True)
        self.folder = folder
        self.sql.execute("CREATE TABLE orders (id int PRIMARY KEY, customer text, amount numeric)")
        self.change("INSERT INTO orders VALUES (1, 'Ada', 5), (2, 'Ben', 7.5), (3, 'Ada', 2)")
        text = PIPELINE.replace("log: FOLDER/log", into).replace("URL", url).replace("FOLDER", str(folder))
        self.pipeline: Runnable = read_document(text, "replica.yaml").pipeline

    def change(self, statement: str) -> None:
        self.sql.execute(statement.encode())

    def replica(self) -> list[tuple[Any, ...]]:
        return self._in_sqlite("SELECT id, customer, amount FROM orders ORDER BY 1")

    def table(self) -> list[tuple[Any, ...]]:
        return self.sql.execute("SELECT * FROM orders ORDER BY 1").fetchall()

    def spending(self) -> list[tuple[Any, ...]]:
        return self._in_sqlite("SELECT customer, orders, total FROM spending ORDER BY 1")

    def grouped(self) -> list[tuple[Any, ...]]:
        return self.sql.execute("SELECT customer, count(*), sum(amount) FROM orders GROUP BY 1 ORDER BY 1").fetchall()

    def is_replicated(self) -> bool:
        return self.replica() == self.table() and self.spending() == self.grouped()

    def dead_letters(self) -> list[tuple[Any, ...]]:
        return self._in_sqlite("SELECT reason FROM orders_dead")

    def _in_sqlite(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / "replica.db")) as database:
            return [
                tuple(Decimal(str(one)) if isinstance(one, float) else one for one in row)
                for row in database.execute(query)
            ]


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(database, tmp_path)
    yield made
    made.sql.close()


def replayed(shop: Shop, log: LogSource | KafkaSource) -> None:
    """Run the pipeline in memory over the log alone."""
    assert isinstance(shop.pipeline, Graph)
    nodes = (replace(node, source=log) if isinstance(node, SourceNode) else node for node in shop.pipeline.nodes)
    in_memory(shop, replace(shop.pipeline, nodes=tuple(nodes)))


def in_memory(shop: Shop, pipeline: Runnable) -> None:
    options = RunSettings(shop.folder / "memory", "memory", until_end=True, fresh=True)
    launch(as_graph(pipeline), options, lambda _: None, lambda _: None)


def test_runs_to_the_end_read_what_was_committed_and_a_replay_needs_no_database(shop: Shop) -> None:
    in_memory(shop, shop.pipeline)
    assert shop.is_replicated()
    shop.change("UPDATE orders SET id = 4, amount = 6 WHERE id = 1")
    shop.change("DELETE FROM orders WHERE id = 2")
    in_memory(shop, shop.pipeline)
    assert shop.is_replicated()
    shop.change("DELETE FROM orders WHERE id = 3")
    before = shop.replica()
    replayed(shop, LogSource(str(shop.folder / "log"), "debezium"))
    assert shop.replica() == before


def test_runs_by_a_topic_have_the_same_results(database: str, tmp_path: Path, kafka: Kafka) -> None:
    name = f"orders-{uuid.uuid4().hex[:12]}"
    shop = Shop(database, tmp_path, f'servers: "{kafka.servers}", topic: {name}')
    try:
        in_memory(shop, shop.pipeline)
        assert shop.is_replicated()
        shop.change("UPDATE orders SET id = 4, amount = 6 WHERE id = 1")
        shop.change("DELETE FROM orders WHERE id = 2")
        in_memory(shop, shop.pipeline)
        assert shop.is_replicated()
        shop.change("DELETE FROM orders WHERE id = 3")
        before = shop.replica()
        replayed(shop, KafkaSource(kafka.servers, name, format="debezium"))
        assert shop.replica() == before
    finally:
        shop.sql.close()


TRUNCATIONS = (
    "TRUNCATE orders",
    "INSERT INTO orders VALUES (1, 'Cleo', 1), (9, 'Ada', 3)",
    "BEGIN; INSERT INTO orders VALUES (7, 'Ada', 1); TRUNCATE orders; INSERT INTO orders VALUES (8, 'Ben', 4); COMMIT",
    "BEGIN; TRUNCATE orders; INSERT INTO orders VALUES (12, 'Ben', 4); ROLLBACK",
    "INSERT INTO orders SELECT number, 'Eve', 2 FROM generate_series(20, 60) number",
    "BEGIN; TRUNCATE customers CASCADE; INSERT INTO customers VALUES ('A'); COMMIT",
    "INSERT INTO orders VALUES (2, 'A', 8)",
)


@pytest.mark.parametrize("partitions", [0, 1, 3], ids=["log", "topic", "topic of three partitions"])
def test_a_truncation_empties_the_table(
    database: str, tmp_path: Path, request: pytest.FixtureRequest, partitions: int
) -> None:
    into = "log: FOLDER/log"
    log: LogSource | KafkaSource = LogSource(str(tmp_path / "log"), "debezium")
    if partitions:
        servers, name = request.getfixturevalue("kafka").servers, request.getfixturevalue("topic")(partitions)
        into, log = f'servers: "{servers}", topic: {name}', KafkaSource(servers, name, format="debezium")
    shop = Shop(database, tmp_path, into)
    try:
        shop.change("CREATE TABLE customers (name text PRIMARY KEY)")
        shop.change("INSERT INTO customers SELECT unnest(ARRAY['Ada', 'Ben', 'Cleo', 'Eve'])")
        shop.change("ALTER TABLE orders ADD FOREIGN KEY (customer) REFERENCES customers")
        in_memory(shop, shop.pipeline)
        for statement in TRUNCATIONS:
            shop.change(statement)
            in_memory(shop, shop.pipeline)
            assert shop.is_replicated(), statement
        assert shop.table() == [(2, "A", 8)]
        replayed(shop, log)
        assert shop.is_replicated()
        assert shop.dead_letters() == []
    finally:
        shop.sql.close()


@pytest.mark.service
def test_a_live_run_follows_the_table_across_a_lost_connection(shop: Shop, runner: Runner) -> None:
    faults: list[Fault] = []
    lags: list[Lag] = []

    def scene() -> Scene:
        yield read(3)
        shop.change("UPDATE orders SET amount = amount + 1; DELETE FROM orders WHERE id = 2")
        yield read(7)
        shop.change("SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE active")
        shop.change("INSERT INTO orders VALUES (2, 'Cleo', 9)")
        yield read(8)

    assert runner.live(shop.pipeline, scene(), on_trouble=faults.append, on_lag=lags.append) == "asked"
    assert shop.is_replicated()
    assert [fault.reason for fault in faults] == ["source"]
    assert "trying again in 0.5 s" in faults[0]
    slots = {one.slot for lag in lags for one in lag.slots}
    assert len(slots) == 1
    assert min(slots).startswith("windrow_orders_")


@pytest.mark.service
def test_a_live_run_ends_with_the_error_of_its_follower(shop: Shop, runner: Runner) -> None:
    def scene() -> Scene:
        yield read(3)
        shop.change("ALTER TABLE orders RENAME TO old; CREATE TABLE orders (LIKE old INCLUDING ALL)")
        shop.change("INSERT INTO orders VALUES (9, 'Cleo', 9)")
        yield read(1000)

    with pytest.raises(SourceError, match=r"another table under the name public\.orders") as raised:
        runner.live(shop.pipeline, scene())
    seen: list[BaseException | None] = [raised.value]
    while seen[-1] is not None:
        seen.append(seen[-1].__cause__)
        assert seen[-1] not in seen[:-1]


def test_dead_letters_of_a_table_are_mended_there() -> None:
    pipeline = read_document(
        "name: count\nsource: {postgres_cdc: {url: 'postgresql://a@b/c', table: orders, log: l}}\n"
        "decode: {id: long, at: {type: timestamp_millis, path: source.ts_ms}}\ntime: {field: at, delay: 1s}\nkey: id\n"
        "window: {tumbling: {size: 1m}}\naggregate: {n: count()}\nsink: {sqlite: {path: a.db, table: t}}\n",
        "count.yaml",
    ).pipeline
    with pytest.raises(InputError, match="change the row in the database"):
        check_redrivable(pipeline)
