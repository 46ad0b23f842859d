"""`windrow show`: show rows of a pipeline's tables."""

from __future__ import annotations

import csv
import json
import sys

import click

from windrow.authoring import load
from windrow.client.tables import Query, Rows, find_table, read, require_of_log, sink_of
from windrow.connectors.tables import layout
from windrow.errors import InputError, WindrowError
from windrow.expressions import sink_specs
from windrow.telemetry.folders import Folder
from windrow.telemetry.reports import counted
from windrow.terminal.common import OK
from windrow.terminal.display import aligned, cells
from windrow.terminal.options import STATE_FOLDER, TIME
from windrow.terminal.pipelines import open_pipeline, pipeline_argument

_HELP = {
    "where": "Only rows with this value; may be repeated. A time is in UTC unless it has a zone.",
    "key": "Only rows of this key, such as user_id=u00042, including those of the late output; may be repeated.",
    "window": "Only rows of windows that contain this time.",
    "since": "Only windows that end after this time, or late records by event time, or dead letters by log timestamp.",
    "reason": "Only late records and dead letters whose reason begins with this text, such as 'missing: amount'.",
    "order": "Sort by this column; may be repeated.  [default: the primary key]",
    "limit": "Maximum number of rows to show.",
    "json": "Print each row as a JSON object on one line; an error is a JSON object on stderr.",
    "csv": "Print the rows as CSV, after a line with the names of the columns.",
    "why": "Explain one row, chosen by --where, --key and --window.",
    "as_of": "Compute the table from the records of the log up to this event time (inclusive, UTC).",
    "checkpoint": "With --why: checkpoint of the run that writes the table.  [default: .windrow/NAME]",
}


def _complete_tables(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the pipeline's tables that begin with `incomplete`.

    Return no tables if the pipeline is invalid, or if it is written in Python, because reading the file would run it.
    """
    file = context.params.get("pipeline") or ""
    try:
        specs = {} if load.split_spec(file) else sink_specs(load.open_pipeline(file).runnable())
    except WindrowError:
        return []
    names = (table.name for spec in specs.values() for table in layout(spec).own)
    return [name for name in names if name.startswith(incomplete)]


@click.command("show")
@pipeline_argument
@click.argument("table", metavar="[TABLE]", required=False, shell_complete=_complete_tables)
@click.option("--where", metavar="COLUMN=VALUE", multiple=True, help=_HELP["where"])
@click.option("--key", metavar="FIELD=VALUE", multiple=True, help=_HELP["key"])
@click.option("--window", type=TIME, metavar="TIME", help=_HELP["window"])
@click.option("--since", type=TIME, metavar="TIME", help=_HELP["since"])
@click.option("--reason", metavar="TEXT", help=_HELP["reason"])
@click.option("--order", metavar="COLUMN[:desc]", multiple=True, help=_HELP["order"])
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help=_HELP["limit"])
@click.option("--json", "as_json", is_flag=True, help=_HELP["json"])
@click.option("--csv", "as_csv", is_flag=True, help=_HELP["csv"])
@click.option("--as-of", type=TIME, metavar="TIME", help=_HELP["as_of"])
@click.option("--why", is_flag=True, help=_HELP["why"])
@click.option("--checkpoint", type=STATE_FOLDER, metavar="DIR", help=_HELP["checkpoint"])
def command(
    *,
    pipeline: str,
    table: str | None,
    where: tuple[str, ...],
    key: tuple[str, ...],
    window: int | None,
    since: int | None,
    reason: str | None,
    order: tuple[str, ...],
    limit: int,
    as_json: bool,
    as_csv: bool,
    as_of: int | None,
    why: bool,
    checkpoint: Folder | None,
) -> int:
    """Show rows of a pipeline's tables, even while a run writes them.

    TABLE is a table that the pipeline writes, such as spend, or a companion table: spend_changes (the changelog),
    spend_late (expired records), spend_dead (dead letters), spend_clocks (the clock journal) or spend_outbox (rows that
    a relay has yet to send). For a pipeline with one sink, TABLE can be left out, and companion tables can be called
    changes, late, dead, clocks and outbox. If several databases have a table with the same name, give the name of the
    sink instead. `windrow state PIPELINE --key` shows the state of a key.

    Times are in UTC, in ISO 8601. In JSON, decimals are strings, so that no digits are lost.

    With --as-of, the log is read in this process, and late records count. The table of the run is not used, and need
    not exist.

    With --why, the log is read up to the offsets of the table. The explanation has each record of the row's key and
    window with its position, its verdict and the watermark at that time; duplicates, expired records and dead letters
    that may belong to the row; each revision; and whether the row follows from these records.
    """
    if as_json and as_csv:
        msg = "give --json or --csv, not both"
        raise InputError(msg)
    runnable = open_pipeline(pipeline).runnable()
    if as_of is not None and why:
        msg = "give --as-of or --why, not both"
        raise InputError(msg)
    sink, spec, named = find_table(runnable, table)
    query = Query(where, order, limit, "--", key=key, window=window, since=since, reason=reason or "")
    if why:
        if since is not None or reason is not None:
            msg = "--why explains one row: choose it with --where, --key and --window alone"
            raise InputError(msg)
        if as_csv or order or named.name != spec.sink.table:
            msg = f"--why explains a row of {spec.sink.table}: give that table, and leave out --csv and --order"
            raise InputError(msg)
        from windrow.client.explanation import explain  # noqa: PLC0415 - the same
        from windrow.tools.why.row_replay import RECORDS  # noqa: PLC0415 - it loads the operators

        most, conditions = RECORDS if as_json else limit, query.filter(named).conditions
        found = explain(runnable, sink, conditions, checkpoint, most=most, options="--")
        click.echo(json.dumps(found.plain(), ensure_ascii=False) if as_json else found)
        return OK
    if checkpoint is not None:
        msg = "--checkpoint is used only with --why: leave it out"
        raise InputError(msg)
    if as_of is None:
        rows = read(spec.sink, named, query)
    else:
        require_of_log(spec.sink, named, "--as-of")
        from windrow.runtime.memory import missing_of, tables_as_of  # noqa: PLC0415 - it loads the operators

        query.filter(named)  # an invalid query fails before the log is read
        for line in missing_of(runnable):
            click.echo(f"warning: {line}", err=True)
        with tables_as_of(runnable, as_of) as past:
            rows = read(sink_of(past, sink), named, query)
    _print(rows, is_part=query.is_part, as_json=as_json, as_csv=as_csv)
    return OK


def _print(found: Rows, *, is_part: bool, as_json: bool, as_csv: bool) -> None:
    columns, rows = found.schema.names, found.plain()
    if as_json:
        for row in rows:
            click.echo(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(map(cells, rows))
    elif found.total:
        for line in aligned(columns, rows, found.numeric):
            click.echo(line)
    else:
        click.echo(f"{found.table} has no {'matching rows' if is_part else 'rows'}")
    more = found.total - len(rows)
    if more:
        click.echo(f"... and {counted(more, 'more row')}: --limit shows more", err=as_json or as_csv)
