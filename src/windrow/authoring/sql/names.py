"""Names in a query: what stands in FROM, and expressions with the names that columns have in the stream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import yaml
from sqlglot import exp

from windrow.authoring.sql.nodes import Nodes
from windrow.authoring.sql.syntax import SPAN, Script, WindowTable

Options = dict[str, tuple[yaml.Node, int]]
"""Values of WITH by their names, and the positions of these."""

ROWTIME, WINDOW_TIME = "rowtime", "window_time"
"""The event time of any rows that have no field of that name, and that of the rows of a window."""
_UNITS = {"MICROSECOND": "us", "MILLISECOND": "ms", "SECOND": "s", "MINUTE": "m", "HOUR": "h", "DAY": "d"}
_PLAIN = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Stream:
    """A stream by its name, with its fields and the field that is its event time, if one is."""

    name: str
    fields: tuple[str, ...]
    time: str | None
    is_table: bool = False


@dataclass(frozen=True)
class Relation:
    """A table of FROM with its alias: its columns by name, or why a column cannot be referred to."""

    alias: str
    names: dict[str, str]
    time: str | None
    barred: dict[str, str] = field(default_factory=dict)


@dataclass
class Chain:
    """The steps of a SELECT so far: what the next one takes, and what its columns are called."""

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
"""The scope of an expression over results, which have their own names."""


class Names:
    """Resolves the columns of one script."""

    def __init__(self, script: Script, nodes: Nodes) -> None:
        self.script, self.nodes = script, nodes

    def rewritten(self, node: exp.Expr, scope: list[Relation]) -> yaml.ScalarNode:
        """Return an expression as it is written, with the names that its columns have in the stream."""
        start, end = node.meta[SPAN]
        return self.nodes.text(self.text(start, end, node, scope), start)

    def text(self, start: int, end: int, node: exp.Expr, scope: list[Relation]) -> str:
        """Return the text between two positions, with the names of the columns in a node."""
        edits = []
        for part in node.walk():
            if isinstance(part, exp.Subquery | exp.Select | exp.Window):
                self.script.refuse(part, "an expression is about one row: it has no query and no OVER in it")
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
        """Return what a column is called in the stream; refuse one that is of no relation, or of two."""
        if not isinstance(column, exp.Column):
            self.script.refuse(column, "give the name of a column")
        if column.args.get("db"):
            self.script.refuse(column, f"{column.sql('duckdb')} is not a column; columns have no parts")
        name, table = str(column.name), str(column.table)
        found = [one for one in scope if (one.alias == table if table else name in one.names or name in one.barred)]
        if table and not found:
            aliases = ", ".join(one.alias for one in scope if one.alias) or "none"
            self.script.refuse(column, f"{table!r} is not in FROM, which has {aliases}")
        if table and name not in found[0].names and name not in found[0].barred:
            self.script.refuse(column, f"{table} has no column {name}; it has {', '.join(found[0].names)}")
        if len(found) == 1 and name in found[0].barred:
            self.script.refuse(column, found[0].barred[name])
        if len({one.names[name] for one in found if name in one.names}) > 1:
            meant = " or ".join(f"{one.alias}.{name}" for one in found)
            self.script.refuse(column, f"{name} is a column of several relations: write {meant}")
        # a name that nothing has is found by the check of the pipeline, which knows what is close to it
        return found[0].names[name] if found else name

    def refuse_taken(self, item: exp.Expr, name: str, selected: Sequence[str], fields: Sequence[str]) -> None:
        """Refuse an item whose name another item has, or a column of FROM if it is not that column itself."""
        at = item.args.get("alias") or item
        if name.lower() in map(str.lower, selected):
            msg = f"two columns of this SELECT are called {name}: give one of them another name, AS ..."
            self.script.refuse(at, msg)
        if name.lower() in map(str.lower, fields):
            msg = (
                f"{name} is a column of FROM already, and what is computed has a name of its own: AS new_{name}; "
                f"a SELECT from this one can call it {name} again"
            )
            self.script.refuse(at, msg)

    def is_time(self, scope: list[Relation], column: exp.Column, time: str | None) -> bool:
        """Whether a column is the event time, of which `time` is the field."""
        if column.name == ROWTIME and all(ROWTIME not in one.names for one in scope):
            return column.table in {"", *(one.alias for one in scope)}
        return time is not None and self.resolve(column, scope) == time

    def column_name(self, node: exp.Expr) -> str:
        """Return the name that a node is."""
        if not isinstance(node, exp.Column) or node.table:
            self.script.refuse(node, "give the name of a column")
        return str(node.name)


def whole(stream: Stream, alias: str) -> Relation:
    """Return a stream as a relation, whose columns have the names of its fields."""
    return Relation(alias, {field: field for field in stream.fields}, stream.time)


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that AND joins."""
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    else:
        yield node


def duration(script: Script, node: exp.Expr) -> str:
    """Return an INTERVAL as a duration of the pipeline file."""
    unit = None
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal) and isinstance(node.unit, exp.Var):
        unit = _UNITS.get(node.unit.name.upper().removesuffix("S"))
    if unit is None or not node.this.name.isdecimal():
        msg = (
            "write INTERVAL '10' MINUTES: a whole number, and MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS (of 24 "
            "hours); weeks and months of the calendar are said in YAML, by window: {tumbling: 1 month}"
        )
        script.refuse(node, msg)
    return f"{node.this.name}{unit}"
