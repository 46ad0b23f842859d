"""Translate GROUP BY: the key, the window and the aggregates of a SELECT."""

from __future__ import annotations

import re

import yaml
from sqlglot import exp

from windrow import model as m
from windrow.authoring.aggregate_text import NAMES, translate_count
from windrow.authoring.sql.names import UNNAMED, Chain, Names, duration
from windrow.authoring.sql.nodes import Nodes
from windrow.authoring.sql.syntax import CALL_END, SPAN, Script

_CALL = re.compile(r"\s*(\w+)\s*\(")
_KINDS = {
    "TUMBLE": ("tumbling", ("size", "offset")),
    "HOP": ("hopping", ("slide", "size", "offset")),
    "CUMULATE": ("cumulate", ("step", "size", "offset")),
    "SESSION": ("session", ("gap",)),
}
"""Windows in FROM: their key in YAML, and the settings that the sizes are, in order."""


class Groups:
    """Translates the GROUP BY clauses and aggregates of one script."""

    def __init__(self, script: Script, nodes: Nodes, names: Names) -> None:
        self.script, self.nodes, self.names = script, nodes, names

    def parts(
        self, chain: Chain, select: exp.Select, items: list[exp.Expr], group: exp.Group | None
    ) -> tuple[dict[str, yaml.Node], tuple[str, ...]]:
        """Return the settings of the window stream for GROUP BY, and the fields of its rows."""
        (grouped,) = self.script.parts(group, "GROUP BY", "expressions") if group else ([],)
        at = self.script.start(group or select)
        bounds = [column.name for column in grouped if _is_bound(column)]
        if chain.window is not None and sorted(bounds) != sorted(m.WINDOW_BOUNDS):
            self.script.refuse(group or select, "GROUP BY of a window needs window_start and window_end")
        if chain.window is None and bounds:
            msg = "window_start and window_end need TUMBLE, HOP, CUMULATE or SESSION in FROM"
            self.script.refuse(group or select, msg)
        key = yaml.SequenceNode("tag:yaml.org,2002:seq", [], self.nodes.mark(at), self.nodes.mark(at))
        names, used = list[str](), set()
        for grouping in (expression for expression in grouped if not _is_bound(expression)):
            item = self._find_item(grouping, items, chain)
            used.add(id(item))
            expression = item.this if isinstance(item, exp.Alias) else item
            text, name = self.names.rewrite(expression, chain.scope).value, item.alias_or_name
            here = self.script.start(grouping)
            is_plain = isinstance(expression, exp.Column) and self.names.resolve(expression, chain.scope) == name
            self.names.refuse_taken(item, name, names, () if is_plain else chain.base.fields)
            names.append(name)
            if is_plain:
                key.value.append(self.nodes.text(name, here))
            else:
                derived = self.nodes.mapping(here)
                self.nodes.put(derived, [name], self.nodes.text(text, here), here)
                key.value.append(derived)
        aggregates = self.nodes.mapping(at)
        for item in items:
            if id(item) not in used and not self._keeps_bound(item, chain):
                here, name = self.script.start(item), self._item_name(item)
                self.names.refuse_taken(item, name, [*names, *(key.value for key, _ in aggregates.value)], ())
                aggregates.value.append(
                    (self.nodes.text(name, here), self.nodes.text(self._aggregate(item, chain), here))
                )
        parts: dict[str, yaml.Node] = {"key": key} if names else {}
        parts["window"] = self._window_kind(chain, at, names)
        results = (key.value for key, _ in aggregates.value)
        return parts | {"aggregate": aggregates}, (*m.WINDOW_BOUNDS, *names, *results)

    def _find_item(self, key: exp.Expr, items: list[exp.Expr], chain: Chain) -> exp.Expr:
        """Return the SELECT item that a GROUP BY key refers to; refuse a key that SELECT does not have."""
        if isinstance(key, exp.Literal):
            self.script.refuse(key, "GROUP BY takes names and expressions, not the numbers of columns")
        column = self.names.resolve(key, chain.scope) if isinstance(key, exp.Column) else None
        is_input = column is not None and column in chain.base.fields
        for item in items:
            expression = item.this if isinstance(item, exp.Alias) else item
            same = expression == key
            if is_input and isinstance(expression, exp.Column):
                same = self.names.resolve(expression, chain.scope) == column
            # a name that is not a column of FROM is the name of an item
            if same or (not is_input and column == item.alias and not item.find(exp.AggFunc)):
                if not item.alias_or_name:
                    self.script.refuse(item, "give this key a name: AS ...")
                return item
        msg = f"{key.sql('duckdb')} is in GROUP BY but not in SELECT: the whole key identifies the rows of a window"
        return self.script.refuse(key, msg)

    def _keeps_bound(self, item: exp.Expr, chain: Chain) -> bool:
        """Return True if an item is a bound of the window; refuse it if it is renamed."""
        expression = item.this if isinstance(item, exp.Alias) else item
        if not _is_bound(expression) or chain.window is None:
            return False
        if item.alias_or_name != expression.name:
            self.script.refuse(item, f"{expression.name} cannot be renamed in the rows of a window")
        return True

    def _item_name(self, item: exp.Expr) -> str:
        if isinstance(item, exp.Star) or item.is_star:
            self.script.refuse(item, "SELECT with GROUP BY takes keys and aggregates, not *")
        if not item.alias_or_name:
            self.script.refuse(item, "give this a name: AS ...")
        if isinstance(item, exp.Column):
            self.script.refuse(item, f"{item.name} is neither in GROUP BY nor an aggregate")
        return str(item.alias_or_name)

    def _aggregate(self, item: exp.Expr, chain: Chain) -> str:
        """Translate a SELECT item to the text of an aggregate, or of a formula over other results."""
        expression = item.this
        condition = None
        if isinstance(expression, exp.Filter):
            condition = self.names.rewrite(expression.expression.this, chain.scope).value
        start, end = item.meta.get(SPAN) or expression.meta[SPAN]
        call = expression.this if isinstance(expression, exp.Filter) else expression
        if not call.find(exp.AggFunc) and not self._calls_aggregate(call, start):
            return str(self.names.rewrite(expression, UNNAMED).value)
        begin = _CALL.match(self.script.text, start)
        end = call.meta.get(CALL_END, end)
        if begin is None or not self._calls_aggregate(call, start):
            known = ", ".join(NAMES)
            msg = (
                "this is not a single aggregate; give each aggregate a name, and compute with the names. "
                f"Aggregates are {known}"
            )
            self.script.refuse(item, msg)
        inner = self.names.text(start, end, expression, chain.scope)
        name, arguments = begin[1].lower(), inner[inner.index("(") + 1 : inner.rindex(")")]
        text = f"{name}({arguments})"
        if name == "count" and isinstance(call, exp.Count):
            if call.expressions:
                self.script.refuse(item, "count takes one expression")
            counted = translate_count([arguments])
            if counted is None and call.this is not None and not isinstance(call.this, exp.Distinct):
                nonnull = f"({arguments}) IS NOT NULL"
                condition = nonnull if condition is None else f"{nonnull} AND ({condition})"
            text = counted or "count()"
        elif call.find(exp.Distinct):
            self.script.refuse(item, f"only count supports DISTINCT; {name} uses all values")
        return text if condition is None else f"{text} where {condition}"

    def _calls_aggregate(self, call: exp.Expr, start: int) -> bool:
        begin = _CALL.match(self.script.text, start) if isinstance(call, exp.Func) else None
        return begin is not None and begin[1].lower() in NAMES and call.meta.get(CALL_END) is not None

    def _window_kind(self, chain: Chain, start: int, key: list[str]) -> yaml.MappingNode:
        window = chain.window
        if window is None:
            whole = self.nodes.mapping(start)
            self.nodes.put(whole, ["global"], self.nodes.mapping(start), start)
            return whole
        kind, sizes = window.args["kind"], window.expressions
        at = window.meta[SPAN][0]
        called, names = _KINDS[kind]
        required = [name for name in names if name != "offset"]
        if not len(required) <= len(sizes) <= len(names):
            offset = " [, offset]" if "offset" in names else ""
            msg = f"{kind} takes TABLE ..., DESCRIPTOR(...), {', '.join(required)}{offset}"
            self.script.refuse(window, msg)
        partition = window.args.get("partition")
        columns = [self.names.resolve(column, chain.scope) for column in partition or ()]
        if kind == "SESSION" and sorted(columns) != sorted(key):
            msg = f"sessions have a key: write SESSION(TABLE {chain.base.name} PARTITION BY ({', '.join(key)}), ...)"
            self.script.refuse(window, msg if key else "SESSION has PARTITION BY, but GROUP BY does not have that key")
        if kind != "SESSION" and partition:
            self.script.refuse(window, f"{kind} takes no PARTITION BY: the key is in GROUP BY")
        made = self.nodes.mapping(at)
        for name, size in zip(names, sizes, strict=False):
            here = self.script.start(size)
            self.nodes.put(made, [called, name], self.nodes.text(duration(self.script, size), here), here)
        return made


def _is_bound(expression: exp.Expr) -> bool:
    return isinstance(expression, exp.Column) and expression.name in m.WINDOW_BOUNDS
