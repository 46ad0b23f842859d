"""Where results go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SqliteSink:
    """Tables in an SQLite file.

    `key` is the result table's primary key; empty, it is window_start, window_end and the pipeline's key. NUMERIC
    columns hold 15 digits: `decimals` ``text`` keeps more. Without `changelog` the table of changes stays empty.
    """

    path: str
    table: str
    key: tuple[str, ...] = ()
    decimals: Literal["numeric", "text"] = "numeric"
    changelog: bool = True


@dataclass(frozen=True)
class PostgresSink:
    """Tables in a PostgreSQL database; what `url` leaves out comes from libpq's environment (PGPASSWORD ...)."""

    url: str
    table: str
    key: tuple[str, ...] = ()
    changelog: bool = True


Sink = SqliteSink | PostgresSink
