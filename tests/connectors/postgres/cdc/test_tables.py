"""Several tables of a database in one log: their transactions are whole, in the log and in results."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from tests.connectors.postgres.cdc.test_crashes import POINTS, Killed, killed_at
from tests.connectors.postgres.cdc.test_recopy import drop_slot
from tests.waiting import join

import windrow as wr
from windrow.authoring.pipeline_file import read_document
from windrow.connectors.log.folder import LogFolder
from windrow.connectors.log.retention import apply, plan_trim
from windrow.connectors.log.segments import Position
from windrow.connectors.log.store import LogStore
from windrow.connectors.open_sources import followers
from windrow.connectors.postgres.cdc.follow import FollowedTables
from windrow.errors import InputError, SourceError
from windrow.model import (
    ChangesNode,
    Decode,
    Field,
    LogSource,
    LongType,
    Node,
    PostgresCdcSource,
    TableNode,
)

MORE = '"_more": true, '


class Shop:
    """Orders and their lines: the total of an order is always the sum of its lines."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.log = url, folder, folder / "log"
        self.sql = psycopg.connect(url, autocommit=True)
        self.sql.execute("CREATE TABLE orders (id int PRIMARY KEY, total int)")
        self.sql.execute("CREATE TABLE lines (id int, nr int, amount int, PRIMARY KEY (id, nr))")
        self.source = PostgresCdcSource(url, "", LogSource(str(self.log)), tables=("orders", "lines"))

    def follow(self) -> FollowedTables:
        return FollowedTables(self.source)

    def order(self, sql: psycopg.Connection[Any], random: Random) -> None:
        """Write an order again, with other lines, or remove it, in one transaction."""
        id_, amounts = random.randint(1, 20), [random.randint(1, 9) for _ in range(random.randint(1, 4))]
        with sql.transaction():
            sql.execute("SELECT pg_advisory_xact_lock(%s)", (id_,))
            sql.execute("DELETE FROM lines WHERE id = %s", (id_,))
            if random.random() < 0.2:
                sql.execute("DELETE FROM orders WHERE id = %s", (id_,))
                return
            for nr, amount in enumerate(amounts):
                sql.execute("INSERT INTO lines VALUES (%s, %s, %s)", (id_, nr, amount))
            sql.execute(
                "INSERT INTO orders VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET total = excluded.total",
                (id_, sum(amounts)),
            )

    def records(self) -> list[dict[str, Any]]:
        begin = LogFolder(str(self.log)).first(0).byte
        return [json.loads(line) for line in (self.log / "partition-0.jsonl").read_bytes()[begin:].splitlines()]

    def trim(self) -> None:
        folder = LogFolder(str(self.log))
        for change in plan_trim(folder, offsets={0: folder.scan(0, folder.first(0)).line}):
            apply(folder, change)

    def replica(self) -> dict[str, set[tuple[Any, ...]]]:
        """Return the rows of the tables that the log makes; see that transactions are whole."""
        rows: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = {"orders": {}, "lines": {}}
        names: dict[str, tuple[str, ...]] = {"orders": ("id",), "lines": ("id", "nr")}
        number, before = 0, False
        for one in self.records():
            table = one["source"]["table"]
            if one["op"] == "t":
                rows[table].clear()
            else:
                row = one["after"] or one["before"]
                key = tuple(row[name] for name in names[table])
                rows[table].pop(key, None)
                if one["after"]:
                    rows[table][key] = tuple(row.values())
            if (transaction := one["transaction"]) is not None and len(self.source.names) > 1:
                # a copy that was interrupted begins again
                is_again = transaction["total_order"] == 1 and one["source"]["snapshot"] == "incremental"
                assert transaction["total_order"] == (number + 1 if before and not is_again else 1)
                number, before = transaction["total_order"], one.get("_more", False)
        assert not before
        return {table: set(found.values()) for table, found in rows.items()}

    def tables(self) -> dict[str, set[tuple[Any, ...]]]:
        return {
            "orders": set(self.sql.execute("SELECT * FROM orders").fetchall()),
            "lines": set(self.sql.execute("SELECT * FROM lines").fetchall()),
        }

    def pipeline(self, host_of_log: str = "") -> wr.Pipeline:
        source = host_of_log or f'postgres_cdc: {{url: "{self.url}", tables: [orders, lines], log: {self.log}}}'
        text = f"""
name: shop
sources:
  shop:
    source: {{{source}}}
    decode: {{at: {{type: timestamp_millis, path: source.ts_ms}}}}
    time: {{field: at, delay: 0s}}
streams:
  order_changes: {{from: shop, changes: {{of: orders, decode: {{id: long, total: long}}}}}}
  line_changes: {{from: shop, changes: {{of: lines, decode: {{id: long, nr: long, amount: long}}}}}}
  order: {{from: order_changes, table: {{key: id}}}}
  line: {{from: line_changes, table: {{key: [id, nr]}}}}
  lines_of: {{from: line, key: id, window: {{global: {{}}}}, aggregate: {{amount: sum(amount)}}}}
  both: {{from: order, join: {{with: lines_of, by: id, how: full}}}}
sinks:
  to_both: {{from: both, sink: {{sqlite: {{path: {self.folder / "both.db"}, table: both_}}}}}}
  to_lines: {{from: lines_of, sink: {{sqlite: {{path: {self.folder / "both.db"}, table: lines_of}}}}}}
  to_line: {{from: line, sink: {{sqlite: {{path: {self.folder / "both.db"}, table: line}}}}}}
"""
        return wr.Pipeline(read_document(text, "shop.yaml").pipeline)


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(database, tmp_path)
    yield made
    made.sql.close()


def test_the_log_has_the_transactions_of_both_tables(shop: Shop) -> None:
    random = Random(1)
    for _ in range(5):
        shop.order(shop.sql, random)
    shop.follow().update()
    copied = len(shop.records())
    assert {one["op"] for one in shop.records()} == {"r"}
    for _ in range(30):
        shop.order(shop.sql, random)
    shop.sql.execute("CREATE TABLE others (id int)")
    shop.sql.execute("INSERT INTO others VALUES (1)")
    shop.follow().update()
    assert shop.replica() == shop.tables()
    assert len(shop.sql.execute("SELECT FROM pg_replication_slots WHERE database = current_database()").fetchall()) == 1
    assert {one["source"]["table"] for one in shop.records()[copied:]} == {"orders", "lines"}
    with shop.sql.transaction():
        shop.sql.execute("TRUNCATE orders, lines")
        shop.sql.execute("INSERT INTO orders VALUES (1, 0)")
    shop.follow().update()
    last = [(one["op"], one["source"]["table"], one.get("_more")) for one in shop.records()[-3:]]
    assert sorted(last[:2]) == [("t", "lines", True), ("t", "orders", True)]
    assert last[2] == ("c", "orders", None)


@pytest.mark.parametrize("is_after", [False, True])
def test_a_process_is_killed_at_every_point(shop: Shop, *, is_after: bool) -> None:
    random, point = Random(2), 0
    shop.order(shop.sql, random)
    while True:
        try:
            with killed_at(point, is_after=is_after, points=POINTS):
                shop.follow().update()
            break
        except Killed:
            shop.order(shop.sql, random)
            shop.follow().update()
            assert shop.replica() == shop.tables(), point
            shop.order(shop.sql, random)
        point += 1
    assert point > 4
    assert shop.replica() == shop.tables()


def test_a_table_is_added_and_one_is_left_out(shop: Shop) -> None:
    shop.source = replace(shop.source, tables=(), table="orders")
    shop.order(shop.sql, random := Random(3))
    shop.follow().update()
    shop.source = replace(shop.source, table="", tables=("orders", "lines"))
    with pytest.raises(SourceError, match=r"has the changes of public.orders, and the source .* --recopy orders"):
        shop.follow().update()
    shop.order(shop.sql, random)
    shop.follow().recopy()
    assert shop.replica() == shop.tables()
    for _ in range(5):
        shop.order(shop.sql, random)
    shop.follow().update()
    shop.sql.execute("TRUNCATE orders")
    shop.follow().update()
    assert shop.replica() == shop.tables()
    shop.source = replace(shop.source, tables=("lines",))
    with pytest.raises(SourceError, match="--recopy lines"):
        shop.follow().update()
    alone = FollowedTables(replace(shop.source, tables=(), table="lines"))
    for follow in (alone.update, alone.recopy):
        with pytest.raises(InputError, match=r"has changes of other tables, .* write `tables: \[lines\]` and a stream"):
            follow()
    shop.sql.execute("DELETE FROM lines WHERE nr = 1")
    shop.follow().recopy()
    assert shop.replica()["lines"] == shop.tables()["lines"]
    shop.follow().update()
    # the records of orders are still in the log
    for follow in (alone.update, alone.recopy):
        with pytest.raises(InputError, match="has changes of other tables"):
            follow()
    shop.sql.execute("CREATE TABLE others (id int PRIMARY KEY)")
    shop.source = replace(shop.source, tables=("others",))
    with pytest.raises(InputError, match=r"belongs to the table public.lines"):
        shop.follow().update()


def test_what_was_missed_of_both_tables_is_appended(shop: Shop) -> None:
    random = Random(4)
    for _ in range(20):
        shop.order(shop.sql, random)
    shop.follow().update()
    size = len(shop.records())
    drop_slot(shop.sql)
    for _ in range(20):
        shop.order(shop.sql, random)
    shop.follow().recopy()
    assert shop.replica() == shop.tables()
    made = shop.records()[size:]
    assert [one.get("_more", False) for one in made] == [True] * (len(made) - 1) + [False]


@pytest.mark.parametrize("is_after", [False, True])
def test_both_tables_of_a_trimmed_log_are_truncated_and_copied(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, is_after: bool
) -> None:
    monkeypatch.setattr("windrow.connectors.postgres.cdc.follow._CHUNK", 20)
    random, point = Random(6), 0
    for _ in range(5):
        shop.order(shop.sql, random)
    shop.follow().update()
    was_killed = True
    while was_killed:
        drop_slot(shop.sql)
        shop.trim()
        shop.order(shop.sql, random)
        was_killed = False
        try:
            with killed_at(point, is_after=is_after, points=[*POINTS, (LogStore, "append")]):
                shop.follow().recopy()
        except Killed:
            was_killed = True
            shop.order(shop.sql, random)
            shop.follow().recopy()
        assert shop.replica() == shop.tables(), point
        assert sorted(one["source"]["table"] for one in shop.records() if one["op"] == "t") == ["lines", "orders"]
        shop.order(shop.sql, random)
        shop.follow().update()
        assert shop.replica() == shop.tables(), point
        point += 1
    assert point > 10


def test_a_table_whose_rows_follow_a_truncation_is_compared(shop: Shop) -> None:
    random = Random(7)
    for _ in range(10):
        shop.order(shop.sql, random)
    shop.follow().update()
    shop.trim()
    shop.sql.execute("TRUNCATE lines")
    shop.sql.execute("INSERT INTO lines VALUES (1, 0, 5), (2, 0, 6)")
    shop.follow().update()
    size = len(shop.records())
    drop_slot(shop.sql)
    shop.sql.execute("UPDATE lines SET amount = 7 WHERE id = 2")
    shop.follow().recopy()
    made = [(one["source"]["table"], one["op"]) for one in shop.records()[size:]]
    assert made == [("orders", "t"), *[("orders", "c")] * len(shop.tables()["orders"]), ("lines", "u")]


def test_a_step_ends_between_transactions(tmp_path: Path) -> None:
    def line(number: int, *, more: bool) -> bytes:
        return (
            f'{{"_log_time": {number}, {chr(34)}_more{chr(34)}: true, '.encode()
            if more
            else f'{{"_log_time": {number}, '.encode()
        )

    texts = [(False, 1), (True, 1), (True, 9000), (False, 1), (True, 1), (False, 30000), (True, 5)]
    lines = [
        line(number, more=more) + b'"before": null, "x": "' + b"y" * size + b'"}\n'
        for number, (more, size) in enumerate(texts)
    ]
    (tmp_path / "partition-0.jsonl").write_bytes(b"".join(lines))
    folder = LogFolder(tmp_path)
    places = [Position(number, sum(map(len, lines[:number]))) for number in range(len(lines) + 1)]
    size = places[-1].byte

    def end(start: int, to: int, size: int = size) -> int:
        return folder.between_transactions(0, places[start], places[to], size).line

    assert [end(0, to) for to in range(8)] == [0, 1, 4, 4, 4, 6, 6, 6]
    assert [end(1, to, places[3].byte) for to in (2, 3)] == [1, 1]
    assert end(4, 7) == 6
    assert end(6, 7) == 6


def test_joined_tables_never_show_a_part_of_a_transaction(shop: Shop, spark: object) -> None:  # noqa: ARG001
    random, stop = Random(5), threading.Event()
    for _ in range(10):
        shop.order(shop.sql, random)

    def write(seed: int) -> None:
        own = Random(seed)
        with psycopg.connect(shop.url, autocommit=True) as sql:
            while not stop.wait(0.02):
                shop.order(sql, own)

    state, seen, epochs = str(shop.folder / "state"), 0, set[int]()
    shop.pipeline().run(checkpoint=state, progress=False)
    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        with shop.pipeline().start(until_end=False, every="200ms", checkpoint=state, max_records=7) as run:
            while len(epochs) < 10:
                assert run.is_active
                if (epoch := epoch_of(shop)) not in {*epochs, -1}:
                    epochs.add(epoch)
                    rows = both(shop)
                    seen += len(rows)
                    assert [row for row in rows if row[1] != row[2]] == []
                stop.wait(0.05)
    finally:
        stop.set()
        for thread in threads:
            join(thread)
    assert seen > 50
    result = shop.pipeline().run(checkpoint=state, progress=False)
    assert result.totals is not None
    assert result.totals.dead == 0
    assert {row[:2] for row in both(shop)} == shop.tables()["orders"]


def both(shop: Shop) -> list[tuple[Any, ...]]:
    with sqlite3.connect(shop.folder / "both.db") as db:
        try:
            return db.execute("SELECT id, total, amount FROM both_").fetchall()
        except sqlite3.OperationalError:
            return []


def epoch_of(shop: Shop) -> int:
    with sqlite3.connect(shop.folder / "both.db") as db:
        try:
            return int(db.execute("SELECT max(epoch) FROM windrow_epochs").fetchone()[0] or 0)
        except sqlite3.OperationalError:
            return -1


def test_the_key_of_a_table_needs_the_old_values_of_its_own_table_only(shop: Shop) -> None:
    shop.sql.execute("ALTER TABLE orders ADD amount int")

    def preflight(*key: str) -> None:
        graph = shop.pipeline().graph.map_nodes(lambda node: _changed(node, key))
        followers(graph)["shop"].preflight()

    preflight("id", "nr")
    with pytest.raises(SourceError, match=r"the table public\.lines does not log the old value of 'amount'"):
        preflight("id", "amount")
    shop.sql.execute("ALTER TABLE lines REPLICA IDENTITY FULL")
    preflight("id", "amount")


def _changed(node: Node, key: tuple[str, ...]) -> Node:
    """Give the table of lines another key, and decode a column of the orders that has the name of one of theirs."""
    if isinstance(node, TableNode) and node.name == "line":
        return replace(node, key=key)
    if isinstance(node, ChangesNode) and node.table == "orders":
        amount = Field("amount", LongType(), optional=True)
        return replace(node, decode=Decode((*node.decode.fields, amount)))
    return node


def test_results_are_those_of_the_tables(shop: Shop) -> None:
    random = Random(6)
    for _ in range(50):
        shop.order(shop.sql, random)
    shop.follow().update()
    for _ in range(50):
        shop.order(shop.sql, random)
    result = shop.pipeline().run("memory", progress=False)
    assert result.totals is not None
    assert result.totals.dead == 0
    assert {row[:2] for row in both(shop)} == shop.tables()["orders"]
    assert all(row[1] == row[2] for row in both(shop))
    again = shop.pipeline(f"log: {{path: {shop.log}, format: debezium}}").run("memory", fresh=True, progress=False)
    assert again.totals is not None
    assert again.totals.dead == 0
    assert {row[:2] for row in both(shop)} == shop.tables()["orders"]
