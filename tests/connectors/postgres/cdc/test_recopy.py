"""A table that is copied again: its log has the differences, after which everything is as if they had been logged."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.connectors.postgres.cdc.conftest import Change, LogShop, Shop, TopicShop
from tests.connectors.postgres.cdc.test_crashes import OPERATIONS, POINTS, Killed, killed_at
from tests.waiting import join

import windrow as wr
from windrow.authoring.pipeline_file import read_document
from windrow.connectors.log.store import LogStore
from windrow.connectors.postgres.cdc import server
from windrow.connectors.postgres.cdc.recopy import RowChange, row_changes
from windrow.engine.decode.debezium import UNAVAILABLE
from windrow.errors import InputError, SourceError


def changes(shop: Shop, since: int) -> list[tuple[str, Any, Any]]:
    return [(one["op"], one["before"], one["after"]) for one in shop.records()[since:]]


def row(id_: int, amount: int | None) -> dict[str, Any]:
    return {"id": id_, "amount": amount, "note": None}


def drop_slot(sql: psycopg.Connection[Any]) -> None:
    slots = "FROM pg_replication_slots WHERE database = current_database()"
    sql.execute(f"SELECT pg_terminate_backend(active_pid, 10000) {slots} AND active".encode())
    sql.execute(f"SELECT pg_drop_replication_slot(slot_name) {slots}".encode())


@pytest.fixture(params=["shop", pytest.param("topic_shop", marks=pytest.mark.long)])
def any_shop(request: pytest.FixtureRequest, database: str) -> Shop:  # noqa: ARG001 - it tells which service is needed
    made: Shop = request.getfixturevalue(request.param)
    return made


def test_the_differences_are_appended_to_a_topic(topic_shop: TopicShop) -> None:
    shop = topic_shop
    shop.change([("c", number, 0) for number in range(1, 9)])
    shop.follow().update()
    drop_slot(shop.sql)
    shop.change([("u", 1, 11), ("d", 2, None), ("k", 3, None)])
    shop.follow().recopy()
    shop.change([("u", 1, 12), ("d", 9, None)])
    shop.follow().update()
    assert shop.changes() == [("d", 2, None), ("d", 3, None), ("u", 1, 11), ("c", 9, 0), ("u", 1, 12), ("d", 9, None)]
    assert shop.replica() == shop.table()


def test_the_differences_of_a_lost_slot_are_appended(any_shop: Shop) -> None:
    shop = any_shop
    shop.change([("c", 1, 10), ("c", 2, 20), ("c", 3, 30), ("c", 4, 40)])
    shop.follow().update()
    shop.change([("u", 4, 41)])
    shop.follow().update()
    drop_slot(shop.sql)
    shop.change([("u", 1, 11), ("d", 2, None), ("c", 5, 50)])
    with pytest.raises(SourceError, match=r"no longer has the slot .* copy the table again, with windrow run --recopy"):
        shop.follow().update()
    size = len(shop.records())
    shop.follow().recopy()
    assert changes(shop, size) == [
        ("d", row(2, 20), None),
        ("u", None, row(1, 11)),
        ("c", None, row(5, 50)),
    ]
    made = shop.records()[size:]
    assert [one["source"]["snapshot"] for one in made] == ["incremental"] * 3
    assert [one["transaction"]["total_order"] for one in made] == [1, 2, 3]
    [lsn] = {one["source"]["lsn"] for one in made}
    assert {one["transaction"]["id"] for one in made} == {f"recopy:{lsn - 1}"}
    shop.change([("u", 5, 51), ("d", 1, None)])
    shop.follow().update()
    assert shop.replica() == shop.table()
    shop.follow().recopy()
    assert changes(shop, size + 3) == [("u", None, row(5, 51)), ("d", row(1, None), None)]


def test_a_table_that_is_copied_again_while_nothing_is_missing_changes_nothing(shop: LogShop) -> None:
    long = "".join(Random(3).choices("abcdefghij", k=9000))
    shop.sql.execute(
        "ALTER TABLE orders ADD price numeric, ADD tags text[], ADD at timestamptz, ADD ok bool, ADD f real"
    )
    shop.sql.execute(
        "INSERT INTO orders SELECT n, n, %s, '1.50', '{a,\"b \\\" c\",NULL}', now(), true, 1e20 "
        "FROM generate_series(1, 3) n",
        (long,),
    )
    shop.follow().update()
    shop.change([("u", 1, 11), ("k", 2, None), ("u", 4, 21)])  # the note is not logged
    shop.follow().update()
    assert sum(one["after"] is not None and one["after"]["note"] == UNAVAILABLE for one in shop.records()) == 3
    size = len(shop.records())
    shop.follow().recopy()
    assert changes(shop, size) == []
    shop.change([("u", 1, 12)])
    shop.follow().update()
    assert shop.changes()[-1:] == [("u", 1, 12)]


def test_a_table_without_a_log_is_copied(shop: LogShop) -> None:
    shop.change([("c", 1, 10)])
    shop.follow().recopy()
    assert changes(shop, 0) == [("r", None, row(1, 10))]


@pytest.mark.parametrize("publication", [None, "own"])
def test_another_table_under_the_name_is_copied(shop: LogShop, publication: str | None) -> None:
    shop.sql.execute("CREATE PUBLICATION own FOR ALL TABLES")
    shop.source = replace(shop.source, publication=publication)
    shop.change([("c", 1, 10), ("c", 2, 20)])
    shop.follow().update()
    shop.sql.execute("CREATE TABLE fresh (LIKE orders INCLUDING ALL); INSERT INTO fresh VALUES (2, 21), (3, 30)")
    shop.sql.execute("ALTER TABLE orders RENAME TO old; ALTER TABLE fresh RENAME TO orders")
    with pytest.raises(SourceError, match=r"another table under the name .* --recopy orders"):
        shop.follow().update()
    shop.follow().recopy()
    assert changes(shop, 2) == [("d", row(1, 10), None), ("u", None, row(2, 21)), ("c", None, row(3, 30))]
    shop.sql.execute("INSERT INTO old VALUES (8, 80); INSERT INTO orders VALUES (9, 90)")
    shop.follow().update()
    assert shop.changes()[3:] == [("c", 9, 90)]


def test_a_key_and_a_publication_that_changed(shop: LogShop) -> None:
    shop.sql.execute("CREATE PUBLICATION own FOR TABLE orders")
    shop.source = replace(shop.source, publication="own")
    shop.change([("c", 1, 10), ("c", 2, 20)])
    shop.follow().update()
    shop.sql.execute("ALTER PUBLICATION own SET TABLE orders (id, amount)")
    with pytest.raises(SourceError, match=r"was altered after .* --recopy orders"):
        shop.follow().update()
    shop.follow().recopy()
    assert changes(shop, 2) == [("u", None, {"id": 1, "amount": 10}), ("u", None, {"id": 2, "amount": 20})]
    shop.sql.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (amount)")
    with pytest.raises(SourceError, match=r"identified by \(id\) .* now identified by \(amount\): copy .* --recopy"):
        shop.follow().update()
    shop.follow().recopy()
    assert [op for op, *_ in changes(shop, 4)] == ["d", "d", "c", "c"]
    shop.change([("u", 1, 11)])
    shop.follow().update()
    assert [op for op, *_ in changes(shop, 8)] == ["d", "c"]


def test_with_the_whole_old_row_logged_rows_are_removed_before_others_take_their_values(shop: LogShop) -> None:
    shop.sql.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.change([("c", 1, 10), ("c", 2, 20), ("c", 3, 30)])
    shop.follow().update()
    drop_slot(shop.sql)
    shop.change([("u", 1, 20), ("u", 2, 10)])
    shop.follow().recopy()
    assert changes(shop, 3) == [
        ("d", row(1, 10), None),
        ("d", row(2, 20), None),
        ("c", None, row(1, 20)),
        ("c", None, row(2, 10)),
    ]


def test_an_older_log_is_made_whole(shop: LogShop, tmp_path: Path) -> None:
    shop.change([("c", 1, 10), ("c", 2, 20)])
    shop.follow().update()
    shutil.copytree(shop.log, tmp_path / "older")
    shop.change([("d", 1, None), ("u", 2, 21)])
    shop.follow().update()
    shutil.rmtree(shop.log)
    shutil.copytree(tmp_path / "older", shop.log)
    with pytest.raises(SourceError, match=r"is older than the slot .* --recopy orders"):
        shop.follow().update()
    shop.follow().recopy()
    assert shop.replica() == shop.table()


def test_what_cannot_be_compared_is_refused_and_nothing_changes(shop: LogShop) -> None:
    shop.change([("c", 1, 10), ("c", 2, 20)])
    shop.follow().update()
    slots = shop.sql.execute("SELECT slot_name FROM pg_replication_slots").fetchall()
    note, file = shop.log / "postgres.json", shop.log / "partition-0.jsonl"
    noted, whole = note.read_text(), file.read_bytes()
    note.write_text(noted.replace('"commit": 0', '"commit": 4611686018427387904'))
    with pytest.raises(SourceError, match="so this is another server: remove the log"):
        shop.follow().recopy()
    note.write_text(noted)
    assert shop.sql.execute("SELECT slot_name FROM pg_replication_slots").fetchall() == slots
    assert file.read_bytes() == whole
    shop.change([("u", 1, 11)])
    shop.follow().update()
    assert shop.changes() == [("u", 1, 11)]


def recopied(shop: Shop, point: int, *, is_after: bool) -> bool:
    """Copy the table again; return whether the process was killed."""
    points = [*POINTS, (LogStore, "append"), (server, "drop_publication")]
    with killed_at(point, is_after=is_after, points=points):
        try:
            shop.follow().recopy()
        except Killed:
            return True
    return False


def test_a_trimmed_log_has_a_truncation_and_a_copy(any_shop: Shop) -> None:
    shop = any_shop
    shop.change([("c", number, 10) for number in range(1, 9)])
    shop.follow().update()
    drop_slot(shop.sql)
    shop.change([("u", 1, 11), ("d", 2, None), ("c", 9, 90)])
    shop.trim(keep=1)
    shop.follow().recopy()
    made = [one for one in shop.records() if one["source"]["snapshot"] == "incremental"]
    assert [one["op"] for one in made] == ["t"] + ["c"] * 8
    assert {one["after"]["id"]: one["after"]["amount"] for one in made[1:]} == shop.table()
    assert [one["transaction"]["total_order"] for one in made] == list(range(1, 10))
    assert len({(one["source"]["lsn"], one["transaction"]["id"], one["ts_ms"]) for one in made}) == 1
    assert shop.replica() == shop.table()
    # what follows the truncation is known
    shop.change([("c", 10, 100), ("k", 3, None)])
    shop.follow().update()
    size = len(shop.records())
    drop_slot(shop.sql)
    shop.change([("u", 1, 12), ("d", 4, None)])
    shop.follow().recopy()
    assert changes(shop, size) == [("d", row(4, 10), None), ("u", None, row(1, 12))]
    assert shop.replica() == shop.table()


def test_rows_after_a_truncation_are_compared_in_all_partitions(topic_shop: TopicShop) -> None:
    shop = topic_shop
    shop.change([("c", number, 0) for number in range(1, 9)])
    shop.follow().update()
    shop.sql.execute("TRUNCATE orders")
    shop.change([("c", number, 1) for number in range(1, 9)])
    shop.follow().update()
    size = len(shop.records())
    drop_slot(shop.sql)
    shop.change([("d", number, None) for number in range(1, 8)])
    shop.follow().recopy()
    assert changes(shop, size) == [("d", row(number, 1), None) for number in range(1, 8)]
    assert shop.replica() == shop.table()


@pytest.mark.parametrize("is_trimmed", [False, True])
@pytest.mark.parametrize("is_after", [False, True])
def test_a_process_is_killed_at_every_point_while_it_copies_again(
    any_shop: Shop, monkeypatch: pytest.MonkeyPatch, *, is_after: bool, is_trimmed: bool
) -> None:
    shop = any_shop
    monkeypatch.setattr("windrow.connectors.postgres.cdc.follow._CHUNK", 2)
    shop.change([("c", number, 0) for number in range(1, 6)])
    shop.follow().update()
    point = amount = completed = 0
    while True:
        amount += 1
        drop_slot(shop.sql)
        shop.change(
            [
                ("u", 1, amount),
                ("u", 2, amount),
                ("d", 3, None),
                ("u", 4, amount),
                ("c", 5 + amount, amount),
                ("d", 4 + amount, None),
            ]
        )
        if is_trimmed:
            shop.trim()
        was_killed = recopied(shop, point, is_after=is_after)
        shop.change([("u", 1, -amount), ("c", 3, amount)])
        try:
            shop.follow().update()  # a copy that was interrupted is completed without the option, too
            completed += was_killed
        except SourceError:  # it had not begun
            shop.follow().recopy()
        assert shop.replica() == shop.table(), point
        assert [one["op"] for one in shop.records()].count("t") == is_trimmed
        if not was_killed:
            assert completed > 5
            return
        point += 1


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(["followed", "missed"]), st.lists(OPERATIONS, min_size=1, max_size=4))))
def test_the_log_makes_the_table_whatever_was_missed(shop: LogShop, steps: list[tuple[str, list[Change]]]) -> None:
    shop.restart()
    shop.follow().update()
    for kind, operations in steps:
        if kind == "missed":
            drop_slot(shop.sql)
        shop.change(operations)
        shop.follow().recopy() if kind == "missed" else shop.follow().update()
        assert shop.replica() == shop.table()


def test_a_table_is_copied_again_among_writers(shop: LogShop) -> None:
    stop = threading.Event()

    def write(seed: int) -> None:
        random = Random(seed)
        with psycopg.connect(shop.url, autocommit=True) as sql:
            while not stop.is_set():
                id_ = random.randint(1, 20) * 4 + seed
                if random.random() < 0.3:
                    sql.execute("DELETE FROM orders WHERE id = %s", (id_,))
                else:
                    sql.execute(
                        "INSERT INTO orders AS o VALUES (%s, 1) ON CONFLICT (id) DO UPDATE SET amount = o.amount + 1",
                        (id_,),
                    )

    shop.follow().update()
    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            drop_slot(shop.sql)
            shop.follow().recopy()
    finally:
        stop.set()
        for thread in threads:
            join(thread)
    shop.follow().update()
    assert {one["source"]["snapshot"] for one in shop.records()} == {"false", "incremental"}
    assert shop.replica() == shop.table()


def test_a_run_copies_the_table_again_and_its_rows_are_those_of_the_table(shop: LogShop, tmp_path: Path) -> None:
    def pipeline() -> wr.Pipeline:
        text = f"""
name: orders
sources:
  orders:
    source: {{postgres_cdc: {{url: "{shop.url}", table: orders, log: {shop.log}}}}}
    decode: {{id: long, amount: "long?", at: {{type: timestamp_millis, path: source.ts_ms}}}}
    time: {{field: at, delay: 0s}}
streams:
  order: {{from: orders, table: {{key: id}}}}
sinks:
  to_order: {{from: order, sink: {{sqlite: {{path: {tmp_path / "o.db"}, table: orders}}}}}}
"""
        return wr.Pipeline(read_document(text, "orders.yaml").pipeline)

    def rows(*, fresh: bool = True) -> dict[int, int | None]:
        table = pipeline().run("memory", fresh=fresh, recopy=recopy, progress=False).to_arrow()
        return {one["id"]: one["amount"] for one in table.to_pylist()}

    recopy: str | tuple[str, ...] = ()
    shop.change([("c", 1, 10), ("c", 2, 20), ("c", 3, 30)])
    assert rows() == shop.table()
    drop_slot(shop.sql)
    shop.change([("d", 1, None), ("u", 2, 21), ("c", 4, 40)])
    with pytest.raises(SourceError, match="--recopy orders"):
        rows()
    recopy = ("others",)
    with pytest.raises(InputError, match=r"the table 'others' cannot be copied again.*: the tables are orders"):
        rows()
    recopy = "orders"
    assert rows() == shop.table()
    recopy = ()
    shop.change([("u", 4, 41), ("d", 3, None)])
    assert rows() == shop.table()
    assert rows() == shop.table()


def test_rows_of_a_log_and_of_a_table() -> None:
    def record(op: str, before: str | None, after: str | None) -> bytes:
        return f'{{"before": {before or "null"}, "after": {after or "null"}, "op": "{op}"}}'.encode()

    def found(records: list[bytes], *rows: tuple[str, str], trimmed: Collection[int] = ()) -> list[RowChange | None]:
        parts = [(number % 2, one) for number, one in enumerate(records)]
        return list(row_changes(parts, lambda: trimmed, ["id"], rows, is_split=False))

    one, two = ('{"id": 1}', '{"id": 1, "n": 1.50}'), ('{"id": 2}', '{"id": 2, "n": 1}')
    other = '{"id": 1, "n": 1.5}'
    assert found([record("r", None, one[1])], one, two) == [(two[0], None, two[1])]
    assert found([record("r", None, other)], one) == [(one[0], other, one[1])]
    created, truncated = record("c", None, one[1]), record("t", None, None)
    assert found([created, record("c", None, two[1]), truncated], two) == []
    assert found([created, record("c", None, two[1]), record("u", None, one[1]), truncated], one) == []
    assert found([created, record("c", None, two[1]), truncated], one) == [
        (two[0], two[1], None),
        (one[0], None, one[1]),
    ]
    assert found([created], one, trimmed=[0]) == [None, (one[0], None, one[1])]
    assert found([created, truncated], one, trimmed=[0]) == [None, (one[0], None, one[1])]
    assert found([truncated, truncated, created], one, trimmed=[0, 1]) == []
    assert found([record("c", None, one[1]), record("d", one[1], None)], one) == [(one[0], None, one[1])]
    away = record("u", None, f'{{"id": 1, "n": "{UNAVAILABLE}"}}')
    assert found([record("c", None, one[1]), away], one) == []
    assert found([record("c", None, one[1]), away]) == [(one[0], one[1], None)]
    for bad in (b"{}", b"[]", b"\xff", record("c", None, "{}"), record("c", None, None)):
        with pytest.raises(SourceError, match="a record of the log is not a change of the table"):
            found([bad], one)
