"""Servers that accept connections and do not answer: each client gives up in time, with an error that names them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from http.client import HTTPException
from unittest import mock

import psycopg
import pytest
from psycopg import conninfo
from tests.faults.proxy import Proxy
from tests.servers.hostile import HostileServer, Manner
from tests.servers.listener import LOOPBACK

from windrow.connectors.kafka import read
from windrow.connectors.kafka.client import Admin
from windrow.connectors.kafka.read import Reader
from windrow.connectors.postgres import client
from windrow.deadline import TimeLimit
from windrow.engine.decode.registry import Schemas
from windrow.errors import SinkUnavailableError, SourceUnavailableError
from windrow.model import Registry
from windrow.tools.alerts import delivery

MANNERS = pytest.mark.parametrize("manner", ["silent", "dripping", "closing"])


POSTGRESQL = b"E\x00\x00\x03\xe8" + b"x" * 996
"""The beginning of an error message, in which libpq waits for the rest."""
KAFKA = b"\x00\x00\x03\xe8" + bytes(1000)


@pytest.fixture
def server(manner: Manner) -> Iterator[HostileServer]:
    with HostileServer(manner) as found:
        yield found


@MANNERS
def test_a_schema_registry(server: HostileServer) -> None:
    options = (("timeout", "0.3"), ("max.retries", "1"), ("retries.wait.ms", "1"))
    schemas: Schemas[object] = Schemas(Registry(server.url, options), "AVRO", lambda schema: schema)
    began = time.monotonic()
    with pytest.raises(SourceUnavailableError, match=f"the schema registry {server.url} cannot be reached: "):
        schemas.reach()
    assert time.monotonic() - began < 10  # with the import of the client


@MANNERS
def test_a_webhook(server: HostileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_TIMEOUT", 0.3)
    post = partial(delivery._post, TimeLimit(1), server.url, b"{}")  # noqa: SLF001 - without the pauses of a sender
    began = time.monotonic()
    with pytest.raises((OSError, HTTPException)):
        post()
    assert time.monotonic() - began < 2


def test_a_webhook_that_is_still_answering_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_TIMEOUT", 0.3)
    with HostileServer("dripping") as server:
        post = partial(delivery._post, TimeLimit(1), server.url, b"{}")  # noqa: SLF001 - the same
        with pytest.raises(TimeoutError, match=r"there was no complete answer within 0\.3 s"):
            post()
        with pytest.raises(TimeoutError, match="it is still sending the answers to earlier requests"):
            post()
        assert server.accepted == 1


@MANNERS
def test_the_start_of_a_postgresql_session(manner: Manner) -> None:
    with HostileServer(manner, POSTGRESQL) as server:
        where = f"{LOOPBACK}:{server.port}/spend"
        began = time.monotonic()
        with pytest.raises(SinkUnavailableError, match=f"cannot connect to PostgreSQL at {where}: "):
            client.connect(f"postgresql://windrow@{where}?connect_timeout=2&sslmode=disable&gssencmode=disable")
        assert time.monotonic() - began < 10


@pytest.fixture
def frozen(database: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy that can be frozen, and the url of the database behind it."""
    address = conninfo.conninfo_to_dict(database)
    with Proxy(int(str(address["port"]))) as proxy:
        yield proxy, f"postgresql://{address['user']}@{LOOPBACK}:{proxy.port}/{address['dbname']}?connect_timeout=2"


def test_a_postgresql_server_that_no_longer_answers(frozen: tuple[Proxy, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SILENCE", 0.2)
    proxy, url = frozen
    place = client.server(url).place

    def write() -> None:
        with client.translate_errors(place), client.connect(url) as connection, connection.transaction():
            assert client.first_value(connection, "SELECT 1") == 1
            proxy.freeze()
            connection.execute("SELECT 2")

    began = time.monotonic()
    said = f"{place}: the server does not answer, and accepts no new connection"
    with pytest.raises(SinkUnavailableError, match=said):
        write()
    assert time.monotonic() - began < 10


def test_a_statement_that_takes_long_is_not_given_up(
    frozen: tuple[Proxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SILENCE", 0.2)
    with client.connect(frozen[1]) as connection:
        with mock.patch.object(psycopg, "connect", side_effect=psycopg.connect) as tried:
            assert client.first_value(connection, "SELECT 7 FROM pg_sleep(1)") == 7
        assert tried.call_count >= 2


@MANNERS
def test_a_broker(manner: Manner) -> None:
    with HostileServer(manner, KAFKA) as server:
        servers = f"{LOOPBACK}:{server.port}"
        began = time.monotonic()
        with pytest.raises(SourceUnavailableError, match=f"no Kafka broker can be reached at {servers}: "):
            Admin("spend", {"bootstrap.servers": servers}, timeout=1).partitions()
        assert time.monotonic() - began < 10


@MANNERS
def test_a_broker_that_does_not_deliver(manner: Manner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_PATIENCE", 1.0)
    with HostileServer(manner, KAFKA) as server:
        servers = f"{LOOPBACK}:{server.port}"
        settings = {"bootstrap.servers": servers, "api.version.request.timeout.ms": "200"}
        began = time.monotonic()
        with pytest.raises(SourceUnavailableError, match=f"no Kafka broker can be reached at {servers}: "):
            list(Reader("spend", settings).read({0: (0, 10)}))
        assert time.monotonic() - began < 10
