"""`windrow run`: run a pipeline, live or to the end of its input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from windrow import model as m
from windrow.authoring.load import OpenedPipeline
from windrow.cli.json_log import JsonLog
from windrow.client.result import summary
from windrow.client.run import UNUSED, WARN_ABOVE, host_of, on_host, refuse_together, warnings_of
from windrow.connectors.source import OnDataLoss
from windrow.errors import InputError
from windrow.runtime.launch import Job, launch_all
from windrow.runtime.run import MAX_BYTES, Ended, HostName, RunSettings
from windrow.runtime.settings import SparkOptions
from windrow.telemetry.folders import Folder
from windrow.telemetry.health import CONDITIONS, span_of
from windrow.telemetry.reports import Observer
from windrow.terminal.common import (
    NEEDS_NO_SPARK,
    OK,
    echo_error,
    is_given,
    json_option,
    print_json,
    refuse_options,
    report_spark_start,
)
from windrow.terminal.interrupts import stopping
from windrow.terminal.options import ADDRESS, DURATION, SHARE, SIZE, STATE_FOLDER, spark_options
from windrow.terminal.pipelines import checkpoint_of, command_lines, defer_pandas, open_pipelines, pipeline_argument
from windrow.terminal.progress import ProgressLine
from windrow.terminal.share_limits import ShareLimits
from windrow.tools.alerts.delivery import watch_run

if TYPE_CHECKING:
    from windrow.cli.listen import RunServer

_HELP = {
    "until_end": "Read up to the current end of the input, fire open windows (unless at_end is hold), and stop.",
    "checkpoint": "Checkpoint directory, or s3a://BUCKET/PATH; a run resumes from it.  [default: .windrow/NAME]",
    "max_records": (
        "Maximum number of records in a step.  [default: 500000, or 1000000 for a run on Spark to the end of its input]"
    ),
    "max_bytes": "Approximate size of the records of a step; a larger record is a step of its own.",
    "host": (
        "Where to run: on Spark as a stream, in real time or as one batch job, or in this process (the last two need "
        "--until-end, start at the beginning and have no checkpoint).  [default: realtime or stream, depending "
        "on the pipeline's mode]"
    ),
    "every": "Time between the starts of two steps of a live run; a step starts earlier when 8,000 records wait.",
    "step_time": (
        "Target duration of a step of a live run: it reads fewer records per step after slower steps, more after "
        "faster ones."
    ),
    "fresh": "Delete the checkpoint and the tables first.",
    "recopy": (
        "First compare this followed table with its log, and append the differences; give it once for each table."
    ),
    "backfill": "Start a new checkpoint with a batch job over the log so far, then continue as a stream.",
    "retry": "How long to retry after temporary faults without committing a step.  [default: 1m, or 10m on a cluster]",
    "log": "Format of the output on stderr: a progress line, or JSON lines.",
    "listen": "Serve /metrics, /healthz and /readyz over HTTP at this address (:PORT listens on loopback only).",
    "from_savepoint": "Start a new checkpoint from a savepoint.",
    "fail_if_dead": "Exit with 3 if more than this share of the run's records are dead letters, such as 1%.",
    "fail_if_expired": "Exit with 3 if more than this share of the run's good records have expired, such as 0.1%.",
    "warn_above": "Warn at the end if more than this share of the run's records have expired, or are dead letters.",
    "on_data_loss": (
        "Action when unread records are lost (by retention, or because a topic or file was recreated): stop, or "
        "continue with the remaining records and record the loss in the clock journal."
    ),
}


@click.command("run")
@pipeline_argument
@click.option("--until-end", is_flag=True, help=_HELP["until_end"])
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@click.option("--max-records", type=click.IntRange(min=1), help=_HELP["max_records"])
@click.option(
    "--max-bytes", type=SIZE, default=f"{MAX_BYTES >> 20}M", show_default=True, metavar="SIZE", help=_HELP["max_bytes"]
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
@click.option("--recopy", multiple=True, metavar="TABLE", help=_HELP["recopy"])
@click.option("--backfill", is_flag=True, help=_HELP["backfill"])
@click.option("--from-savepoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["from_savepoint"])
@spark_options
@click.option("--retry", type=DURATION, help=_HELP["retry"])
@click.option("--listen", type=ADDRESS, metavar="HOST:PORT", help=_HELP["listen"])
@click.option("--fail-if-dead", type=SHARE, metavar="SHARE", help=_HELP["fail_if_dead"])
@click.option("--fail-if-expired", type=SHARE, metavar="SHARE", help=_HELP["fail_if_expired"])
@click.option(
    "--warn-above",
    type=SHARE,
    metavar="SHARE",
    default=f"{WARN_ABOVE:.0%}",
    show_default=True,
    help=_HELP["warn_above"],
)
@click.option("--log", type=click.Choice(["text", "json"]), default="text", show_default=True, help=_HELP["log"])
@json_option
def command(
    *,
    pipeline: str,
    checkpoint: Folder | None,
    max_records: int | None,
    max_bytes: int,
    host: HostName | None,
    every: int,
    step_time: int,
    on_data_loss: OnDataLoss,
    spark: SparkOptions,
    until_end: bool,
    fresh: bool,
    recopy: tuple[str, ...],
    from_savepoint: Folder | None,
    backfill: bool,
    retry: int | None,
    listen: tuple[str, int] | None,
    fail_if_dead: float | None,
    fail_if_expired: float | None,
    warn_above: float,
    log: Literal["text", "json"],
    as_json: bool,
) -> int:
    """Run a pipeline: live until Ctrl-C, or with --until-end to the end of its input.

    PIPELINE is YAML or SQL, or FILE.py[:VARIABLE] for a pipeline written in Python. Ctrl-C finishes the current step
    and commits it; the next run with the same checkpoint continues from there.

    If the file has several pipelines, all of them run in one Spark session: live runs at the same time, runs to the end
    of their input one after another. Each has its own checkpoint, DIR/NAME with --checkpoint. If one pipeline fails,
    the others finish their steps and stop.

    A live run checks --fail-if-dead and --fail-if-expired once it has read 1,000 records, and stops if a limit is
    exceeded. Committed steps are kept.
    """
    given = open_pipelines(pipeline)
    host = _host_of(given, host)
    opened = [replace(entry, pipeline=on_host(entry.pipeline, host)) for entry in given]
    if host == "memory":
        defer_pandas(given)
    refuse_together(host, {"backfill": backfill, "from_savepoint": from_savepoint, "fresh": fresh}, "--")
    refuse_options(UNUSED[host], host)
    _refuse_several(pipeline, len(opened), host)
    options = RunSettings(
        checkpoint=Path(),
        host=host,
        until_end=until_end,
        max_records=max_records,
        max_bytes=max_bytes,
        every=every,
        step_time=step_time,
        fresh=fresh,
        recopy=recopy,
        savepoint=from_savepoint,
        backfill=backfill,
        spark=spark,
        retry=None if retry is None else retry / 1_000_000,
        on_data_loss=on_data_loss,
    )
    runs: list[_Run] = []
    for valid in [entry.runnable() for entry in opened]:
        is_alone = len(opened) == 1
        folder = checkpoint_of(valid.name, checkpoint, is_alone=is_alone)
        own = replace(
            options,
            checkpoint=folder,
            commands=command_lines(pipeline, "" if checkpoint is None else folder, "" if is_alone else valid.name),
        )
        line = ProgressLine(valid.name, quiet=as_json, moves=is_alone or until_end)
        progress = JsonLog(valid.name) if log == "json" else line
        limits = ShareLimits(progress.totals, fail_if_dead, fail_if_expired)
        runs.append(_Run(valid, own, progress, limits, warn_above))
    stalled_after = span_of(CONDITIONS["no-step"].limit, every) / 1_000_000
    interval = every if host == "stream" and not until_end else None
    server = None if listen is None else _server(listen, runs[0].pipeline.name, stalled_after, interval)
    try:
        _launch(runs, server, is_quiet=as_json and log != "json")
    finally:  # runs that ended before another one failed have results too
        _report([run for run in runs if run.ended], as_json=as_json, is_alone=len(runs) == 1)
    ShareLimits.check({run.pipeline.name: run.limits for run in runs if run.ended})
    return OK


def _server(address: tuple[str, int], pipeline: str, stalled_after: float, every: int | None) -> RunServer:
    from windrow.cli.listen import RunServer  # noqa: PLC0415 - few runs serve HTTP

    return RunServer(*address, pipeline, stalled_after, every)


def _report(runs: Sequence[_Run], *, as_json: bool, is_alone: bool) -> None:
    """Print the results of runs that have ended."""
    results = [run.result() for run in runs]
    if not as_json:
        for run in runs:
            click.echo(summary(run.pipeline.name, run.ended[0], run.progress.totals))
    elif not is_alone:
        print_json({"pipelines": results})
    elif results:
        print_json(results[0])


def _launch(runs: Sequence[_Run], server: RunServer | None, *, is_quiet: bool) -> None:
    """Run the pipelines, and record in each run why it ended."""
    options, first = runs[0].options, runs[0].progress
    tell = first.message if isinstance(first, JsonLog) else echo_error
    for run in () if is_quiet else runs:
        for change in run.changes:
            tell(f"{run.pipeline.name}: {change}")
    # the memory host has only bounded runs, without a checkpoint
    is_plain = options.until_end and not options.backfill and options.savepoint is None
    starting = report_spark_start(quiet=is_quiet, advice=NEEDS_NO_SPARK if is_plain else "", tell=tell)
    with server or nullcontext(), starting, stopping(tell) as on_start:

        def on_start_all(stop: Callable[[], None]) -> None:
            for run in () if options.until_end else runs:
                run.limits.stop = stop
            on_start(stop)

        launch_all([run.job(server) for run in runs], on_start_all, tell)


@dataclass(frozen=True)
class _Run:
    """A run of a pipeline: its options, progress display and limits, and the reason why it ended."""

    pipeline: m.Graph
    options: RunSettings
    progress: JsonLog | ProgressLine
    limits: ShareLimits
    warn_above: float
    ended: list[Ended] = field(default_factory=list)

    @cached_property
    def changes(self) -> list[str]:
        """The changes to the pipeline since the savepoint that a new checkpoint starts from, and their effects."""
        return _changes(self.pipeline, self.options)

    def job(self, server: RunServer | None) -> Job:
        """Return the job of the run with its observers; the server, if there is one, comes first."""
        progress = self.progress
        own = Observer(progress.on_step, progress.on_trouble, progress.on_ready)
        last = Observer(self.limits.on_step)
        observer = Observer.all_of([own, last] if server is None else [server.observer, own, last])

        def warn(message: str) -> None:
            if server is not None:
                server.metrics.on_warning()
            progress.on_warning(message)

        options = replace(
            self.options,
            on_trouble=observer.on_trouble,
            on_warning=warn,
            on_ready=observer.on_ready,
            on_lag=observer.on_lag,
            on_alert=progress.on_alert,
            watch=watch_run,
        )
        return Job(self.pipeline, options, observer.on_step, progress, self.ended.append)

    def result(self) -> dict[str, Any]:
        """Report the warnings about the finished run, and return its result as plain JSON."""
        totals, (ended,) = self.progress.totals, self.ended
        warnings = warnings_of(self.pipeline, ended, totals, self.warn_above, self.options.commands)
        for warning in warnings:
            self.progress.on_warning(warning)
        extra = {"changes": self.changes} if self.options.savepoint is not None else {}
        return {"pipeline": self.pipeline.name, "ended": ended, **extra, **totals.plain(), "warnings": warnings}


def _host_of(opened: Sequence[OpenedPipeline], host: HostName | None) -> HostName:
    """Return the host on which all pipelines run; raise InputError if their modes differ."""
    hosts = {host or host_of(pipeline.pipeline) for pipeline in opened}
    if len(hosts) > 1:
        msg = "the pipelines of the file run in different modes: run them one by one with --only"
        raise InputError(msg)
    (found,) = hosts
    if found == "realtime":
        # before they are checked for other hosts
        refuse_options(UNUSED[found], found)
    return found


def _refuse_several(file: str, number: int, host: HostName) -> None:
    """Raise InputError for options that work only with a single pipeline, if the file has several."""
    given = [f"--{name.replace('_', '-')}" for name in ("listen", "from_savepoint", "backfill") if is_given(name)]
    if number > 1 and (given or host == "realtime"):
        subject = " and ".join(given) or "the realtime host"
        msg = f"{subject} can be used with only one pipeline, but {file} has {number}: choose one with --only"
        raise InputError(msg)


def _changes(graph: m.Graph, options: RunSettings) -> list[str]:
    """Return the changes to a pipeline since the savepoint that a new checkpoint starts from, and their effects."""
    from windrow.runtime.compatibility import changes_since  # noqa: PLC0415
    from windrow.runtime.stream.checkpoint import Checkpoint  # noqa: PLC0415 - only where there is one

    if options.savepoint is None or Checkpoint.read(options.checkpoint) is not None:
        return []
    return [change.text for change in changes_since(options.savepoint, graph)]
