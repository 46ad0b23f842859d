"""`windrow log`: lists the segments of an embedded log, trims and compacts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from windrow.errors import InputError, SourceError
from windrow.telemetry.folders import Folder
from windrow.telemetry.numbers import format_time
from windrow.telemetry.reports import counted, now_micros
from windrow.terminal.common import OK, json_option, print_json
from windrow.terminal.options import BEGIN, DURATION, STATE_FOLDER, Offsets

if TYPE_CHECKING:
    from windrow.connectors.log.retention import Change
    from windrow.connectors.log.source import LogFolder

F = TypeVar("F", bound=Callable[..., Any])
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_HELP = {
    "before": "Remove records before a time (by their `_log_time`, UTC), or before offsets, such as 0=100,1=250.",
    "older_than": "Remove records that were appended longer ago, by their `_log_time`; as retention.ms of Kafka.",
    "max_size": "Remove what exceeds this size in a partition, such as 500M or 2G; as retention.bytes of Kafka.",
    "key": "Fields that are the key, as in the pipeline.",
    "active": "Size of the newest part of a partition that is not compacted.",
    "tombstones": "Remove tombstones that were appended longer ago; as delete.retention.ms of Kafka.",
    "checkpoint": "Checkpoint of a run that reads the log: what it has not read stays; may be repeated. Those in "
    ".windrow are found without.",
    "force": "Remove records even if a run has not read them.",
    "dry_run": "Print what would be removed, and remove nothing.",
}


class _Size(click.ParamType[int]):
    """Bytes, with a unit of 1024 or none."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; fail as click does."""
        if isinstance(value, int):
            return value
        text = value.lower().removesuffix("b").removesuffix("i")
        number = text.rstrip("kmgt")
        if not number.isdecimal() or text[len(number) :] not in _UNITS:
            self.fail(f"{value!r} is not a size; write a whole number and a unit, such as 500M or 2G", param, ctx)
        return int(number) * _UNITS[text[len(number) :]]


_SIZE = _Size()


def _changing(function: F) -> F:
    """Add the options of a command that removes records."""
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
    """List the segments of an embedded log, trim it, and compact it.

    LOG is the folder, as in `source.log` of a pipeline. Offsets never change. Runs may read and producers append
    meanwhile.
    """


@command.command("list")
@click.argument("log")
@json_option
def list_(*, log: str, as_json: bool) -> int:
    """List partitions with their segments, offsets, records, bytes and log times.

    The end offset is that of the next record. Log times are the `_log_time` of the first and the last record.
    """
    from windrow.connectors.log.retention import describe  # noqa: PLC0415
    from windrow.connectors.log.source import LogFolder  # noqa: PLC0415 - help needs no Arrow

    found = describe(LogFolder(log))
    if as_json:
        print_json({"log": log, "segments": [_plain(asdict(one)) for one in found]})
        return OK
    cells = [
        ("partition", "segment", "first", "end", "records", "bytes", "first log time", "last log time"),
        *(
            (
                str(one.partition),
                one.kind,
                f"{one.first:,}",
                f"{one.end:,}",
                f"{one.records:,}",
                f"{one.bytes:,}",
                *(_time(time) or "-" for time in (one.first_time, one.last_time)),
            )
            for one in found
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        texts = (
            cell.ljust(width) if place in {1, 6, 7} else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        click.echo("  ".join(texts).rstrip())
    return OK


@command.command("trim")
@click.argument("log")
@click.option("--before", type=BEGIN, metavar="POINT", help=_HELP["before"])
@click.option("--older-than", type=DURATION, metavar="DURATION", help=_HELP["older_than"])
@click.option("--max-size", type=_SIZE, metavar="SIZE", help=_HELP["max_size"])
@_changing
def trim(
    *,
    log: str,
    before: str | int | Offsets | None,
    older_than: int | None,
    max_size: int | None,
    checkpoint: tuple[Folder, ...],
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Remove old records from the beginning of each partition.

    With several bounds, each is met. A run that has not read what is removed stops and says so, as on a topic whose
    retention has passed; see --on-data-loss of `windrow run`.
    """
    if before is None and older_than is None and max_size is None:
        msg = "name what to remove: --before, --older-than or --max-size"
        raise InputError(msg)
    if before == "beginning":
        msg = "nothing is before the beginning: name a time or offsets with --before"
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

    return _change(log, plan, "trim", checkpoint, force=force, dry_run=dry_run, as_json=as_json)


@command.command("compact")
@click.argument("log")
@click.option("--key", metavar="FIELD[,FIELD]", required=True, help=_HELP["key"])
@click.option("--active", type=_SIZE, default="1M", show_default=True, metavar="SIZE", help=_HELP["active"])
@click.option("--tombstones", type=DURATION, default="1d", show_default=True, help=_HELP["tombstones"])
@_changing
def compact(
    *,
    log: str,
    key: str,
    active: int,
    tombstones: int,
    checkpoint: tuple[Folder, ...],
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Keep the newest record of each key, and the active segment as it is.

    Compact only a log that is a table: one of changes by key, each of which replaces the one before. Records that have
    no key, or are malformed, stay. A tombstone ({"_key": ..., "_value": null}, or `_deleted`) is removed a while after
    it was appended, by its `_log_time`; one without stays.
    """
    fields = [name.strip() for name in key.split(",")]
    if not all(fields):
        msg = f"--key {key!r}: name the fields of the key, such as currency or user_id,item"
        raise InputError(msg)
    bound = (now_micros() - tombstones) // 1000
    from windrow.connectors.log.retention import plan_compact  # noqa: PLC0415 - help needs no Arrow

    def plan(folder: LogFolder) -> list[Change]:
        planned = (
            plan_compact(folder, fields, active=active, tombstones_before=bound, partition=partition)
            for partition in folder.partitions()
        )
        return [change for change in planned if change is not None]

    return _change(log, plan, "compact", checkpoint, force=force, dry_run=dry_run, as_json=as_json)


def _change(
    log: str,
    plan: Callable[[LogFolder], list[Change]],
    verb: str,
    checkpoints: Sequence[Folder],
    *,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    from windrow.connectors.log.append import locked  # noqa: PLC0415
    from windrow.connectors.log.retention import apply, finish  # noqa: PLC0415
    from windrow.connectors.log.source import LogFolder  # noqa: PLC0415
    from windrow.runtime.stream.checkpoint import readers_of, refuse_unread  # noqa: PLC0415 - help needs no Arrow

    folder = LogFolder(log)
    with locked(folder):
        if not dry_run:
            finish(folder)
        changes = plan(folder)
        readers = {} if force else readers_of(folder, checkpoints)
        refuse_unread(readers, changes, log)
        try:
            freed = [True if dry_run else apply(folder, change) for change in changes]
        except OSError as exc:
            msg = f"cannot {verb} {log}: {exc.strerror or exc} ({exc.filename}); mend that, and give the command again"
            raise SourceError(msg) from exc
    if as_json:
        done = [{"partition": change.partition, "removed": change.removed, "before": change.upto} for change in changes]
        print_json({"log": log, "action": verb, "dry_run": dry_run, "changes": done, "checkpoints": sorted(readers)})
        return OK
    for line in _said(log, changes, verb, dry_run=dry_run):
        click.echo(line)
    if not readers and changes and not force:
        click.echo("no checkpoint of a run over this log was found, so what runs still need is not known", err=True)
    if not all(freed):
        click.echo(
            "this file system cannot free parts of a file: what was removed is not read, but keeps its space", err=True
        )
    return OK


def _said(log: str, changes: Sequence[Change], verb: str, *, dry_run: bool) -> Iterator[str]:
    if not changes:
        yield f"{log}: nothing to {verb}"
    for change in changes:
        what = "would remove" if dry_run else "removed"
        removed = counted(change.removed, "record")
        yield f"{log}: partition {change.partition}: {what} {removed} before offset {change.upto:,}"


def _time(millis: int | None) -> str | None:
    return None if millis is None else format_time(millis * 1000)


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _time(value) if name.endswith("_time") else value for name, value in facts.items()}
