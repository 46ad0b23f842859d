"""`windrow show`: rows of a pipeline's tables."""

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
    "where": "Only rows with this value; may be repeated. A time is in UTC unless it names a zone.",
    "key": "Only rows of this key, such as user_id=u00042, also in the late output; may be repeated.",
    "window": "Only rows of windows that this time is in.",
    "since": "Only windows that end after this time, late records by event time, dead letters by log timestamp.",
    "reason": "Only late records and dead letters whose reason begins so, such as 'missing: amount'.",
    "order": "Sort by this column; may be repeated.  [default: the primary key]",
    "limit": "Number of rows to show.",
    "json": "Print a JSON object for each row, on a line of its own; an error is one on stderr.",
    "csv": "Print the rows as CSV, with the names of the columns first.",
    "why": "Explain one row, which --where, --key and --window name: the records, verdicts and revisions behind it.",
    "as_of": "Show the table as the records up to this event time make it (inclusive, UTC), from the log.",
    "checkpoint": "With --why: the checkpoint of the run that writes the table.  [default: .windrow/NAME]",
}


def _complete_tables(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the tables of the pipeline that begin so; none if it is wrong, or Python that would run."""
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
    """Show rows of a pipeline's tables. A run can write them meanwhile.

    TABLE is a table that the pipeline writes, such as spend, or one beside it: spend_changes (the changelog),
    spend_late (expired records), spend_dead (dead letters), spend_clocks (the clock journal) or spend_outbox (what a
    relay has yet to send). If the pipeline has one sink, TABLE can be left out, and those beside it can be called
    changes, late, dead, clocks and outbox. If several databases have a table of that name, write the name of the sink
    in its place. `windrow state PIPELINE --key` shows the state of a key.

    Times are in UTC, as ISO 8601 has them. In JSON, decimals are text, which keeps their digits.

    With --as-of, the log is read again in this process, and the table has what the records up to that event time make
    of it, those that came late included. The table of the run, which may not be there, is not touched.

    With --why, the log is read again as far as the table is, and the row that --where, --key and --window name is
    explained: each record of its key and window with its place, its verdict and the watermark by which it was judged;
    duplicates, expired records and dead letters that may be of it; each revision; and whether the records make the row
    that is there.
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
            msg = "--why explains one row: name it with --where, --key and --window alone"
            raise InputError(msg)
        if as_csv or order or named.name != spec.sink.table:
            msg = f"--why explains a row of {spec.sink.table}: name that table, and leave out --csv and --order"
            raise InputError(msg)
        from windrow.client.explanation import explain  # noqa: PLC0415 - as above
        from windrow.tools.why.row_replay import RECORDS  # noqa: PLC0415 - only who asks for it loads the operators

        conditions = query.choice(named).conditions(named)
        found = explain(runnable, sink, conditions, checkpoint, most=RECORDS if as_json else limit, options="--")
        click.echo(json.dumps(found.plain(), ensure_ascii=False) if as_json else found)
        return OK
    if checkpoint is not None:
        msg = "--checkpoint goes with --why"
        raise InputError(msg)
    if as_of is None:
        rows = read(spec.sink, named, query)
    else:
        require_of_log(spec.sink, named, "--as-of")
        from windrow.runtime.memory import missing_of, tables_as_of  # noqa: PLC0415 - it loads the operators

        query.choice(named)  # what cannot be chosen is said before the log is read
        for line in missing_of(runnable):
            click.echo(f"warning: {line}", err=True)
        with tables_as_of(runnable, as_of) as past:
            rows = read(sink_of(past, sink), named, query)
    _print(rows, is_part=query.is_part, as_json=as_json, as_csv=as_csv)
    return OK


def _print(found: Rows, *, is_part: bool, as_json: bool, as_csv: bool) -> None:
    """Print rows."""
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
        click.echo(f"{found.table} has no {'such rows' if is_part else 'rows'}")
    more = found.total - len(rows)
    if more:
        click.echo(f"... and {counted(more, 'more row')}: --limit shows more", err=as_json or as_csv)
