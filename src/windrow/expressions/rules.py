"""Expressions of rules: over a record, its neighbours (`prev`, `next`), recent records (`recent`), and lists.

These expressions are SQL like all others. References to other records become columns beside the fields of the record
(`RuleColumn`), so that one query evaluates all rules over many records:

- ``prev.FIELD``, ``next.FIELD``: a value; ``prev is null`` tests the event time, which no record lacks;
- ``recent.FIELD``: an array, oldest first; ``recent``: an array of structs;
- ``mean(recent.FIELD)`` and the other functions of `_FUNCTIONS`: a function of such an array; with a duration as the
  second argument, only of the records that are older by at most the duration;
- ``count(recent)``, ``count(recent, '1m')``: a number;
- ``x in LIST``: whether a list has an entry, evaluated once the value of `x` is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from string import Formatter
from typing import Any, Final, Literal

from windrow import model as m
from windrow.errors import PipelineError, did_you_mean
from windrow.expressions.analyse import Expression, analyse
from windrow.expressions.engine import quote
from windrow.expressions.inputs import RulesSpec, nullable_fields, record_fields
from windrow.expressions.syntax import Node, arguments_of, column_ref, parse, unparse

RULE_WORDS: Final = ("prev", "recent", "next")
"""Names that the fields of a pipeline with rules cannot have."""


Neighbour = Literal["prev", "next"]
_NEIGHBOURS: Final[tuple[Neighbour, ...]] = ("prev", "next")


@dataclass(frozen=True)
class NeighbourField:
    """The column `name`: a field of the previous or next record by event time."""

    name: str
    record: Neighbour
    field: str


@dataclass(frozen=True)
class RecentField:
    """The column `name`: an array of one field of the recent records, or of whole records if the field is None.

    If `span` (microseconds) is given, the array has only the recent records within that time.
    """

    name: str
    field: str | None
    span: int | None = None


@dataclass(frozen=True)
class RecentCount:
    """The column `name`: the number of recent records, or only of the recent records within `span` (microseconds)."""

    name: str
    span: int | None = None


@dataclass(frozen=True)
class InList:
    """The column `name`: true if the list `list` has the value of an expression, null if the value is null."""

    name: str
    list: str
    of: Expression


RuleColumn = NeighbourField | RecentField | RecentCount | InList


@dataclass(frozen=True)
class TextPart:
    """A part of an alert's text: `literal`, followed by the formatted value `name`, or by nothing if it is None."""

    literal: str
    name: str | None
    format: str


@dataclass(frozen=True)
class RuleExpressions:
    """A rule's condition, its evidence, and its text with the values in it.

    The `columns` are all columns that these expressions read.
    """

    rule: m.Rule
    when: Expression
    evidence: tuple[tuple[str, Expression], ...]
    text: tuple[TextPart, ...]
    values: tuple[tuple[str, Expression], ...]
    columns: tuple[RuleColumn, ...]


_FUNCTIONS: Final = {
    "mean": "list_avg",
    "avg": "list_avg",
    "stddev": "list_stddev_samp",
    "sum": "list_sum",
    "min": "list_min",
    "max": "list_max",
    "median": "list_median",
}
"""Functions of ``recent.FIELD``, null without records; `stddev` is the sample's, and null for a single record."""


@dataclass
class RuleScope:
    """Analyses the expressions of a pipeline's rules, and collects the columns that they read."""

    fields: tuple[m.Field, ...]
    nullable: frozenset[str]
    time: str
    within: int
    lists: frozenset[str]
    columns: dict[str, tuple[RuleColumn, m.Field]] = field(default_factory=dict)

    @staticmethod
    def of(spec: RulesSpec, given: tuple[m.Field, ...] | None = None) -> RuleScope:
        """Return the scope of a pipeline's rules, over all of its fields or only over the fields `given`."""
        fields = record_fields(spec) if given is None else given
        return RuleScope(
            tuple(field for field in fields if not isinstance(field.type, m.ArrayType)),
            nullable_fields(spec) if given is None else frozenset(field.name for field in given),
            spec.time.field,
            spec.node.rules.recent.within,
            frozenset(rule_list.name for rule_list in spec.node.rules.lists),
        )

    def analyse(self, text: str) -> Expression:
        """Analyse an expression; raise PipelineError if it is invalid."""
        names = frozenset(field.name for field in self.fields)
        tree = parse(text, names)
        try:
            rewritten = unparse(self._rewrite(tree, frozenset()))
        except PipelineError as exc:
            msg = f"{text!r}: {exc.message}"
            raise PipelineError(msg) from exc
        return self._analyse_rewritten(rewritten, text)

    def rule(self, rule: m.Rule) -> RuleExpressions:
        """Analyse a rule; raise PipelineError if an expression or the text is invalid."""
        when = self.condition(rule.when)
        evidence = tuple((name, self.analyse(sql)) for name, sql in rule.evidence)
        text, values = self.text(rule.say, dict(evidence)) if rule.say is not None else ((), {})
        used = {name for value in (when, *dict(evidence).values(), *values.values()) for name in value.columns}
        for column, _ in self.columns.values():
            if isinstance(column, InList) and column.name in used:
                used.update(column.of.columns)
        columns = tuple(column for name, (column, _) in self.columns.items() if name in used)
        return RuleExpressions(
            rule, when, evidence, text or (TextPart(rule.name, None, ""),), tuple(values.items()), columns
        )

    def condition(self, text: str) -> Expression:
        """Analyse an expression that must be true or false."""
        when = self.analyse(text)
        if not isinstance(when.type, m.BooleanType):
            msg = f"{text!r} is a {when.type}, not a condition; write one that is true or false, such as amount > 100"
            raise PipelineError(msg)
        return when

    def text(self, say: str, evidence: Mapping[str, Expression]) -> tuple[tuple[TextPart, ...], dict[str, Expression]]:
        """Return the parts of a text, and map the names in it to their values; raise PipelineError if it is invalid."""
        parts: list[TextPart] = []
        values: dict[str, Expression] = {}
        try:
            found = list(Formatter().parse(say))
        except ValueError as exc:
            msg = f"{say!r}: {exc}; write a literal brace twice, {{{{"
            raise PipelineError(msg) from exc
        for literal, name, spec, conversion in found:
            if name is None:
                parts.append(TextPart(literal, None, ""))
                continue
            if conversion or "{" in (spec or "") or not name:
                msg = f"{say!r}: a value is {{NAME}}, or {{NAME:FORMAT}} with a format such as .2f"
                raise PipelineError(msg)
            values[name] = evidence[name] if name in evidence else self._value(say, name, evidence)
            parts.append(TextPart(literal, name, spec or ""))
        return tuple(parts), values

    def _value(self, say: str, name: str, evidence: Mapping[str, Expression]) -> Expression:
        word, _, inner = name.partition(".")
        by_name = {field.name: field for field in self.fields}
        if name in by_name:
            return self._analyse_rewritten(quote(name), name)
        if word in _NEIGHBOURS and inner in by_name:
            return self._analyse_rewritten(quote(self._neighbour(word, inner)), name)
        hint = did_you_mean(name, [*evidence, *by_name]) or f"; add it to the evidence, as in with: {{{name}: ...}}"
        msg = f"{say!r}: {name!r} is neither evidence of the rule nor a field{hint}"
        raise PipelineError(msg)

    def _analyse_rewritten(self, rewritten: str, text: str) -> Expression:
        fields = (*self.fields, *(field for _, field in self.columns.values()))
        try:
            return analyse(rewritten, fields, self.nullable.union(self.columns), takes_arrays=True)
        except PipelineError as exc:
            raise PipelineError(exc.message.replace(repr(rewritten), repr(text))) from exc

    def _rewrite(self, node: Any, bound: frozenset[str]) -> Any:  # noqa: ANN401 - plain JSON
        """Replace references to other records and to lists in a syntax tree with columns."""
        if isinstance(node, list):
            return [self._rewrite(part, bound) for part in node]
        if not isinstance(node, dict):
            return node
        if node.get("class") == "LAMBDA":
            bound |= frozenset(_column_names(node["lhs"]))
        replacement = self._replacement(node, bound)
        if replacement is not None:
            return replacement
        return {name: self._rewrite(part, bound) for name, part in node.items()}

    def _replacement(self, node: Node, bound: frozenset[str]) -> Node | None:
        """Return the replacement of a node, or None if the node is kept."""
        match node.get("class"):
            case "COLUMN_REF":
                return self._reference(node, bound)
            case "OPERATOR" if node["type"] in _NULL_TESTS and (word := _name(node["children"][0])) in _NEIGHBOUR_NAMES:
                return {**node, "children": [column_ref(self._neighbour(word[0], self.time))]}
            case "OPERATOR" if node["type"] in _IN and (tested := self._list_in(node["children"][1:])):
                test = self._in_list(tested, node["children"][0], bound)
                return test if node["type"] == "COMPARE_IN" else {**_NOT, "children": [test]}
            case "FUNCTION":
                return self._call(node, bound)
            case _:
                return None

    def _reference(self, node: Node, bound: frozenset[str]) -> Node:
        first, *parts = node["column_names"]
        if first in bound:
            return node
        if first in self.lists:
            msg = f"{first!r} is a list; write: x in {first}"
            raise PipelineError(msg)
        if first in _NEIGHBOURS:
            if len(parts) != 1:
                msg = (
                    f"`{first}` is a record: use a field of it, such as {first}.{self.time}, or test whether it is null"
                )
                raise PipelineError(msg)
            return column_ref(self._neighbour(first, parts[0]))
        if first == "recent":
            return column_ref(self._recent(parts, None))
        return node

    def _call(self, node: Node, bound: frozenset[str]) -> Node | None:
        """Return the replacement for a function of recent records or a test of a list, or None for other functions."""
        name = node["function_name"].lower()
        arguments = arguments_of(node)
        if name == "contains" and arguments and (tested := self._list_in(arguments[:1])):
            return self._in_list(tested, arguments[1], bound)
        of = _name(arguments[0]) if arguments else ()
        if of[:1] != ("recent",) or name not in {"count", *_FUNCTIONS}:
            return None
        span = self._span(name, arguments[1:])
        if name == "count":
            if len(of) > 1:
                msg = f"count() counts records: write count(recent), not count({'.'.join(of)})"
                raise PipelineError(msg)
            column = RecentCount("count(recent)" if span is None else f"count(recent, {m.format_duration(span)})", span)
            return column_ref(self._add(column, m.LongType()))
        if len(of) == 1:
            msg = f"{name}() needs a field of the recent records, such as {name}(recent.amount)"
            raise PipelineError(msg)
        argument = column_ref(self._recent(of[1:], span))
        return {
            **node,
            "function_name": _FUNCTIONS[name],
            "qualified_name": {"path": [_FUNCTIONS[name]]},
            "arguments": [{"expression": argument}],
        }

    def _span(self, name: str, rest: list[Node]) -> int | None:
        if not rest:
            return None
        literal = rest[0].get("literal", {})
        if len(rest) > 1 or literal.get("kind") != "STRING":
            msg = f"the second argument of {name}() is a duration, such as '1m'"
            raise PipelineError(msg)
        span = m.parse_duration(literal["text"])
        if not 0 < span <= self.within:
            msg = (
                f"{literal['text']!r} must be longer than 0 and at most recent.within, {m.format_duration(self.within)}"
            )
            raise PipelineError(msg)
        return span

    def _neighbour(self, record: Neighbour, name: str) -> str:
        return self._add(NeighbourField(f"{record}.{name}", record, name), self._field(name).type)

    def _recent(self, parts: list[str] | tuple[str, ...], span: int | None) -> str:
        if not parts:
            struct = m.StructType(tuple(m.Field(field.name, field.type, field.optional) for field in self.fields))
            return self._add(RecentField("recent", None), m.ArrayType(struct))
        if len(parts) > 1:
            msg = f"{'.'.join(('recent', *parts))!r} is not a field; fields have no parts"
            raise PipelineError(msg)
        name = f"recent.{parts[0]}" + ("" if span is None else f" of {m.format_duration(span)}")
        of = self._field(parts[0]).type
        if isinstance(of, m.ArrayType):
            raise TypeError(of)  # `of` leaves them out
        return self._add(RecentField(name, parts[0], span), m.ArrayType(of))

    def _field(self, name: str) -> m.Field:
        found = next((field for field in self.fields if field.name == name), None)
        if found is None:
            names = [field.name for field in self.fields]
            hint = did_you_mean(name, names) or f"; their fields are {', '.join(names)}"
            msg = f"{name!r} is not a field of the records{hint}"
            raise PipelineError(msg)
        return found

    def _list_in(self, nodes: list[Node]) -> str | None:
        """Return the name of the list if the only node refers to a list, or None."""
        names = [_name(node) for node in nodes]
        return names[0][0] if len(names) == 1 and len(names[0]) == 1 and names[0][0] in self.lists else None

    def _in_list(self, name: str, value: Node, bound: frozenset[str]) -> Node:
        arguments = sorted(bound.intersection(_column_names(value)))
        if arguments:
            msg = (
                f"`{unparse(value)} in {name}` is within a lambda, but a list can be tested only for a record "
                f"and its neighbours, not for each {arguments[0]!r}; test a field, such as prev.FIELD in {name}"
            )
            raise PipelineError(msg)
        text = unparse(self._rewrite(value, frozenset()))
        of = self._analyse_rewritten(text, text)
        if not isinstance(of.type, m.StringType | m.LongType):
            msg = f"{text} is a {of.type}, but the entries of a list are text; cast it to varchar"
            raise PipelineError(msg)
        return column_ref(self._add(InList(f"{text} in {name}", name, of), m.BooleanType()))

    def _add(self, column: RuleColumn, type_: m.DataType) -> str:
        self.columns.setdefault(column.name, (column, m.Field(column.name, type_)))
        return column.name


_NEIGHBOUR_NAMES: Final = tuple((word,) for word in _NEIGHBOURS)
_NULL_TESTS: Final = {"OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"}
_IN: Final = {"COMPARE_IN", "COMPARE_NOT_IN"}
_NOT: Final = {"class": "OPERATOR", "type": "OPERATOR_NOT"}


def _name(node: Node) -> tuple[str, ...]:
    """Return the parts of a column's name, or an empty tuple for other nodes."""
    return tuple(node["column_names"]) if node.get("class") == "COLUMN_REF" else ()


def _column_names(node: Any) -> list[str]:  # noqa: ANN401 - plain JSON
    """Return the first part of each column name in a syntax tree, except for parameters of lambdas."""
    if isinstance(node, list):
        return [name for part in node for name in _column_names(part)]
    if not isinstance(node, dict):
        return []
    if node.get("class") == "LAMBDA":
        bound = _column_names(node["lhs"])
        return [name for name in _column_names(node["expr"]) if name not in bound]
    return [*_name(node)[:1], *(name for part in node.values() for name in _column_names(part))]


@lru_cache(maxsize=64)
def rule_expressions(spec: RulesSpec) -> tuple[RuleExpressions, ...]:
    """Analyse the rules of a pipeline; raise PipelineError for an invalid expression."""
    scope = RuleScope.of(spec)
    return tuple(map(scope.rule, spec.node.rules.rules))


@lru_cache(maxsize=256)
def uses_next(rule: m.Rule) -> bool:
    """Return True if a rule depends on the next record; raise PipelineError for an invalid expression."""
    texts = [] if rule.say is None else [name for _, name, _, _ in Formatter().parse(rule.say) if name]
    if any(name.startswith("next.") for name in texts):
        return True
    return any("next" in _column_names(parse(sql)) for sql in (rule.when, *dict(rule.evidence).values()))
