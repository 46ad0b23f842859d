"""`windrow log`: list, trim and compact an embedded log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from windrow.errors import InputError, SourceError
from windrow.telemetry.folders import Folder
from windrow.telemetry.numbers import format_time
from windrow.telemetry.reports import counted, now_micros
from windrow.terminal.common import OK, json_option, print_json
from windrow.terminal.display import aligned
from windrow.terminal.options import BEGIN, DURATION, SIZE, STATE_FOLDER, Offsets

if TYPE_CHECKING:
    from windrow.connectors.log.retention import Change
    from windrow.connectors.log.source import LogFolder

F = TypeVar("F", bound=Callable[..., Any])
_HELP = {
    "before": "Remove records before a time (by their `_log_time`, UTC), or before offsets, such as 0=100,1=250.",
    "older_than": "Remove records that were appended longer ago than this, by their `_log_time`; like Kafka's "
    "retention.ms.",
    "max_size": "Remove the oldest records of each partition that is larger than this, such as 500M or 2G; like "
    "Kafka's retention.bytes.",
    "key": "Fields of the key, as in the pipeline.",
    "active": "Size of the newest part of each partition, which is not compacted.",
    "tombstones": "Remove tombstones that were appended longer ago than this; like Kafka's delete.retention.ms.",
    "checkpoint": "Keep records that the run with this checkpoint has not read; may be repeated. Checkpoints in "
    ".windrow are found without this option.",
    "force": "Remove records even if a run has not read them.",
    "dry_run": "Print how many records would be removed, and remove nothing.",
}


def _change_options(function: F) -> F:
    """Add the options that commands which remove records share; the function passes them on to `_change`."""
    for option in (
        json_option,
        click.option("--dry-run", is_flag=True, help=_HELP["dry_run"]),
        click.option("--force", is_flag=True, help=_HELP["force"]),
        click.option("--checkpoint", type=STATE_FOLDER, multiple=True, metavar="DIR", help=_HELP["checkpoint"]),
    ):
        function = option(function)
    return function


@click.group("log")
def command() -> None:
    """List the segments of an embedded log, trim it, or compact it.

    LOG is the folder, as in `source.log` of a pipeline. Offsets never change. Meanwhile, runs can read the log, and
    producers can append to it.
    """


@command.command("list")
@click.argument("log")
@json_option
def list_(*, log: str, as_json: bool) -> int:
    """List partitions with their segments, offsets, records, bytes and log times.

    The end offset is the offset of the next record. Log times are the `_log_time` of the first and the last record.
    """
    from windrow.connectors.log.retention import describe  # noqa: PLC0415
    from windrow.connectors.log.source import LogFolder  # noqa: PLC0415 - help needs no Arrow

    found = describe(LogFolder(log))
    if as_json:
        print_json({"log": log, "segments": [_plain(asdict(segment)) for segment in found]})
        return OK
    columns = ("partition", "segment", "first", "end", "records", "bytes", "first log time", "last log time")
    rows = [
        (
            segment.partition,
            segment.kind,
            *(f"{number:,}" for number in (segment.first, segment.end, segment.records, segment.bytes)),
            *(_time(time) or "-" for time in (segment.first_time, segment.last_time)),
        )
        for segment in found
    ]
    numeric = [name not in {"segment", "first log time", "last log time"} for name in columns]
    click.echo("\n".join(aligned(columns, rows, numeric)))
    return OK


@command.command("trim")
@click.argument("log")
@click.option("--before", type=BEGIN, metavar="POINT", help=_HELP["before"])
@click.option("--older-than", type=DURATION, metavar="DURATION", help=_HELP["older_than"])
@click.option("--max-size", type=SIZE, metavar="SIZE", help=_HELP["max_size"])
@_change_options
def trim(
    *,
    log: str,
    before: str | int | Offsets | None,
    older_than: int | None,
    max_size: int | None,
    **options: Any,  # noqa: ANN401 - those of `_change_options`
) -> int:
    """Remove old records from the beginning of each partition.

    If several limits are given, each of them is enforced. A run that has not read the removed records stops with an
    error; see --on-data-loss of `windrow run`.
    """
    if before is None and older_than is None and max_size is None:
        msg = "choose the records to remove: --before, --older-than or --max-size"
        raise InputError(msg)
    if before == "beginning":
        msg = "there are no records before the beginning: give --before a time or offsets"
        raise InputError(msg)
    offsets = None
    if isinstance(before, dict):
        offsets = {int(name): offset for name, offset in before.items() if isinstance(name, int)}
        if len(offsets) < len(before):
            msg = "--before: partitions of a log are numbers, such as 0=100,1=250"
            raise InputError(msg)
    bounds = [before // 1000] if isinstance(before, int) else []
    bounds += [] if older_than is None else [(now_micros() - older_than) // 1000]
    from windrow.connectors.log.retention import plan_trim  # noqa: PLC0415 - help needs no Arrow

    def plan(folder: LogFolder) -> list[Change]:
        return plan_trim(folder, offsets=offsets, older=max(bounds, default=None), size=max_size)

    return _change(log, plan, "trim", **options)


@command.command("compact")
@click.argument("log")
@click.option("--key", metavar="FIELD[,FIELD]", required=True, help=_HELP["key"])
@click.option("--active", type=SIZE, default="1M", show_default=True, metavar="SIZE", help=_HELP["active"])
@click.option("--tombstones", type=DURATION, default="1d", show_default=True, help=_HELP["tombstones"])
@_change_options
def compact(*, log: str, key: str, active: int, tombstones: int, **options: Any) -> int:  # noqa: ANN401 - as above
    """Remove records that a newer record with the same key replaces.

    The newest part of each partition (--active) is left as it is. Compact only the log of a table, where each record
    replaces the previous record with its key. Records that have no key or are malformed are kept. A tombstone ({"_key":
    ..., "_value": null}, or `_deleted`) is removed once its `_log_time` is old enough (--tombstones); a tombstone
    without a `_log_time` is kept.
    """
    fields = [name.strip() for name in key.split(",")]
    if not all(fields):
        msg = f"--key {key!r}: give the fields of the key, such as currency or user_id,item"
        raise InputError(msg)
    bound = (now_micros() - tombstones) // 1000
    from windrow.connectors.log.retention import plan_compact  # noqa: PLC0415 - help needs no Arrow

    def plan(folder: LogFolder) -> list[Change]:
        planned = (
            plan_compact(folder, fields, active=active, tombstones_before=bound, partition=partition)
            for partition in folder.partitions()
        )
        return [change for change in planned if change is not None]

    return _change(log, plan, "compact", **options)


def _change(
    log: str,
    plan: Callable[[LogFolder], list[Change]],
    verb: str,
    *,
    checkpoint: tuple[Folder, ...],
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Plan changes to a log, apply them unless `dry_run` is set, and print them."""
    from windrow.connectors.log.append import locked  # noqa: PLC0415
    from windrow.connectors.log.retention import apply, finish, refuse_unread  # noqa: PLC0415
    from windrow.connectors.log.source import LogFolder  # noqa: PLC0415
    from windrow.runtime.stream.checkpoint import readers_of  # noqa: PLC0415 - help needs no Arrow

    folder = LogFolder(log)
    with locked(folder):
        if not dry_run:
            finish(folder)
        changes = plan(folder)
        readers = {} if force else readers_of(folder, checkpoint)
        refuse_unread(readers, changes, log)
        try:
            freed = [True if dry_run else apply(folder, change) for change in changes]
        except OSError as exc:
            msg = f"cannot {verb} {log}: {exc.strerror or exc} ({exc.filename}); fix that, and run the command again"
            raise SourceError(msg) from exc
    if as_json:
        done = [{"partition": change.partition, "removed": change.removed, "before": change.upto} for change in changes]
        print_json({"log": log, "action": verb, "dry_run": dry_run, "changes": done, "checkpoints": sorted(readers)})
        return OK
    if not changes:
        click.echo(f"{log}: nothing to {verb}")
    for change in changes:
        removed = f"{'would remove' if dry_run else 'removed'} {counted(change.removed, 'record')}"
        click.echo(f"{log}: partition {change.partition}: {removed} before offset {change.upto:,}")
    if not readers and changes and not force:
        click.echo(
            "found no checkpoint of a run that reads this log, so records that a run still needs may be removed",
            err=True,
        )
    if not all(freed):
        click.echo(
            "this file system cannot free parts of a file: removed records are no longer read, but still use space",
            err=True,
        )
    return OK


def _time(millis: int | None) -> str | None:
    return None if millis is None else format_time(millis * 1000)


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _time(value) if name.endswith("_time") else value for name, value in facts.items()}
