"""Partitions of a followed table that are created, attached and detached while nobody follows it, or somebody does."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest
from tests.connectors.postgres.cdc.conftest import LogShop
from tests.connectors.postgres.cdc.test_follow import following, refused, rows

from windrow.errors import SourceError


def with_partitions(shop: LogShop) -> None:
    """Follow a table with a partition, which has a row, and a partition of partitions that is not attached."""
    shop.sql.execute(
        "CREATE TABLE sales (id int, amount numeric(12,2), PRIMARY KEY (id)) PARTITION BY RANGE (id);"
        "CREATE TABLE first PARTITION OF sales FOR VALUES FROM (0) TO (10); INSERT INTO sales VALUES (1, 1);"
        "CREATE TABLE apart (LIKE sales INCLUDING ALL);"
        "CREATE TABLE above (LIKE sales INCLUDING ALL) PARTITION BY RANGE (id);"
        "CREATE TABLE below PARTITION OF above FOR VALUES FROM (20) TO (30)"
    )
    shop.source = replace(shop.source, table="sales")
    shop.follow().update()


ATTACH = "ALTER TABLE sales ATTACH PARTITION apart FOR VALUES FROM (10) TO (20);"
LIKE = "CREATE TABLE more (LIKE sales INCLUDING ALL);"
ATTACH_MORE = "ALTER TABLE sales ATTACH PARTITION more FOR VALUES FROM (10) TO (20);"
DETACH = "ALTER TABLE sales DETACH PARTITION first;"
AGAIN = "ALTER TABLE sales ATTACH PARTITION first FOR VALUES FROM (0) TO (10)"


@pytest.mark.parametrize(
    "altered",
    [
        "CREATE TABLE more PARTITION OF sales FOR VALUES FROM (10) TO (20); INSERT INTO sales VALUES (11, 2)",
        f"{ATTACH} INSERT INTO sales VALUES (11, 2); INSERT INTO apart VALUES (12, 2)",
        f"INSERT INTO apart VALUES (11, 2); DELETE FROM apart; {ATTACH} INSERT INTO sales VALUES (11, 2)",
        "ALTER TABLE sales ATTACH PARTITION above FOR VALUES FROM (20) TO (30); INSERT INTO sales VALUES (21, 2)",
        (
            f"BEGIN; {LIKE} ALTER TABLE more ADD CHECK (id > 9); {ATTACH_MORE} COMMIT; BEGIN; INSERT INTO sales "
            "VALUES (11, 2); INSERT INTO sales VALUES (12, 2); INSERT INTO sales VALUES (13, 2); COMMIT"
        ),
    ],
)
@pytest.mark.parametrize("is_one_transaction", [True, pytest.param(False, marks=pytest.mark.merge)])
def test_a_partition_that_was_attached_empty_is_followed(
    shop: LogShop, altered: str, *, is_one_transaction: bool
) -> None:
    with_partitions(shop)
    statements = [altered] if is_one_transaction else altered.split(";")
    for statement in statements:
        shop.sql.execute(statement.encode())
    shop.follow().update()
    shop.sql.execute("UPDATE sales SET amount = 3; ALTER TABLE sales DETACH PARTITION first")
    shop.follow().update()
    kept = {row["id"] for op, _, row in rows(shop) if op in "rcu"}
    assert kept == {1, *(key for (key,) in shop.sql.execute("SELECT id FROM sales").fetchall())}


def test_rows_of_older_transactions_are_followed_in_a_partition_that_was_created_as_one(shop: LogShop) -> None:
    with_partitions(shop)
    with psycopg.connect(shop.url) as older:
        older.execute("SELECT pg_current_xact_id()")
        shop.sql.execute(
            "CREATE TABLE more PARTITION OF sales FOR VALUES FROM (20) TO (40) PARTITION BY LIST (id);"
            "ALTER TABLE more OWNER TO current_user; ALTER TABLE more RENAME TO most;"
            "CREATE TABLE one PARTITION OF most FOR VALUES IN (21)"
        )
        older.execute("INSERT INTO sales VALUES (21, 2)")
    shop.sql.execute(
        "DO $$ BEGIN BEGIN CREATE TABLE rest PARTITION OF sales DEFAULT; EXCEPTION WHEN duplicate_table THEN NULL; "
        "END; INSERT INTO sales VALUES (91, 2); END $$"
    )
    shop.follow().update()
    assert [row["id"] for _, _, row in rows(shop)] == [1, 21, 91]


def test_a_partition_whose_changes_are_not_logged_ends_it(shop: LogShop) -> None:
    with_partitions(shop)
    shop.sql.execute("CREATE UNLOGGED TABLE more PARTITION OF above FOR VALUES FROM (30) TO (40)")
    shop.follow().update()
    shop.sql.execute("ALTER TABLE sales ATTACH PARTITION above FOR VALUES FROM (20) TO (40)")
    refused(shop, "does not log the changes of more, .* ALTER TABLE ... SET LOGGED")
    shop.sql.execute("INSERT INTO sales VALUES (31, 2); ALTER TABLE more SET LOGGED")
    shop.follow().recopy()
    shop.sql.execute("INSERT INTO sales VALUES (32, 2)")
    shop.follow().update()
    assert [row["id"] for _, _, row in rows(shop)] == [1, 31, 32]


@pytest.mark.parametrize(
    ("partition", "altered"),
    [
        ("apart", f"INSERT INTO apart VALUES (11, 2); {ATTACH}"),
        ("apart", f"BEGIN; INSERT INTO apart VALUES (11, 2); {ATTACH} INSERT INTO sales VALUES (12, 2); COMMIT"),
        (
            "below",
            "INSERT INTO below VALUES (21, 2); ALTER TABLE sales ATTACH PARTITION above FOR VALUES FROM (20) TO (30)",
        ),
        (
            "first",
            f"{DETACH} INSERT INTO first VALUES (2, 2); {AGAIN}",
        ),
    ],
)
def test_a_partition_that_was_attached_with_rows_ends_it(shop: LogShop, partition: str, altered: str) -> None:
    with_partitions(shop)
    for statement in [altered] if altered.startswith("BEGIN") else altered.split(";"):
        shop.sql.execute(statement.encode())
    for _ in range(2):
        refused(shop, f"partition {partition} was attached to the table public.sales .* --recopy sales")
    shop.follow().recopy()
    shop.follow().update()
    assert {row["id"] for _, _, row in rows(shop)} == {
        key for (key,) in shop.sql.execute("SELECT id FROM sales").fetchall()
    }


def test_a_partition_that_is_attached_with_rows_while_the_table_is_followed_ends_it(shop: LogShop) -> None:
    with_partitions(shop)
    table = shop.follow()
    with pytest.raises(SourceError, match="partition apart was attached"), following(table) as wait:  # noqa: PT012
        wait(lambda: table.lag is not None)
        shop.sql.execute(f"INSERT INTO apart VALUES (11, 2); {ATTACH}".encode())
        wait(lambda: False)
