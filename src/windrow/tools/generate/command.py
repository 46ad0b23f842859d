"""`windrow generate`: generates events and writes them to an embedded log or a Kafka topic."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from windrow import model as m
from windrow.telemetry.reports import counted
from windrow.terminal.common import OK, json_option, print_json
from windrow.terminal.interrupts import stopping
from windrow.terminal.options import DURATION, LogTarget
from windrow.tools.generate import AnySpec, FraudSpec, LivePace, LogCounts, LogSpec, NexmarkSpec, write_kafka, write_log

_Command = TypeVar("_Command", bound=Callable[..., Any])
_ENDLESS = 1 << 62
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_SPECS: dict[str, type[AnySpec]] = {"purchases": LogSpec, "nexmark": NexmarkSpec, "fraud": FraudSpec}
_LIVE_TICK = {"purchases": 0.1, "nexmark": 0.1, "fraud": 0.05}
"""Seconds between two portions of a live stream, short for events used to measure latency."""
_HELP = {
    "kind": "Purchases; the persons, auctions and bids of Nexmark; or purchases by card, some of them fraudulent.",
    "kafka_servers": "Address of a broker, if TARGET is a topic.",
    "events": "Number of events.  [default: 1000000; with --rate until Ctrl-C]",
    "users": "Number of users.",
    "cards": "Number of people, with one card each (fraud).  [default: 100 for each event per second, at least 10000]",
    "partitions": "Number of partitions of each log or topic; all purchases of a user or card are in the same one.",
    "seed": "Random seed; the same seed generates the same events.",
    "start": "First event time (UTC).  [default: 2026-01-01]",
    "duration": "Period over which event times are spread evenly.",
    "disorder": "Mean delay between an event and its arrival; delays are exponential, or uniform (Nexmark).",
    "late_share": "Share of events that arrive another 2 to 90 minutes later, or up to --late-by (fraud).",
    "late_by": "Maximum additional delay of late events (fraud).",
    "malformed_share": "Share of records that cannot be decoded, for various reasons.",
    "duplicate_share": "Share of records that are written twice.",
    "hot_key_share": "Share of events that belong to a single user.",
    "fraud_share": "Share of purchases at which a case of fraud begins (fraud).",
    "labels": "Folder for labels.jsonl and blocked.csv if TARGET is a topic (fraud); by default they are not written.",
    "log_time": "Write the arrival time into each record, as _log_time.",
    "rate": "Append N events per second, with the current time as event time, up to --events or until Ctrl-C.",
    "overwrite": "Replace existing logs.",
}


def _option(name: str, type_: click.ParamType[Any], default: object = None) -> Callable[[_Command], _Command]:
    dashed = f"--{name.replace('_', '-')}"
    return click.option(dashed, type=type_, default=default, show_default=default is not None, help=_HELP[name])


def _share_option(name: str, default: float) -> Callable[[_Command], _Command]:
    return _option(name, click.FloatRange(0, 1), default)


@click.command("generate")
@click.argument("target")
@_option("kind", click.Choice(tuple(_SPECS)), "purchases")
@click.option("--kafka-servers", metavar="HOST:PORT", help=_HELP["kafka_servers"])
@_option("events", click.IntRange(min=0))
@_option("users", click.IntRange(min=1), LogSpec.users)
@_option("cards", click.IntRange(min=1))
@_option("partitions", click.IntRange(min=1, max=1000), LogSpec.partitions)
@_option("seed", click.IntRange(min=0), LogSpec.seed)
@_option("start", click.DateTime())
@_option("duration", DURATION, "24h")
@_option("disorder", DURATION, m.format_duration(LogSpec.disorder))
@_share_option("late_share", LogSpec.late_share)
@_option("late_by", DURATION, m.format_duration(FraudSpec.late_by))
@_share_option("malformed_share", LogSpec.malformed_share)
@_share_option("duplicate_share", 0.0)
@_share_option("hot_key_share", 0.0)
@_share_option("fraud_share", FraudSpec.fraud_share)
@click.option("--labels", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help=_HELP["labels"])
@click.option("--log-time", is_flag=True, help=_HELP["log_time"])
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help=_HELP["rate"])
@click.option("--overwrite", is_flag=True, help=_HELP["overwrite"])
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    target: str,
    kind: str,
    kafka_servers: str | None,
    events: int | None,
    start: datetime | None,
    labels: Path | None,
    rate: float | None,
    overwrite: bool,
    as_json: bool,
    **fields: Any,  # noqa: ANN401 - the other fields of the specs
) -> int:
    """Generate events into an embedded log or a Kafka topic.

    TARGET is a folder (data/spend) or a topic (kafka://HOST:PORT/TOPIC), which is created if it does not exist.
    By default, events are purchases: {"user_id": "u00042", "event_time": 1767225600000, "amount": 12.34}.
    Nexmark events are written to the logs TARGET/persons, TARGET/auctions and TARGET/bids, or to the topics
    TOPIC-persons, TOPIC-auctions and TOPIC-bids. Fraud events are {"id": "1767225600-17", "card": "c000042", "t":
    1767225603311041, "amount": 37.58, "lat": 38.7417, "lon": -9.1281, "merchant": "lisbon-155", "country": "PT"}. Cases
    of fraud (id, card, kind, t) are listed in TARGET/labels.jsonl, and blocked merchants in TARGET/blocked.csv.
    """
    to = LogTarget.read(target, kafka_servers)
    if overwrite and (to.servers is not None or rate is not None):
        msg = "--overwrite cannot be used with a topic or with --rate, which append"
        raise click.UsageError(msg)
    _refuse_others(context, kind)
    if labels is not None and to.servers is None:
        msg = "--labels can only be used with a topic: for a log, the labels are written to TARGET itself"
        raise click.UsageError(msg)
    fields["events"] = (LogSpec.events if rate is None else _ENDLESS) if events is None else events
    fields["start"] = LogSpec.start if start is None else (start.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
    spec = _SPECS[kind](**{name: value for name, value in fields.items() if name in _fields_of(kind)})
    began = time.monotonic()
    with _live_pace(rate, _LIVE_TICK[kind]) as pace, _progress(spec, to, quiet=as_json) as progress:
        if to.servers is None:
            counts = write_log(spec, to.name, overwrite=overwrite, pace=pace, progress=progress)
        else:
            counts = write_kafka(spec, to.servers, to.name, labels=labels, pace=pace, progress=progress)
    seconds = time.monotonic() - began
    if as_json:
        by_log = spec.records(counts.records) if isinstance(spec, NexmarkSpec) else {}
        print_json(
            {
                "target": str(to),
                "partitions": spec.partitions,
                **dataclasses.asdict(counts),
                **by_log,
                "seconds": round(seconds, 3),
            }
        )
    else:
        click.echo(f"{to}: {_describe(spec, counts)} ({seconds:.1f} s)")
    return OK


def _fields_of(kind: str) -> set[str]:
    return {field.name for field in dataclasses.fields(_SPECS[kind])} | ({"labels"} if kind == "fraud" else set())


def _refuse_others(context: click.Context, kind: str) -> None:
    """Reject options that do not apply to this kind of events."""
    for name in context.params:
        kinds = [other for other in _SPECS if name in _fields_of(other)]
        if kinds and kind not in kinds and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            msg = f"--{name.replace('_', '-')} applies to {' and '.join(kinds)}, not to {kind}: leave it out"
            raise click.UsageError(msg)


def _describe(spec: AnySpec, counts: LogCounts) -> str:
    where = counted(spec.partitions, "partition")
    if isinstance(spec, NexmarkSpec):
        persons, auctions, bids = spec.records(counts.records).values()
        return (
            f"{counted(persons, 'person')}, {counted(auctions, 'auction')} and {counted(bids, 'bid')}, each in {where}"
        )
    malformed = f"{counts.malformed:,} malformed, " if isinstance(spec, LogSpec) else ""
    labels = f", {counts.labels:,} labelled as fraud" if isinstance(spec, FraudSpec) else ""
    duplicates = counted(counts.duplicates, "duplicate")
    return f"{counted(counts.records, 'record')} in {where}: {counts.late:,} late, {malformed}{duplicates}{labels}"


@contextmanager
def _live_pace(rate: float | None, tick: float) -> Iterator[LivePace | None]:
    """Yield the pace of a live stream, or None. The first Ctrl-C or SIGTERM stops the stream between two portions."""
    if rate is None:
        yield None
        return
    stop = threading.Event()
    with stopping(lambda _: None) as on_start:
        on_start(stop.set)
        yield LivePace(rate, wait=stop.wait, tick=tick)


@contextmanager
def _progress(spec: AnySpec, to: LogTarget, *, quiet: bool) -> Iterator[Callable[[LogCounts], None]]:
    """Show the number of records written on stderr if it is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        total = None if spec.events == _ENDLESS else round(spec.events * (1 + getattr(spec, "duplicate_share", 0)))
        task = bar.add_task(str(to), total=total)
        yield lambda counts: bar.update(task, completed=counts.records)
