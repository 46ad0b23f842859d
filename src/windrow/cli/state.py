"""`windrow state`: show the state of a stopped run or a savepoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from windrow import model as m
from windrow.errors import InputError
from windrow.runtime.settings import SparkOptions
from windrow.telemetry.folders import Folder, default_checkpoint
from windrow.telemetry.numbers import format_time
from windrow.telemetry.reports import counted
from windrow.terminal.common import OK, json_option, print_json, report_spark_start
from windrow.terminal.options import STATE_FOLDER, spark_options
from windrow.terminal.pipelines import open_pipeline, pipeline_argument

if TYPE_CHECKING:
    from windrow.engine.state.inspect import StateReport
    from windrow.engine.state.store import MemoryState

_HELP = {
    "checkpoint": "Checkpoint of a stopped run.  [default: .windrow/NAME]",
    "savepoint": "Savepoint directory to read instead; this needs no Java.",
    "key": "Show the stored rows of this key, such as user_id=u00042; may be repeated.",
    "limit": "Maximum number of rows to show for a key.",
}


@click.command("state")
@pipeline_argument
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@click.option("--savepoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["savepoint"])
@click.option("--key", metavar="FIELD=VALUE", multiple=True, help=_HELP["key"])
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help=_HELP["limit"])
@spark_options
@json_option
def command(
    *,
    pipeline: str,
    checkpoint: Folder | None,
    savepoint: Folder | None,
    key: tuple[str, ...],
    limit: int,
    spark: SparkOptions,
    as_json: bool,
) -> int:
    """Show the state of a pipeline's key groups: clocks, windows, keys and bytes.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. With --key, the command shows the
    stored rows of one key instead, each with its kind of state (panes, waiting records, sessions ...) and its window or
    slice. The columns of these rows are internal and can change between versions.
    """
    from windrow.engine.state.inspect import inspect_state  # noqa: PLC0415 - help needs no Arrow

    valid = open_pipeline(pipeline).runnable()
    if checkpoint is not None and savepoint is not None:
        msg = "give --checkpoint or --savepoint, not both"
        raise InputError(msg)
    if savepoint is not None:
        from windrow.runtime.savepoint import Savepoint  # noqa: PLC0415 - as above

        epoch = Savepoint.read(savepoint).epoch
        states = Savepoint.states(savepoint)
    else:
        from windrow.runtime.stream.take_savepoint import look  # noqa: PLC0415 - Spark only where it is needed

        with report_spark_start(quiet=as_json):
            epoch, states = look(valid, checkpoint or default_checkpoint(valid.name), spark)
    if key:
        return _show_key(valid, epoch, states, key, limit, as_json=as_json)
    report = inspect_state(valid, states)
    if as_json:
        print_json({"pipeline": valid.name, "epoch": epoch, **_plain(valid, report)})
    else:
        click.echo(_text(valid, epoch, report))
    return OK


def _show_key(
    graph: m.Graph,
    epoch: int,
    states: Iterable[tuple[int, MemoryState]],
    key: Sequence[str],
    limit: int,
    *,
    as_json: bool,
) -> int:
    from windrow.connectors.database import read_value  # noqa: PLC0415 - the same
    from windrow.connectors.tables import plain_rows  # noqa: PLC0415 - the same
    from windrow.engine.state.inspect import rows_of_key  # noqa: PLC0415 - help needs no Arrow

    fields = dict(text.partition("=")[::2] for text in key)
    rows: list[dict[str, Any]] = [
        {"key_group": stored.group, "kind": stored.kind, "at": _bucket(stored.kind.rpartition("/")[2], stored.bucket)}
        | dict(zip(stored.rows.column_names, row, strict=True))
        for stored in rows_of_key(graph, states, fields, lambda field, text: read_value(field, text, "--key"))
        for row in plain_rows(stored.rows)
    ]
    if as_json:
        print_json({"pipeline": graph.name, "epoch": epoch, "rows": rows[:limit], "total": len(rows)})
        return OK
    if not rows:
        click.echo(f"{graph.name}: no state of {', '.join(key)} after epoch {epoch}")
    for row in rows[:limit]:
        group, kind, at = (row.pop(name) for name in ("key_group", "kind", "at"))
        click.echo(f"{kind} {at}, key group {group}: {json.dumps(row, ensure_ascii=False, default=str)}")
    if len(rows) > limit:
        click.echo(f"... and {counted(len(rows) - limit, 'more row')}: --limit shows more")
    return OK


def _plain(graph: m.Graph, report: StateReport) -> dict[str, Any]:
    clocks = report.clocks
    partitions = (
        []
        if clocks is None
        else [
            {
                "partition": graph.partition_name(partition),
                "watermark": _time_or_none(watermark),
                "offset": clocks.next.get(partition, 0),
                "idle": partition in clocks.idle,
            }
            for partition, watermark in sorted(clocks.watermarks.items())
        ]
    )
    return {
        "low_watermark": None if clocks is None else _time_or_none(clocks.low()),
        "partitions": partitions,
        "open_windows": report.windows,
        "fired_windows": report.revisable,
        "keys": sum(group.keys for group in report.groups),
        "bytes": sum(group.bytes for group in report.groups),
        "kinds": report.kinds,
        "key_groups": [
            {"key_group": group.group, "bytes": group.bytes, "keys": group.keys, "blobs": group.blobs}
            for group in report.groups
        ],
        "largest": [
            {"bytes": size, "key_group": group, "kind": kind, "bucket": bucket}
            for size, group, kind, bucket in report.largest
        ],
    }


def _text(graph: m.Graph, epoch: int, report: StateReport) -> str:
    plain = _plain(graph, report)
    sizes = f"{counted(plain['bytes'], 'byte')}, {counted(plain['keys'], 'key')}"
    windows = f"{counted(report.windows, 'open window')}, {report.revisable:,} that can be revised"
    low = _time(plain["low_watermark"])
    lines = [f"{graph.name}: state after epoch {epoch}: {sizes}, {windows}; low watermark {low}"]
    for clock in plain["partitions"]:
        at = f"watermark {_time(clock['watermark'])}, offset {clock['offset']:,}"
        lines.append(f"  partition {clock['partition']}: {at}{', idle' if clock['idle'] else ''}")
    lines += [f"  {kind}: {size:,} bytes" for kind, size in report.kinds.items()]
    lines += [
        f"  key group {group.group}: {counted(group.bytes, 'byte')}, {counted(group.keys, 'key')}"
        for group in report.groups
    ]
    lines += [
        f"  largest: {size:,} bytes of {kind} {_bucket(kind, bucket)} in key group {group}"
        for size, group, kind, bucket in report.largest
    ]
    return "\n".join(lines)


def _bucket(kind: str, bucket: int) -> str:
    """Describe a stored table by the start of its window or slice, or by its bucket number."""
    if kind in {"panes", "waiting"} or kind.startswith("slices"):
        return f"from {format_time(bucket)}"
    return f"of bucket {bucket}"


def _time_or_none(micros: int) -> int | None:
    from windrow.engine.columns import MIN_TIME  # noqa: PLC0415 - help needs no numpy

    return None if micros == MIN_TIME else micros


def _time(micros: int | None) -> str:
    return "none" if micros is None else format_time(micros)
