"""`windrow replay`: replay the log into a shadow of the live table."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from windrow import model as m
from windrow.errors import InputError
from windrow.runtime.batch.plan import MAX_RECORDS
from windrow.runtime.replay import Replay, ReplayOptions, plan_replay, run_replay
from windrow.runtime.run import MAX_BYTES, ReplayHost
from windrow.runtime.settings import SparkOptions
from windrow.telemetry.folders import Folder, default_checkpoint
from windrow.telemetry.reports import counted
from windrow.terminal import common
from windrow.terminal.interrupts import stopping
from windrow.terminal.options import BEGIN, END, SIZE, STATE_FOLDER, TABLE, Offsets, spark_options
from windrow.terminal.pipelines import command_lines, open_pipeline, pipeline_argument
from windrow.terminal.progress import ProgressLine
from windrow.tools.backtest.command import plain_backtest, show_backtest
from windrow.tools.backtest.compare import back_test, read_labels

_HELP = {
    "checkpoint": "Checkpoint of the live run, which holds the offsets of the live table.  [default: .windrow/NAME]",
    "into": "Table to write, with its companion tables; only for a pipeline with one table.  [default: TABLE_shadow]",
    "begin": "Where to begin: beginning; a time (the whole log is read, but only windows that end after it are "
    "written); or offsets, such as 0=100,1=250 (with several sources SOURCE/0=100).",
    "end": "Where to end: live, the offsets of the live table; end, the end of the log; or offsets.",
    "journal": "Apply the live table's clock journal, or use the log alone.",
    "host": "Where to run: on Spark as one batch job, or in this process.",
    "fresh": "Delete the tables of an earlier replay first.",
    "savepoint": "Write a savepoint at the end, for `windrow run --from-savepoint`.",
    "max_records": "Approximate number of records in a step.",
    "max_bytes": "Approximate size of the records of a step.",
    "rules": "Also run the rules of this pipeline file, and compare the alerts; no table is written.",
    "labels": "With --rules: a file of the true alerts, to compute precision and recall: CSV or JSON lines (.jsonl) "
    "with the fields id and kind (the rule).",
}


@click.command("replay")
@pipeline_argument
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
@click.option("--into", type=TABLE, metavar="TABLE", help=_HELP["into"])
@click.option("--from", "begin", type=BEGIN, default="beginning", show_default=True, help=_HELP["begin"])
@click.option("--to", "end", type=END, default="live", show_default=True, help=_HELP["end"])
@click.option("--journal/--no-journal", default=True, help=_HELP["journal"])
@click.option("--host", type=click.Choice(["batch", "memory"]), default="batch", show_default=True, help=_HELP["host"])
@click.option("--fresh", is_flag=True, help=_HELP["fresh"])
@click.option("--savepoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["savepoint"])
@click.option(
    "--max-records", type=click.IntRange(min=1), default=MAX_RECORDS, show_default=True, help=_HELP["max_records"]
)
@click.option(
    "--max-bytes", type=SIZE, default=f"{MAX_BYTES >> 20}M", show_default=True, metavar="SIZE", help=_HELP["max_bytes"]
)
@click.option("--rules", metavar="FILE", help=_HELP["rules"])
@click.option("--labels", type=click.Path(path_type=Path), metavar="FILE", help=_HELP["labels"])
@spark_options
@common.json_option
def command(
    *,
    pipeline: str,
    checkpoint: Folder | None,
    into: str | None,
    begin: str | int | Offsets,
    end: str | Offsets,
    journal: bool,
    host: ReplayHost,
    fresh: bool,
    savepoint: Folder | None,
    max_records: int,
    max_bytes: int,
    rules: str | None,
    labels: Path | None,
    spark: SparkOptions,
    as_json: bool,
) -> int:
    """Replay a pipeline's log into a shadow of its table, up to the offsets of that table.

    The live table and its run do not change. `windrow diff PIPELINE` then compares the two tables, and `windrow promote
    PIPELINE` replaces the live table with the shadow. Without a checkpoint, the log is read to its end.

    With --rules, the command runs a back-test instead. It prints the numbers of alerts by rule and by day, the alerts
    that only one of the two sets of rules raises and, with --labels, the precision and recall of both sets.
    """
    if host == "memory":
        common.refuse_options(["master", "conf"], host)
    valid = open_pipeline(pipeline).runnable()
    options = ReplayOptions(
        checkpoint=checkpoint or default_checkpoint(valid.name),
        default=checkpoint is None,
        into=into,
        begin=begin if isinstance(begin, dict) else None,
        since=begin if isinstance(begin, int) else None,
        end=end if isinstance(end, dict) else "live" if end == "live" else "log",
        journal=journal,
        host=host,
        fresh=fresh,
        savepoint=savepoint,
        max_records=max_records,
        max_bytes=max_bytes,
        spark=spark,
        on_warning=lambda message: common.echo_error(f"warning: {message}"),
    )
    if rules is not None:
        return _back_test(valid, rules, labels, options, as_json=as_json)
    if labels is not None:
        msg = "--labels is used only in a back-test: add --rules"
        raise InputError(msg)
    replay = plan_replay(valid, options)
    shadows = [shadow for _, shadow in replay.tables]
    label = shadows[0] if len(shadows) == 1 else valid.name
    if not as_json:
        for note in replay.notes:
            click.echo(f"{valid.name}: {note}", err=True)
    saying = common.report_spark_start(quiet=as_json, advice=common.NEEDS_NO_SPARK)
    with ProgressLine(label, quiet=as_json) as progress, saying, stopping(common.echo_error) as on_start:
        ended = run_replay(replay, options, progress.on_step, on_start)
    if as_json:
        common.print_json(_plain(replay, ended) | progress.totals.plain())
    elif ended == "asked":
        click.echo(f"{label}: stopped on request, so it is incomplete; replay again with --fresh")
    else:
        totals = progress.totals
        against = "" if into is None else f" --against {shlex.quote(into)}"
        into_all = "" if len(shadows) == 1 else f" into {', '.join(shadows)}"
        click.echo(
            f"{label}: replayed{into_all} up to {_where(replay)} in {totals.seconds:.1f} s "
            f"({totals.rate:,.0f} events/s)\n"
            f"  {counted(totals.events, 'event')}: {totals.text}\n"
            f"  to compare it with the live table: windrow diff {command_lines(pipeline).pipeline}{against}"
        )
    return common.OK if ended == "end" else common.DIFFERENT


def _back_test(graph: m.Graph, other: str, labels: Path | None, options: ReplayOptions, *, as_json: bool) -> int:
    """Compare the alerts of a pipeline's rules with those of the rules in another file; return the exit code."""
    given = [name for name in ("checkpoint", "into", "savepoint", "fresh", "journal") if common.is_given(name)]
    if given:
        msg = f"a back-test (--rules) only reads the log: leave out --{' and --'.join(given)}"
        raise InputError(msg)
    _rules(graph)
    new = _rules(open_pipeline(other).runnable())
    truth = None if labels is None else read_labels(labels)
    options = replace(options, journal=False, end="log" if options.end == "live" else options.end)
    saying = common.report_spark_start(quiet=as_json, advice=common.NEEDS_NO_SPARK)
    with ProgressLine(graph.name, quiet=as_json) as progress, saying, stopping(common.echo_error) as on_start:
        found = back_test(graph, new, options, progress.on_step, on_start, labels=truth)
    if found == "asked":
        click.echo(f"{graph.name}: stopped on request, so there is nothing to compare", err=True)
        return common.DIFFERENT
    if as_json:
        common.print_json({"pipeline": graph.name} | plain_backtest(found))
    else:
        show_backtest(found)
    return common.OK


def _rules(graph: m.Graph) -> m.RuleSet:
    for node in graph.rules:
        return node.rules
    msg = f"pipeline {graph.name!r} has no rules: a back-test compares the alerts of two pipelines with `rules`"
    raise InputError(msg)


def _where(replay: Replay) -> str:
    return ", ".join(f"{offset:,} of partition {name}" for name, offset in _ends(replay).items())


def _ends(replay: Replay) -> dict[int | str, int]:
    graph = replay.pipeline
    return {graph.partition_name(partition): offset for partition, offset in sorted(replay.end.items())}


def _plain(replay: Replay, ended: str) -> dict[str, Any]:
    (live, table), *others = replay.tables
    return {
        "pipeline": replay.pipeline.name,
        **({"tables": dict(replay.tables)} if others else {"table": table, "live": live}),
        "ended": ended,
        "to": {str(name): offset for name, offset in _ends(replay).items()},
        "notes": list(replay.notes),
    }
