"""`windrow run`: a pipeline, live or to the end of its input."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Literal

import click

from windrow.api.load import OpenedPipeline
from windrow.cli.common import (
    NEEDS_NO_SPARK,
    OK,
    default_checkpoint,
    echo_error,
    json_option,
    print_json,
    refuse_options,
    saying_spark_starts,
    stopping,
)
from windrow.cli.json_log import JsonLog
from windrow.cli.listen import RunServer
from windrow.cli.options import ADDRESS, DURATION, STATE_FOLDER, spark_options
from windrow.cli.pipelines import command_lines, open_pipeline, pipeline_argument
from windrow.cli.progress import ProgressLine
from windrow.errors import InputError, WindrowError
from windrow.hosts.folders import Folder
from windrow.hosts.launch import Ended, HostName, Options, launch
from windrow.hosts.numbers import format_time
from windrow.hosts.reports import Observer, StepReport, Totals, counted
from windrow.hosts.settings import SparkOptions
from windrow.hosts.status import STALLED_AFTER
from windrow.model import RunMode, Runnable, as_graph, companion
from windrow.sources import open_sources
from windrow.sources.base import OnDataLoss

_MAX_RECORDS = 500_000
_UNUSED: dict[HostName, tuple[str, ...]] = {
    "stream": (),
    "realtime": (
        "until_end",
        "max_records",
        "every",
        "step_time",
        "on_data_loss",
        "fresh",
        "backfill",
        "from_savepoint",
    ),
    "batch": ("every", "step_time", "on_data_loss", "retry"),
    "memory": ("checkpoint", "every", "step_time", "on_data_loss", "retry", "master", "conf"),
}
"""Parameters that a host does not use."""
_MODES: dict[HostName, RunMode] = {"stream": "micro-batch", "realtime": "realtime"}
"""The mode of a pipeline that runs on a host, whatever its file says."""
_HELP = {
    "until_end": "Read up to the current end of the input, fire open windows (unless at_end is hold), and stop.",
    "checkpoint": "Checkpoint directory, or s3a://BUCKET/PATH; a run resumes from it.  [default: .windrow/NAME]",
    "max_records": "Maximum number of records in a step.",
    "host": (
        "Where to run: on Spark as a stream, in real time or as one batch job, or in this process (the last two need "
        "--until-end, start at the beginning and have no checkpoint).  [default: realtime or stream, by the "
        "pipeline's mode]"
    ),
    "every": "Time between the starts of two steps of a live run; shorter when 8,000 records wait.",
    "step_time": (
        "Target duration of a live run's step: after slower steps it reads fewer records a step, after faster ones "
        "more."
    ),
    "fresh": "Delete the checkpoint and the tables first.",
    "backfill": "Let a new checkpoint begin with a batch job over the log so far, then continue as a stream.",
    "retry": "How long to retry after a temporary fault without a committed step.  [default: 1m, on a cluster 10m]",
    "log": "What is written on stderr: a progress line, or JSON objects, one a line.",
    "listen": "Answer /metrics, /healthz and /readyz there over HTTP (:PORT is on loopback only).",
    "from_savepoint": "Let a new checkpoint resume from a savepoint.",
    "on_data_loss": (
        "What to do when unread records are lost (retention, a topic or file that was recreated): stop, or continue "
        "with what is left and record the loss in the clock journal."
    ),
}


@click.command("run")
@pipeline_argument
@click.option("--until-end", is_flag=True, help=_HELP["until_end"])
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@click.option(
    "--max-records", type=click.IntRange(min=1), default=_MAX_RECORDS, show_default=True, help=_HELP["max_records"]
)
@click.option("--host", type=click.Choice(["stream", "realtime", "batch", "memory"]), help=_HELP["host"])
@click.option("--every", type=DURATION, default="1s", show_default=True, help=_HELP["every"])
@click.option("--step-time", type=DURATION, default="10s", show_default=True, help=_HELP["step_time"])
@click.option(
    "--on-data-loss",
    type=click.Choice(["stop", "continue"]),
    default="stop",
    show_default=True,
    help=_HELP["on_data_loss"],
)
@click.option("--fresh", is_flag=True, help=_HELP["fresh"])
@click.option("--backfill", is_flag=True, help=_HELP["backfill"])
@click.option("--from-savepoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["from_savepoint"])
@spark_options
@click.option("--retry", type=DURATION, help=_HELP["retry"])
@click.option("--listen", type=ADDRESS, metavar="HOST:PORT", help=_HELP["listen"])
@click.option("--log", type=click.Choice(["text", "json"]), default="text", show_default=True, help=_HELP["log"])
@json_option
def command(
    *,
    pipeline: str,
    checkpoint: Folder | None,
    max_records: int,
    host: HostName | None,
    every: int,
    step_time: int,
    on_data_loss: OnDataLoss,
    spark: SparkOptions,
    until_end: bool,
    fresh: bool,
    from_savepoint: Folder | None,
    backfill: bool,
    retry: int | None,
    listen: tuple[str, int] | None,
    log: Literal["text", "json"],
    as_json: bool,
) -> int:
    """Run a pipeline: live until Ctrl-C, or with --until-end to the end of its input.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. Ctrl-C finishes the current step
    and commits it; the next run with the same checkpoint continues from there.
    """
    opened, host = _on_host(open_pipeline(pipeline), host)
    if (backfill or from_savepoint is not None) and host != "stream":
        msg = f"--{'backfill' if backfill else 'from-savepoint'} works on the stream host only: leave out --host {host}"
        raise InputError(msg)
    if backfill and from_savepoint is not None:
        msg = "a run starts with a backfill or from a savepoint: leave out --backfill or --from-savepoint"
        raise InputError(msg)
    if fresh and from_savepoint is not None:
        msg = "a run from a savepoint continues its tables, which --fresh would delete: leave out one of the two"
        raise InputError(msg)
    refuse_options(_UNUSED[host], host)
    valid = opened.runnable()
    progress = JsonLog(valid.name) if log == "json" else ProgressLine(valid.name, quiet=as_json)
    tell = progress.message if isinstance(progress, JsonLog) else echo_error
    stalled_after = max(STALLED_AFTER, 10 * every) / 1_000_000
    interval = every if host == "stream" and not until_end else None
    server = None if listen is None else RunServer(*listen, valid.name, stalled_after, interval)
    own = Observer(progress.on_step, progress.on_trouble, progress.on_ready)
    observer = own if server is None else Observer.all_of([server.observer, own])

    def warn(message: str) -> None:
        if server is not None:
            server.metrics.on_warning()
        progress.on_warning(message)

    options = Options(
        checkpoint=checkpoint or default_checkpoint(valid.name),
        host=host,
        until_end=until_end,
        max_records=max_records,
        every=every,
        step_time=step_time,
        fresh=fresh,
        savepoint=from_savepoint,
        backfill=backfill,
        spark=spark,
        on_trouble=observer.on_trouble,
        on_warning=warn,
        retry=None if retry is None else retry / 1_000_000,
        on_ready=observer.on_ready,
        on_lag=observer.on_lag,
        on_alert=progress.on_alert,
        on_data_loss=on_data_loss,
        commands=command_lines(pipeline, checkpoint or ""),
    )
    changes = _changes(valid, options)
    is_quiet = as_json and not isinstance(progress, JsonLog)
    for change in () if is_quiet else changes:
        tell(f"{valid.name}: {change}")
    # the memory host takes bounded runs alone, without a checkpoint
    advice = NEEDS_NO_SPARK if until_end and not backfill and from_savepoint is None else ""
    starting = saying_spark_starts(quiet=is_quiet, advice=advice, tell=tell)
    with server or nullcontext(), progress, starting, stopping(tell) as on_start:
        ended = launch(valid, options, observer.on_step, on_start)
    warnings = [*_all_dead(valid, progress.totals), *(_incomplete(valid) if ended == "end" else [])]
    for warning in warnings:
        progress.on_warning(warning)
    if as_json:
        extra = {"changes": changes} if from_savepoint is not None else {}
        print_json({"pipeline": valid.name, "ended": ended, **extra, **progress.totals.plain(), "warnings": warnings})
    else:
        click.echo(_summary(valid.name, ended, progress.totals))
    return OK


def _on_host(opened: OpenedPipeline, host: HostName | None) -> tuple[OpenedPipeline, HostName]:
    """Return the pipeline in the mode of the host that is given, or the host of its mode."""
    if host is None:
        host = "realtime" if opened.pipeline.mode == "realtime" else "stream"
    if host == "realtime":
        # before what these mean on other hosts is looked at
        refuse_options(_UNUSED[host], host)
    return opened.in_mode(_MODES[host]) if host in _MODES else opened, host


def _all_dead(pipeline: Runnable, totals: Totals) -> list[str]:
    """Return a warning if a run has read records, and none of them was good."""
    if not totals.dead or totals.dead < totals.events:
        return []
    table = companion(as_graph(pipeline).sinks[0].sink, "dead")
    return [f"all records ({totals.dead:,}) are dead letters; the column `reason` of the table {table} says why"]


def _incomplete(pipeline: Runnable) -> list[str]:
    """Return a warning for each last line that a run to the end of the input has left out."""
    try:
        files = open_sources(pipeline).incomplete()
    except WindrowError as exc:
        return [f"cannot look for a last line without a newline: {exc}"]  # the run itself has succeeded
    return [
        f"the last line of {file} has no newline, so it was not read; end it with one if it is whole" for file in files
    ]


def _changes(pipeline: Runnable, options: Options) -> list[str]:
    """Return the changes since the savepoint that a new checkpoint starts from, each with its meaning."""
    from windrow.hosts.compatibility import meant  # noqa: PLC0415
    from windrow.hosts.stream.checkpoint import Checkpoint  # noqa: PLC0415 - only where there is one

    if options.savepoint is None or Checkpoint.read(options.checkpoint) is not None:
        return []
    return [change.text for change in meant(options.savepoint, pipeline)]


def _places(report: StepReport) -> str:
    return ", ".join(f"partition {partition} at {offset:,}" for partition, offset in report.offsets.items())


def _summary(name: str, ended: Ended, totals: Totals) -> str:
    why = "read to the end" if ended == "end" else "stopped on request"
    where = "" if totals.last is None else _places(totals.last)
    if totals.last is not None and not totals.last.watermarks:
        # a realtime run knows its positions alone
        return f"{name}: {why} at {where or 'no offset'}"
    if totals.last is None:
        return f"{name}: {why}; {'no new records' if ended == 'end' else 'no step was taken'}"
    low = totals.last.low_watermark
    return (
        f"{name}: {why} after {counted(totals.steps, 'step')}, at epoch {totals.last.epoch}: {where}; "
        f"low watermark {'none' if low is None else format_time(low)}\n"
        f"  {counted(totals.events, 'event')} in {totals.seconds:.1f} s ({totals.rate:,.0f}/s): {totals.text}"
    )
