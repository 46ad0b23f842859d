"""A PostgreSQL that wants a password, and TLS too of all but its administrator."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
from contextlib import suppress
from pathlib import Path

from tests.servers.listener import LOOPBACK, Listener

from windrow.testing.servers.postgres import Postgres

USER = "windrow"
SECRET = "s3cr3t p@ss/w%rd:"  # noqa: S105 - the one that is looked for
"""A password with what means something in a url."""

_OVER_TLS = "127.0.0.2"
"""Where the proxy comes from with what came to it over TLS; what came in the clear it passes on from 127.0.0.1."""

_RULES = f"""\
host    all postgres {LOOPBACK}/32 scram-sha-256
hostssl all {USER}  {LOOPBACK}/32 scram-sha-256
host    all {USER}  {_OVER_TLS}/32 scram-sha-256
"""
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)


class SecurePostgres(Postgres):
    """As `Postgres`, with the password `SECRET`; its databases are `USER`'s, who comes through a `TlsProxy` only."""

    def __init__(self) -> None:
        super().__init__(SECRET)

    def start(self) -> None:
        is_new = not self._data.exists()
        super().start()
        if is_new:
            self._administer(f"CREATE ROLE {USER} LOGIN")
            self.set_password(SECRET)

    def create_database(self, name: str) -> str:
        self._administer(f'CREATE DATABASE "{name}" OWNER {USER}')
        return self.url_of(name)

    def set_password(self, password: str) -> None:
        """Give `USER` a password, for connections that are yet to come."""
        self._administer(f"ALTER ROLE {USER} PASSWORD '{password}'")

    def end_connections(self) -> None:
        """End those of `USER`."""
        self._administer(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{USER}'")

    def _initialise(self) -> None:
        super()._initialise()
        (self._data / "pg_hba.conf").write_text(_RULES)


class TlsProxy(Listener):
    """Speaks TLS for a PostgreSQL on this machine, as a pooler does: the one in the wheel is built without.

    `certificates` is a folder that `make_certificates` filled; another one counts from the next connection on. Where
    it `asks`, a client must show a certificate of the authority there.
    """

    def __init__(self, server: Postgres, certificates: Path, *, asks: bool = False) -> None:
        super().__init__()
        self.certificates = certificates
        self._to = server.port
        self._asks = asks

    @property
    def address(self) -> str:
        """Host and port that clients connect to."""
        return f"{LOOPBACK}:{self.port}"

    def url_of(self, database: str, password: str) -> str:
        """The address of a database, by a client that trusts nobody else; the password as it stands in a url."""
        checked = f"sslmode=verify-full&sslrootcert={self.certificates}/ca.pem"
        return f"postgresql://{USER}:{password}@{self.address}/{database}?{checked}"

    def serve(self, client: socket.socket) -> None:
        threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            first = client.recv(len(_SSL_REQUEST), socket.MSG_WAITALL)
            if first != _SSL_REQUEST:
                self._pass(client, LOOPBACK, first)
                return
            client.sendall(b"S")
            below = client.dup()
            with below, self._context().wrap_socket(client, server_side=True, do_handshake_on_connect=False) as secured:
                try:
                    secured.do_handshake()
                except ssl.SSLError:
                    # the client may have more to send; were this closed at once, it would not read why it is refused
                    below.shutdown(socket.SHUT_WR)
                    while below.recv(4096):
                        pass
                else:
                    self._pass(secured, _OVER_TLS)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificates / "server.pem", self.certificates / "server.key")
        if self._asks:
            context.load_verify_locations(self.certificates / "ca.pem")
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _pass(self, client: socket.socket, origin: str, first: bytes = b"") -> None:
        # one thread for both ways: OpenSSL's connections are not for two at once
        with socket.create_connection((LOOPBACK, self._to), source_address=(origin, 0)) as server:
            server.sendall(first)
            to = {client: server, server: client}
            while True:
                waiting = isinstance(client, ssl.SSLSocket) and client.pending()
                for one in [client] if waiting else select.select(list(to), [], [])[0]:
                    part = one.recv(65_536)
                    if not part:
                        return
                    to[one].sendall(part)
