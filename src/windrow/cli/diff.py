"""`windrow diff`: compare result tables row by row."""

from __future__ import annotations

import click
from rich.console import Console

from windrow.client.compare import compare_tables
from windrow.connectors.database import WindowRange
from windrow.terminal.common import DIFFERENT, OK, json_option, print_json
from windrow.terminal.options import TABLE, TIME
from windrow.terminal.pipelines import open_pipeline, pipeline_argument

_HELP = {
    "against": "Table to compare with.  [default: TABLE_shadow, or the table of OTHER]",
    "begin": "Only windows that end after this time, such as 2026-01-31T10:05 (UTC).",
    "end": "Only windows that begin before this time.",
    "panes": "Also compare the columns pane and revision, which depend on the history of a row.",
    "limit": "Maximum number of differences to show.",
}


@click.command("diff")
@pipeline_argument
@click.argument("other", metavar="[OTHER]", required=False)
@click.option("--against", type=TABLE, metavar="TABLE", help=_HELP["against"])
@click.option("--from", "begin", type=TIME, metavar="TIME", help=_HELP["begin"])
@click.option("--to", "end", type=TIME, metavar="TIME", help=_HELP["end"])
@click.option("--panes", is_flag=True, help=_HELP["panes"])
@click.option("--limit", type=click.IntRange(min=0), default=10, show_default=True, help=_HELP["limit"])
@json_option
def command(
    *,
    pipeline: str,
    other: str | None,
    against: str | None,
    begin: int | None,
    end: int | None,
    panes: bool,
    limit: int,
    as_json: bool,
) -> int:
    """Compare a pipeline's table with its replay, window by window and key by key.

    With OTHER, it is compared with the table of another pipeline, which can be in another database. The command
    counts rows, sums each aggregate, and shows the first differences. The exit code is 1 if the tables differ.
    """
    graph = open_pipeline(pipeline).runnable()
    there = None if other is None else open_pipeline(other).runnable()
    found = compare_tables(graph, there, against, WindowRange(begin, end), limit=limit, panes=panes, options="--")
    if as_json:
        print_json(found.plain())
    else:
        found.show(Console(highlight=False, soft_wrap=True))
    return OK if found.same else DIFFERENT
