"""`windrow show`: rows of a pipeline's tables."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from rich.cells import cell_len

from windrow.api import load
from windrow.cli.common import OK
from windrow.cli.options import STATE_FOLDER, TIME
from windrow.cli.pipelines import open_pipeline, pipeline_argument
from windrow.core.schema import DEAD, LATE
from windrow.errors import InputError, WindrowError
from windrow.expressions import View, sink_views
from windrow.hosts.folders import Folder
from windrow.hosts.numbers import printable
from windrow.hosts.reports import counted
from windrow.model import as_graph
from windrow.sinks import open_database
from windrow.sinks.database import Condition, present, read_value
from windrow.sinks.tables import Table, layout, plain_rows, table_names

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
    "why": "Explain one row, which --where names: the records of the log, verdicts and revisions behind it.",
    "as_of": "Show the table as the records up to this event time make it (inclusive, UTC), from the log.",
    "checkpoint": "With --why: the checkpoint of the run that writes the table.  [default: .windrow/NAME]",
}


_MOST = 2**63 - 1
"""The greatest limit that SQL can name."""


def _complete_tables(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the tables of the pipeline that begin so; none if it is wrong, or Python that would run."""
    file = context.params.get("pipeline") or ""
    try:
        views = {} if load.split_spec(file) else sink_views(as_graph(load.open_pipeline(file).runnable()))
    except WindrowError:
        return []
    names = (table.name for view in views.values() for table in layout(view, view.sink).own)
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

    With --why, the log is read again as far as the table is, and the row that --where names is explained: each record
    of its key and window with its place, its verdict and the watermark by which it was judged; duplicates, expired
    records and dead letters that may be of it; each revision; and whether the records make the row that is there.
    """
    if as_json and as_csv:
        msg = "give --json or --csv, not both"
        raise InputError(msg)
    runnable = open_pipeline(pipeline).runnable()
    if as_of is not None and why:
        msg = "give --as-of or --why, not both"
        raise InputError(msg)
    sink, view, named = _table(sink_views(as_graph(runnable)), table)
    if why:
        if window is not None or since is not None or reason is not None:
            msg = "--why explains one row: name it with --where and --key alone"
            raise InputError(msg)
        if as_csv or order or named.name != view.sink.table:
            msg = f"--why explains a row of {view.sink.table}: name that table, and leave out --csv and --order"
            raise InputError(msg)
        from windrow.cli.why import explain  # noqa: PLC0415 - only who asks for it loads the operators

        conditions = [_condition(named, *one) for one in _named(where, key)]
        return explain(runnable, sink, conditions, checkpoint, limit=limit, as_json=as_json)
    if checkpoint is not None:
        msg = "--checkpoint goes with --why"
        raise InputError(msg)
    choice = _choice(named, where, key, window=window, since=since, reason=reason)
    is_part = choice != _Choice()
    if as_of is not None:
        if named.name not in table_names(view.sink.table):
            msg = f"--as-of reads the log, and {named.name} is made of steps: leave out --as-of"
            raise InputError(msg)
        from windrow.hosts.as_of import missing_of, tables_as_of  # noqa: PLC0415 - it loads the operators

        for line in missing_of(runnable):
            click.echo(f"warning: {line}", err=True)
        with tables_as_of(runnable, as_of) as past:
            own = sink_views(as_graph(past))[sink]
            found = _read(own, named, choice, order, limit)
        _print(found, named, is_part=is_part, as_json=as_json, as_csv=as_csv)
        return OK
    _print(_read(view, named, choice, order, limit), named, is_part=is_part, as_json=as_json, as_csv=as_csv)
    return OK


def _print(found: _Found, named: Table, *, is_part: bool, as_json: bool, as_csv: bool) -> None:
    """Print rows."""
    if as_json:
        for row in found.rows:
            click.echo(json.dumps(dict(zip(found.columns, row, strict=True)), ensure_ascii=False))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(found.columns)
        writer.writerows(map(_cells, found.rows))
    elif found.total:
        for line in aligned(found.columns, found.rows, found.numeric):
            click.echo(line)
    else:
        click.echo(f"{named.name} has no {'such rows' if is_part else 'rows'}")
    more = found.total - len(found.rows)
    if more:
        click.echo(f"... and {counted(more, 'more row')}: --limit shows more", err=as_json or as_csv)


def _table(views: Mapping[str, View], name: str | None) -> tuple[str, View, Table]:
    """Return the table of that name, its sink and what that takes; raise InputError if there is none, or several."""
    layouts = [(sink, view, layout(view, view.sink)) for sink, view in views.items()]
    tables = [
        (sink, view, table)
        for sink, view, made in layouts
        for table in (*made.own, *(() if made.outbox is None else (made.outbox,)))
    ]
    if name is None and len(views) > 1:
        results = ", ".join(view.sink.table for view in views.values())
        msg = f"the pipeline writes {len(views)} tables: name one of {results}"
        raise InputError(msg)
    name = tables[0][2].name if name is None else name
    parts = [table.name.removeprefix(view.sink.table) for _, view, table in tables]
    spellings = (
        [table.name for _, _, table in tables],
        [f"{sink}{part}" for (sink, _, _), part in zip(tables, parts, strict=True)],
        [part.removeprefix("_") for part in parts] if len(views) == 1 else [],
    )
    for spelling in spellings:
        found = [one for one, spelt in zip(tables, spelling) if spelt == name]  # noqa: B905 - or none
        if len(found) == 1:
            return found[0]
    if name in spellings[0]:
        msg = f"several databases have a table {name!r}: name one of the sinks {', '.join(views)} instead"
    else:
        msg = f"the pipeline writes no table {name!r}: name one of {', '.join(dict.fromkeys(spellings[0]))}"
    raise InputError(msg)


@dataclass(frozen=True)
class _Found:
    """Rows as values of JSON, and how many there are in all; `numeric` columns are of numbers."""

    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: list[tuple[Any, ...]]
    total: int


@dataclass(frozen=True)
class _Choice:
    """Which rows are shown: those that meet `where`, `times` and `reason`, and of the late output `fields` too.

    `where` are options with their COLUMN=VALUE, and `reason` begins the column of that name. `fields` are values of
    fields in the records of the late output.
    """

    where: tuple[tuple[str, str], ...] = ()
    times: tuple[Condition, ...] = ()
    reason: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    def only(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are chosen of those that meet the conditions."""
        if self.reason:
            rows = rows.filter(pc.starts_with(rows["reason"], pattern=self.reason))
        for name, text in self.fields:
            values = [json.loads(record).get(name) for record in rows["record"].to_pylist()]
            is_same = [text == value or text == json.dumps(value) for value in values]
            rows = rows.filter(pa.array(is_same, pa.bool_()))
        return rows


def _choice(
    table: Table,
    where: tuple[str, ...],
    key: tuple[str, ...],
    *,
    window: int | None,
    since: int | None,
    reason: str | None,
) -> _Choice:
    """Return the choice that the options make; raise InputError for those that the table has no columns for."""
    is_late, is_dead = (set(one.names) <= set(table.columns) for one in (LATE, DEAD))
    times: list[Condition] = []
    if window is not None:
        _known(table, "window_start", "--window")
        times += [Condition("window_start", "<", window + 1), Condition("window_end", ">", window)]
    if since is not None:
        column = "event_time" if is_late else "log_time" if is_dead else "window_end"
        _known(table, column, "--since")
        times.append(Condition(column, ">", since if column == "window_end" else since - 1))
    if reason is not None:
        _known(table, "reason", "--reason")
    if not is_late:
        return _Choice(_named(where, key), tuple(times), reason or "")
    wrong = next((text for text in key if "=" not in text), None)
    if wrong is not None:
        msg = f"--key {wrong!r} is not a condition: write --key FIELD=VALUE"
        raise InputError(msg)
    pairs = (text.partition("=") for text in key)
    return _Choice(_named(where, ()), tuple(times), reason or "", tuple((name, value) for name, _, value in pairs))


def _read(view: View, table: Table, choice: _Choice, order: Sequence[str], limit: int) -> _Found:
    """Read rows, in a transaction that is over before the first is printed."""
    database = open_database(view.sink)
    with database.snapshot() as snapshot:
        shown = present(snapshot, database, table)
        missing = [name for name in table.order if name not in shown.columns]
        if missing:
            msg = f"table {table.name!r} in {database.place} has no column {missing[0]!r}, so it is not the pipeline's"
            raise InputError(msg)
        conditions = [*(_condition(shown, *one) for one in choice.where), *choice.times]
        sorting = dict(_sorting(shown, text) for text in order)
        by = (*sorting, *(name for name in table.order if name not in sorting))
        descending = [name for name, is_descending in sorting.items() if is_descending]
        is_whole = bool(choice.reason or choice.fields)  # what the database does not choose is counted here
        limit = min(limit, _MOST)
        most = None if is_whole else limit
        rows: list[tuple[Any, ...]] = []
        total = 0
        for batch in snapshot.rows(shown, by, conditions, descending=descending, limit=most):
            chosen = choice.only(batch)
            rows += plain_rows(chosen.slice(0, limit - len(rows)))
            total += chosen.num_rows
        if not is_whole and len(rows) >= limit:
            total = snapshot.count(shown, conditions)
    return _Found(shown.columns, tuple(map(is_number, shown.schema.types)), rows, total)


def is_number(type_: pa.DataType) -> bool:
    """Return whether a column is of numbers."""
    return any(is_kind(type_) for is_kind in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


def _named(where: Sequence[str], key: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the values of ``--where`` and ``--key``, each with the name of its option."""
    return (*(("--where", text) for text in where), *(("--key", text) for text in key))


def _condition(table: Table, option: str, text: str) -> Condition:
    """Read ``COLUMN=VALUE``, which was given by an option."""
    # a name may have an equals sign in it
    name = max((name for name in table.columns if text.startswith(f"{name}=")), key=len, default=None)
    if name is None and "=" not in text:
        msg = f"{option} {text!r} is not a condition: write {option} {'FIELD' if option == '--key' else 'COLUMN'}=VALUE"
        raise InputError(msg)
    name = _known(table, name or text.partition("=")[0], f"{option} {text!r}")
    return Condition(name, "=", read_value(table.schema.field(name), text[len(name) + 1 :], option))


def _sorting(table: Table, text: str) -> tuple[str, bool]:
    """Read ``COLUMN`` or ``COLUMN:desc``: the column, and whether it is descending."""
    column, _, way = text.rpartition(":")
    if text in table.columns or way not in {"asc", "desc"}:
        column, way = text, "asc"
    return _known(table, column, f"--order {text!r}"), way == "desc"


def _known(table: Table, column: str, option: str) -> str:
    """Return the name of a column; raise InputError if the table has none of that name."""
    if column not in table.columns:
        msg = f"{option}: table {table.name!r} has no column {column!r}; it has {', '.join(table.columns)}"
        raise InputError(msg)
    return column


def _cells(row: Iterable[Any]) -> list[str]:
    """Return the values of a row as text: null as nothing."""
    return ["" if value is None else str(value).lower() if isinstance(value, bool) else str(value) for value in row]


def aligned(columns: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[bool]) -> Iterator[str]:
    """Yield rows as lines below a line with the names of the columns, numbers aligned to the right."""
    lines = [[printable(text) for text in row] for row in (columns, *map(_cells, rows))]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = []
        for text, width, is_number in zip(line, widths, numeric, strict=True):
            padding = " " * (width - cell_len(text))
            cells.append(padding + text if is_number else text + padding)
        yield "  ".join(cells).rstrip()
