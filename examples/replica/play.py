"""Plays the example: makes the table `orders` in a PostgreSQL database, and changes it until Ctrl-C.

``SHOP_URL=postgresql://... python examples/replica/play.py`` makes the table if it is not there.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from contextlib import suppress
from random import Random

import psycopg

TABLE = """
CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, customer text NOT NULL, amount numeric(12,2) NOT NULL,
    placed_at timestamptz NOT NULL DEFAULT now())"""
CUSTOMERS = ("Ada", "Ben", "Cleo", "Dan", "Eve")
OPEN = 100
"""About how many orders there are at a time."""


def main() -> None:
    """Play."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=int, default=20, help="transactions a second (default: 20)")
    parser.add_argument("--transactions", type=int, default=sys.maxsize, help="how many (default: until Ctrl-C)")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "SHOP_URL" not in os.environ:
        sys.exit("set SHOP_URL to the database: postgresql://USER@HOST:PORT/DATABASE")
    with psycopg.connect(os.environ["SHOP_URL"], autocommit=True) as sql:
        sql.execute(TABLE)
        print("changing orders ...", flush=True)
        with suppress(KeyboardInterrupt):
            change(sql, given.rate, given.transactions)
        print(*sql.execute("SELECT count(*), sum(amount) FROM orders").fetchone() or ())


def change(sql: psycopg.Connection[tuple[object, ...]], rate: int, transactions: int) -> None:
    """Place, change and cancel orders, each in a transaction of its own."""
    random = Random(1)  # noqa: S311 - no secret
    began, orders = time.monotonic(), [int(str(id_)) for (id_,) in sql.execute("SELECT id FROM orders").fetchall()]
    newest = max(orders, default=0)
    for number in range(transactions):
        if len(orders) < random.randrange(2 * OPEN):
            newest += 1
            orders.append(newest)
            row = (newest, random.choice(CUSTOMERS), random.randrange(1, 100_000) / 100)
            sql.execute("INSERT INTO orders VALUES (%s, %s, %s)", row)
        elif random.randrange(2):
            order = random.choice(orders)
            sql.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", (order,))
        else:
            order = orders.pop(random.randrange(len(orders)))
            sql.execute("DELETE FROM orders WHERE id = %s", (order,))
        time.sleep(max(0.0, began + number / rate - time.monotonic()))


if __name__ == "__main__":
    main()
