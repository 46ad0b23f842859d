"""Comparison of the result tables of two pipelines, or of a pipeline and its replay."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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
from windrow.connectors.diff import Compared, Number, RowDifference, Side, compare_answers
from windrow.connectors.open_sinks import open_database
from windrow.errors import InputError
from windrow.expressions import SinkSpec, sink_specs
from windrow.runtime.replay import SHADOW
from windrow.telemetry.numbers import format_time
from windrow.terminal.display import html_lines, html_table, null_text


@dataclass(frozen=True)
class TableDiff:
    """The differences between the tables of two sinks, `here` and `there`."""

    here: SinkSpec
    there: SinkSpec
    compared: Compared

    @property
    def names(self) -> tuple[str, str]:
        """The names of the two tables, with their databases if the names are equal."""
        if self.here.sink.table != self.there.sink.table:
            return self.here.sink.table, self.there.sink.table
        first, second = (f"{spec.sink.table} in {open_database(spec.sink).place}" for spec in (self.here, self.there))
        return first, second

    @property
    def counts(self) -> list[tuple[str, str, str]]:
        """The numbers of rows and the sums in both tables as text, each pair with a title."""
        found = self.compared.found
        here, there = found.here, found.there
        numbers: list[tuple[str, Number, Number]] = [
            ("rows", here.rows, there.rows),
            *(
                (f"sum of {column}", here.sums.get(column, 0), there.sums.get(column, 0))
                for column in self.compared.columns
                if column in here.sums or column in there.sums
            ),
            ("rows missing in the other", found.only_here, found.only_there),
            ("rows that differ", found.different, found.different),
        ]
        if here.repeated or there.repeated:
            numbers.append(("rows with a repeated key", here.repeated, there.repeated))
        return [(title, _number(first), _number(second)) for title, first, second in numbers]

    @property
    def bounds(self) -> str:
        """Words for the windows that were compared; empty if all windows were."""
        given = (("that end after", self.compared.bounds.after), ("that begin before", self.compared.bounds.before))
        parts = [f"{text} {format_time(at)}" for text, at in given if at is not None]
        return f"windows {' and '.join(parts)}" if parts else ""

    def differences(self) -> Iterator[str]:
        """Yield lines about columns that only one table has, repeated keys, the first differences, and the verdict."""
        found = self.compared.found
        for name, columns in zip(self.names, (self.compared.only_here, self.compared.only_there), strict=True):
            if columns:
                yield f"only {name} has the columns {', '.join(columns)}"
        for name, side in zip(self.names, (found.here, found.there), strict=True):
            if side.first_repeated:
                key = {column: side.first_repeated[0][column] for column in self.compared.key}
                rows = " and ".join(
                    _values({column: row[column] for column in self.compared.columns}) for row in side.first_repeated
                )
                yield f"{name} has more than one row of a key, first {_where(key)}{rows and f': {rows}'}"
        for difference in found.first:
            yield _line(difference, self.compared, self.names)
        more = found.only_here + found.only_there + found.different - len(found.first)
        if more and found.first:
            yield f"... and {more:,} more"
        if not found.here.rows and not found.there.rows:
            yield f"no rows were compared: both tables are empty{' in this range' if self.bounds else ''}"
        else:
            yield "the same" if self.compared.is_same else "not the same"

    def show(self, console: Console) -> None:
        """Print the differences."""
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
        """Return the differences as HTML."""
        bounds = [self.bounds] if self.bounds else []
        table = html_table(("", *self.names), self.counts, (False, True, True))
        return html_lines(*bounds) + table + html_lines(*self.differences())

    def plain(self) -> dict[str, Any]:
        """Return the differences as plain JSON."""
        compared, found = self.compared, self.compared.found
        return {
            "pipeline": self.here.pipeline,
            "same": compared.is_same,
            "from": _time(compared.bounds.after),
            "to": _time(compared.bounds.before),
            "here": _side(self.here, found.here, found.only_here, compared.only_here),
            "there": _side(self.there, found.there, found.only_there, compared.only_there),
            "different": found.different,
            "first": [asdict(difference) for difference in found.first],
        }


@dataclass(frozen=True, repr=False)
class Diff:
    """The differences between result tables, as `windrow diff` prints them."""

    name: str
    tables: tuple[TableDiff, ...]

    @property
    def same(self) -> bool:
        """Whether all rows and columns are the same."""
        return all(table.compared.is_same for table in self.tables)

    def plain(self) -> dict[str, Any]:
        """Return the differences as plain JSON."""
        if len(self.tables) == 1:
            return self.tables[0].plain()
        return {"pipeline": self.name, "same": self.same, "tables": [table.plain() for table in self.tables]}

    def show(self, console: Console) -> None:
        """Print the differences."""
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
    """Compare a pipeline's result tables with those of another one, or of its own replay, row by row.

    >>> wr.diff(pipeline, pipeline.replay(host="memory", fresh=True)).same
    True

    Args:
        here: the first pipeline.
        there: the other one, also in another database; by default, the tables ``TABLE_shadow`` of the first.
        against: the table to compare with, if not the default.
        begin: only windows that end after this time.
        end: only windows that begin before this time.
        panes: also compare pane and revision, columns that depend on the history of a row.
        limit: the maximum number of differences to keep; all are counted.

    Raises:
        InputError: a table does not exist, or the tables have different keys.
        SinkError: a database cannot be read.
    """
    bounds = WindowRange(*(None if time is None else micros_of(time) for time in (begin, end)))
    other = None if there is None else graph_of(there)
    return compare_tables(graph_of(here), other, against, bounds, panes=panes, limit=limit)


def compare_tables(
    graph: m.Graph,
    other: m.Graph | None,
    against: str | None,
    bounds: WindowRange,
    *,
    limit: int,
    panes: bool = False,
    options: str = "",
) -> Diff:
    """Compare tables as `diff` does; `options` is the prefix of option names in error messages."""
    if bounds.after is not None and bounds.before is not None and bounds.after > bounds.before:
        begin, end = (f"{options}{name}" for name in (("from", "to") if options else ("begin", "end")))
        msg = f"{begin} {format_time(bounds.after)} is after {end} {format_time(bounds.before)}: swap the two"
        raise InputError(msg)
    tables = [
        TableDiff(here, there, compare_answers(here, there, bounds, limit=limit, panes=panes))
        for here, there in _pairs(graph, other, against, options)
    ]
    return Diff(graph.name, tuple(tables))


def _pairs(graph: m.Graph, other: m.Graph | None, against: str | None, options: str) -> list[tuple[SinkSpec, SinkSpec]]:
    """Pair the tables of sinks that have the same name."""
    here = sink_specs(graph)
    there = here if other is None else sink_specs(other)
    if against is not None and len(here) > 1:
        msg = (
            f"{options}against is a single table, but there are {len(here)}: leave it out to use TABLE{SHADOW} for each"
        )
        raise InputError(msg)
    if here.keys() != there.keys():
        msg = f"the sinks have different names: {', '.join(here) or graph.name} here, {', '.join(there)} there"
        raise InputError(msg)
    found: list[tuple[SinkSpec, SinkSpec]] = []
    for name, spec in here.items():
        table = against or there[name].sink.table + (SHADOW if other is None else "")
        compared = there[name].into(table)
        if spec.sink == compared.sink:
            msg = f"{table!r} is the table itself: choose another table with {options}against"
            raise InputError(msg)
        if graph.is_short:
            require_valid(graph.into(compared.sink))
        found.append((spec, compared))
    return found


def _side(spec: SinkSpec, side: Side, only: int, only_columns: Sequence[str]) -> dict[str, Any]:
    return {
        "database": open_database(spec.sink).place,
        "table": spec.sink.table,
        "rows": side.rows,
        "only": only,
        "only_columns": list(only_columns),
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
            here, there = difference.here or {}, difference.there or {}
            changed = [name for name in compared.columns if here[name] != there[name]]
            pairs = (f"{name} {null_text(here[name])} and {null_text(there[name])}" for name in changed)
            return f"  {where}: {', '.join(pairs)}"


def _where(key: Mapping[str, Any]) -> str:
    parts = dict(key)
    window = [f"[{parts.pop('window_start')}, {parts.pop('window_end')})"] if "window_start" in parts else []
    return " ".join([*window, *(null_text(value) for value in parts.values())])


def _values(row: dict[str, Any] | None) -> str:
    return ", ".join(f"{name} {null_text(value)}" for name, value in (row or {}).items())


def _number(number: Number) -> str:
    return f"{number:,.6g}" if isinstance(number, float) else f"{number:,}"


def _time(micros: int | None) -> str | None:
    return None if micros is None else format_time(micros)
