"""`windrow diff`: compares two result tables row by row."""

from __future__ import annotations

from dataclasses import asdict, replace
from decimal import Decimal
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from windrow.api.checks import require_valid
from windrow.cli.common import DIFFERENT, OK, json_option, print_json
from windrow.cli.options import TABLE, TIME
from windrow.cli.pipelines import open_pipeline, pipeline_argument
from windrow.errors import InputError
from windrow.expressions import RecordStream, View, sink_views
from windrow.hosts.numbers import format_time
from windrow.hosts.replay import SHADOW
from windrow.model import Graph, Runnable, as_graph, with_table
from windrow.sinks import open_database
from windrow.sinks.database import WindowRange
from windrow.sinks.diff import Compared, Number, RowDifference, compare_answers

_HELP = {
    "against": "Table to compare with.  [default: TABLE_shadow, or that of OTHER]",
    "begin": "Only windows that end after this time, such as 2026-01-31T10:05 (UTC).",
    "end": "Only windows that begin before this time.",
    "panes": "Compare the columns pane and revision too, which record how a row came about.",
    "limit": "Number of differences to show.",
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

    OTHER is another pipeline whose table is compared instead; it may be in another database. The command counts rows,
    adds up each aggregate, and shows the first differences. The exit code is 1 if there are any.
    """
    if begin is not None and end is not None and begin > end:
        msg = f"--from {format_time(begin)} is after --to {format_time(end)}: exchange the two"
        raise InputError(msg)
    opened = open_pipeline(pipeline).runnable()
    pairs = _pairs(opened, None if other is None else open_pipeline(other).runnable(), against)
    bounds, all_same, listed = WindowRange(begin, end), True, []
    for here, there in pairs:
        compared = compare_answers(here, there, bounds, limit=limit, panes=panes)
        all_same = all_same and compared.is_same
        if as_json:
            listed.append(_plain(here, there, compared))
        else:
            _show(here, there, compared)
    if as_json:
        print_json(listed[0] if len(listed) == 1 else {"pipeline": opened.name, "same": all_same, "tables": listed})
    return OK if all_same else DIFFERENT


def _pairs(one: Runnable, other: Runnable | None, against: str | None) -> list[tuple[View, View]]:
    """Return the tables to compare, each with the one that it is compared with: of two graphs, sinks of one name."""
    here = sink_views(as_graph(one))
    there = here if other is None else sink_views(as_graph(other))
    if against is not None and len(here) > 1:
        msg = f"--against names one table, but there are {len(here)}: leave it out, so that each is TABLE{SHADOW}"
        raise InputError(msg)
    if here.keys() != there.keys():
        msg = f"the sinks have other names: {', '.join(here) or one.name} here, {', '.join(there)} there"
        raise InputError(msg)
    found: list[tuple[View, View]] = []
    for name, view in here.items():
        its_own = there[name]
        table = against or its_own.sink.table + (SHADOW if other is None else "")
        compared = replace(its_own, sink=with_table(its_own.sink, table))
        if view.sink == compared.sink:
            msg = f"{table!r} is the table itself: name another table with --against"
            raise InputError(msg)
        if not isinstance(compared, RecordStream) and not isinstance(one, Graph):
            require_valid(compared)
        found.append((view, compared))
    return found


def _plain(here: View, there: View, compared: Compared) -> dict[str, Any]:
    found = compared.found
    return {
        "pipeline": here.name,
        "same": compared.is_same,
        "from": _time(compared.bounds.after),
        "to": _time(compared.bounds.before),
        "here": _side(here, compared, "here"),
        "there": _side(there, compared, "there"),
        "different": found.different,
        "first": [asdict(difference) for difference in found.first],
    }


def _side(pipeline: View, compared: Compared, name: str) -> dict[str, Any]:
    is_here = name == "here"
    side = compared.found.here if is_here else compared.found.there
    return {
        "database": open_database(pipeline.sink).place,
        "table": pipeline.sink.table,
        "rows": side.rows,
        "only": compared.found.only_here if is_here else compared.found.only_there,
        "only_columns": list(compared.only_here if is_here else compared.only_there),
        "sums": {column: str(total) if isinstance(total, Decimal) else total for column, total in side.sums.items()},
    }


def _show(here: View, there: View, compared: Compared) -> None:
    found = compared.found
    names = _names(here, there)
    console = Console(highlight=False, soft_wrap=True)
    bounds = [
        text
        for text, at in (("that end after", compared.bounds.after), ("that begin before", compared.bounds.before))
        if at is not None
        for text in [f"{text} {format_time(at)}"]
    ]
    if bounds:
        click.echo(f"windows {' and '.join(bounds)}")
    counts = Table("", *names)
    for side in counts.columns[1:]:
        side.justify = "right"
    counts.add_row("rows", f"{found.here.rows:,}", f"{found.there.rows:,}")
    for column in compared.columns:
        if column in found.here.sums or column in found.there.sums:
            totals = (sums.get(column, 0) for sums in (found.here.sums, found.there.sums))
            counts.add_row(f"sum of {column}", *(_number(total) for total in totals))
    counts.add_row("rows missing in the other", f"{found.only_here:,}", f"{found.only_there:,}")
    counts.add_row("rows that differ", f"{found.different:,}", f"{found.different:,}")
    console.print(counts)
    for name, columns in zip(names, (compared.only_here, compared.only_there), strict=True):
        if columns:
            click.echo(f"only {name} has the columns {', '.join(columns)}")
    for difference in found.first:
        click.echo(_line(difference, compared, names))
    more = found.only_here + found.only_there + found.different - len(found.first)
    if more and found.first:
        click.echo(f"... and {more:,} more")
    if not found.here.rows and not found.there.rows:
        click.echo(f"no rows were compared: both tables have none{' in this range' if bounds else ''}")
    else:
        click.echo("the same" if compared.is_same else "not the same")


def _names(here: View, there: View) -> tuple[str, str]:
    """Return names for the two sides: their tables, with the databases if the tables have the same name."""
    if here.sink.table != there.sink.table:
        return here.sink.table, there.sink.table
    return tuple(f"{one.sink.table} in {open_database(one.sink).place}" for one in (here, there))  # type: ignore[return-value]


def _line(difference: RowDifference, compared: Compared, names: tuple[str, str]) -> str:
    key = dict(difference.key)
    window = [f"[{key.pop('window_start')}, {key.pop('window_end')})"] if "window_start" in key else []
    where = " ".join([*window, *(_value(value) for value in key.values())])
    match difference.kind:
        case "here":
            return f"  {where}: only in {names[0]}: {_values(difference.here)}"
        case "there":
            return f"  {where}: only in {names[1]}: {_values(difference.there)}"
        case "differs":
            before, after = difference.here or {}, difference.there or {}
            changed = [name for name in compared.columns if before[name] != after[name]]
            return f"  {where}: " + ", ".join(
                f"{name} {_value(before[name])} and {_value(after[name])}" for name in changed
            )


def _values(row: dict[str, Any] | None) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in (row or {}).items())


def _value(value: object) -> str:
    return "null" if value is None else str(value)


def _number(number: Number) -> str:
    return f"{number:,.6g}" if isinstance(number, float) else f"{number:,}"


def _time(micros: int | None) -> str | None:
    return None if micros is None else format_time(micros)
