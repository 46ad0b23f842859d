"""Translate joins: the key and time bounds in ON, and the column names of the result."""

from __future__ import annotations

from dataclasses import replace

import yaml
from sqlglot import exp

from windrow.authoring.sql.names import Chain, Names, Relation, Stream, conjuncts, duration, whole
from windrow.authoring.sql.nodes import Nodes
from windrow.authoring.sql.syntax import Script


class Joins:
    """Translates the joins of one script."""

    def __init__(self, script: Script, nodes: Nodes, names: Names) -> None:
        self.script, self.nodes, self.names = script, nodes, names

    def step(self, chain: Chain, join: exp.Join, right: Stream, alias: str) -> tuple[str, dict[str, yaml.Node]]:
        """Translate a join to a step, `join` or `lookup`, with its settings, and add its columns to the scope."""
        table, on, using, side, _ = self.script.parts(join, "JOIN", "this", "on", "using", "side", "kind")
        version = table.args.get("version")
        how = (side or "inner").lower()
        here = whole(right, alias)
        if alias in {relation.alias for relation in chain.scope}:
            self.script.refuse(table, f"two relations are called {alias}: give one of them another name, AS ...")
        pairs, bounds = self._on(chain, here, join, on, using)
        at = self.script.start(table)
        by = self.nodes.mapping(at)
        for left_name, right_name in pairs.items():
            by.value.append((self.nodes.text(left_name, at), self.nodes.text(right_name, at)))
        suffix, of_right = ("join", "with") if version is None else ("lookup", "table")
        settings = {of_right: right.name, "how": how}
        if version is not None:
            self._version(chain, version, how)
            if bounds:
                self.script.refuse(join, "ON of a join FOR SYSTEM_TIME AS OF takes only equal keys")
        elif bounds:
            settings |= self._span(join, bounds)
        elif not (right.is_table and chain.base.is_table):
            msg = (
                "a join of streams needs two time bounds in ON, such as b.t BETWEEN a.t - INTERVAL '5' MINUTES AND "
                "a.t + INTERVAL '15' MINUTES; a join with a table needs FOR SYSTEM_TIME AS OF a.t"
            )
            self.script.refuse(join, msg)
        self._refuse_third(chain, here, pairs, table)
        self._add_right(chain, here, pairs, how, is_pair=version is None, is_table=right.is_table and not bounds)
        parts: dict[str, yaml.Node] = {f"{suffix}.by": by}
        return suffix, parts | {f"{suffix}.{name}": self.nodes.text(text, at) for name, text in settings.items()}

    def _refuse_third(self, chain: Chain, right: Relation, pairs: dict[str, str], table: exp.Expr) -> None:
        """Refuse a column whose name is taken, with the suffix `_right` as well, by columns of earlier joins."""
        taken = {field.lower() for field in chain.base.fields}
        for name in right.names:
            if name not in pairs.values() and name.lower() in taken and f"{name}_right".lower() in taken:
                msg = (
                    f"{name} is a column of {right.alias} and of two relations before it: join a view of "
                    f"{right.alias} that renames it, {name} AS {right.alias}_{name}"
                )
                self.script.refuse(table, msg)

    def _add_right(
        self, chain: Chain, right: Relation, pairs: dict[str, str], how: str, *, is_pair: bool, is_table: bool
    ) -> None:
        """Add the columns of the right side to the chain.

        Key columns get the names of the left side. Other columns whose names are taken get the suffix `_right`.
        """
        base = chain.base
        keys = {right_name: left_name for left_name, right_name in pairs.items()}
        taken = {field.lower() for field in base.fields}
        names = {name: keys.get(name, f"{name}_right" if name.lower() in taken else name) for name in right.names}
        msg = "is null if {} has no partner, but the key of a row is never null; use the key of the other side"
        barred = {}
        if how in {"left", "full"}:
            barred = {key: f"{right.alias}.{key} {msg.format(right.alias)}" for key in keys}
        if how in {"right", "full"}:
            for number, relation in enumerate(chain.scope):
                extra = {
                    column: f"{relation.alias}.{column} {msg.format(relation.alias)}"
                    for column, name in relation.names.items()
                    if name in pairs
                }
                chain.scope[number] = replace(relation, barred=relation.barred | extra)
        time: str | None = base.time
        if is_pair and not is_table:
            # a pair of an inner or full join has the later of two times, which is not a column
            time = {"left": base.time, "right": names.get(right.time or "")}.get(how)
        fields = (*base.fields, *(names[name] for name in right.names if name not in keys))
        chain.base = replace(base, fields=fields, time=time, is_table=base.is_table and is_table)
        chain.scope.append(replace(right, names=names, barred=barred))

    def _version(self, chain: Chain, version: exp.Version, how: str) -> None:
        moment = version.args.get("expression")
        if version.args.get("kind") != "AS OF" or not isinstance(moment, exp.Column):
            msg = (
                "write FOR SYSTEM_TIME AS OF the event time; for the order of records, use YAML, lookup: {as_of: order}"
            )
            self.script.refuse(moment or version, msg)
        if how not in {"inner", "left"}:
            self.script.refuse(moment, f"a join FOR SYSTEM_TIME AS OF is [INNER] or LEFT, not {how.upper()}")
        if not self.names.is_time(chain.scope, moment, chain.base.time):
            msg = f"{moment.sql('duckdb')} is not the event time of {chain.base.name}, which lookups use"
            self.script.refuse(moment, msg)

    def _on(
        self,
        chain: Chain,
        right: Relation,
        join: exp.Join,
        on: exp.Expr | None,
        using: list[exp.Expr] | None,
    ) -> tuple[dict[str, str], list[tuple[str, int]]]:
        """Map each left key column to its right key column, and return the time bounds as well.

        A bound limits t(right) - t(left). It is a signed duration with 1 for a lower or -1 for an upper bound.
        """
        if using:
            return {column.name: column.name for column in using}, []
        pairs: dict[str, str] = {}
        bounds: list[tuple[str, int, exp.Expr]] = []
        for condition in conjuncts(on) if on is not None else ():
            match condition:
                case exp.EQ(this=exp.Column() as left, expression=exp.Column() as other):
                    first, second = (left, other) if self._is_of(other, right, chain) else (other, left)
                    if self._is_of(first, right, chain) or not self._is_of(second, right, chain):
                        self.script.refuse(condition, "an equality in ON needs a column of each side")
                    key, right_key = self.names.resolve(first, chain.scope), self.names.resolve(second, [right])
                    if key in pairs or right_key in pairs.values():
                        self.script.refuse(
                            condition, "a column can be in only one equality of ON; compare it again in WHERE"
                        )
                    pairs[key] = right_key
                case exp.Between(this=exp.Column() as time, args={"low": low, "high": high}):
                    bounds += [self._bound(chain, right, time, low, 1), self._bound(chain, right, time, high, -1)]
                case exp.GTE(this=exp.Column() as time, expression=other):
                    bounds.append(self._bound(chain, right, time, other, 1))
                case exp.LTE(this=exp.Column() as time, expression=other):
                    bounds.append(self._bound(chain, right, time, other, -1))
                case _:
                    msg = (
                        "ON takes equal columns, and time bounds with BETWEEN, <= or >=, combined with AND; "
                        "move other conditions to WHERE (equivalent for an inner join)"
                    )
                    self.script.refuse(condition, msg)
        if not pairs:
            self.script.refuse(join, "ON needs an equal key, such as a.id = b.id")
        return pairs, [(text, sign) for text, sign, _ in bounds]

    def _is_of(self, column: exp.Column, right: Relation, chain: Chain) -> bool:
        if column.table:
            return bool(column.table == right.alias)
        left = any(column.name in relation.names for relation in chain.scope)
        if left and column.name in right.names:
            self.script.refuse(
                column,
                f"{column.name} is a column of both sides: write {right.alias}.{column.name}, "
                "or the column of the other side",
            )
        return not left and column.name in right.names

    def _bound(
        self, chain: Chain, right: Relation, column: exp.Column, other: exp.Expr, sign: int
    ) -> tuple[str, int, exp.Expr]:
        """Return a bound of t(right) - t(left): a signed duration, the kind of bound, and the expression of the bound.

        The kind is 1 for a lower bound and -1 for an upper bound.
        """
        ahead, base = "", other
        if isinstance(other, exp.Add | exp.Sub) and isinstance(other.expression, exp.Interval):
            ahead = ("-" if isinstance(other, exp.Sub) else "") + duration(self.script, other.expression)
            base = other.this
        if not isinstance(base, exp.Column):
            self.script.refuse(other, "a time bound is the event time of the other side, minus or plus an INTERVAL")
        flipped = not self._is_of(column, right, chain)
        of_right, of_left = (base, column) if flipped else (column, base)
        if not self.names.is_time([right], of_right, right.time) or not self.names.is_time(
            chain.scope, of_left, chain.base.time
        ):
            self.script.refuse(column, "time bounds of a join compare the event times of its two sides")
        if flipped:
            # a lower bound of the left time is an upper bound of the right time, and so on
            ahead, sign = ahead[1:] if ahead.startswith("-") else f"-{ahead}" if ahead else "", -sign
        return ahead, sign, other

    def _span(self, join: exp.Join, bounds: list[tuple[str, int]]) -> dict[str, str]:
        """Translate a lower and an upper bound to `before`, `after` or both."""
        low, high = ([text for text, sign in bounds if sign == side] for side in (1, -1))
        if len(low) != 1 or len(high) != 1:
            self.script.refuse(join, "a join of streams needs one lower and one upper time bound")
        if (low[0] and not low[0].startswith("-")) or high[0].startswith("-"):
            msg = (
                "the interval of a join must include the time of the left record: "
                "the lower bound cannot have +, and the upper bound cannot have -"
            )
            self.script.refuse(join, msg)
        before, after = low[0].removeprefix("-"), high[0] or ("" if low[0] else "0s")
        return {name: text for name, text in (("before", before), ("after", after)) if text}
