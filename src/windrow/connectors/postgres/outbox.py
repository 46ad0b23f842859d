"""The outbox of a PostgreSQL result table, whose rows a relay sends to a target."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from windrow import model as m
from windrow.connectors.postgres import client
from windrow.connectors.postgres.client import Connection
from windrow.connectors.postgres.session import sql_types
from windrow.connectors.tables import RELAYS, create_table, outbox
from windrow.errors import InputError, SinkError

LOCK_SECONDS = 5.0
"""Seconds to wait for the lock of a relay that was killed, since the server takes a moment to notice."""


class OutboxRow(NamedTuple):
    """A change to send, with its key and its value, a JSON object."""

    id: int
    key: str
    payload: str


@dataclass(frozen=True)
class OutboxLag:
    """The number of rows in an outbox, and the age of the oldest row in seconds by the server's clock (0 if empty)."""

    rows: int
    seconds: float


@dataclass(frozen=True)
class Sending:
    """A relay that is sending rows, or that died while sending them.

    `relay` is an id that marks the relay's records. For each partition of the target, `begins` is the next offset
    before the records of the rows that are still in the outbox.
    """

    target: str
    relay: str
    begins: Mapping[int, int]


@contextmanager
def open_outbox(sink: m.PostgresSink) -> Iterator[Outbox]:
    """Connect to the outbox of a sink and lock it for the block.

    Raise SinkError if that fails or another relay holds the lock, and InputError if there is no outbox.
    """
    place, table = client.server(sink.url).place, outbox(sink.table).name
    with client.connect(sink.url, sink.schema) as connection, client.translate_errors(place):
        schema = client.schema_of(connection, place, sink.schema)
        if client.first_value(connection, "SELECT to_regclass($1)", client.qualified(schema, table)) is None:
            msg = f"{place} has no table {table!r}: set `outbox: true` in the sink, and start the run once"
            raise InputError(msg)
        if not client.lock_table(connection, schema, table, LOCK_SECONDS):
            msg = f"another relay is emptying {table!r} in {place}: end it first"
            raise SinkError(msg)
        yield Outbox(connection, schema, table)


class Outbox:
    """An outbox that is locked against other relays as long as this one is connected. Methods raise psycopg errors."""

    def __init__(self, connection: Connection, schema: str, table: str) -> None:
        self._connection = connection
        self._schema = schema
        self._table = table
        self._name, self._relays = client.qualified(schema, table), client.qualified(schema, RELAYS.name)

    @property
    def table(self) -> str:
        """The table's name."""
        return self._table

    def sending(self) -> Sending | None:
        """Return the relay that was interrupted while sending, or None.

        Raise SinkError if the table of relays is missing and cannot be created.
        """
        with self._connection.transaction():
            client.lock_shared_tables(self._connection)
            if client.first_value(self._connection, "SELECT to_regclass($1)", self._relays) is None:
                client.require_creatable(self._connection, self._schema, RELAYS.name)
                self._connection.execute(create_table(RELAYS, sql_types(RELAYS)))
        query = f"SELECT target, relay, begins FROM {self._relays} WHERE outbox = $1"
        row = self._connection.execute(query, (self._table,)).fetchone()
        if row is None:
            return None
        target, relay, begins = row
        return Sending(target, relay, {int(partition): offset for partition, offset in json.loads(begins).items()})

    def begin(self, sending: Sending) -> None:
        """Record that a relay starts to send rows."""
        self._connection.execute(
            f"INSERT INTO {self._relays} (outbox, target, relay, begins) VALUES ($1, $2, $3, $4)",
            (self._table, sending.target, sending.relay, json.dumps(sending.begins)),
        )

    def rows(self, limit: int) -> list[OutboxRow]:
        """Return the next rows to send, at most `limit`, in commit order."""
        query = f"SELECT id, aggregateid, payload FROM {self._name} ORDER BY id LIMIT {limit}"
        return [OutboxRow(*row) for row in self._connection.execute(query).fetchall()]

    def delete(self, last: int, begins: Mapping[int, int]) -> None:
        """Delete the rows up to id `last`, which were sent, and record the next offsets after them."""
        with self._connection.transaction():
            self._connection.execute(f"DELETE FROM {self._name} WHERE id <= $1", (last,))
            query = f"UPDATE {self._relays} SET begins = $2 WHERE outbox = $1"
            self._connection.execute(query, (self._table, json.dumps(begins)))

    def end(self) -> None:
        """Record that the relay has ended and all rows that it sent are deleted."""
        self._connection.execute(f"DELETE FROM {self._relays} WHERE outbox = $1", (self._table,))

    def lag(self) -> OutboxLag:
        """Return the number of waiting rows and the age of the oldest."""
        query = f"SELECT count(*), extract(epoch FROM clock_timestamp() - min(committed_at)) FROM {self._name}"
        [(rows, seconds)] = self._connection.execute(query).fetchall()
        return OutboxLag(rows, 0.0 if seconds is None else max(0.0, float(seconds)))
