"""`windrow demo`: generate a day of events, run a pipeline over them, and show that replays give the same results."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
import time
import webbrowser
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from windrow import model as m
from windrow.authoring.load import open_pipeline
from windrow.connectors.diff import differences
from windrow.errors import InputError
from windrow.expressions import sink_spec
from windrow.runtime.launch import launch
from windrow.runtime.run import HostName, RunSettings
from windrow.telemetry.history import history_of
from windrow.telemetry.reports import Totals, counted
from windrow.terminal import common
from windrow.terminal.options import FOLDER
from windrow.terminal.progress import ProgressLine
from windrow.tools.dashboard.command import dashboard_beside
from windrow.tools.generate import LogSpec, write_log

_PIPELINE = """\
name: user-spend
source: {{log: {{path: {log}}}}}
decode: {{user_id: string, event_time: timestamp_millis, amount: "decimal(12,2)"}}
time: {{field: event_time, delay: 10m, future: 1h}}
key: [user_id]
window: {{tumbling: 5m}}
aggregate: {{total: sum(amount), events: count()}}
emit: {{lateness: 1h, late: each, mode: retract}}
sink: {{sqlite: {{path: {database}, table: user_spend_5m}}}}
"""
_STEPS = 4
"""Number of steps of the first run; the replays take one step and twelve steps."""
_WATCHED = 200
"""Number of steps of a run with `--watch`."""
_MARK = ".windrow-demo"
_HELP = {
    "folder": "Folder for the log, the pipeline and the tables; an earlier demo in it is replaced.",
    "host": "Run on Spark, or in this process.",
    "watch": f"Run the day in {_WATCHED} steps with the dashboard open, until Ctrl-C; nothing is replayed.",
}


@click.command("demo")
@click.option("--folder", type=FOLDER, default=Path("windrow-demo"), show_default=True, help=_HELP["folder"])
@click.option("--events", type=click.IntRange(min=1000), default=1_000_000, show_default=True, help="Number of events.")
@click.option(
    "--host", type=click.Choice(["stream", "memory"]), default="stream", show_default=True, help=_HELP["host"]
)
@click.option("--watch", is_flag=True, help=_HELP["watch"])
@common.json_option
def command(*, folder: Path, events: int, host: HostName, watch: bool, as_json: bool) -> int:
    """Generate a day of events, run a pipeline over them, and replay them with other step sizes.

    The exit code is 1 if a replay gives different results.
    """
    if watch and (host != "stream" or as_json):
        msg = f"--watch shows a run on the stream host: leave out {'--json' if as_json else f'--host {host}'}"
        raise InputError(msg)
    began = time.monotonic()
    console = Console(quiet=as_json, highlight=False, soft_wrap=True)
    pipeline = _prepare(console, folder, events)
    if watch:
        _watch(console, pipeline, folder, events)
        return common.OK
    totals = _run(pipeline, folder / "checkpoint", host, -(-events // _STEPS), quiet=as_json)
    database = folder / "spend.db"
    if not as_json:
        show_results(console, database, totals, on_spark=host != "memory")
    replays = [_replay(console, pipeline, database, host, step) for step in (events, events * 9 // 100)]
    same = not any(replay["differences"] for replay in replays)
    if as_json:
        common.print_json({"database": str(database), **totals.plain(), "replays": replays, "same": same})
    elif same:
        console.print(
            f"\nThe results are the same to the last digit, whatever the steps. ({time.monotonic() - began:.0f} s "
            f"in all)\nLook further:  sqlite3 {database}   and   windrow explain {folder / 'pipeline.yaml'}"
        )
        if history_of(folder / "checkpoint").is_file():
            page = f"{folder / 'pipeline.yaml'} --checkpoint {folder / 'checkpoint'} --open"
            console.print(f"See the run:   windrow dashboard {page}")
    else:
        console.print("\nA replay gave different results. This is a bug in windrow; please report it.")
    return common.OK if same else common.DIFFERENT


def _prepare(console: Console, folder: Path, events: int) -> m.Graph:
    """Empty the folder, generate the log in it, and write the pipeline file."""
    try:
        _empty_folder(folder)
    except OSError as exc:
        msg = f"{folder} cannot be created or replaced: {exc.strerror}; choose another --folder"
        raise InputError(msg) from exc
    began = time.monotonic()
    spec = LogSpec(events=events)
    log = folder / "spend"
    write_log(spec, log)
    console.print(
        f"A day of [bold]{events:,} events[/] of {spec.users:,} users, in {spec.partitions} partitions: "
        f"{log} ({time.monotonic() - began:.1f} s)"
    )
    file = folder / "pipeline.yaml"
    text = _PIPELINE.format(log=json.dumps(str(log)), database=json.dumps(str(folder / "spend.db")))
    file.write_text(text, encoding="utf-8")
    console.print(f"The pipeline is {file}:\n")
    console.print(text, markup=False)
    return open_pipeline(str(file)).runnable()


def _empty_folder(folder: Path) -> None:
    """Create an empty folder, replacing an earlier demo; raise InputError if the path is a file or has other files."""
    if folder.exists() and not folder.is_dir():
        msg = f"{folder} is a file: choose another --folder"
        raise InputError(msg)
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
        msg = f"{folder} is not empty and is not an earlier demo: choose another --folder"
        raise InputError(msg)
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()


def _watch(console: Console, pipeline: m.Graph, folder: Path, events: int) -> None:
    """Run the day in many steps with the dashboard open, and keep the dashboard open until Ctrl-C."""
    checkpoint = folder / "checkpoint"
    with (
        suppress(KeyboardInterrupt),
        common.interruptible(),
        dashboard_beside(pipeline, folder / "pipeline.yaml", checkpoint) as address,
    ):
        console.print(f"The dashboard: {address} (Ctrl-C stops it)\n")
        webbrowser.open(address)
        _run(pipeline, checkpoint, "stream", -(-events // _WATCHED), quiet=False)
        console.print("The day is over; the dashboard stays open until Ctrl-C.")
        _wait_for_interrupt()


def _wait_for_interrupt() -> None:
    threading.Event().wait()


def _run(pipeline: m.Graph, checkpoint: Path, host: HostName, step: int, *, quiet: bool) -> Totals:
    options = RunSettings(checkpoint=checkpoint, host=host, until_end=True, max_records=step)
    saying = common.report_spark_start(quiet=quiet, advice=common.NEEDS_NO_SPARK)
    with ProgressLine(f"steps of {step:,}", quiet=quiet) as progress, saying, common.interruptible():
        launch(pipeline, options, progress.on_step, lambda _: None)
    return progress.totals


def _replay(console: Console, pipeline: m.Graph, database: Path, host: HostName, step: int) -> dict[str, Any]:
    """Run the pipeline over the same log with another step size, into a new database, and compare the results."""
    replayed, checkpoint = (database.with_name(name) for name in (f"replay-{step}.db", f"checkpoint-{step}"))
    other = pipeline.into(m.SqliteSink(str(replayed), pipeline.sinks[0].sink.table))
    totals = _run(other, checkpoint, host, step, quiet=console.quiet)
    found = differences(sink_spec(pipeline, pipeline.sinks[0]), database, replayed)
    verdict = "the same" if not found else "DIFFERENT: " + "; ".join(found)
    console.print(
        f"Replayed in steps of {step:,} ({counted(totals.steps, 'step')}, {totals.seconds:.1f} s): table, changelog, "
        f"late output and dead letters are {verdict}"
    )
    return {"max_records": step, "steps": totals.steps, "seconds": round(totals.seconds, 3), "differences": found}


_ROWS = """
    SELECT window_start, user_id, total, events, pane, revision FROM user_spend_5m ORDER BY total DESC LIMIT 5
"""
_RETRACTION = """
    SELECT op, pane, revision, window_start, user_id, total, events FROM user_spend_5m_changes
    WHERE (window_start, user_id) = (
        SELECT window_start, user_id FROM user_spend_5m_changes
        WHERE op = 'update_before' ORDER BY epoch, seq LIMIT 1
    ) ORDER BY epoch, seq LIMIT 3
"""
_QUERIES = (
    "SELECT * FROM user_spend_5m WHERE user_id = 'u00042' ORDER BY window_start;",
    "SELECT window_start, sum(total) FROM user_spend_5m GROUP BY 1 ORDER BY 1;",
    "SELECT * FROM user_spend_5m_late LIMIT 10;   -- what came too late, with its record",
    "SELECT substr(reason, 1, instr(reason, ':') - 1) AS why, count(*) FROM user_spend_5m_dead GROUP BY 1;",
)


def show_results(console: Console, database: Path, totals: Totals, *, on_spark: bool) -> None:
    """Print the figures of the run, some rows, a retraction, and SQL queries to try."""
    since = ", after Spark's start" if on_spark else ""
    figures = Table(show_header=False, box=None, padding=(0, 2))
    for name, value in (
        ("events read", f"{totals.events:,}"),
        ("rows", f"{totals.inserts:,}"),
        ("revisions", f"{totals.revisions:,}   (late, within the hour: retracted and updated)"),
        ("late", f"{totals.late:,}"),
        ("expired", f"{totals.expired:,}   (later than that: in user_spend_5m_late)"),
        ("dead letters", f"{totals.dead:,}   (in user_spend_5m_dead)"),
        ("time", f"{totals.seconds:.1f} s, {totals.rate:,.0f} events/s{since}"),
    ):
        figures.add_row(name, value)
    console.print(figures)
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        _print_rows(console, "The five largest totals of five minutes", db.execute(_ROWS))
        if totals.revisions:
            title = "A retraction: a late record replaced a row"
            _print_rows(console, title, db.execute(_RETRACTION))
        else:
            console.print("\nNo late record replaced a row, so there is no retraction to show: try more --events.")
    console.print(f"\nTo look further, [bold]sqlite3 {database}[/]:")
    for query in _QUERIES:
        console.print(f"  {query}", markup=False)
    console.print()


def _print_rows(console: Console, title: str, cursor: sqlite3.Cursor) -> None:
    table = Table(title=f"\n{title}", title_justify="left", header_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in cursor.description:
        table.add_column(column[0], no_wrap=True)
    for row in cursor:
        table.add_row(*(str(value) for value in row))
    console.print(table)
