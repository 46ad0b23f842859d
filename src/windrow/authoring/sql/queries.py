"""Translate queries to streams of a graph: a SELECT is a chain of joins, a deduplication, a window and a selection.

Each step of the chain is a stream. The last step has the name of the view, the common table expression or the output
table. Earlier steps have that name with a suffix: `NAME_join`, `NAME_where`, `NAME_window`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import yaml
from sqlglot import exp

from windrow import model as m
from windrow.authoring.sql.groups import Groups
from windrow.authoring.sql.joins import Joins
from windrow.authoring.sql.names import (
    ROWTIME,
    UNNAMED,
    WINDOW_TIME,
    Chain,
    Names,
    Options,
    Stream,
    conjuncts,
    whole,
)
from windrow.authoring.sql.nodes import Nodes
from windrow.authoring.sql.syntax import Script, WindowTable
from windrow.errors import PipelineError


class Queries:
    """Translates queries to nodes in `streams`, and keeps track of the tables and views defined so far."""

    def __init__(self, script: Script, nodes: Nodes, streams: yaml.MappingNode) -> None:
        self.script, self.nodes, self.streams = script, nodes, streams
        self.names = Names(script, nodes)
        self.joins, self.groups = Joins(script, nodes, self.names), Groups(script, nodes, self.names)
        self._known: dict[str, Stream] = {}
        self._lines: dict[str, int] = {}
        """The lines of queries by the names of their streams."""

    def add(self, stream: Stream, named: exp.Expr, name: str | None = None) -> None:
        """Define a table or view for later queries; refuse a name that is already defined."""
        name = name or stream.name
        if name in self._known:
            self.script.refuse(named, f"{name} is created twice")
        self._known[name] = stream

    def query(self, node: exp.Expr, name: str, options: Options | None = None) -> Stream:
        """Translate a query and return its stream; if the query needs a new stream, it is called `name`."""
        given = dict(options or {})
        outside = self._known
        try:
            self._common_tables(node)
            match node:
                case exp.Select():
                    stream = self._select(node, name, given)
                case exp.Union():
                    stream = self._union(node, name)
                case exp.Subquery():
                    (inner,) = self.script.parts(node, "a query in brackets", "this")
                    return self.query(inner, name, options)
                case _:
                    self.script.refuse(node, "a query is a SELECT, or several with UNION ALL")
        finally:
            self._known = outside
        for option, (_, at) in given.items():
            msg = f"the option {option!r} does not apply: this query has no such step, {_owner(option)}"
            raise PipelineError(msg, self.script.place(at))
        return stream

    def _common_tables(self, node: exp.Expr) -> None:
        with_ = node.args.get("with_")
        if with_ is None:
            return
        self._known = dict(self._known)
        (tables,) = self.script.parts(with_, "WITH", "expressions")
        for table in tables:
            inner, alias = self.script.parts(table, "a common table expression", "this", "alias")
            name = self._alias(alias)
            self.add(self.query(inner, name), alias, name)

    def _alias(self, alias: exp.Expr) -> str:
        (name,) = self.script.parts(alias, "an alias", "this")
        return str(name.name)

    def _union(self, node: exp.Union, name: str) -> Stream:
        self.script.parts(node, "UNION ALL", "this", "expression", "with_", "distinct")
        branches = list(_branches(node))
        for branch in branches:
            if isinstance(branch, exp.Union):
                self.script.refuse(
                    branch.expression, "UNION removes duplicates, which is not possible for streams; write UNION ALL"
                )
        found = [self.query(branch, f"{name}_{number}") for number, branch in enumerate(branches, 1)]
        for query, stream in zip(branches[1:], found[1:], strict=True):
            if stream.fields != found[0].fields:
                msg = (
                    f"this branch has the columns {', '.join(stream.fields)}, but the first branch has "
                    f"{', '.join(found[0].fields)}: give all branches the same names in the same order"
                )
                self.script.refuse(query, msg)
        at = self.script.start(node)
        made = self.nodes.mapping(at)
        self.nodes.put(made, ["from"], self.nodes.texts([stream.name for stream in found], at), at)
        self._take_name(node, name)
        self.nodes.put(self.streams, [name], made, at)
        times = {stream.time for stream in found}
        return Stream(name, found[0].fields, times.pop() if len(times) == 1 else None)

    def _select(self, node: exp.Select, name: str, options: Options) -> Stream:  # noqa: C901 - a case for each clause
        items, from_, joins, where, group, having, qualify, _ = self.script.parts(
            node, "SELECT", "expressions", "from_", "joins", "where", "group", "having", "qualify", "with_"
        )
        if from_ is None or not items:
            self.script.refuse(node, "SELECT needs columns, and FROM with a table or view")
        (source,) = self.script.parts(from_, "FROM", "this")
        conditions = list(conjuncts(where.this)) if where else []
        chain, conditions = self._from(source, name, options, conditions)
        for join in joins or ():
            right, alias = self._right(chain, join)
            self._step(chain, *self.joins.step(chain, join, right, alias))
        if over := next((item for item in items if item.find(exp.Window)), None):
            self.script.refuse(over, _NO_OVER)
        if group is not None or chain.window is not None or any(item.find(exp.AggFunc) for item in items):
            if qualify:
                self.script.refuse(qualify, "QUALIFY comes after GROUP BY in SQL; deduplicate first, in a view")
            self._refuse_inner_bounds(chain, [*conditions, *items])
            if conditions:
                self._step(chain, "where", {"where": self._condition(chain, where, conditions)})
            parts, fields = self.groups.parts(chain, node, items, group)
            self._step(chain, "window", parts, self.script.start(group or node))
            if having:
                self._having(chain, having)
            return self._finish(chain, node, fields, WINDOW_TIME)
        if having:
            self.script.refuse(having, "HAVING needs groups: give GROUP BY, or write WHERE")
        if qualify:
            if conditions:
                self._step(chain, "where", {"where": self._condition(chain, where, conditions)})
                conditions = []
            by, window = self._first_row(qualify.this)
            self._deduplicate(chain, [self.names.resolve(column, chain.scope) for column in by], window)
        return self._finish(chain, node, *self._project(chain, items, where, conditions))

    def _refuse_inner_bounds(self, chain: Chain, nodes: list[exp.Expr]) -> None:
        """Refuse window bounds of the input in expressions; they could be taken for the bounds of this window."""
        if chain.window is None:
            return
        bounds = set(m.WINDOW_BOUNDS) & set(chain.base.fields)
        for node in nodes:
            if isinstance(node, exp.Column) or (isinstance(node, exp.Alias) and isinstance(node.this, exp.Column)):
                continue  # the bound of the window itself
            for column in node.find_all(exp.Column):
                if column.name in bounds:
                    msg = (
                        f"{column.name} is ambiguous: {chain.base.name} and this window both have it; rename it in a "
                        f"view first, {column.name} AS inner_{column.name}"
                    )
                    self.script.refuse(column, msg)

    def _having(self, chain: Chain, having: exp.Having) -> None:
        if having.find(exp.AggFunc):
            self.script.refuse(having, "HAVING takes the names of results: SELECT count(*) AS n ... HAVING n > 1")
        self._step(chain, "having", {"where": self.names.rewrite(having.this, UNNAMED)})

    def _finish(self, chain: Chain, node: exp.Expr, fields: tuple[str, ...], time: str | None) -> Stream:
        """Add the steps to the streams. Each step reads the previous one, and the last has the name of the query."""
        if not chain.steps:
            return chain.base
        taken = chain.base.name
        for index, (suffix, made) in enumerate(chain.steps):
            at = self.script.start(node)
            made.value.insert(0, (self.nodes.text("from", at), self.nodes.text(taken, at)))
            taken = chain.name if index == len(chain.steps) - 1 else f"{chain.name}_{suffix}"
            self._take_name(node, taken)
            self.nodes.put(self.streams, [taken], made, made.start_mark.index)
        return Stream(chain.name, fields, time)

    def _take_name(self, node: exp.Expr, name: str) -> None:
        """Reserve the name of a query or of one of its steps; refuse the query if the name is taken."""
        at = self.script.start(node)
        line = self.script.place(at).line
        if name in self._lines:
            msg = (
                f"the query on line {self._lines[name]} also has the name {name}: each view, common table expression, "
                "query of FROM and step of these (NAME_where) is a stream with a unique name"
            )
            self.script.refuse(node, msg)
        self._lines[name] = line

    def _step(self, chain: Chain, suffix: str, parts: dict[str, yaml.Node], at: int | None = None) -> yaml.MappingNode:
        first = next(iter(parts.values())).start_mark.index if at is None else at
        made = self.nodes.mapping(first)
        for path, node in parts.items():
            self.nodes.put(made, path.split("."), node, node.start_mark.index)
        number = sum(step.split("_")[0] == suffix for step, _ in chain.steps)
        chain.steps.append((f"{suffix}_{number + 1}" if number else suffix, made))
        for option in [option for option in chain.options if option.partition(".")[0] in _OWNERS[suffix]]:
            node, where = chain.options.pop(option)
            self.nodes.put(made, option.split("."), node, where)
        return made

    def _from(
        self, source: exp.Expr, name: str, options: Options, conditions: list[exp.Expr]
    ) -> tuple[Chain, list[exp.Expr]]:
        if isinstance(source, exp.Subquery):
            row = _numbered(source.this)
            if row is not None:
                return self._numbered_rows(source, row, name, options, conditions)
        window, stream, alias = self._relation(source, f"{name}_from")
        chain = Chain(name, options, stream, [whole(stream, alias)], window=window)
        return chain, conditions

    def _relation(self, source: exp.Expr, name: str) -> tuple[WindowTable | None, Stream, str]:
        """Return the window (or None), the stream and the alias of a relation in FROM or JOIN."""
        match source:
            case exp.Subquery():
                inner, alias = self.script.parts(source, "a query in FROM", "this", "alias")
                called = self._alias(alias) if alias else ""
                return None, self.query(inner, called or name), called
            case exp.Table(this=WindowTable() as window):
                _, alias = self.script.parts(source, "a window of FROM", "this", "alias")
                stream = self._named(window.this)
                time = self.names.column_name(window.args["descriptor"])
                if time not in {stream.time, None if ROWTIME in stream.fields else ROWTIME}:
                    if stream.time is None and ROWTIME in stream.fields:
                        msg = (
                            f"the event time of {stream.name} is not one of its columns, and its column rowtime is "
                            f"a different one: select the event time in {stream.name}, or rename that column"
                        )
                        self.script.refuse(window.args["descriptor"], msg)
                    meant = stream.time or ROWTIME
                    msg = f"DESCRIPTOR({time}): the event time of {stream.name} is {meant}; write DESCRIPTOR({meant})"
                    self.script.refuse(window.args["descriptor"], msg)
                return window, stream, self._alias(alias) if alias else window.this.name
            case exp.Table():
                alias = source.args.get("alias")
                if source.args.get("version") and not isinstance(source.parent, exp.Join):
                    self.script.refuse(source, "FOR SYSTEM_TIME AS OF applies to the table of a JOIN")
                return None, self._named(source), self._alias(alias) if alias else source.name
            case _:
                msg = "FROM takes a table, a view, a query in brackets, TUMBLE, HOP, CUMULATE or SESSION"
                return self.script.refuse(source, msg)

    def _named(self, table: exp.Expr) -> Stream:
        if isinstance(table, exp.Table) and isinstance(table.this, exp.Func):
            msg = "FROM takes TUMBLE, HOP, CUMULATE and SESSION, and no other table function"
            self.script.refuse(table, msg)
        name, _, _ = self.script.parts(table, "a table in FROM", "this", "alias", "version")
        if name.name not in self._known:
            known = ", ".join(self._known) or "none"
            self.script.refuse(
                table, f"there is no table or view {name.name!r} before this; the tables and views are {known}"
            )
        return self._known[name.name]

    def _right(self, chain: Chain, join: exp.Join) -> tuple[Stream, str]:
        """Return the stream and the alias of the right side of a join."""
        kind = (join.args.get("kind") or "").upper()
        if kind not in {"", "INNER", "OUTER"} or not (join.args.get("on") or join.args.get("using")):
            msg = f"a join is [INNER], LEFT, RIGHT or FULL JOIN ... ON, not {kind or 'a list of tables'}"
            self.script.refuse(join, msg)
        if chain.window is not None:
            self.script.refuse(join, "join first, in a view, and apply the window to the view")
        window, right, alias = self._relation(join.this, f"{chain.name}_right")
        if window is not None:
            msg = "to join a window, give it a view: CREATE VIEW ... AS SELECT ... GROUP BY"
            self.script.refuse(join.this, msg)
        return right, alias

    def _numbered_rows(
        self, source: exp.Subquery, row: exp.Alias, name: str, options: Options, conditions: list[exp.Expr]
    ) -> tuple[Chain, list[exp.Expr]]:
        """Translate a query in FROM that computes ROW_NUMBER, from which WHERE selects the rows with number 1."""
        first = next((condition for condition in conditions if _is_one(condition, row.alias)), None)
        if first is None:
            self.script.refuse(
                row, f"ROW_NUMBER selects the first of several copies: write WHERE {row.alias} = 1 around it"
            )
        self.script.parts(source, "a query in FROM", "this", "alias")
        by, window = self._first_row(exp.EQ(this=row.this.copy(), expression=exp.Literal.number(1)))
        inner = source.this.copy()
        inner.set("expressions", [expression for expression in inner.expressions if expression.alias != row.alias])
        names = [self._selected_name(column, inner.expressions) for column in by]
        alias = source.args.get("alias")
        stream = self.query(inner, f"{name}_from")
        relation = whole(stream, self._alias(alias) if alias else "")
        relation = replace(relation, barred={row.alias: f"{row.alias} is 1 in each row: remove it"})
        chain = Chain(name, options, stream, [relation])
        self._deduplicate(chain, names, window)
        return chain, [condition for condition in conditions if condition is not first]

    def _first_row(self, condition: exp.Expr) -> tuple[list[exp.Expr], exp.Expr]:
        """Return the PARTITION BY columns and the window function of ``ROW_NUMBER() OVER (...) = 1``."""
        window = condition.this if isinstance(condition, exp.EQ) else condition
        is_number = isinstance(window, exp.Window) and isinstance(window.this, exp.RowNumber)
        if not is_number or condition.expression.name != "1":
            msg = (
                "the only condition on a window function is ROW_NUMBER() OVER (PARTITION BY id ORDER BY PROCTIME()) = 1"
            )
            self.script.refuse(condition, msg)
        _, by, order, _ = self.script.parts(window, "ROW_NUMBER", "this", "partition_by", "order", "over")
        self.script.parts(window.this, "ROW_NUMBER")
        ordered = order.expressions if order else []
        for item in ordered:
            self.script.parts(item, "ORDER BY", "this", "desc", "nulls_first")
        if (
            len(ordered) != 1
            or ordered[0].args.get("desc")
            or not (isinstance(ordered[0].this, exp.Anonymous) and ordered[0].this.name.upper() == "PROCTIME")
            or ordered[0].this.expressions
        ):
            msg = (
                "write ROW_NUMBER() OVER (PARTITION BY ... ORDER BY PROCTIME()) = 1: the first copy in the order of "
                "watermarks is kept; the first or last in a different order is known only when no more copies "
                "can arrive. For the last row of a key give the table PRIMARY KEY (...) NOT ENFORCED"
            )
            self.script.refuse(order or window, msg)
        if not by:
            self.script.refuse(window, "ROW_NUMBER needs PARTITION BY: the columns that identify copies")
        for column in by:
            if not isinstance(column, exp.Column):
                self.script.refuse(column, "PARTITION BY takes only columns here; compute others in a view first")
        return by, window

    def _selected_name(self, column: exp.Expr, items: list[exp.Expr]) -> str:
        """Return the name that SELECT gives to a column used in PARTITION BY; refuse a column that is not selected."""
        for item in items:
            expression = item.this if isinstance(item, exp.Alias) else item
            if (
                isinstance(expression, exp.Column)
                and expression.name == column.name
                and ("" in (tables := {expression.text("table"), column.text("table")}) or len(tables) == 1)
            ):
                return str(item.alias_or_name)
        if not isinstance(items[0], exp.Star):
            msg = (
                f"PARTITION BY has {column.sql('duckdb')}, which this SELECT lacks: select it here too; the query "
                "around it may drop it"
            )
            self.script.refuse(column, msg)
        return str(column.name)

    def _deduplicate(self, chain: Chain, names: list[str], window: exp.Expr) -> None:
        at = self.script.start(window)
        self._step(chain, "deduplicate", {"deduplicate.by": self.nodes.texts(names, at)})

    def _condition(self, chain: Chain, where: exp.Where, conditions: list[exp.Expr]) -> yaml.ScalarNode:
        if len(conditions) == len(list(conjuncts(where.this))):
            return self.names.rewrite(where.this, chain.scope)
        texts = [self.names.rewrite(condition, chain.scope) for condition in conditions]
        joined = " AND ".join(text.value if len(texts) == 1 else f"({text.value})" for text in texts)
        return self.nodes.text(joined, self.script.start(conditions[0]))

    def _project(
        self, chain: Chain, items: list[exp.Expr], where: exp.Where | None, conditions: list[exp.Expr]
    ) -> tuple[tuple[str, ...], str | None]:
        """Add a step for SELECT and WHERE unless it would change nothing; return its fields and its event time."""
        base, at = chain.base, self.script.start(items[0])
        parts: dict[str, yaml.Node] = {}
        if conditions and where:
            parts["where"] = self._condition(chain, where, conditions)
        is_all = isinstance(items[0], exp.Star)
        if is_all:
            self.script.parts(items[0], "*")
            if chain.is_joined:
                self.script.refuse(items[0], "list the columns: both sides of a join have the key")
            if chain.scope[0].barred:
                self.script.refuse(items[0], "list the columns: * includes the row number")
        kept: list[tuple[str, str | None]] = [(field, field) for field in base.fields] if is_all else []
        derived = self.nodes.mapping(at)
        for item in items[1:] if is_all else items:
            name, node, plain = self._translate_item(chain, item)
            self.names.refuse_taken(item, name, [column for column, _ in kept], base.fields if plain != name else ())
            kept.append((name, plain))
            if plain != name:
                derived.value.append((self.nodes.text(name, node.start_mark.index), node))
        if derived.value:
            parts["derive"] = derived
        fields = tuple(name for name, _ in kept)
        if not is_all and fields != base.fields:
            parts["select"] = self.nodes.texts(fields, at)
        if parts:
            self._step(chain, "select", parts)
        times = [name for name, plain in kept if plain and plain == base.time]
        same = base.time == WINDOW_TIME or base.time in times
        return fields, base.time if same else next(iter(times), None)

    def _translate_item(self, chain: Chain, item: exp.Expr) -> tuple[str, yaml.ScalarNode, str | None]:
        """Return the name and the expression of a SELECT item, and the field that it selects unchanged, or None."""
        expression = item.this if isinstance(item, exp.Alias) else item
        if expression.is_star:
            self.script.refuse(item, "list the columns: * can only be the first item, without a relation")
        name = item.alias_or_name
        if not name:
            self.script.refuse(item, "give this a name: AS ...")
        whole_key = self._key_of_both(expression, chain)
        if whole_key:
            return name, self.nodes.text(whole_key, self.script.start(item)), whole_key
        plain = self.names.resolve(expression, chain.scope) if isinstance(expression, exp.Column) else None
        return name, self.names.rewrite(expression, chain.scope), plain

    def _key_of_both(self, expression: exp.Expr, chain: Chain) -> str | None:
        """Return the key field for ``COALESCE(a.id, b.id)`` over both sides of a full join, or None."""
        if not isinstance(expression, exp.Coalesce):
            return None
        columns = [expression.this, *expression.expressions]
        if len(columns) != 2 or not all(isinstance(column, exp.Column) and column.table for column in columns):  # noqa: PLR2004
            return None
        found = set()
        for column in columns:
            relation = next((item for item in chain.scope if item.alias == column.table), None)
            if relation is None or column.name not in relation.barred:
                return None
            found.add(relation.names[column.name])
        return found.pop() if len(found) == 1 else None


_NO_OVER = (
    "OVER is supported only to select the first of several copies: WHERE n = 1 around ROW_NUMBER() OVER (...) AS n in "
    "a query of FROM, or QUALIFY"
)
_OWNERS = {
    "window": ("emit", "salt"),
    "lookup": ("lookup",),
    "deduplicate": ("deduplicate",),
    "join": (),
    "where": (),
    "having": (),
    "select": (),
}


def _owner(option: str) -> str:
    head = option.partition(".")[0]
    for step, heads in _OWNERS.items():
        if head in heads:
            return f"because {head} applies to a {step}"
    return "and options of queries are emit, salt, lookup and deduplicate"


def _branches(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the branches of nested UNION ALLs; a UNION without ALL counts as one branch."""
    if isinstance(node, exp.Union) and not node.args.get("distinct"):
        yield from _branches(node.this)
        yield from _branches(node.expression)
    else:
        yield node


def _numbered(query: exp.Expr) -> exp.Alias | None:
    """Return the first SELECT item with a window function and an alias, or None."""
    items = query.expressions if isinstance(query, exp.Select) else ()
    return next((item for item in items if isinstance(item, exp.Alias) and isinstance(item.this, exp.Window)), None)


def _is_one(condition: exp.Expr, name: str) -> bool:
    return (
        isinstance(condition, exp.EQ)
        and isinstance(condition.this, exp.Column)
        and condition.this.name == name
        and condition.expression.name == "1"
    )
