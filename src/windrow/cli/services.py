"""`windrow services`: run a Kafka broker and a PostgreSQL server for development, until Ctrl-C."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

import click

from windrow.errors import InputError
from windrow.terminal.common import OK, echo_error, json_option
from windrow.terminal.interrupts import SIGNALS, raise_interrupt
from windrow.terminal.options import FOLDER

if TYPE_CHECKING:
    from windrow.testing.servers.kafka import Kafka
    from windrow.testing.servers.postgres import Postgres

_NAMES: Final = ("kafka", "postgres")
_PORTS: Final = "services.json"
_LOOK: Final = 0.5
"""Seconds between checks of whether a server has ended."""
_HELP = {"keep": "Folder in which to keep their data; the next start with this folder has the same data and ports."}


@click.command("services")
@click.argument("names", metavar="[kafka] [postgres]", nargs=-1, type=click.Choice(_NAMES))
@click.option("--keep", type=FOLDER, metavar="DIR", help=_HELP["keep"])
@json_option
def command(*, names: Sequence[str], keep: Path | None, as_json: bool) -> int:
    """Start a Kafka broker and a PostgreSQL server for development; they run until Ctrl-C.

    Both listen on free ports of this machine only, and need no password. The command prints their addresses, and the
    settings with which a pipeline uses them. Their data is removed when they stop, unless --keep is given.

    The first start downloads the Kafka broker, which needs Java 17 or newer. PostgreSQL needs the extra
    windrow[services].
    """
    chosen = [name for name in _NAMES if name in names or not names]
    ports = {} if keep is None else _read_ports(keep)
    with _until_interrupted(), ExitStack() as running:
        data = keep or Path(running.enter_context(tempfile.TemporaryDirectory(prefix="windrow-services-")))
        kafka = _kafka(data / "kafka", ports.get("kafka")) if "kafka" in chosen else None
        postgres = _postgres(keep and keep / "postgres", ports.get("postgres")) if "postgres" in chosen else None
        # a missing requirement of either has been reported before the first starts
        started: dict[str, Kafka | Postgres] = {}
        if kafka is not None:
            running.callback(kafka.stop)
            kafka.start()
            started["kafka"] = kafka
        if postgres is not None:
            running.callback(postgres.remove)
            postgres.start()
            started["postgres"] = postgres
        if keep is not None:
            ports |= {name: server.port for name, server in started.items()}
            (keep / _PORTS).write_text(json.dumps(ports), encoding="utf-8")
        servers = None if kafka is None else kafka.servers
        url = None if postgres is None else postgres.url
        if as_json:
            # on one line, which a program can read while they run
            click.echo(json.dumps({"kafka": servers, "postgres": url, "folder": keep and str(keep)}))
        else:
            click.echo("\n".join(_lines(servers, url, keep)))
        sys.stdout.flush()
        while True:
            for server in started.values():
                server.watch(_LOOK)
    return OK


def _lines(servers: str | None, url: str | None, keep: Path | None) -> Iterator[str]:
    if servers is not None:
        yield f"Kafka       {servers}"
    if url is not None:
        yield f"PostgreSQL  {url}"
    yield "\nIn a pipeline:"
    if servers is not None:
        yield f'  source: {{kafka: {{servers: "{servers}", topic: spend}}}}'
    if url is not None:
        yield f'  sink: {{postgres: {{url: "{url}", table: user_spend_5m}}}}'
    yield "\nTo use them:"
    if servers is not None:
        yield f"  windrow generate kafka://{servers}/spend --events 100000    # creates the topic"
    if url is not None:
        yield f"  psql {url}"
    data = "and removes their data" if keep is None else f"and keeps their data in {keep}"
    yield f"\nCtrl-C stops them {data}."


def _kafka(folder: Path, port: int | None) -> Kafka:
    from windrow.runtime.spark.jars import broker_folder  # noqa: PLC0415 - help needs none of it
    from windrow.testing.servers.kafka import Kafka  # noqa: PLC0415 - the same

    if not (jars := broker_folder()).is_dir():
        echo_error(f"downloading the Kafka broker (45 MB) into {jars}, for this and later starts")
    return Kafka(folder, port=port)


def _postgres(folder: Path | None, port: int | None) -> Postgres:
    from windrow.testing.servers.postgres import Postgres  # noqa: PLC0415 - help needs none of it

    return Postgres(folder=folder, port=port)


def _read_ports(keep: Path) -> dict[str, int]:
    """Read the ports of an earlier start with this folder; create the folder if it does not exist."""
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        msg = f"--keep {keep} cannot be created: {exc.strerror}; choose another folder"
        raise InputError(msg) from exc
    file = keep / _PORTS
    try:
        return {name: int(port) for name, port in json.loads(file.read_text(encoding="utf-8")).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as exc:
        msg = f"{file} does not hold the ports of an earlier start: remove it, and the servers will use new ports"
        raise InputError(msg) from exc


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """End the block at the first Ctrl-C, SIGTERM or SIGHUP; later signals do not interrupt the servers' shutdown."""
    kept = {number: signal.getsignal(number) for number in SIGNALS}
    signals = [number for number in SIGNALS if number != signal.SIGHUP or kept[number] != signal.SIG_IGN]

    def end(number: int, frame: FrameType | None) -> NoReturn:
        for other in signals:
            signal.signal(other, signal.SIG_IGN)
        raise_interrupt(number, frame)

    for number in signals:
        signal.signal(number, end)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
