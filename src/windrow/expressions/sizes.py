"""A bound on the memory that an expression takes for one record, where it can grow faster than the record.

A lambda is called for each item of a list and can return a text that it captures, so 90 kB of a record can become 8 GB;
`to_binary` of itself makes 64 bytes of one, and a number can ask for any size. `growth.py` has the sizes of values as
polynomials. A call whose size is more than some times that of the record's values gets a condition: what it makes is
computed from its arguments as they are, and it fails before it allocates anything. So the bound is a function of the
record alone. The arguments are bound to names by `invoke`, so that none is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final

from windrow import model as m
from windrow.errors import PipelineError
from windrow.expressions.growth import Size, Value, operation, product, scaled, sql, too_large, total, tried
from windrow.expressions.macros import MAX_MADE
from windrow.expressions.syntax import Node, arguments_of, constant, descendants, is_lambda, parse

_REDUCE: Final = frozenset({"list_reduce", "array_reduce", "reduce"})
_FILTER: Final = frozenset({"list_filter", "array_filter", "filter"})
_TRANSFORM: Final = frozenset({"list_transform", "array_transform", "list_apply", "array_apply", "apply"})
_LISTS_OF_ITEMS: Final = _FILTER | _TRANSFORM

_COPIED: Final = 100
"""So many bytes that are copied count as one that is made."""
_MAX_FACTOR: Final = 32
"""What makes at most so many times a value of the record, and `_MAX_CONSTANT` beside it, has no condition."""
_MAX_CONSTANT: Final = 10_000
_ONE: Final[Size] = {(): 1}


def bounded(tree: Node, fields: tuple[m.Field, ...], weight: int = 1) -> tuple[Node, bool]:
    """Return a tree whose calls fail at `MAX_MADE` if they can grow faster than the record, and whether values can.

    If no call can, it is the same tree. Each byte and item counts `weight` times. Raise PipelineError if a call has
    no bound, or is above it whatever the record.
    """
    sizes = Sizes(fields, weight)
    made, _ = sizes.bounded(tree)
    return (made if sizes.has_conditions else tree), sizes.has_large


class Sizes:
    """Sizes of the values of one tree."""

    def __init__(self, fields: tuple[m.Field, ...], weight: int = 1) -> None:
        self._values = {field.name: _value_of(field) for field in fields}
        self._weight = weight
        self._numbers = count()
        self._prefix = "__v"
        while any(field.name.lower().startswith(self._prefix) for field in fields):
            self._prefix += "_"
        self.has_conditions = False
        self.has_large = False

    def bounded(self, node: Node) -> tuple[Node, Value]:
        """Return a node with conditions in it where it needs them, and its value, of which they are a part."""
        if node["class"] in {"COLUMN_REF", "CONSTANT"}:
            return node, self.of(node, {})
        parts: list[Value] = []

        def change(part: Node) -> Node:
            if is_lambda(part):
                return part
            changed, value = self.bounded(part)
            parts.append(value)
            return changed

        changed = _mapped(node, change)
        value = self._value(changed, parts, {})
        if self._is_small(value.made):
            return changed, value
        self.has_conditions = True
        # some take time alone, such as a comparison of texts
        self.has_large |= not self._is_small(value.size) or any(map(is_lambda, _operands(node)))
        # it is at most `MAX_MADE`: what makes no more of it needs no condition
        return self._checked(changed, parts), replace(value, size={(f"\1{next(self._numbers)}",): _MAX_FACTOR})

    def _checked(self, node: Node, parts: list[Value]) -> Node:
        """Return a call that fails where it is too large."""
        given: dict[str, Node] = {}
        kinds = iter(parts)

        def bind(part: Node) -> Node:
            if is_lambda(part):
                return part
            kind = next(kinds).kind
            if part["class"] == "COLUMN_REF" or not any(
                descendant.get("class") == "COLUMN_REF" for descendant in descendants(part)
            ):
                return part
            name = f"{self._prefix}{next(self._numbers)}"
            given[name] = part
            column = {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": [name]}
            self._values[name] = Value({(_measured(column),): 1}, {}, kind)
            return {**column, "alias": part["alias"]} if "alias" in part else column

        call = _mapped(node, bind)
        size = self._sql(self.of(call, {}).made)
        condition = (
            f"CASE WHEN {size} > {MAX_MADE} THEN CAST('{too_large(node, self._weight)}' AS BOOLEAN) ELSE true END"
        )
        checked = f"CASE WHEN {condition} THEN {sql(call)} END"
        if given:
            checked = f"invoke(lambda {', '.join(given)}: {checked}, {', '.join(map(sql, given.values()))})"
        return parse(checked)

    def _is_small(self, made: Size) -> bool:
        return all(
            self._weight * factor <= (_MAX_FACTOR if term else _MAX_CONSTANT) and len(term) <= 1
            for term, factor in made.items()
        )

    def _sql(self, made: Size) -> str:
        """Return the SQL of a size, a double."""
        if self._weight * made.get((), 0) > MAX_MADE:
            msg = f"makes more than {MAX_MADE:,} bytes and items of every record, in a lambda or by a number"
            raise PipelineError(msg)
        return size_sql(scaled(made, self._weight))

    def of(self, node: Node, bound: Mapping[str, Value]) -> Value:
        """Return a value with all that is made for it; `bound` are the parameters of the lambdas around it, by name."""
        if node["class"] == "COLUMN_REF":
            name = node["column_names"][0]
            known = bound.get(name.lower()) or self._values.get(name)
            value = known or Value({(_measured(node),): 1}, {})
            return value if len(node["column_names"]) == 1 else replace(value, kind="other")
        if node["class"] == "CONSTANT":
            text = constant(node)
            is_text = isinstance(text, str)
            return Value(
                {(): max(len(text.encode()), 1) if isinstance(text, str) else 1}, {}, "text" if is_text else "other"
            )
        parts = [self.of(part, bound) for part in _operands(node) if not is_lambda(part)]
        value = self._value(node, parts, bound)
        value = replace(value, made=total([value.made, *(part.made for part in parts)]))
        if bound and value.size != _ONE and self._is_measured(node, value, bound):
            return replace(value, size={(_measured(node),): 1})
        return value

    def _is_measured(self, node: Node, value: Value, bound: Mapping[str, Value]) -> bool:
        """Return whether a value within a lambda is the same for each item, and can be computed to measure it."""
        names = [
            descendant["column_names"][0].lower()
            for descendant in descendants(node)
            if descendant.get("class") == "COLUMN_REF"
        ]
        return bool(names) and not bound.keys() & set(names) and self._is_small(value.made)

    def _value(self, node: Node, parts: list[Value], bound: Mapping[str, Value]) -> Value:
        """Return what a node makes of its operands; what is made for these does not count."""
        if node["class"] == "LAMBDA":  # an arrow, an operator of JSON
            size = total([part.size for part in parts])
            return Value(size, size)
        function = next(filter(is_lambda, arguments_of(node)), None) if node["class"] == "FUNCTION" else None
        return operation(node, parts) if function is None else self._called(node, function, parts, bound)

    def _called(self, call: Node, function: Node, given: list[Value], bound: Mapping[str, Value]) -> Value:
        """Return the value of a call with a lambda."""
        name = call["function_name"].lower()
        names = [
            descendant["column_names"][0].lower()
            for descendant in descendants(function["lhs"])
            if "column_names" in descendant
        ]
        own = {name: f"\0{next(self._numbers)}" for name in names}
        of_item = Value({}, {}, "text" if given and given[0].kind == "texts" else "other")
        kinds = [one.kind for one in given] if name == "invoke" else [of_item.kind] * (2 if name in _REDUCE else 1)
        parameters = {
            one: Value({(own[one],): 1}, {}, kinds[place] if place < len(kinds) else "other")
            for place, one in enumerate(names)
        }
        body = self.of(function["expr"], {**bound, **parameters})
        if name == "invoke":
            values = {own[one]: value.size for one, value in zip(names, given, strict=False)}
            size, made = _replaced(body.size, values), _replaced(body.made, values)
            return Value(size, total([made, size]), body.kind)
        items, whole = self._items(arguments_of(call)[0], given[0], bound), total(one.size for one in given)
        # what is behind the items is a number: the place of the item
        places: dict[str, Size] = {own[one]: _ONE for one in names[2 if name in _REDUCE else 1 :]}
        if name in _REDUCE:
            first, second = own[names[0]], own[names[1]] if len(names) > 1 else ""
            if _factor(body.size, first) > 1:
                msg = (
                    f"calls {name}() with a lambda that can make its result a multiple of {names[0]!r} with each item; "
                    f"use {names[0]!r} once, as in {names[0]} || ',' || {names[-1]}"
                )
                raise PipelineError(msg)
            added = {term: factor for term, factor in _replaced(body.size, places).items() if first not in term}
            size = total([whole, _over(added, second, items, whole)])
            step = _replaced(body.made, {first: size, second: whole, **places})
            # what the result has so far is copied for each item, which takes time, and no memory
            copied = scaled(product(items, size), 1 / _COPIED) if any(first in term for term in body.size) else {}
            return Value(size, total([step, size, copied]), of_item.kind)
        each, made = (_over(_replaced(one, places), own[names[0]], items, whole) for one in (body.size, body.made))
        if name in _FILTER:
            return Value(whole, total([made, whole]), given[0].kind)
        size = total([each, items])
        return Value(size, total([made, size]), "texts" if body.kind == "text" else "other")

    def _items(self, of: Node, value: Value, bound: Mapping[str, Value]) -> Size:
        """Return the number of a list's items."""
        if of["class"] == "FUNCTION" and of["function_name"].lower() in _LISTS_OF_ITEMS:
            inner = arguments_of(of)[0]
            return self._items(inner, self.of(inner, bound), bound)
        if of["class"] == "COLUMN_REF" and len(of["column_names"]) == 1 and of["column_names"][0].lower() not in bound:
            return {(_length(of),): 1}
        if bound and self._is_measured(of, self.of(of, bound), bound):
            return {(_length(of),): 1}
        return value.size


def size_sql(size: Size) -> str:
    """Return the SQL of a polynomial, a double."""
    terms = (" * ".join([f"{factor!r}::DOUBLE", *term]) for term, factor in sorted(size.items()))
    return " + ".join(terms) or "0::DOUBLE"


def _value_of(field: m.Field) -> Value:
    column = {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": [field.name]}
    match field.type:
        case m.StringType():
            return Value({(_measured(column),): 1}, {}, "text")
        case m.ArrayType(m.StringType()):
            return Value({(_measured(column),): 1}, {}, "texts")
        case m.ArrayType():
            return Value({(_measured(column),): 1}, {})
        case _:
            return Value(_ONE, {})


def _mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return a node with other operands."""

    def part(of: Any) -> Any:  # noqa: ANN401 - plain JSON
        if isinstance(of, list):
            return [part(one) for one in of]
        if not isinstance(of, dict) or of.get("class") == "TYPE":
            return of
        return change(of) if "class" in of else {name: part(one) for name, one in of.items()}

    return {name: part(one) for name, one in node.items()}


def _operands(node: Node) -> list[Node]:
    """Return the values that a value is made of."""
    found: list[Node] = []

    def add(part: Node) -> Node:
        found.append(part)
        return part

    _mapped(node, add)
    return found


def _measured(node: Node) -> str:
    """Return the SQL of a value's size, that of its text; one that fails where it stands has none."""
    return f"greatest(coalesce({tried(f'strlen(CAST({sql(node)} AS VARCHAR))', node)}, 1), 1)"


def _length(node: Node) -> str:
    """Return the SQL of the number of a list's items, or 1."""
    return f"greatest(coalesce({tried(f'len({sql(node)})', node)}, 1), 1)"


def _replaced(size: Size, values: Mapping[str, Size]) -> Size:
    """Return a polynomial in which parameters are replaced by the sizes of values."""
    made = []
    for term, factor in size.items():
        one: Size = {tuple(part for part in term if part not in values): factor}
        for part in term:
            if part in values:
                one = product(one, values[part])
        made.append(one)
    return total(made)


def _over(size: Size, item: str, items: Size, whole: Size) -> Size:
    """Return the sum of a size over the items of a list: that of the items is `whole`, of their powers its powers."""
    each = {term: factor for term, factor in size.items() if item not in term}
    own = {term: factor for term, factor in size.items() if item in term}
    return total([product(each, items), _replaced(own, {item: whole})])


def _factor(size: Size, first: str) -> float:
    """Return by how much a size grows with a parameter: infinite if it is multiplied by another size."""
    return sum(factor if term == (first,) else float("inf") for term, factor in size.items() if first in term)
