"""Resolve names in a query: the relations of FROM, and the columns in expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import yaml
from sqlglot import exp

from windrow.authoring.sql.nodes import Nodes
from windrow.authoring.sql.syntax import SPAN, Script, WindowTable

Options = dict[str, tuple[yaml.Node, int]]
"""Values of WITH by name, with the positions of the names."""

ROWTIME, WINDOW_TIME = "rowtime", "window_time"
"""Names of the event time: of any rows without a field of that name, and of the rows of a window."""
_UNITS = {"MICROSECOND": "us", "MILLISECOND": "ms", "SECOND": "s", "MINUTE": "m", "HOUR": "h", "DAY": "d"}
_PLAIN = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Stream:
    """A stream with its fields; `time` is the field with the event time, or None."""

    name: str
    fields: tuple[str, ...]
    time: str | None
    is_table: bool = False


@dataclass(frozen=True)
class Relation:
    """A relation of FROM.

    `names` maps its columns to fields of the stream. `barred` maps columns that the query must not use to the reason.
    """

    alias: str
    names: dict[str, str]
    time: str | None
    barred: dict[str, str] = field(default_factory=dict)


@dataclass
class Chain:
    """The steps of a SELECT so far; `base` is the input of the next step, and `scope` has the relations in scope."""

    name: str
    options: Options
    base: Stream
    scope: list[Relation]
    steps: list[tuple[str, yaml.MappingNode]] = field(default_factory=list)
    window: WindowTable | None = None

    @property
    def is_joined(self) -> bool:
        """Whether FROM has more than one relation."""
        return len(self.scope) > 1


UNNAMED = [Relation("", {}, None)]
"""The scope of an expression over results, whose names are unchanged."""


class Names:
    """Resolves the columns of one script."""

    def __init__(self, script: Script, nodes: Nodes) -> None:
        self.script, self.nodes = script, nodes

    def rewrite(self, node: exp.Expr, scope: list[Relation]) -> yaml.ScalarNode:
        """Return a scalar node with the text of an expression, its columns replaced by the fields of the stream."""
        start, end = node.meta[SPAN]
        return self.nodes.text(self.text(start, end, node, scope), start)

    def text(self, start: int, end: int, node: exp.Expr, scope: list[Relation]) -> str:
        """Return the text between two positions, with the columns of a node replaced by the fields of the stream."""
        edits = []
        for part in node.walk():
            if isinstance(part, exp.Subquery | exp.Select | exp.Window):
                self.script.refuse(part, "an expression uses a single row: it cannot have a query or OVER")
            if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
                first, last = part.parts[0].meta["start"], part.this.meta["end"] + 1
                name = self.resolve(part, scope)
                as_written = self.script.text[first:last]
                if part.table or name != part.name or as_written.startswith("`"):
                    quoted = name.replace('"', '""')
                    is_plain = _PLAIN.fullmatch(name) and not part.this.quoted
                    edits.append((first, last, name if is_plain else f'"{quoted}"'))
        text, at = "", start
        for first, last, name in sorted(edits):
            if start <= first and last <= end:
                text, at = text + self.script.text[at:first] + name, last
        return text + self.script.text[at:end]

    def resolve(self, column: exp.Expr, scope: list[Relation]) -> str:
        """Return the field of the stream for a column; refuse an unknown or ambiguous column."""
        if not isinstance(column, exp.Column):
            self.script.refuse(column, "give the name of a column")
        if column.args.get("db"):
            self.script.refuse(column, f"{column.sql('duckdb')} is not a column; columns have no parts")
        name, table = str(column.name), str(column.table)
        found = [
            relation
            for relation in scope
            if (relation.alias == table if table else name in relation.names or name in relation.barred)
        ]
        if table and not found:
            aliases = ", ".join(relation.alias for relation in scope if relation.alias) or "none"
            self.script.refuse(column, f"{table!r} is not in FROM, which has {aliases}")
        if table and name not in found[0].names and name not in found[0].barred:
            self.script.refuse(column, f"{table} has no column {name}; it has {', '.join(found[0].names)}")
        if len(found) == 1 and name in found[0].barred:
            self.script.refuse(column, found[0].barred[name])
        if len({relation.names[name] for relation in found if name in relation.names}) > 1:
            meant = " or ".join(f"{relation.alias}.{name}" for relation in found)
            self.script.refuse(column, f"{name} is a column of several relations: write {meant}")
        # the checks of the pipeline report unknown names, and suggest similar ones
        return found[0].names[name] if found else name

    def refuse_taken(self, item: exp.Expr, name: str, selected: Sequence[str], fields: Sequence[str]) -> None:
        """Refuse an item if its name is the name of another item, or of another column of FROM."""
        at = item.args.get("alias") or item
        if name.lower() in map(str.lower, selected):
            msg = f"two columns of this SELECT are called {name}: give one of them another name, AS ..."
            self.script.refuse(at, msg)
        if name.lower() in map(str.lower, fields):
            msg = (
                f"{name} is a column of FROM already; give the computed column another name: AS new_{name}. "
                f"A SELECT from this one can rename it to {name}"
            )
            self.script.refuse(at, msg)

    def is_time(self, scope: list[Relation], column: exp.Column, time: str | None) -> bool:
        """Return True if a column is the event time; `time` is the field that holds it, or None."""
        if column.name == ROWTIME and all(ROWTIME not in relation.names for relation in scope):
            return column.table in {"", *(relation.alias for relation in scope)}
        return time is not None and self.resolve(column, scope) == time

    def column_name(self, node: exp.Expr) -> str:
        """Return the name of a column that is written without a relation; refuse anything else."""
        if not isinstance(node, exp.Column) or node.table:
            self.script.refuse(node, "give the name of a column")
        return str(node.name)


def whole(stream: Stream, alias: str) -> Relation:
    """Return a relation that has a column for each field of a stream."""
    return Relation(alias, {field: field for field in stream.fields}, stream.time)


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that AND combines."""
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    else:
        yield node


def duration(script: Script, node: exp.Expr) -> str:
    """Translate an INTERVAL to a duration such as ``10m``; refuse other expressions."""
    unit = None
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal) and isinstance(node.unit, exp.Var):
        unit = _UNITS.get(node.unit.name.upper().removesuffix("S"))
    if unit is None or not node.this.name.isdecimal():
        msg = (
            "write INTERVAL '10' MINUTES: a whole number, and MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS (of 24 "
            "hours); for weeks and months of the calendar, use window: {tumbling: 1 month} in YAML"
        )
        script.refuse(node, msg)
    return f"{node.this.name}{unit}"
