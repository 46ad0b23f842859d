"""A limit on the memory that an expression takes for one record if it can grow faster than the record.

A lambda is called for each item of a list and can return a text that it captures, so 90 kB of a record can become 8 GB;
`to_binary` of `to_binary` makes 64 bytes of each byte, and a number can request any size. `growth.py` describes the
sizes of values as polynomials. A call gets a condition if its size is more than `_MAX_FACTOR` times the size of the
record's values: the size is computed from the actual arguments, and the call fails before it allocates anything. The
limit therefore depends on the record alone. `invoke` binds the arguments to names, so that each argument is computed
only once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final

from windrow import model as m
from windrow.errors import PipelineError
from windrow.expressions.growth import Size, Value, limit_message, operation, product, scale, total, try_sql, value_sql
from windrow.expressions.macros import MAX_MADE
from windrow.expressions.syntax import (
    Node,
    arguments_of,
    column_ref,
    constant,
    descendants,
    has_columns,
    is_lambda,
    parse,
)

_REDUCE: Final = frozenset({"list_reduce", "array_reduce", "reduce"})
_FILTER: Final = frozenset({"list_filter", "array_filter", "filter"})
_TRANSFORM: Final = frozenset({"list_transform", "array_transform", "list_apply", "array_apply", "apply"})
_LISTS_OF_ITEMS: Final = _FILTER | _TRANSFORM

_COPIED: Final = 100
"""Number of copied bytes that count as one allocated byte."""
_MAX_FACTOR: Final = 32
_MAX_CONSTANT: Final = 10_000
"""A call needs no condition up to this size plus `_MAX_FACTOR` times the size of each value of the record."""
_ONE: Final[Size] = {(): 1}


def bound(tree: Node, fields: tuple[m.Field, ...], weight: int = 1) -> tuple[Node, bool]:
    """Return a tree in which calls that can grow faster than the record fail at `MAX_MADE`, and whether any value can.

    If no call can grow in this way, the same tree is returned. Each byte and item counts `weight` times. Raise
    PipelineError if a call has no limit, or if it exceeds the limit for every record.
    """
    sizes = Sizes(fields, weight)
    changed, _ = sizes.bound(tree)
    return (changed if sizes.has_conditions else tree), sizes.has_large


class Sizes:
    """Computes the sizes of the values in one syntax tree."""

    def __init__(self, fields: tuple[m.Field, ...], weight: int = 1) -> None:
        self._values = {field.name: _value_of(field) for field in fields}
        self._weight = weight
        self._numbers = count()
        self._prefix = "__v"
        while any(field.name.lower().startswith(self._prefix) for field in fields):
            self._prefix += "_"
        self.has_conditions = False
        self.has_large = False

    def bound(self, node: Node) -> tuple[Node, Value]:
        """Return a node with the conditions that it needs, and the size of its value as limited by the conditions."""
        if node["class"] in {"COLUMN_REF", "CONSTANT"}:
            return node, self.of(node, {})
        parts: list[Value] = []

        def change(part: Node) -> Node:
            if is_lambda(part):
                return part
            changed, value = self.bound(part)
            parts.append(value)
            return changed

        changed = _map_operands(node, change)
        value = self._value(changed, parts, {})
        if self._is_small(value.made):
            return changed, value
        self.has_conditions = True
        # some calls take only time, such as comparisons of texts
        self.has_large |= not self._is_small(value.size) or any(map(is_lambda, _operands(node)))
        # the result is at most `MAX_MADE`: a call that does not enlarge it needs no condition
        return self._add_condition(changed, parts), replace(value, size={(f"\1{next(self._numbers)}",): _MAX_FACTOR})

    def _add_condition(self, node: Node, parts: list[Value]) -> Node:
        """Return a call that fails if it is too large; `duckdb_message` recognises the names of its arguments."""
        args: dict[str, Node] = {}
        kinds = iter(parts)
        function = re.sub(r"\W", "", node.get("function_name", "cast")) or "operator"

        def bind(part: Node) -> Node:
            if is_lambda(part):
                return part
            kind = next(kinds).kind
            if part["class"] == "COLUMN_REF" or not has_columns(part):
                return part
            name = f"{self._prefix}{next(self._numbers)}_{function}"
            args[name] = part
            column = column_ref(name)
            self._values[name] = Value({(_size_sql(column),): 1}, {}, kind)
            return {**column, "alias": part["alias"]} if "alias" in part else column

        call = _map_operands(node, bind)
        size = self._sql(self.of(call, {}).made)
        failure = f"CAST('{limit_message(node, self._weight)}' AS BOOLEAN)"
        checked = f"CASE WHEN CASE WHEN {size} > {MAX_MADE} THEN {failure} ELSE true END THEN {value_sql(call)} END"
        if args:
            checked = f"invoke(lambda {', '.join(args)}: {checked}, {', '.join(map(value_sql, args.values()))})"
        return parse(checked)

    def _is_small(self, made: Size) -> bool:
        return all(
            self._weight * factor <= (_MAX_FACTOR if term else _MAX_CONSTANT) and len(term) <= 1
            for term, factor in made.items()
        )

    def _sql(self, made: Size) -> str:
        """Return the SQL of a size, as a double."""
        if self._weight * made.get((), 0) > MAX_MADE:
            msg = f"allocates more than {MAX_MADE:,} bytes and items for every record, in a lambda or for a number"
            raise PipelineError(msg)
        return size_sql(scale(made, self._weight))

    def of(self, node: Node, bound: Mapping[str, Value]) -> Value:
        """Return the size of a value and of all memory allocated for it.

        The parameters of the enclosing lambdas are in `bound`, by name.
        """
        if node["class"] == "COLUMN_REF":
            name = node["column_names"][0]
            known = bound.get(name.lower()) or self._values.get(name)
            value = known or Value({(_size_sql(node),): 1}, {})
            return value if len(node["column_names"]) == 1 else replace(value, kind="other")
        if node["class"] == "CONSTANT":
            text = constant(node)
            return Value({(): max(len(text.encode()), 1)}, {}, "text") if isinstance(text, str) else Value(_ONE, {})
        parts = [self.of(part, bound) for part in _operands(node) if not is_lambda(part)]
        value = self._value(node, parts, bound)
        value = replace(value, made=total([value.made, *(part.made for part in parts)]))
        if bound and value.size != _ONE and self._is_measurable(node, value, bound):
            return replace(value, size={(_size_sql(node),): 1})
        return value

    def _is_measurable(self, node: Node, value: Value, bound: Mapping[str, Value]) -> bool:
        """Return True if a value in a lambda is the same for each item, and can be computed in order to measure it."""
        names = [
            descendant["column_names"][0].lower()
            for descendant in descendants(node)
            if descendant.get("class") == "COLUMN_REF"
        ]
        return bool(names) and not bound.keys() & set(names) and self._is_small(value.made)

    def _value(self, node: Node, parts: list[Value], bound: Mapping[str, Value]) -> Value:
        """Return the size of a node's value, given its operands, without the memory allocated for the operands."""
        if node["class"] == "LAMBDA":  # an arrow, an operator of JSON
            size = total([part.size for part in parts])
            return Value(size, size)
        function = next(filter(is_lambda, arguments_of(node)), None) if node["class"] == "FUNCTION" else None
        return operation(node, parts) if function is None else self._call(node, function, parts, bound)

    def _call(self, call: Node, function: Node, given: list[Value], bound: Mapping[str, Value]) -> Value:
        """Return the size of the value of a call with a lambda."""
        name = call["function_name"].lower()
        names = [
            descendant["column_names"][0].lower()
            for descendant in descendants(function["lhs"])
            if "column_names" in descendant
        ]
        own = {name: f"\0{next(self._numbers)}" for name in names}
        of_item = Value({}, {}, "text" if given and given[0].kind == "texts" else "other")
        kinds = [value.kind for value in given] if name == "invoke" else [of_item.kind] * (2 if name in _REDUCE else 1)
        parameters = {
            parameter: Value({(own[parameter],): 1}, {}, kinds[place] if place < len(kinds) else "other")
            for place, parameter in enumerate(names)
        }
        body = self.of(function["expr"], {**bound, **parameters})
        if name == "invoke":
            values = {own[parameter]: value.size for parameter, value in zip(names, given, strict=False)}
            size, made = _substitute(body.size, values), _substitute(body.made, values)
            return Value(size, total([made, size]), body.kind)
        items, whole = self._items(arguments_of(call)[0], given[0], bound), total(value.size for value in given)
        # the parameter after those of the items is a number: the position of the item
        places: dict[str, Size] = {own[parameter]: _ONE for parameter in names[2 if name in _REDUCE else 1 :]}
        if name in _REDUCE:
            first, second = own[names[0]], own[names[1]] if len(names) > 1 else ""
            if _factor(body.size, first) > 1:
                msg = (
                    f"calls {name}() with a lambda that can make its result a multiple of {names[0]!r} with each item; "
                    f"use {names[0]!r} once, as in {names[0]} || ',' || {names[-1]}"
                )
                raise PipelineError(msg)
            added = {term: factor for term, factor in _substitute(body.size, places).items() if first not in term}
            size = total([whole, _over(added, second, items, whole)])
            step = _substitute(body.made, {first: size, second: whole, **places})
            # the result so far is copied for each item, which takes time, and no memory
            copied = scale(product(items, size), 1 / _COPIED) if any(first in term for term in body.size) else {}
            return Value(size, total([step, size, copied]), of_item.kind)
        each, made = (_over(_substitute(size, places), own[names[0]], items, whole) for size in (body.size, body.made))
        if name in _FILTER:
            return Value(whole, total([made, whole]), given[0].kind)
        size = total([each, items])
        return Value(size, total([made, size]), "texts" if body.kind == "text" else "other")

    def _items(self, of: Node, value: Value, bound: Mapping[str, Value]) -> Size:
        """Return the number of items of a list."""
        if of["class"] == "FUNCTION" and of["function_name"].lower() in _LISTS_OF_ITEMS:
            inner = arguments_of(of)[0]
            return self._items(inner, self.of(inner, bound), bound)
        if of["class"] == "COLUMN_REF" and len(of["column_names"]) == 1 and of["column_names"][0].lower() not in bound:
            return {(_length(of),): 1}
        if bound and self._is_measurable(of, self.of(of, bound), bound):
            return {(_length(of),): 1}
        return value.size


def size_sql(size: Size) -> str:
    """Return the SQL of a polynomial, as a double."""
    terms = (" * ".join([f"{factor!r}::DOUBLE", *term]) for term, factor in sorted(size.items()))
    return " + ".join(terms) or "0::DOUBLE"


def _value_of(field: m.Field) -> Value:
    size: Size = {(_size_sql(column_ref(field.name)),): 1}
    match field.type:
        case m.StringType():
            return Value(size, {}, "text")
        case m.ArrayType(m.StringType()):
            return Value(size, {}, "texts")
        case m.ArrayType():
            return Value(size, {})
        case _:
            return Value(_ONE, {})


def _map_operands(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return a copy of a node in which a function has changed the operands."""

    def convert(part: Any) -> Any:  # noqa: ANN401 - plain JSON
        if isinstance(part, list):
            return [convert(item) for item in part]
        if not isinstance(part, dict) or part.get("class") == "TYPE":
            return part
        return change(part) if "class" in part else {name: convert(item) for name, item in part.items()}

    return {name: convert(part) for name, part in node.items()}


def _operands(node: Node) -> list[Node]:
    found: list[Node] = []

    def add(part: Node) -> Node:
        found.append(part)
        return part

    _map_operands(node, add)
    return found


def _size_sql(node: Node) -> str:
    """Return SQL for the size of a value, which is the length of its text, or 1 if it cannot be computed by itself."""
    return f"greatest(coalesce({try_sql(f'strlen(CAST({value_sql(node)} AS VARCHAR))', node)}, 1), 1)"


def _length(node: Node) -> str:
    """Return SQL for the number of a list's items, but at least 1."""
    return f"greatest(coalesce({try_sql(f'len({value_sql(node)})', node)}, 1), 1)"


def _substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """Replace the parameters in a polynomial with the sizes of values."""
    products = []
    for term, factor in size.items():
        replaced: Size = {tuple(part for part in term if part not in values): factor}
        for part in term:
            if part in values:
                replaced = product(replaced, values[part])
        products.append(replaced)
    return total(products)


def _over(size: Size, item: str, items: Size, whole: Size) -> Size:
    """Return an upper bound on the sum of a size over the items of a list.

    The sizes of the items themselves add up to `whole`.
    """
    each = {term: factor for term, factor in size.items() if item not in term}
    own = {term: factor for term, factor in size.items() if item in term}
    return total([product(each, items), _substitute(own, {item: whole})])


def _factor(size: Size, first: str) -> float:
    """Return the factor of a parameter in a size, which is infinite if the parameter is multiplied by another size."""
    return sum(factor if term == (first,) else float("inf") for term, factor in size.items() if first in term)
