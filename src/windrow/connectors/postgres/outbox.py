"""The outbox of a result table in PostgreSQL, as the relay that empties it sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from windrow import model as m
from windrow.connectors.postgres.catalog import sql_types
from windrow.connectors.postgres.client import Connection, connect, lock_table, qualified, schema_of, server, translated
from windrow.connectors.tables import RELAYS, create_table, outbox
from windrow.errors import InputError, SinkError

LOCK_SECONDS = 5.0
"""How long to wait for the lock of a relay that was killed: the server takes a moment to notice."""


class OutboxRow(NamedTuple):
    """A change that is to be sent: its key and its value, a JSON object."""

    id: int
    key: str
    payload: str


@dataclass(frozen=True)
class OutboxLag:
    """The number of rows that wait in an outbox, and the age of the oldest in seconds by the server's clock, or 0."""

    rows: int
    seconds: float


@dataclass(frozen=True)
class Sending:
    """A relay that is sending rows, or died while it did.

    `relay` marks its records; `begins` is the next offset of each partition of the target before those of the rows that
    the outbox still has.
    """

    target: str
    relay: str
    begins: Mapping[int, int]


@contextmanager
def open_outbox(sink: m.PostgresSink) -> Iterator[Outbox]:
    """Connect to the outbox of a sink and lock it; raise SinkError if that fails or another relay has it.

    Raise InputError if there is no outbox.
    """
    place, table = server(sink.url).place, outbox(sink.table).name
    with connect(sink.url) as connection, translated(place):
        schema = schema_of(connection, place)
        [(found,)] = connection.execute("SELECT to_regclass($1)::text", (qualified(schema, table),)).fetchall()
        if found is None:
            msg = f"{place} has no table {table!r}: set `outbox: true` at the sink, and start the run once"
            raise InputError(msg)
        if not lock_table(connection, schema, table, LOCK_SECONDS):
            msg = f"another relay empties {table!r} in {place}: end that one first"
            raise SinkError(msg)
        yield Outbox(connection, schema, table)


class Outbox:
    """An outbox that no other relay empties while this one is connected. Methods raise psycopg's errors."""

    def __init__(self, connection: Connection, schema: str, table: str) -> None:
        self._connection = connection
        self._table = table
        self._name, self._relays = qualified(schema, table), qualified(schema, RELAYS.name)

    @property
    def table(self) -> str:
        """The table's name."""
        return self._table

    def sending(self) -> Sending | None:
        """Return the relay that has not ended in order, or None."""
        with self._connection.transaction():
            # two relays of other outboxes could both create it
            self._connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('windrow', 0))")
            [(found,)] = self._connection.execute("SELECT to_regclass($1)::text", (self._relays,)).fetchall()
            if found is None:
                self._connection.execute(create_table(RELAYS, sql_types(RELAYS)))
        query = f"SELECT target, relay, begins FROM {self._relays} WHERE outbox = $1"
        row = self._connection.execute(query, (self._table,)).fetchone()
        if row is None:
            return None
        begins = {int(partition): offset for partition, offset in json.loads(str(row[2])).items()}
        return Sending(str(row[0]), str(row[1]), begins)

    def begin(self, sending: Sending) -> None:
        """Write down that a relay begins to send."""
        self._connection.execute(
            f"INSERT INTO {self._relays} (outbox, target, relay, begins) VALUES ($1, $2, $3, $4)",
            (self._table, sending.target, sending.relay, json.dumps(sending.begins)),
        )

    def rows(self, limit: int) -> list[OutboxRow]:
        """Return the next rows to be sent, in the order of commits."""
        query = f"SELECT id, aggregateid, payload FROM {self._name} ORDER BY id LIMIT {limit}"
        return [
            OutboxRow(int(str(number)), str(key), str(payload))
            for number, key, payload in self._connection.execute(query).fetchall()
        ]

    def delete(self, last: int, begins: Mapping[int, int]) -> None:
        """Delete the rows up to an id, which were sent, and write down the next offsets behind them."""
        with self._connection.transaction():
            self._connection.execute(f"DELETE FROM {self._name} WHERE id <= $1", (last,))
            query = f"UPDATE {self._relays} SET begins = $2 WHERE outbox = $1"
            self._connection.execute(query, (self._table, json.dumps(begins)))

    def end(self) -> None:
        """Write down that the relay has ended in order: whatever it sent is deleted."""
        self._connection.execute(f"DELETE FROM {self._relays} WHERE outbox = $1", (self._table,))

    def lag(self) -> OutboxLag:
        """Return how much waits to be sent."""
        query = f"SELECT count(*), extract(epoch FROM clock_timestamp() - min(committed_at)) FROM {self._name}"
        [(rows, seconds)] = self._connection.execute(query).fetchall()
        return OutboxLag(int(str(rows)), 0.0 if seconds is None else max(0.0, float(str(seconds))))
