"""Joins: the key and the span of time that ON says, and what the columns of the pairs are called."""

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
        """Return what a join is, a `join` or a `lookup`, with its settings; take its columns into the scope."""
        table, on, using, side, _ = self.script.parts(join, "JOIN", "this", "on", "using", "side", "kind")
        version = table.args.get("version")
        how = (side or "inner").lower()
        here = whole(right, alias)
        if alias in {one.alias for one in chain.scope}:
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
                self.script.refuse(join, "a join FOR SYSTEM_TIME AS OF has equal keys, and no times in ON")
        elif bounds:
            settings |= self._span(join, bounds)
        elif not (right.is_table and chain.base.is_table):
            msg = (
                "a join of streams needs two bounds of time in ON, such as b.t BETWEEN a.t - INTERVAL '5' MINUTES AND "
                "a.t + INTERVAL '15' MINUTES; one with a table FOR SYSTEM_TIME AS OF a.t"
            )
            self.script.refuse(join, msg)
        self._refuse_third(chain, here, pairs, table)
        self._joined(chain, here, pairs, how, is_pair=version is None, is_table=right.is_table and not bounds)
        parts: dict[str, yaml.Node] = {f"{suffix}.by": by}
        return suffix, parts | {f"{suffix}.{one}": self.nodes.text(text, at) for one, text in settings.items()}

    def _refuse_third(self, chain: Chain, right: Relation, pairs: dict[str, str], table: exp.Expr) -> None:
        """Refuse a column whose name a join before has given `_right` already."""
        taken = {field.lower() for field in chain.base.fields}
        for name in right.names:
            if name not in pairs.values() and name.lower() in taken and f"{name}_right".lower() in taken:
                msg = (
                    f"{name} is a column of {right.alias} and of two relations before it: join a view of "
                    f"{right.alias} that calls it otherwise, {name} AS {right.alias}_{name}"
                )
                self.script.refuse(table, msg)

    def _joined(
        self, chain: Chain, right: Relation, pairs: dict[str, str], how: str, *, is_pair: bool, is_table: bool
    ) -> None:
        """Take the right columns in: keys have their left names, others that the left has, too, end in `_right`."""
        base = chain.base
        keys = {right_name: left_name for left_name, right_name in pairs.items()}
        taken = {field.lower() for field in base.fields}
        names = {name: keys.get(name, f"{name}_right" if name.lower() in taken else name) for name in right.names}
        msg = "is null where {} has no partner, which the key of the row never is; use the key of the other side"
        barred = {}
        if how in {"left", "full"}:
            barred = {key: f"{right.alias}.{key} {msg.format(right.alias)}" for key in keys}
        if how in {"right", "full"}:
            for number, relation in enumerate(chain.scope):
                extra = {
                    one: f"{relation.alias}.{one} {msg.format(relation.alias)}"
                    for one, name in relation.names.items()
                    if name in pairs
                }
                chain.scope[number] = replace(relation, barred=relation.barred | extra)
        time: str | None = base.time
        if is_pair and not is_table:
            # a pair of an inner or full join has the later of two times, which is no column
            time = {"left": base.time, "right": names.get(right.time or "")}.get(how)
        fields = (*base.fields, *(names[name] for name in right.names if name not in keys))
        chain.base = replace(base, fields=fields, time=time, is_table=base.is_table and is_table)
        chain.scope.append(replace(right, names=names, barred=barred))

    def _version(self, chain: Chain, version: exp.Version, how: str) -> None:
        moment = version.args.get("expression")
        if version.args.get("kind") != "AS OF" or not isinstance(moment, exp.Column):
            msg = (
                "write FOR SYSTEM_TIME AS OF the event time; in YAML, lookup: {as_of: order} is by the order of records"
            )
            self.script.refuse(moment or version, msg)
        if how not in {"inner", "left"}:
            self.script.refuse(moment, f"a join FOR SYSTEM_TIME AS OF is [INNER] or LEFT, not {how.upper()}")
        if not self.names.is_time(chain.scope, moment, chain.base.time):
            msg = f"{moment.sql('duckdb')} is not the event time of {chain.base.name}, as of which rows are looked up"
            self.script.refuse(moment, msg)

    def _on(
        self,
        chain: Chain,
        right: Relation,
        join: exp.Join,
        on: exp.Expr | None,
        using: list[exp.Expr] | None,
    ) -> tuple[dict[str, str], list[tuple[str, int]]]:
        """Return the key by its names on the left and right, and the bounds of t(right) - t(left) as text and sign."""
        if using:
            return {one.name: one.name for one in using}, []
        pairs: dict[str, str] = {}
        bounds: list[tuple[str, int, exp.Expr]] = []
        for condition in conjuncts(on) if on is not None else ():
            match condition:
                case exp.EQ(this=exp.Column() as one, expression=exp.Column() as other):
                    first, second = (one, other) if self._is_of(other, right, chain) else (other, one)
                    if self._is_of(first, right, chain) or not self._is_of(second, right, chain):
                        self.script.refuse(condition, "an equality of ON has a column of each side")
                    key, right_key = self.names.resolve(first, chain.scope), self.names.resolve(second, [right])
                    if key in pairs or right_key in pairs.values():
                        self.script.refuse(condition, "a column is in one equality of ON; compare it again in WHERE")
                    pairs[key] = right_key
                case exp.Between(this=exp.Column() as one, args={"low": low, "high": high}):
                    bounds += [self._bound(chain, right, one, low, 1), self._bound(chain, right, one, high, -1)]
                case exp.GTE(this=exp.Column() as one, expression=other):
                    bounds.append(self._bound(chain, right, one, other, 1))
                case exp.LTE(this=exp.Column() as one, expression=other):
                    bounds.append(self._bound(chain, right, one, other, -1))
                case _:
                    msg = (
                        "ON has equal columns, and bounds of time with BETWEEN, <= or >=, joined by AND; "
                        "put other conditions in WHERE (for an inner join that is the same)"
                    )
                    self.script.refuse(condition, msg)
        if not pairs:
            self.script.refuse(join, "ON needs an equal key, such as a.id = b.id")
        return pairs, [(text, sign) for text, sign, _ in bounds]

    def _is_of(self, column: exp.Column, right: Relation, chain: Chain) -> bool:
        if column.table:
            return bool(column.table == right.alias)
        left = any(column.name in one.names for one in chain.scope)
        if left and column.name in right.names:
            self.script.refuse(
                column, f"{column.name} is on both sides: write {right.alias}.{column.name}, or the other"
            )
        return not left and column.name in right.names

    def _bound(
        self, chain: Chain, right: Relation, column: exp.Column, other: exp.Expr, sign: int
    ) -> tuple[str, int, exp.Expr]:
        """Return a bound of t(right) - t(left): `+1` from below, `-1` from above, as a signed duration."""
        ahead, base = "", other
        if isinstance(other, exp.Add | exp.Sub) and isinstance(other.expression, exp.Interval):
            ahead = ("-" if isinstance(other, exp.Sub) else "") + duration(self.script, other.expression)
            base = other.this
        if not isinstance(base, exp.Column):
            self.script.refuse(other, "a bound of time is the event time of the other side, - or + an INTERVAL")
        flipped = not self._is_of(column, right, chain)
        of_right, of_left = (base, column) if flipped else (column, base)
        if not self.names.is_time([right], of_right, right.time) or not self.names.is_time(
            chain.scope, of_left, chain.base.time
        ):
            self.script.refuse(column, "bounds of a join are between the event times of its two sides")
        if flipped:
            # a left time from the right one plus x on is a right time up to the left one minus x
            ahead, sign = ahead[1:] if ahead.startswith("-") else f"-{ahead}" if ahead else "", -sign
        return ahead, sign, other

    def _span(self, join: exp.Join, bounds: list[tuple[str, int]]) -> dict[str, str]:
        """Return `before` and `after`, of which one at least is given, of two bounds."""
        low, high = ([text for text, sign in bounds if sign == one] for one in (1, -1))
        if len(low) != 1 or len(high) != 1:
            self.script.refuse(join, "a join of streams needs one bound of time from below and one from above")
        if (low[0] and not low[0].startswith("-")) or high[0].startswith("-"):
            msg = "the span of a join includes the time of the left record: a lower bound has no +, an upper one no -"
            self.script.refuse(join, msg)
        before, after = low[0].removeprefix("-"), high[0] or ("" if low[0] else "0s")
        return {name: text for name, text in (("before", before), ("after", after)) if text}
