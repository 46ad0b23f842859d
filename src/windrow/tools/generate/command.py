"""`windrow generate`: generates events into an embedded log or a Kafka topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from windrow import model as m
from windrow.telemetry.reports import counted
from windrow.terminal.common import OK, json_option, print_json
from windrow.terminal.interrupts import stopping
from windrow.terminal.options import DURATION, LogTarget
from windrow.tools.generate import AnySpec, FraudSpec, LivePace, LogSpec, Made, NexmarkSpec, write_kafka, write_log

_ENDLESS = 1 << 62
_DEFAULT = LogSpec()
_SHARE = click.FloatRange(0, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRAUD = FraudSpec()
_LIVE_TICK = {"purchases": 0.1, "nexmark": 0.1, "fraud": 0.05}
"""Seconds between two portions of a live stream: short where latency is measured."""
_ONLY_OF = {
    "users": ("purchases",),
    "malformed_share": ("purchases",),
    "hot_key_share": ("purchases",),
    "late_share": ("purchases", "fraud"),
    "duplicate_share": ("purchases", "fraud"),
    "cards": ("fraud",),
    "late_by": ("fraud",),
    "fraud_share": ("fraud",),
    "labels": ("fraud",),
}
"""The kinds that have an option, of those that not all have."""
_HELP = {
    "kind": "Purchases in one log; the persons, auctions and bids of Nexmark, each in a log of its own; or purchases "
    "by card, some of them fraud.",
    "kafka_servers": "Address of the broker; TARGET is then a topic.",
    "events": "Number of events.  [default: 1000000; with --rate until Ctrl-C]",
    "users": "Number of users.",
    "cards": "Number of people, with a card each (fraud).  [default: 100 for each event a second, at least 10000]",
    "partitions": "Partitions of each log or topic; all purchases of a user or card are in the same one.",
    "seed": "Random seed; the same seed generates the same events.",
    "start": "First event time (UTC).  [default: 2026-01-01]",
    "duration": "Time over which event times are spread evenly.",
    "disorder": "Mean delay between an event and its arrival; delays are exponential, or uniform (Nexmark).",
    "late_share": "Share of events that arrive another 2 to 90 minutes later, or up to --late-by (fraud).",
    "late_by": "How much later they arrive at most (fraud).",
    "malformed_share": "Share of records that cannot be decoded, for various reasons.",
    "duplicate_share": "Share of records that are written twice.",
    "hot_key_share": "Share of events that belong to a single user.",
    "fraud_share": "Share of purchases at which a case of fraud begins (fraud).",
    "labels": "Folder for labels.jsonl and blocked.csv of a topic (fraud); without it they are not written.",
    "log_time": "Write the arrival time into each record, as _log_time.",
    "rate": "Append N events a second, with the current time as event time, until there are --events or until Ctrl-C.",
    "overwrite": "Replace existing logs.",
}


@click.command("generate")
@click.argument("target")
@click.option(
    "--kind",
    type=click.Choice(("purchases", "nexmark", "fraud")),
    default="purchases",
    show_default=True,
    help=_HELP["kind"],
)
@click.option("--kafka-servers", metavar="HOST:PORT", help=_HELP["kafka_servers"])
@click.option("--events", type=click.IntRange(min=0), help=_HELP["events"])
@click.option("--users", type=click.IntRange(min=1), default=_DEFAULT.users, show_default=True, help=_HELP["users"])
@click.option("--cards", type=click.IntRange(min=1), help=_HELP["cards"])
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
    "--late-by",
    type=DURATION,
    default=m.format_duration(_FRAUD.late_by),
    show_default=True,
    help=_HELP["late_by"],
)
@click.option(
    "--malformed-share",
    type=_SHARE,
    default=_DEFAULT.malformed_share,
    show_default=True,
    help=_HELP["malformed_share"],
)
@click.option("--duplicate-share", type=_SHARE, default=0.0, show_default=True, help=_HELP["duplicate_share"])
@click.option("--hot-key-share", type=_SHARE, default=0.0, show_default=True, help=_HELP["hot_key_share"])
@click.option("--fraud-share", type=_SHARE, default=_FRAUD.fraud_share, show_default=True, help=_HELP["fraud_share"])
@click.option("--labels", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help=_HELP["labels"])
@click.option("--log-time", is_flag=True, help=_HELP["log_time"])
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help=_HELP["rate"])
@click.option("--overwrite", is_flag=True, help=_HELP["overwrite"])
@json_option
@click.pass_context
def command(
    context: click.Context,
    *,
    target: str,
    kind: str,
    kafka_servers: str | None,
    events: int | None,
    users: int,
    cards: int | None,
    partitions: int,
    seed: int,
    start: datetime | None,
    duration: int,
    disorder: int,
    late_share: float,
    late_by: int,
    malformed_share: float,
    duplicate_share: float,
    hot_key_share: float,
    fraud_share: float,
    labels: Path | None,
    rate: float | None,
    log_time: bool,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Generate events into an embedded log or a Kafka topic.

    TARGET is a folder (data/spend), or a topic as kafka://HOST:PORT/TOPIC, which is created if it does not exist.
    Events are purchases: {"user_id": "u00042", "event_time": 1767225600000, "amount": 12.34}.
    Those of Nexmark are in three logs: TARGET/persons, TARGET/auctions and TARGET/bids, or in the topics
    TOPIC-persons, TOPIC-auctions and TOPIC-bids. Those of fraud are {"id": "1767225600-17", "card": "c000042", "t":
    1767225603311041, "amount": 37.58, "lat": 38.7417, "lon": -9.1281, "merchant": "lisbon-155", "country": "PT"}, with
    the cases of fraud (id, card, kind, t) in TARGET/labels.jsonl and the blocked merchants in TARGET/blocked.csv.
    """
    to = LogTarget.read(target, kafka_servers)
    if overwrite and (to.servers is not None or rate is not None):
        msg = "--overwrite cannot be used with a topic or with --rate, which append"
        raise click.UsageError(msg)
    shared = {
        "events": (_DEFAULT.events if rate is None else _ENDLESS) if events is None else events,
        "partitions": partitions,
        "seed": seed,
        "start": _DEFAULT.start if start is None else _micros(start),
        "duration": duration,
        "disorder": disorder,
    }
    _refuse_others(context, kind)
    if labels is not None and to.servers is None:
        msg = "--labels goes with a topic: of a log the labels are in TARGET itself"
        raise click.UsageError(msg)
    spec: AnySpec
    match kind:
        case "nexmark":
            spec = NexmarkSpec(**shared, log_time=log_time)
        case "fraud":
            spec = FraudSpec(
                **shared,
                cards=cards,
                late_share=late_share,
                late_by=late_by,
                duplicate_share=duplicate_share,
                fraud_share=fraud_share,
                log_time=log_time,
            )
        case _:
            spec = LogSpec(
                **shared,
                users=users,
                late_share=late_share,
                malformed_share=malformed_share,
                duplicate_share=duplicate_share,
                hot_key_share=hot_key_share,
                log_time=log_time,
            )
    began = time.monotonic()
    with _paced(rate, _LIVE_TICK[kind]) as pace, _progress(spec, to, quiet=as_json) as progress:
        if to.servers is None:
            made = write_log(spec, to.name, overwrite=overwrite, pace=pace, progress=progress)
        else:
            made = write_kafka(spec, to.servers, to.name, labels=labels, pace=pace, progress=progress)
    seconds = time.monotonic() - began
    if as_json:
        counts = spec.records(made.records) if isinstance(spec, NexmarkSpec) else {}
        print_json(
            {"target": str(to), "partitions": partitions, **asdict(made), **counts, "seconds": round(seconds, 3)}
        )
    else:
        click.echo(f"{to}: {_told(spec, made)} ({seconds:.1f} s)")
    return OK


def _refuse_others(context: click.Context, kind: str) -> None:
    """Refuse options that this kind does not have."""
    for name, kinds in _ONLY_OF.items():
        if kind not in kinds and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            msg = f"--{name.replace('_', '-')} is an option of {' and '.join(kinds)}, not of {kind}: leave it out"
            raise click.UsageError(msg)


def _told(spec: AnySpec, made: Made) -> str:
    if isinstance(spec, NexmarkSpec):
        persons, auctions, bids = spec.records(made.records).values()
        return (
            f"{counted(persons, 'person')}, {counted(auctions, 'auction')} and {counted(bids, 'bid')}, "
            f"each in {counted(spec.partitions, 'partition')}"
        )
    if isinstance(spec, FraudSpec):
        return (
            f"{counted(made.records, 'record')} in {counted(spec.partitions, 'partition')}, "
            f"of which {made.late:,} late, {counted(made.duplicates, 'duplicate')}, {made.labels:,} labelled as fraud"
        )
    return (
        f"{counted(made.records, 'record')} in {counted(spec.partitions, 'partition')}, "
        f"of which {made.late:,} late, {made.malformed:,} malformed, {counted(made.duplicates, 'duplicate')}"
    )


def _micros(start: datetime) -> int:
    elapsed = start.replace(tzinfo=UTC) - _EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


@contextmanager
def _paced(rate: float | None, tick: float) -> Iterator[LivePace | None]:
    """Yield the pace of a live stream; the first Ctrl-C (or SIGTERM) ends it between two portions."""
    if rate is None:
        yield None
        return
    stop = threading.Event()
    with stopping(lambda _: None) as on_start:
        on_start(stop.set)
        yield LivePace(rate, wait=stop.wait, tick=tick)


@contextmanager
def _progress(spec: AnySpec, to: LogTarget, *, quiet: bool) -> Iterator[Callable[[Made], None]]:
    """Show the number of records written, on stderr if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        total = None if spec.events == _ENDLESS else round(spec.events * (1 + getattr(spec, "duplicate_share", 0)))
        task = bar.add_task(str(to), total=total)
        yield lambda made: bar.update(task, completed=made.records)
