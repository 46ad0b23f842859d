"""What DuckDB finds in whole logs of Nexmark by the SQL of a query: the statements in nexmark.sql."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import duckdb
from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples" / "nexmark"
STATEMENTS = (Path(__file__).parent / "nexmark.sql").read_text()
SQL = dict(re.findall(r"^-- (q\d+): [^\n]*\n(.*?);$", STATEMENTS, re.MULTILINE | re.DOTALL))

ROWS = {
    "q19": """
        SELECT
          auction, price, rank_number, bid ->> 'bidder' AS bidder,
          bid ->> 'channel' AS channel, bid ->> 'url' AS url,
          replace(bid ->> 'dateTime', '.000', '') AS dateTime, bid ->> 'extra' AS extra
        FROM (
          SELECT auction, each.key + 1 AS rank_number, each.value ->> 0 AS bid, each.value ->> 1 AS price
          FROM q19, json_each(bids) each
        )
    """,
}
"""How SQLite reads the rows of a query out of a table that has several in a row, as JSON."""

VIEWS = {
    "persons": """
        id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR, state VARCHAR,
        dateTime TIMESTAMP, extra VARCHAR
    """,
    "auctions": """
        id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT, dateTime TIMESTAMP,
        expires TIMESTAMP, seller BIGINT, category BIGINT, extra VARCHAR
    """,
    "bids": """
        auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, dateTime TIMESTAMP, extra VARCHAR
    """,
}


def answer(query: str, folder: Path) -> tuple[list[str], list[tuple[object, ...]]]:
    """Return DuckDB's columns and rows, of the logs persons, auctions and bids in a folder."""
    with duckdb.connect() as database:
        for view, columns in VIEWS.items():
            types = ", ".join(f"{name}: '{kind}'" for name, kind in (one.split() for one in columns.split(",")))
            files = f"'{folder}/{view}/*.jsonl', format = 'newline_delimited', columns = {{{types}}}"
            database.execute(f"CREATE VIEW {view} AS SELECT * FROM read_json({files})")
        database.execute(f"CREATE VIEW side_input AS SELECT key, value FROM read_json('{EXAMPLES}/side_input/*.jsonl')")
        asked = database.execute(SQL[query])
        return [column[0] for column in asked.description or ()], [tuple(map(plain, row)) for row in asked.fetchall()]


def rows_of(query: str, database: Path, columns: list[str]) -> list[tuple[object, ...]]:
    """Return some columns of the rows that a pipeline has written into an SQLite file."""
    names = ", ".join(f'"{name}"' for name in columns)
    with closing(sqlite3.connect(database)) as opened:
        found = opened.execute(f"SELECT {names} FROM ({ROWS.get(query, f'SELECT * FROM {query}')})").fetchall()
    # SQLite has whole numbers of decimals as integers
    return [tuple(map(plain, row)) for row in found]


def plain(value: object) -> object:
    """Return a value as SQLite has it; of numbers with a fraction three digits, as a mean has more."""
    match value:
        case datetime():
            text = value.isoformat(sep=" ", timespec="milliseconds")
            return text.removesuffix(".000")
        case Decimal() | float():
            return round(float(value), 3)
        case _:
            return value
