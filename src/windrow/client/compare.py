"""Comparison of the result tables of two pipelines, or of a pipeline and its replay, and how it is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from windrow import model as m
from windrow.authoring.checks import require_valid
from windrow.client.arguments import checked
from windrow.client.tables import Moment, PipelineLike, graph_of, micros_of
from windrow.connectors.database import WindowRange
from windrow.connectors.diff import Compared, Number, RowDifference, compare_answers
from windrow.connectors.open_sinks import open_database
from windrow.errors import InputError
from windrow.expressions import SinkSpec, sink_specs
from windrow.runtime.replay import SHADOW
from windrow.telemetry.numbers import format_time
from windrow.terminal.display import html_lines, html_table


@dataclass(frozen=True)
class TableDiff:
    """How the tables of two sinks differ: what they take, `here` and `there`, and what was found."""

    here: SinkSpec
    there: SinkSpec
    compared: Compared

    @property
    def names(self) -> tuple[str, str]:
        """The two tables, with their databases if they have the same name."""
        if self.here.sink.table != self.there.sink.table:
            return self.here.sink.table, self.there.sink.table
        first, second = (f"{one.sink.table} in {open_database(one.sink).place}" for one in (self.here, self.there))
        return first, second

    @property
    def counts(self) -> list[tuple[str, str, str]]:
        """Rows and sums of both sides as text, each with its title."""
        found = self.compared.found
        sums = [
            (f"sum of {column}", *(_number(side.sums.get(column, 0)) for side in (found.here, found.there)))
            for column in self.compared.columns
            if column in found.here.sums or column in found.there.sums
        ]
        return [
            ("rows", f"{found.here.rows:,}", f"{found.there.rows:,}"),
            *((title, here, there) for title, here, there in sums),
            ("rows missing in the other", f"{found.only_here:,}", f"{found.only_there:,}"),
            ("rows that differ", f"{found.different:,}", f"{found.different:,}"),
            *(
                [("rows whose key is there before", f"{found.here.repeated:,}", f"{found.there.repeated:,}")]
                if found.here.repeated or found.there.repeated
                else []
            ),
        ]

    @property
    def bounds(self) -> str:
        """Which windows were compared; empty if all were."""
        given = (("that end after", self.compared.bounds.after), ("that begin before", self.compared.bounds.before))
        parts = [f"{text} {format_time(at)}" for text, at in given if at is not None]
        return f"windows {' and '.join(parts)}" if parts else ""

    def differences(self) -> Iterator[str]:
        """Yield columns of one side alone, the first differences, how many more there are, and the verdict."""
        found = self.compared.found
        for name, columns in zip(self.names, (self.compared.only_here, self.compared.only_there), strict=True):
            if columns:
                yield f"only {name} has the columns {', '.join(columns)}"
        for name, side in zip(self.names, (found.here, found.there), strict=True):
            if side.first_repeated is not None:
                yield f"{name} has more than one row of a key, first {_where(side.first_repeated)}"
        for difference in found.first:
            yield _line(difference, self.compared, self.names)
        more = found.only_here + found.only_there + found.different - len(found.first)
        if more and found.first:
            yield f"... and {more:,} more"
        if not found.here.rows and not found.there.rows:
            yield f"no rows were compared: both tables have none{' in this range' if self.bounds else ''}"
        else:
            yield "the same" if self.compared.is_same else "not the same"

    def show(self, console: Console) -> None:
        """Print it."""
        if self.bounds:
            console.print(self.bounds, markup=False)
        counts = Table("", *self.names)
        for side in counts.columns[1:]:
            side.justify = "right"
        for row in self.counts:
            counts.add_row(*row)
        console.print(counts)
        for line in self.differences():
            console.print(line, markup=False)

    def html(self) -> str:
        """Return it as HTML."""
        bounds = [self.bounds] if self.bounds else []
        table = html_table(("", *self.names), self.counts, (False, True, True))
        return html_lines(*bounds) + table + html_lines(*self.differences())

    def plain(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "pipeline": self.here.pipeline,
            "same": self.compared.is_same,
            "from": _time(self.compared.bounds.after),
            "to": _time(self.compared.bounds.before),
            "here": _side(self.here, self.compared, "here"),
            "there": _side(self.there, self.compared, "there"),
            "different": self.compared.found.different,
            "first": [asdict(difference) for difference in self.compared.found.first],
        }


@dataclass(frozen=True, repr=False)
class Diff:
    """How the result tables of two pipelines differ, table by table; it is shown as `windrow diff` prints it."""

    name: str
    tables: tuple[TableDiff, ...]

    @property
    def same(self) -> bool:
        """Whether all rows and columns are the same."""
        return all(table.compared.is_same for table in self.tables)

    def plain(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        if len(self.tables) == 1:
            return self.tables[0].plain()
        return {"pipeline": self.name, "same": self.same, "tables": [table.plain() for table in self.tables]}

    def show(self, console: Console) -> None:
        """Print it."""
        for table in self.tables:
            table.show(console)

    def __repr__(self) -> str:
        text = StringIO()
        self.show(Console(file=text, highlight=False, soft_wrap=True, width=120))
        return text.getvalue().rstrip("\n")

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self.tables)


@checked
def diff(
    here: PipelineLike,
    there: PipelineLike | None = None,
    *,
    against: str | None = None,
    begin: Moment | None = None,
    end: Moment | None = None,
    panes: bool = False,
    limit: int = 10,
) -> Diff:
    """Compare a pipeline's result tables with those of another one, or with its own replay, row by row.

    >>> wr.diff(pipeline, pipeline.replay(host="memory", fresh=True)).same
    True

    Args:
        here: a pipeline, the path of its file, or a result of it.
        there: the other one, which may be in another database; left out, the table ``TABLE_shadow`` of the first, into
            which a replay has written.
        against: the table to compare with, if it is neither.
        begin: only windows that end after this time.
        end: only windows that begin before this time.
        panes: compare the columns pane and revision, too, which record how a row came about.
        limit: how many differences are kept; the others are counted.

    Raises:
        InputError: there is no such table, or their keys are not the same.
        SinkError: a database cannot be read.
    """
    bounds = WindowRange(*(None if time is None else micros_of(time) for time in (begin, end)))
    one, other = graph_of(here), None if there is None else graph_of(there)
    return compare_tables(one, other, against, bounds, panes=panes, limit=limit)


def compare_tables(
    one: m.Graph,
    other: m.Graph | None,
    against: str | None,
    bounds: WindowRange,
    *,
    limit: int,
    panes: bool = False,
    options: str = "",
) -> Diff:
    """Do what `diff` does; `options` is what errors write before the names of options."""
    if bounds.after is not None and bounds.before is not None and bounds.after > bounds.before:
        begin, end = (f"{options}{name}" for name in (("from", "to") if options else ("begin", "end")))
        msg = f"{begin} {format_time(bounds.after)} is after {end} {format_time(bounds.before)}: exchange the two"
        raise InputError(msg)
    pairs = _pairs(one, other, against, options)
    return Diff(
        one.name,
        tuple(
            TableDiff(here, there, compare_answers(here, there, bounds, limit=limit, panes=panes))
            for here, there in pairs
        ),
    )


def _pairs(one: m.Graph, other: m.Graph | None, against: str | None, options: str) -> list[tuple[SinkSpec, SinkSpec]]:
    """Return the tables to compare, each with the one that it is compared with: of two graphs, sinks of one name."""
    here = sink_specs(one)
    there = here if other is None else sink_specs(other)
    if against is not None and len(here) > 1:
        msg = (
            f"{options}against names one table, but there are {len(here)}: leave it out, so that each is TABLE{SHADOW}"
        )
        raise InputError(msg)
    if here.keys() != there.keys():
        msg = f"the sinks have other names: {', '.join(here) or one.name} here, {', '.join(there)} there"
        raise InputError(msg)
    found: list[tuple[SinkSpec, SinkSpec]] = []
    for name, spec in here.items():
        its_own = there[name]
        table = against or its_own.sink.table + (SHADOW if other is None else "")
        compared = its_own.into(table)
        if spec.sink == compared.sink:
            msg = f"{table!r} is the table itself: name another table with {options}against"
            raise InputError(msg)
        if one.is_short:
            require_valid(one.into(compared.sink))
        found.append((spec, compared))
    return found


def _side(spec: SinkSpec, compared: Compared, name: str) -> dict[str, Any]:
    is_here = name == "here"
    side = compared.found.here if is_here else compared.found.there
    return {
        "database": open_database(spec.sink).place,
        "table": spec.sink.table,
        "rows": side.rows,
        "only": compared.found.only_here if is_here else compared.found.only_there,
        "only_columns": list(compared.only_here if is_here else compared.only_there),
        "repeated": side.repeated,
        "sums": {
            column: str(total) if isinstance(total, Decimal) or not math.isfinite(total) else total
            for column, total in side.sums.items()
        },
    }


def _line(difference: RowDifference, compared: Compared, names: tuple[str, str]) -> str:
    where = _where(difference.key)
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


def _where(key: Mapping[str, Any]) -> str:
    parts = dict(key)
    window = [f"[{parts.pop('window_start')}, {parts.pop('window_end')})"] if "window_start" in parts else []
    return " ".join([*window, *(_value(value) for value in parts.values())])


def _values(row: dict[str, Any] | None) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in (row or {}).items())


def _value(value: object) -> str:
    return "null" if value is None else str(value)


def _number(number: Number) -> str:
    return f"{number:,.6g}" if isinstance(number, float) else f"{number:,}"


def _time(micros: int | None) -> str | None:
    return None if micros is None else format_time(micros)
