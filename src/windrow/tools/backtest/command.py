"""Prints a back-test as tables by rule and by day with the first differences, or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from windrow.telemetry.numbers import format_time
from windrow.tools.backtest.compare import Backtest, Counts, Side


def show_backtest(found: Backtest) -> None:
    """Print a back-test on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    every = (*found.rules, found.all)
    by_rule = _table("rule", "old", "new", "both", "only old", "only new", "keys old", "keys new")
    for row in every:
        numbers = (row.old.alerts, row.new.alerts, row.both, row.only_old, row.only_new, row.old.keys, row.new.keys)
        by_rule.add_row(row.rule or "all", *(f"{number:,}" for number in numbers))
    console.print(by_rule)
    judged = _table("rule", "labels", "precision old", "precision new", "recall old", "recall new")
    for row in every:
        shares = (share(side) for share in (row.precision, row.recall) for side in (row.old, row.new))
        judged.add_row(row.rule or "all", f"{row.labels or 0:,}", *(_percent(share) for share in shares))
    if found.all.labels is not None:
        console.print(judged)
    by_day = _table("day", "rule", "old", "new")
    by_day.columns[1].justify = "left"
    for day in found.days:
        by_day.add_row(day.day, day.rule, f"{day.old:,}", f"{day.new:,}")
    if found.days:
        console.print(by_day)
    for name, alerts, total in (
        ("old", found.only_old, found.all.only_old),
        ("new", found.only_new, found.all.only_new),
    ):
        for alert in _alerts(alerts):
            click.echo(f"  only {name}: " + ", ".join(f"{column} {value}" for column, value in alert.items()))
        if total > alerts.num_rows > 0:
            click.echo(f"  ... and {total - alerts.num_rows:,} more")
    click.echo("the alerts are the same" if found.is_same else "the alerts differ")


def plain_backtest(found: Backtest) -> dict[str, Any]:
    """Return a back-test as JSON values."""
    return {
        "same": found.is_same,
        "all": _plain(found.all),
        "rules": [_plain(counts) for counts in found.rules],
        "days": [asdict(day) for day in found.days],
        "only_old": _alerts(found.only_old),
        "only_new": _alerts(found.only_new),
    }


def _plain(counts: Counts) -> dict[str, Any]:
    def plain_side(side: Side) -> dict[str, Any]:
        shares = {"precision": counts.precision(side), "recall": counts.recall(side)}
        return {"alerts": side.alerts, "keys": side.keys, **(shares if counts.labels is not None else {})}

    return {
        **({} if counts.rule is None else {"rule": counts.rule}),
        "old": plain_side(counts.old),
        "new": plain_side(counts.new),
        "both": counts.both,
        "only_old": counts.only_old,
        "only_new": counts.only_new,
        **({} if counts.labels is None else {"labels": counts.labels}),
    }


def _alerts(alerts: pa.Table) -> list[dict[str, Any]]:
    times = [format_time(time) for time in alerts["event_time"].cast(pa.int64()).to_pylist()]
    values = alerts.drop_columns("event_time").to_pylist()
    return [{"event_time": time, **value} for time, value in zip(times, values, strict=True)]


def _table(first: str, *others: str) -> Table:
    table = Table(first, *others, box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
