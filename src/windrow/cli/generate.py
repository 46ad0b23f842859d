"""`windrow generate`: events, in an embedded log or a Kafka topic."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from types import FrameType

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from windrow.cli.common import OK, json_option, print_json
from windrow.cli.options import DURATION
from windrow.testing.generator import LivePace, Made, Spec, write_kafka, write_log

_SCHEME = "kafka://"
_ENDLESS = 1 << 62
_DEFAULT = Spec()
_SHARE = click.FloatRange(0, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HELP = {
    "kafka_servers": "The broker's address: TARGET is a topic then.",
    "events": "How many.  [default: 1000000; with --rate until Ctrl-C]",
    "users": "How many users there are.",
    "partitions": "Partitions of the log or topic; a user's events are all in one.",
    "seed": "The same seed makes the same events.",
    "start": "Event times begin there (UTC).  [default: 2026-01-01]",
    "duration": "Event times are spread evenly over it.",
    "disorder": "The mean delay between an event and its arrival; delays are exponential.",
    "late_share": "The share of events that come another 2 to 90 minutes later.",
    "malformed_share": "The share of records that are unusable, in several ways.",
    "duplicate_share": "The share of records that come a second time, in addition.",
    "hot_key_share": "The share of events that are of one user.",
    "log_time": "Write the time of arrival into each record, as _log_time.",
    "rate": "So many events a second, with event times of now, appended until there are --events, or until Ctrl-C.",
    "overwrite": "Replace the log that is there.",
}


@dataclass(frozen=True)
class _Target:
    """Where to write: a topic if there are `servers`, a folder otherwise."""

    name: str
    servers: str | None

    @staticmethod
    def read(text: str, servers: str | None) -> _Target:
        if not text.startswith(_SCHEME):
            return _Target(text, servers)
        address, _, topic = text.removeprefix(_SCHEME).partition("/")
        if servers is not None:
            msg = f"the broker's address is in {text} already: leave out --kafka-servers"
            raise click.UsageError(msg)
        if not address or not topic or "/" in topic:
            msg = f"{text} is not kafka://HOST:PORT/TOPIC"
            raise click.UsageError(msg)
        return _Target(topic, address)

    def __str__(self) -> str:
        return self.name if self.servers is None else f"{_SCHEME}{self.servers}/{self.name}"


@click.command("generate")
@click.argument("target")
@click.option("--kafka-servers", metavar="HOST:PORT", help=_HELP["kafka_servers"])
@click.option("--events", type=click.IntRange(min=0), help=_HELP["events"])
@click.option("--users", type=click.IntRange(min=1), default=_DEFAULT.users, show_default=True, help=_HELP["users"])
@click.option(
    "--partitions",
    type=click.IntRange(min=1, max=1000),
    default=_DEFAULT.partitions,
    show_default=True,
    help=_HELP["partitions"],
)
@click.option("--seed", type=click.IntRange(min=0), default=_DEFAULT.seed, show_default=True, help=_HELP["seed"])
@click.option("--start", type=click.DateTime(), help=_HELP["start"])
@click.option("--duration", type=DURATION, default="24h", show_default=True, help=_HELP["duration"])
@click.option("--disorder", type=DURATION, default="4s", show_default=True, help=_HELP["disorder"])
@click.option("--late-share", type=_SHARE, default=_DEFAULT.late_share, show_default=True, help=_HELP["late_share"])
@click.option(
    "--malformed-share",
    type=_SHARE,
    default=_DEFAULT.malformed_share,
    show_default=True,
    help=_HELP["malformed_share"],
)
@click.option("--duplicate-share", type=_SHARE, default=0.0, show_default=True, help=_HELP["duplicate_share"])
@click.option("--hot-key-share", type=_SHARE, default=0.0, show_default=True, help=_HELP["hot_key_share"])
@click.option("--log-time", is_flag=True, help=_HELP["log_time"])
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help=_HELP["rate"])
@click.option("--overwrite", is_flag=True, help=_HELP["overwrite"])
@json_option
def command(
    *,
    target: str,
    kafka_servers: str | None,
    events: int | None,
    users: int,
    partitions: int,
    seed: int,
    start: datetime | None,
    duration: int,
    disorder: int,
    late_share: float,
    malformed_share: float,
    duplicate_share: float,
    hot_key_share: float,
    rate: float | None,
    log_time: bool,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Make events, in an embedded log or a Kafka topic.

    TARGET is a folder (data/spend), or a topic as kafka://HOST:PORT/TOPIC; a topic that is not there is created.
    Events are purchases: {"user_id": "u00042", "event_time": 1767225600000, "amount": 12.34}.
    """
    to = _Target.read(target, kafka_servers)
    if overwrite and (to.servers is not None or rate is not None):
        msg = "--overwrite is for a log that is not live: topics and live logs are appended to"
        raise click.UsageError(msg)
    spec = Spec(
        events=(_DEFAULT.events if rate is None else _ENDLESS) if events is None else events,
        users=users,
        partitions=partitions,
        seed=seed,
        start=_DEFAULT.start if start is None else _micros(start),
        duration=duration,
        disorder=disorder,
        late_share=late_share,
        malformed_share=malformed_share,
        duplicate_share=duplicate_share,
        hot_key_share=hot_key_share,
        log_time=log_time,
    )
    began = time.monotonic()
    with _paced(rate) as pace, _progress(spec, to, quiet=as_json) as progress:
        if to.servers is None:
            made = write_log(spec, to.name, overwrite=overwrite, pace=pace, progress=progress)
        else:
            made = write_kafka(spec, to.servers, to.name, pace=pace, progress=progress)
    seconds = time.monotonic() - began
    if as_json:
        print_json({"target": str(to), "partitions": partitions, **asdict(made), "seconds": round(seconds, 3)})
    else:
        click.echo(
            f"{to}: {made.records:,} records in {partitions} partitions, of which {made.late:,} late, "
            f"{made.malformed:,} malformed, {made.duplicates:,} duplicates ({seconds:.1f} s)"
        )
    return OK


def _micros(start: datetime) -> int:
    elapsed = start.replace(tzinfo=UTC) - _EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


@contextmanager
def _paced(rate: float | None) -> Iterator[LivePace | None]:
    """Give a live stream its pace, and let the first Ctrl-C (or SIGTERM) end it between two portions."""
    if rate is None:
        yield None
        return
    stop = threading.Event()
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        stop.set()
        signal.signal(number, signal.default_int_handler)

    for number in kept:
        signal.signal(number, ask)
    try:
        yield LivePace(rate, wait=stop.wait)
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextmanager
def _progress(spec: Spec, to: _Target, *, quiet: bool) -> Iterator[Callable[[Made], None]]:
    """Show how many records are written, on stderr if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        total = None if spec.events == _ENDLESS else round(spec.events * (1 + spec.duplicate_share))
        task = bar.add_task(str(to), total=total)
        yield lambda made: bar.update(task, completed=made.records)
