"""Time limits of a role or database, and poolers between windrow and the server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import conninfo, errors

from windrow.connectors.postgres import client
from windrow.connectors.postgres.cdc.server import connected
from windrow.errors import SinkError, SourceError

POOLER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@pytest.fixture
def pooler(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Start pgbouncer in a mode, and return the url of the database behind it."""
    if POOLER is None:
        pytest.skip("pgbouncer is not installed")
    parts = conninfo.conninfo_to_dict(database)
    with ExitStack() as running, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

        def start(mode: str) -> str:
            folder = tmp_path_factory.mktemp("pooler")
            users, settings = folder / "users.txt", folder / "pgbouncer.ini"
            users.write_text(f'"{parts["user"]}" ""\n')
            settings.write_text(
                f"[databases]\n* = host={parts['host']} port={parts['port']}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
                f"listen_port = {port}\nauth_type = trust\nauth_file = {users}\npool_mode = {mode}\nunix_socket_dir =\n"
                "ignore_startup_parameters = extra_float_digits,options\n"
            )
            for path in (folder.parent.parent, folder.parent, folder, users, settings):
                path.chmod(0o755)
            free.close()
            user = "nobody" if os.getuid() == 0 else None  # it refuses to run as root
            process = running.enter_context(
                subprocess.Popen([str(POOLER), "-q", str(settings)], user=user, stderr=subprocess.DEVNULL)
            )
            running.callback(process.kill)
            url = f"postgresql://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}"
            _wait_for(url)
            return url

        yield start


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url, autocommit=True).close()
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, "waited 30 s for the pooler"
            time.sleep(0.02)
        else:
            return


def test_time_limits_of_a_role_are_turned_off(database: str) -> None:
    name = database.rpartition("/")[2]
    with psycopg.connect(database, autocommit=True) as sql:
        for limit in ("statement_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"):
            sql.execute(f"ALTER DATABASE {name} SET {limit} = '50ms'".encode())
    with client.connect(database) as connection:
        limits = connection.execute(
            "SELECT DISTINCT setting FROM pg_settings WHERE name ~ '(statement|session)_timeout$'"
        ).fetchall()
        assert limits == [("0",)]
        connection.execute("SELECT pg_sleep(0.06)")
    assert client.may_pass(errors.IdleSessionTimeout())


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_that_shares_sessions_is_refused(pooler: Callable[[str], str], mode: str) -> None:
    url = pooler(mode)
    with pytest.raises(SinkError, match="mode is session"):
        client.connect(url)
    with psycopg.connect(url, autocommit=True) as other:  # it has the session that was refused
        assert other.execute("SHOW lock_timeout").fetchone() == ("0",)


def test_a_pooler_that_keeps_sessions_is_used(pooler: Callable[[str], str]) -> None:
    with client.connect(pooler("session")) as connection:
        assert client.lock_table(connection, "public", "spend", 1)


def test_a_pooler_that_cannot_replicate_is_refused(pooler: Callable[[str], str]) -> None:
    server = client.Server(pooler("session"), "source")
    with (
        pytest.raises(SourceError, match="parameter: replication: connect to the server itself") as refused,
        connected(server, replication="database"),
    ):
        pass
    assert not refused.value.passes
