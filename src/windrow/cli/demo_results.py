"""What the demo prints of its results."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from windrow.hosts.totals import Totals

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
    """Print the figures of the run, some rows, a retraction, and the SQL to look further."""
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
        _print(console, "The greatest totals of five minutes", db.execute(_ROWS))
        if totals.revisions:
            title = "A retraction: a late record took back a row and put another in its place"
            _print(console, title, db.execute(_RETRACTION))
    console.print(f"\nTo look further, [bold]sqlite3 {database}[/]:")
    for query in _QUERIES:
        console.print(f"  {query}", markup=False)
    console.print()


def _print(console: Console, title: str, cursor: sqlite3.Cursor) -> None:
    table = Table(title=f"\n{title}", title_justify="left", header_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in cursor.description:
        table.add_column(column[0], no_wrap=True)
    for row in cursor:
        table.add_row(*(str(value) for value in row))
    console.print(table)
