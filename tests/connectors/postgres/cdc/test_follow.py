"""What the log has of a table, and what cannot be followed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from tests.connectors.postgres.cdc.conftest import LogShop
from tests.waiting import join

from windrow.authoring.pipeline_file import read_document
from windrow.connectors.follower import Follower, ReadColumns
from windrow.connectors.log.folder import LogFolder
from windrow.connectors.log.retention import apply, plan_trim
from windrow.connectors.open_sources import followers, open_source
from windrow.connectors.postgres.cdc import server
from windrow.connectors.postgres.cdc.follow import FollowedTables
from windrow.engine.decode.debezium import UNAVAILABLE
from windrow.errors import InputError, RecordsLostError, SourceError, SourceUnavailableError, WindrowError
from windrow.model import LogSource, PostgresCdcSource
from windrow.testing.servers.postgres import Postgres


def rows(shop: LogShop) -> list[tuple[str, Any, Any]]:
    return [(one["op"], one["before"], one["after"]) for one in shop.records()]


@contextmanager
def following(table: Follower) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """Follow a table in a thread; yield what waits for a condition."""
    stop, failures = threading.Event(), list[WindrowError]()

    def follow() -> None:
        try:
            table.follow(stop, print)
        except WindrowError as exc:
            failures.append(exc)

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, "waited 30 s for the table to be followed"
            if failures:
                raise failures[0]
            time.sleep(0.01)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield wait
    finally:
        stop.set()
        join(thread)


def test_a_table_is_copied_once_and_then_followed(shop: LogShop) -> None:
    shop.change([("c", 1, 10)])
    shop.follow().update()
    shop.follow().update()
    assert [one["op"] for one in shop.records()] == ["r"]
    shop.change([("u", 1, 11), ("c", 2, 20)])
    shop.change([("k", 2, None), ("d", 1, None)])
    shop.follow().update()
    assert rows(shop)[1:] == [
        ("u", None, {"id": 1, "amount": 11, "note": None}),
        ("c", None, {"id": 2, "amount": 20, "note": None}),
        ("d", {"id": 2, "amount": None, "note": None}, None),
        ("c", None, {"id": 3, "amount": 20, "note": None}),
        ("d", {"id": 1, "amount": None, "note": None}, None),
    ]
    assert [one["transaction"]["total_order"] for one in shop.records()[1:]] == [1, 2, 1, 2, 3]
    [sources] = [[one["source"] for one in shop.records()]]
    assert [one["snapshot"] for one in sources] == ["true", *["false"] * 5]
    assert sorted(one["lsn"] for one in sources) == [one["lsn"] for one in sources]


def test_the_log_of_a_table_is_read_as_any_log(shop: LogShop) -> None:
    shop.change([("c", 1, 10)])
    shop.follow().update()
    source = open_source(shop.source)
    assert source.partitions() == [0]
    assert source.ends() == {0: (0, 1)}
    assert [batch.to_pylist() for batch in source.read_all()] == [
        batch.to_pylist() for batch in open_source(LogSource(str(shop.log), "debezium")).read_all()
    ]


def test_an_empty_table_has_an_empty_log(shop: LogShop) -> None:
    shop.follow().update()
    assert open_source(shop.source).ends() == {0: (0, 0)}
    shop.change([("c", 1, 10)])
    shop.follow().update()
    assert shop.changes() == [("c", 1, 10)]


def test_columns_of_the_old_row_and_unchanged_long_values(shop: LogShop) -> None:
    long = "".join(Random(3).choices("abcdefghij", k=9000))
    shop.sql.execute("INSERT INTO orders VALUES (1, 10, %s)", (long,))
    shop.follow().update()
    shop.change([("u", 1, 11)])
    shop.sql.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.change([("u", 1, 12), ("k", 1, None)])
    shop.follow().update()
    assert rows(shop)[1:] == [
        ("u", None, {"id": 1, "amount": 11, "note": UNAVAILABLE}),
        ("u", {"id": 1, "amount": 11, "note": long}, {"id": 1, "amount": 12, "note": long}),
        ("d", {"id": 1, "amount": 12, "note": long}, None),
        ("c", None, {"id": 2, "amount": 12, "note": long}),
    ]


def test_a_column_that_is_added_a_truncation_and_other_tables(shop: LogShop) -> None:
    shop.sql.execute("CREATE TABLE others (id int PRIMARY KEY)")
    shop.sql.execute("CREATE PUBLICATION own FOR ALL TABLES")
    shop.source = replace(shop.source, publication="own")
    shop.change([("c", 1, 10)])
    shop.follow().update()
    shop.sql.execute("ALTER TABLE orders ADD COLUMN days date[]")
    with shop.sql.transaction():
        shop.sql.execute("INSERT INTO others VALUES (1)")
        shop.sql.execute("UPDATE orders SET days = '{2026-01-02}'")
        shop.sql.execute("TRUNCATE others")
        shop.sql.execute("TRUNCATE orders")
    shop.follow().update()
    assert rows(shop)[1:] == [("u", None, {"id": 1, "amount": 10, "note": None, "days": [20455]}), ("t", None, None)]
    assert [one["transaction"]["total_order"] for one in shop.records()[1:]] == [1, 2]


def test_a_table_with_partitions_a_schema_and_odd_names(shop: LogShop) -> None:
    shop.sql.execute('CREATE SCHEMA "My shop"')
    shop.sql.execute('CREATE TABLE "My shop"."Orders""" ("the id" int PRIMARY KEY) PARTITION BY RANGE ("the id")')
    for name, bounds in (("low", "FROM (0) TO (10)"), ("high", "FROM (10) TO (20)")):
        partition = f'CREATE TABLE {name} PARTITION OF "My shop"."Orders""" FOR VALUES {bounds}'
        shop.sql.execute(partition.encode())
    shop.sql.execute('INSERT INTO "My shop"."Orders""" VALUES (1)')
    shop.source = replace(shop.source, table='"My shop"."Orders"""')
    shop.follow().update()
    shop.sql.execute('UPDATE "My shop"."Orders""" SET "the id" = 12')
    shop.follow().update()
    assert rows(shop) == [
        ("r", None, {"the id": 1}),
        ("d", {"the id": 1}, None),
        ("c", None, {"the id": 12}),
    ]


def test_a_table_is_followed_while_it_changes_and_the_lag_is_known(shop: LogShop) -> None:
    shop.follow().update()
    table = shop.follow()
    with following(table) as wait:
        shop.change([("c", 1, 10)])
        wait(lambda: shop.changes() == shop.done)
        wait(lambda: table.lag is not None and table.lag.bytes == 0)
        shop.sql.execute("INSERT INTO orders SELECT n, n FROM generate_series(10, 20000) n")
        wait(lambda: len(shop.records()) == 19_992)
        wait(lambda: table.lag is not None and table.lag.bytes == 0)
        assert table.lag is not None
        assert table.lag.seconds is not None
        assert table.lag.seconds < 30
        assert shop.replica() == shop.table()
    assert table.lag is not None
    assert table.lag.bytes is None


def test_what_is_done_elsewhere_lets_the_slot_advance(shop: LogShop) -> None:
    shop.sql.execute("CREATE TABLE others (id int)")
    shop.follow().update()
    with following(table := shop.follow()) as wait:
        shop.sql.execute("INSERT INTO others SELECT generate_series(1, 20000)")
        wait(lambda: table.lag is not None and table.lag.bytes == 0)
    assert shop.records() == []


def test_a_trimmed_log_is_followed_on(shop: LogShop) -> None:
    shop.change([("c", 1, 10)])
    shop.follow().update()
    shop.change([("u", 1, 11)])
    shop.follow().update()
    folder = LogFolder(shop.log)
    for change in plan_trim(folder, offsets={0: 2}):
        apply(folder, change)
    shop.change([("u", 1, 12)])
    shop.follow().update()
    [batch] = open_source(shop.source).read_all()
    assert batch.column("offset").to_pylist() == [2]


def refused(shop: LogShop, match: str, error: type[WindrowError] = SourceError, **changes: Any) -> None:  # noqa: ANN401
    shop.source = replace(shop.source, **changes)
    with pytest.raises(error, match=match) as caught:
        shop.follow().update()
    assert type(caught.value) is error


def test_the_log_of_something_else_is_refused(shop: LogShop, tmp_path: Path) -> None:
    shop.follow().update()
    shop.sql.execute("CREATE TABLE others (id int PRIMARY KEY)")
    refused(shop, "belongs to the table public.orders", InputError, table="others")
    [[slot]] = shop.sql.execute("SELECT slot_name FROM pg_replication_slots").fetchall()
    refused(shop, "already exists", InputError, table="orders", slot=slot, into=LogSource(str(tmp_path / "other")))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "partition-0.jsonl").write_text("{}\n")
    mine = LogSource(str(tmp_path / "mine"))
    refused(shop, "does not contain the changes of the table orders", InputError, slot=None, into=mine)


def test_two_runs_do_not_follow_into_one_log(shop: LogShop) -> None:
    shop.follow().update()
    with following(table := shop.follow()) as wait:
        wait(lambda: table.lag is not None)
        refused(shop, "another run follows", SourceUnavailableError)


def test_lost_slots_and_logs_are_noticed(shop: LogShop) -> None:
    shop.change([("c", 1, 10)])
    shop.follow().update()
    note, file = shop.log / "postgres.json", shop.log / "partition-0.jsonl"
    older, copy = note.read_text(), file.read_bytes()
    shop.change([("u", 1, 11)])
    shop.follow().update()
    newer, whole = note.read_text(), file.read_bytes()
    file.write_bytes(copy)
    refused(shop, "lost records", RecordsLostError)
    note.write_text(older)
    refused(shop, "is older than the slot")
    note.write_text("{}")
    refused(shop, "is damaged")
    note.write_text(newer)
    file.write_bytes(whole + b'{"amount": 5}\n')
    refused(shop, "is not a change of the table")
    file.write_bytes(whole)
    shop.sql.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    refused(shop, "no longer has the slot .* so changes are lost")


def test_tables_that_cannot_be_followed(shop: LogShop) -> None:
    shop.sql.execute("CREATE TABLE bare (id int); CREATE VIEW orders_view AS SELECT * FROM orders")
    for name in ("nothing", "a.b.c.d", "or ders"):
        refused(shop, "has no table", table=name)
    refused(shop, "orders_view is no table, .*: follow the tables behind it", table="orders_view")
    refused(shop, "no primary key: give it a primary key", table="bare")
    shop.sql.execute("ALTER TABLE bare REPLICA IDENTITY FULL")
    refused(shop, "no primary key: name the columns", table="bare")
    refused(shop, "does not log the column 'amount'.*REPLICA IDENTITY FULL", table="orders", key=("id", "amount"))
    refused(shop, "there is no publication mine: CREATE PUBLICATION", key=(), publication="mine")
    shop.sql.execute("CREATE PUBLICATION mine FOR TABLE bare")
    refused(shop, "does not include the table .* ADD TABLE")
    shop.sql.execute("CREATE UNLOGGED TABLE fast (id int PRIMARY KEY)")
    refused(shop, "does not log the changes of fast, .* ALTER TABLE ... SET LOGGED", table="fast", publication=None)
    with pytest.raises(SourceError, match="does not log the changes of fast"):
        shop.follow().preflight()
    assert shop.sql.execute("SELECT * FROM pg_replication_slots").fetchall() == []


def test_another_table_under_the_name_is_refused(shop: LogShop) -> None:
    shop.sql.execute("CREATE PUBLICATION own FOR ALL TABLES")
    shop.source = replace(shop.source, publication="own")
    shop.change([("c", 1, 10)])
    shop.follow().update()
    swap = "ALTER TABLE orders RENAME TO old; ALTER TABLE fresh RENAME TO orders"
    shop.sql.execute(f"CREATE TABLE fresh (LIKE orders INCLUDING ALL); {swap}".encode())
    shop.sql.execute("INSERT INTO orders VALUES (8, 80)")
    refused(shop, "has another table under the name public.orders than the one that was copied")
    shop.sql.execute("ALTER TABLE orders RENAME TO fresh; ALTER TABLE old RENAME TO orders")
    refused(shop, "has another table under the name")  # the slot has a change that was made under it
    assert shop.replica() == {1: 10}


def test_changes_of_a_table_that_was_renamed_for_a_while_are_followed(shop: LogShop) -> None:
    shop.change([("c", 1, 10)])
    shop.follow().update()
    shop.sql.execute("ALTER TABLE orders RENAME TO old")
    shop.sql.execute("INSERT INTO old VALUES (2, 20)")
    refused(shop, "has no table orders")
    shop.sql.execute("ALTER TABLE old RENAME TO orders")
    shop.follow().update()
    assert shop.replica() == {1: 10, 2: 20}


def test_a_swap_while_the_table_is_followed_ends_it(shop: LogShop) -> None:
    shop.change([("c", 1, 10)])
    table = shop.follow()
    shop.sql.execute("CREATE TABLE fresh (LIKE orders INCLUDING ALL)")
    with pytest.raises(SourceError, match="another table under the name"), following(table) as wait:  # noqa: PT012
        wait(lambda: table.lag is not None)
        shop.sql.execute("ALTER TABLE orders RENAME TO old; ALTER TABLE fresh RENAME TO orders")
        wait(lambda: False)


def test_a_name_that_means_a_table_of_another_schema_ends_it(shop: LogShop) -> None:
    table = shop.follow()
    with pytest.raises(SourceError, match=r"tables postgres\.orders: give each name its"), following(table) as wait:  # noqa: PT012
        wait(lambda: table.lag is not None)
        shop.sql.execute("CREATE SCHEMA postgres; CREATE TABLE postgres.orders (LIKE orders INCLUDING ALL)")
        shop.sql.execute("INSERT INTO public.orders VALUES (2, 20)")
        wait(lambda: False)
    with pytest.raises(InputError, match=r"belongs to the table public\.orders"):
        shop.follow().update()
    shop.source = replace(shop.source, table="public.orders")
    shop.follow().update()
    assert shop.replica() == {2: 20}


@pytest.mark.parametrize(
    ("made", "altered", "message"),
    [
        (
            "FOR TABLE orders",
            "SET (publish = 'insert')",
            "does not publish each update .* SET \\(publish = 'insert, up",
        ),
        ("FOR ALL TABLES", "SET (publish = 'insert, update, delete')", "does not publish each truncate"),
        ("FOR TABLE orders", "SET TABLE orders (id, amount)", "was altered after the table public.orders was copied"),
        ("FOR TABLE orders", "SET TABLE orders WHERE (id > 5)", "was altered after"),
        ("FOR TABLES IN SCHEMA public", "ADD TABLE orders", "was altered after"),
    ],
)
def test_a_publication_that_changes_is_refused(shop: LogShop, made: str, altered: str, message: str) -> None:
    shop.sql.execute(f"CREATE PUBLICATION own {made}".encode())
    shop.source = replace(shop.source, publication="own")
    shop.change([("c", 1, 10)])
    shop.follow().update()
    shop.sql.execute(f"ALTER PUBLICATION own {altered}".encode())
    shop.change([("u", 1, 11)])
    refused(shop, message)
    if "SET (" in altered:  # and back: what was changed in between is not in the slot
        shop.sql.execute("ALTER PUBLICATION own SET (publish = 'insert, update, delete, truncate')")
        refused(shop, "was altered after")


def test_a_table_that_is_locked_is_followed(shop: LogShop, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = server._SETTINGS.replace("'10s'", "'100ms'")  # noqa: SLF001 - each look would wait for ten seconds
    monkeypatch.setattr(server, "_SETTINGS", soon)
    verified, find = list[str](), server.find_publication

    def found(*given: Any) -> server.Publication:  # noqa: ANN401 - its arguments
        try:
            return find(*given)
        except psycopg.errors.LockNotAvailable:
            verified.append("locked")
            raise

    monkeypatch.setattr(server, "find_publication", found)
    table = shop.follow()
    with following(table) as wait:
        wait(lambda: table.lag is not None)
        with shop.sql.transaction():
            shop.sql.execute("LOCK TABLE orders")
            wait(lambda: verified.count("locked") > 1)
            shop.sql.execute("INSERT INTO orders VALUES (2, 20)")
        wait(lambda: bool(shop.records()))


def test_a_publication_that_changes_while_the_table_is_followed_ends_it(shop: LogShop) -> None:
    shop.sql.execute("CREATE PUBLICATION own FOR TABLE orders")
    shop.source = replace(shop.source, publication="own")
    table = shop.follow()
    with pytest.raises(SourceError, match="does not publish each update"), following(table) as wait:  # noqa: PT012
        wait(lambda: table.lag is not None)
        shop.sql.execute("ALTER PUBLICATION own SET (publish = 'insert')")
        wait(lambda: False)


@pytest.mark.parametrize("options", ["(publish = 'insert')", "(publish_via_partition_root = false)"])
def test_a_publication_without_all_changes_is_refused_before_the_copy(shop: LogShop, options: str) -> None:
    shop.sql.execute("CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY HASH (id)")
    shop.sql.execute("CREATE TABLE part PARTITION OF parts FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    shop.sql.execute(f"CREATE PUBLICATION own FOR TABLE parts WITH {options}".encode())
    refused(shop, "ALTER PUBLICATION", publication="own", table="parts")
    with pytest.raises(SourceError, match="ALTER PUBLICATION"):
        shop.follow().preflight()
    assert shop.sql.execute("SELECT * FROM pg_replication_slots").fetchall() == []


def test_a_column_that_is_read_and_not_published_is_refused_before_the_copy(shop: LogShop) -> None:
    shop.sql.execute("CREATE PUBLICATION own FOR TABLE orders (id, amount)")
    source = replace(shop.source, publication="own")
    FollowedTables(source, {"orders": ReadColumns((("id",), ("amount",)))}).preflight()
    with pytest.raises(SourceError, match="the publication own does not publish the column 'note' of the table"):
        FollowedTables(source, READ).preflight()
    shop.sql.execute("ALTER PUBLICATION own SET TABLE orders (note)")
    with pytest.raises(SourceError, match="the publication own does not publish the column 'id' of the table"):
        FollowedTables(source).preflight()


def test_the_copy_has_the_columns_that_the_log_has(shop: LogShop) -> None:
    shop.sql.execute("ALTER TABLE orders ADD COLUMN twice bigint GENERATED ALWAYS AS (amount * 2) STORED")
    shop.change([("c", 1, 10)])
    shop.follow().update()
    shop.change([("c", 2, 20)])
    shop.follow().update()
    assert [sorted(row["after"]) for row in shop.records()] == [["amount", "id", "note"]] * 2


def test_another_primary_key_is_refused(shop: LogShop) -> None:
    shop.follow().update()
    shop.sql.execute("ALTER TABLE orders DROP COLUMN id, ADD COLUMN nr serial PRIMARY KEY")
    refused(shop, r"were identified by \(id\) when it was copied, and are now identified by \(nr\)")


def test_an_identity_without_the_key_is_noticed_when_it_is_changed_back(shop: LogShop) -> None:
    shop.sql.execute("ALTER TABLE orders ADD UNIQUE (amount), ALTER amount SET NOT NULL")
    shop.follow().update()
    shop.sql.execute("ALTER TABLE orders REPLICA IDENTITY USING INDEX orders_amount_key")
    shop.change([("c", 1, 10), ("d", 1, None)])
    shop.sql.execute("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
    refused(shop, "does not log the column 'id'")


READ = {"orders": ReadColumns((("id",), ("amount", "sum"), ("note",), ("city",)), (("id",),))}


@pytest.mark.parametrize(
    ("altered", "message"),
    [
        (
            "RENAME note TO label",
            "no longer has the column 'note', which the pipeline decodes: decode it under its new",
        ),
        ("DROP note", "no longer has the column 'note'"),
        ("ALTER amount TYPE numeric(12,2) USING amount / 100.0", "the column 'amount' .* has another type than when"),
        ("ALTER note TYPE varchar(9) USING upper(note)", "the column 'note' .* has another type than when"),
        ("DROP note, ADD note text DEFAULT 'new'", "the column 'note' .* or was dropped and added again"),
        ("ADD city text DEFAULT 'Rome'", "the column 'city' was added to the table public.orders after"),
        (
            "ADD city text DEFAULT 'Rome'; ALTER TABLE orders ALTER city DROP DEFAULT",
            "the column 'city' was added to the table public.orders after",
        ),
        (
            "ADD city float DEFAULT random(); ALTER TABLE orders ALTER city DROP DEFAULT",
            "the column 'city' was added to the table public.orders after",
        ),
        ("ADD city anywhere", "the column 'city' was added to the table public.orders after"),
        (
            "ADD city int GENERATED ALWAYS AS (amount * 2) STORED; ALTER TABLE orders ALTER city DROP EXPRESSION",
            "the column 'city' was added to the table public.orders after",
        ),
        ("ADD city text GENERATED ALWAYS AS (upper(note)) STORED", "does not publish the column 'city'"),
    ],
)
def test_a_column_that_is_read_and_whose_values_change_unlogged_ends_it(
    shop: LogShop, altered: str, message: str
) -> None:
    shop.sql.execute("CREATE DOMAIN anywhere AS float DEFAULT random()")
    shop.change([("c", 1, 1000)])
    table, other = FollowedTables(shop.source, READ), FollowedTables(shop.source, {"orders": ReadColumns((("id",),))})
    table.update()
    shop.sql.execute("ALTER TABLE orders ADD size int, ADD more int DEFAULT 3")
    shop.sql.execute("ALTER TABLE orders ALTER more TYPE bigint, DROP size")
    table.update()
    with pytest.raises(SourceError, match=message), following(table) as wait:  # noqa: PT012
        wait(lambda: table.lag is not None)
        shop.sql.execute(f"ALTER TABLE orders {altered}".encode())
        wait(lambda: False)
    with pytest.raises(SourceError, match=message):
        table.update()
    other.update()
    if "EXPRESSION" in altered or "GENERATED" not in altered:
        table.recopy()
        shop.sql.execute("INSERT INTO orders (id, amount) VALUES (2, 20)")
        table.update()
        (row,) = shop.sql.execute("SELECT to_json(orders) FROM orders WHERE id = 1").fetchall()
        assert [one["after"] for one in shop.records() if one["after"] and one["after"]["id"] == 1][-1] == row[0]


def test_a_column_that_was_renamed_for_a_while_is_noticed(shop: LogShop) -> None:
    table = FollowedTables(shop.source, READ)
    table.update()
    for statement in ("ALTER TABLE orders RENAME note TO x", "INSERT INTO orders VALUES (1)"):
        shop.sql.execute(statement.encode())
    shop.sql.execute("ALTER TABLE orders RENAME x TO note")
    with pytest.raises(SourceError, match="no longer has the column 'note'"):
        table.update()
    # one that is decoded by its new name, too, is another matter
    shop.sql.execute("ALTER TABLE orders RENAME amount TO sum")
    table.recopy()
    table.update()


def test_a_column_that_is_added_empty_and_filled_by_updates_is_followed(shop: LogShop) -> None:
    table = FollowedTables(shop.source, READ)
    table.update()
    shop.sql.execute("ALTER TABLE orders ADD city text")
    shop.change([("c", 1, 10)])
    table.update()
    shop.sql.execute("UPDATE orders SET city = 'Rome'")
    shop.sql.execute('ALTER TABLE orders ADD "transaction" int; UPDATE orders SET "transaction" = 3')
    table.update()
    assert shop.records()[-1]["after"]["transaction"] == 3
    shop.sql.execute("ALTER TABLE orders ALTER city SET DEFAULT 'Oslo', ALTER city SET NOT NULL")
    table.update()
    assert shop.records()[-1]["after"]["city"] == "Rome"
    shop.sql.execute("ALTER TABLE orders ALTER city TYPE varchar(2) USING left(city, 2)")
    with pytest.raises(SourceError, match=r"the column 'city' .* has another type than when"):
        table.update()


def test_a_table_from_which_others_inherit_is_refused(shop: LogShop) -> None:
    shop.sql.execute("CREATE TABLE special () INHERITS (orders)")
    refused(shop, "other tables inherit from the table public.orders")


def test_a_state_without_the_identity_of_the_table_is_completed(shop: LogShop) -> None:
    shop.change([("c", 1, 10)])
    shop.follow().update()
    state = shop.log / "postgres.json"
    noted = json.loads(state.read_bytes())
    for name in ("relation", "key", "published"):
        del noted[name]
    state.write_text(json.dumps(noted))
    shop.change([("c", 2, 20)])
    shop.follow().update()
    assert shop.replica() == {1: 10, 2: 20}
    assert json.loads(state.read_bytes())["key"] == ["id"]


def test_a_transaction_that_does_not_end_is_named(shop: LogShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SLOT_SECONDS", 0.5)
    with psycopg.connect(shop.url) as other:
        other.execute("INSERT INTO orders VALUES (1, 10)")
        pid = other.info.backend_pid
        refused(shop, rf"has been open since .* \(process {pid}\): end it", SourceUnavailableError)
        other.commit()
    shop.follow().update()
    assert shop.replica() == {1: 10}


def test_a_key_of_other_columns(shop: LogShop) -> None:
    shop.sql.execute("CREATE TABLE bare (id int, n int); ALTER TABLE bare REPLICA IDENTITY FULL")
    shop.source = replace(shop.source, table="bare", key=("id",))
    shop.follow().update()
    shop.sql.execute("INSERT INTO bare VALUES (1, 1); UPDATE bare SET n = 2; UPDATE bare SET id = 2")
    shop.follow().update()
    assert [op for op, *_ in rows(shop)] == ["c", "u", "d", "c"]


def test_privileges_that_are_missing_are_named(shop: LogShop, postgres: Postgres) -> None:
    role = "reader" + shop.sql.info.dbname[-8:]

    def lacks(what: str) -> None:
        refused(shop, what)
        with pytest.raises(SourceError, match=what):
            shop.follow().preflight()

    shop.sql.execute(f"CREATE ROLE {role} LOGIN".encode())
    try:
        shop.source = replace(shop.source, url=postgres.url_of(shop.sql.info.dbname, role))
        lacks("ALTER ROLE ... REPLICATION")
        shop.sql.execute(f"ALTER ROLE {role} REPLICATION".encode())
        refused(shop, "SELECT on the table")
        with pytest.raises(SourceError, match=r"have the owner CREATE PUBLICATION .* and name it in `publication`"):
            shop.follow().preflight()
        shop.sql.execute("CREATE PUBLICATION mine FOR TABLE orders")
        shop.source = replace(shop.source, publication="mine")
        lacks("SELECT on the table")
        shop.sql.execute(f"GRANT SELECT ON orders TO {role}".encode())
        shop.sql.execute("ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
        lacks("BYPASSRLS")
        shop.sql.execute(f"ALTER ROLE {role} BYPASSRLS".encode())
        shop.follow().preflight()
        shop.follow().update()
        assert shop.records() == []
    finally:
        shop.sql.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_a_table_by_another_column_needs_the_old_value_of_it(shop: LogShop, tmp_path: Path) -> None:
    def follower(key: str) -> Follower:
        text = f"""
name: orders
sources:
  orders:
    source: {{postgres_cdc: {{url: "{shop.url}", table: orders, log: {tmp_path / "log"}}}}}
    decode: {{id: long, nr: {{type: long, alias: [amount]}}, at: {{type: timestamp_millis, path: source.ts_ms}}}}
    time: {{field: at, delay: 1m}}
streams:
  named: {{from: orders, derive: {{number: nr + 1}}}}
  order: {{from: named, table: {{key: {key}}}}}
sinks:
  to_order: {{from: order, sink: {{sqlite: {{path: {tmp_path / "o.db"}, table: orders}}}}}}
"""
        return followers(read_document(text, "orders.yaml").pipeline)["orders"]

    follower("id").preflight()
    with pytest.raises(SourceError, match=r"old value of 'nr' .*: ALTER TABLE .* REPLICA IDENTITY FULL"):
        follower("number").preflight()
    with pytest.raises(SourceError, match="old value of 'nr'"):
        follower("number").update()
    shop.sql.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    follower("number").preflight()


def test_each_stream_of_changes_counts(shop: LogShop, tmp_path: Path) -> None:
    text = f"""
name: orders
sources:
  shop:
    source: {{postgres_cdc: {{url: "{shop.url}", tables: [public.orders], log: {tmp_path / "log"}}}}}
    decode: {{at: {{type: timestamp_millis, path: source.ts_ms}}}}
    time: {{field: at, delay: 1m}}
streams:
  first: {{from: shop, changes: {{of: orders, decode: {{amount: long}}}}}}
  second: {{from: shop, changes: {{of: orders, decode: {{id: long}}}}}}
  by_amount: {{from: first, table: {{key: amount}}}}
  by_id: {{from: second, table: {{key: id}}}}
sinks:
  to_amount: {{from: by_amount, sink: {{sqlite: {{path: {tmp_path / "o.db"}, table: a}}}}}}
  to_id: {{from: by_id, sink: {{sqlite: {{path: {tmp_path / "o.db"}, table: b}}}}}}
"""
    follower = followers(read_document(text, "orders.yaml").pipeline)["shop"]
    with pytest.raises(SourceError, match="old value of 'amount'"):
        follower.preflight()


@pytest.mark.service
def test_a_server_without_logical_wal_is_refused(tmp_path: Path) -> None:
    replica = Postgres(wal_level="replica")
    try:
        replica.start()
        with pytest.raises(SourceError, match="has wal_level replica: set wal_level = logical"):
            FollowedTables(PostgresCdcSource(replica.url, "orders", LogSource(str(tmp_path / "log")))).update()
    finally:
        replica.remove()


def test_a_server_that_restarts_is_an_error_that_passes(shop: LogShop, postgres: Postgres) -> None:
    shop.change([("c", 1, 10)])
    shop.follow().update()
    table = shop.follow()
    with following(table) as wait:
        wait(lambda: table.lag is not None)
        postgres.stop()
        with pytest.raises(SourceUnavailableError):
            wait(lambda: False)
    with pytest.raises(SourceUnavailableError, match="cannot connect"):
        table.update()
    postgres.start()
    shop.sql.close()
    shop.sql = psycopg.connect(shop.url, autocommit=True)
    shop.change([("u", 1, 11)])
    table.update()
    assert shop.replica() == {1: 11}


def test_a_password_is_in_no_message(shop: LogShop) -> None:
    with pytest.raises(SourceError) as caught:
        FollowedTables(replace(shop.source, url="postgresql://bob:s3cret@127.0.0.1:1/shop")).update()
    assert "s3cret" not in str(caught.value)
    with pytest.raises(InputError, match="the source's url: the environment variable WINDROW_NOWHERE is not set"):
        FollowedTables(replace(shop.source, url="${WINDROW_NOWHERE}")).update()
