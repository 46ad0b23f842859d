"""Writes results into PostgreSQL in batches, for the engines that leave this to the person who uses them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import psycopg
from bench.peers.job import TABLE

UPSERT = f"""
INSERT INTO {TABLE} (window_start, user_id, total, events) VALUES (%s, %s, %s / 100.0, %s)
ON CONFLICT (window_start, user_id) DO UPDATE SET total = excluded.total, events = excluded.events
"""

Row = tuple[datetime, str, int, int]
"""Window start (UTC, without a zone), user, cents, events."""


class Upserts:
    """A connection that takes rows, a transaction each time."""

    def __init__(self, address: str) -> None:
        self._connection = psycopg.connect(address, autocommit=True)

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows in one transaction."""
        if rows:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.executemany(UPSERT, rows)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
