"""A bound on the memory that an expression takes for one record, where it can grow faster than the record.

A lambda is called for each item of a list and can return a text that it captures, so 90 kB of a record can become 8 GB.
The size of a value is the number of its bytes and items. Here it is a polynomial in the sizes of what the expression
has of the record: of the list that a lambda is over, and of what the lambda captures. It is an upper bound: a function
that is not known adds at most `_GROWTH` times its arguments (of DuckDB's, `to_binary` grows most, by 8), one of
`_PRODUCTS` multiplies two of them, and a lambda takes its result once for each item. What the polynomial says is a
function of the record alone. A call of which it is a product of two sizes or more gets a condition, by which it fails
before it allocates anything, as a bounded function of `macros.py` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from windrow.errors import PipelineError
from windrow.expressions.engine import database
from windrow.expressions.functions import table
from windrow.expressions.macros import FORMATS, LIMIT, MAX_LENGTH, MAX_MADE, OWN_FUNCTIONS, SIZES
from windrow.expressions.syntax import Node, arguments_of, constant, descendants, parse, unparse

_GROWTH: Final = 8
_LINEAR: Final = frozenset(
    """
    || & | ~ << >> xor @ abs array_append array_cat array_concat array_extract array_pop_back array_pop_front
    array_prepend array_push_back array_push_front array_reverse array_slice array_sort array_value concat concat_ws
    constant_or_null element_at flatten greatest if ifnull json_extract json_extract_string lcase least left list_append
    list_cat list_concat list_distinct list_element list_extract list_first list_intersect list_last list_max list_min
    list_prepend list_resize list_reverse list_reverse_sort list_select list_slice list_sort list_value list_where lower
    lpad ltrim map_extract map_keys map_values nullif overlay regexp_extract regexp_extract_all regexp_replace
    regexp_split_to_array repeat replace reverse right rpad rtrim split split_part str_split str_split_regex
    string_split string_split_regex string_to_array strip_accents struct_extract struct_extract_at substr substring
    suffix trim ucase upper ->>
    """.split()  # noqa: SIM905 - as a list it would be a page
)
"""Functions whose result is at most as large as their arguments together."""

_STRUCTS: Final = frozenset(
    {"array_zip", "list_zip", "map", "map_entries", "map_from_entries", "row", "struct_insert", "struct_pack"}
)
"""Functions that make structs, whose text, which `||` makes of them, has quotes with a sign before each."""

# `bound.py` refuses the sum of lists
_SHORT: Final = frozenset(
    {*OWN_FUNCTIONS, "+", "-", "add", "subtract", "chr", "dayname", "md5", "monthname", "sha1", "sha256", "typeof"}
)
"""Functions whose values have a fixed size, or a short text, which their types do not say."""
_FIXED: Final = re.compile(
    r"BOOLEAN|U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|REAL|DECIMAL|NUMERIC|DATE|TIME|INTERVAL|UUID|"
    r"TIMESTAMP(_S|_MS|_NS|TZ)?|TIME(STAMP)? WITH TIME ZONE|INT\d|FLOAT\d|LONG"
)
"""Types whose values have a fixed size."""
_FIXED_LIST: Final = re.compile(rf"({_FIXED.pattern})\[\]")

_PRODUCTS: Final[dict[str, tuple[int, int]]] = {
    "array_aggr": (0, 2),
    "array_aggregate": (0, 2),
    "array_select": (0, 1),
    "array_to_string": (0, 1),
    "concat_ws": (0, 1),
    "list_aggr": (0, 2),
    "list_aggregate": (0, 2),
    "list_select": (0, 1),
    "regexp_replace": (0, 2),
    "replace": (0, 2),
}
"""The arguments of each function that can repeat the second for each item or byte of the first."""

_BOUNDED_ALONE: Final = frozenset({"replace", "regexp_replace"})
"""Those of them that are macros with a bound of their own."""

_NESTED: Final = re.compile(r"\.\.|\*\*")
_JSON: Final = re.compile(r"json_(extract|exists|keys|type|value|array_length)\w*|->>")
_WITH_PATH: Final = 2
_REDUCE: Final = frozenset({"list_reduce", "array_reduce", "reduce"})
_FILTER: Final = frozenset({"list_filter", "array_filter", "filter"})
_TRANSFORM: Final = frozenset({"list_transform", "array_transform", "list_apply", "array_apply", "apply"})
_MAX_FACTOR: Final = 100
_LISTS_OF_ITEMS: Final = _FILTER | _TRANSFORM

Size = Mapping[tuple[str, ...], float]
"""A polynomial: by the factors of a term, which are SQL or names of lambdas' parameters, its number."""


@dataclass(frozen=True)
class _Value:
    """The size of a value, and that of all that is made to compute it, with itself if it is made."""

    size: Size
    made: Size


def bounded(tree: Node, fixed: frozenset[str]) -> tuple[Node, str | None]:
    """Return a tree whose calls that can grow faster than the record fail at `MAX_MADE`, and the SQL of their size.

    If there are none, it is the same tree, and None. `fixed` are the fields whose values have a fixed size. Raise
    PipelineError if a call has no bound, or is above it whatever the record.
    """
    totals: list[str] = []

    def walk(node: Any) -> Any:  # noqa: ANN401 - plain JSON
        if isinstance(node, list):
            return [walk(part) for part in node]
        if not isinstance(node, dict):
            return node
        if not _grows(node):
            return {name: walk(part) for name, part in node.items()}
        total = _total(_Sizes(fixed).of(node, {}).made)
        if total is None:
            return node
        totals.append(total)
        condition = f"CASE WHEN {total} > {MAX_MADE} THEN CAST('{_TOO_LARGE}' AS BOOLEAN) ELSE true END"
        return parse(f"CASE WHEN {condition} THEN {_sql(node)} END")

    made: Node = walk(tree)
    return (made, " + ".join(totals)) if totals else (tree, None)


_TOO_LARGE: Final = f"{LIMIT}a lambda or a list makes at most {MAX_MADE:,} bytes and items of a record"


def _total(made: Size) -> str | None:
    """Return the SQL of a size, a double; None if it grows as the record does."""
    if made.get((), 0) > MAX_MADE:
        msg = f"makes more than {MAX_MADE:,} bytes and items of every record, in a lambda"
        raise PipelineError(msg)
    if all(len(term) <= 1 and factor <= _MAX_FACTOR for term, factor in made.items() if term):
        return None
    return " + ".join(" * ".join([f"{factor!r}::DOUBLE", *term]) for term, factor in sorted(made.items()))


def _grows(node: Node) -> bool:
    """Return whether a call can make more than a multiple of its arguments."""
    if node.get("class") != "FUNCTION":
        return False
    name, arguments = node["function_name"].lower(), arguments_of(node)
    if name in _PRODUCTS.keys() - _BOUNDED_ALONE and _PRODUCTS[name][1] < len(arguments):
        return True
    return _lambda_of(node) is not None or _is_nested(name, arguments)


def _is_nested(name: str, arguments: list[Node]) -> bool:
    """Return whether a function of JSON gives a part once for each part around it."""
    if name == "json_pretty":
        return True
    if len(arguments) < _WITH_PATH or not _JSON.fullmatch(name):
        return False
    # a path that depends on a value has no wildcards, and a list of paths has none
    path, values = arguments[1], list(descendants(arguments[1]))
    if path.get("function_name") == "list_value" or any(one.get("class") == "COLUMN_REF" for one in values):
        return False
    text = constant(path)
    return path["class"] != "CONSTANT" or (isinstance(text, str) and _NESTED.search(text) is not None)


def _lambda_of(call: Node) -> Node | None:
    """Return the lambda that a call has; an arrow, which has the same class, is an operator of JSON."""
    return next((one for one in arguments_of(call) if _is_lambda(one)), None)


def _is_lambda(node: Node) -> bool:
    return node.get("class") == "LAMBDA" and node.get("syntax_type") != "SINGLE_ARROW"


class _Sizes:
    """Sizes of the values of one tree."""

    def __init__(self, fixed: frozenset[str]) -> None:
        self._fixed = fixed
        self._numbers = count()

    def of(self, node: Node, bound: Mapping[str, Size]) -> _Value:
        """Return the size of a value; `bound` has those of the parameters of the lambdas around it, by name."""
        if node.get("class") == "COLUMN_REF":
            name = node["column_names"][0]
            own: Size = {(): 1} if name in self._fixed else {(_measured(node),): 1}
            return _Value(bound.get(name.lower(), own), {})
        if node.get("class") == "CONSTANT":
            text = constant(node)
            return _Value({(): 1 + len(text.encode()) if isinstance(text, str) else 1}, {})
        if not any(map(_grows, descendants(node))) and not _refers(node, bound):
            return _closed(node, is_repeated=bool(bound))
        if node.get("class") == "FUNCTION" and (function := _lambda_of(node)) is not None:
            return self._called(node, function, bound)
        parts = [self.of(part, bound) for part in _operands(node)]
        size = _size(node, [part.size for part in parts])
        return _Value(size, _sum([size, *(part.made for part in parts)]))

    def _called(self, call: Node, function: Node, bound: Mapping[str, Size]) -> _Value:
        """Return the size of the value of a call with a lambda."""
        name = call["function_name"].lower()
        given = [self.of(one, bound) for one in arguments_of(call) if one is not function]
        names = [one["column_names"][0].lower() for one in descendants(function["lhs"]) if "column_names" in one]
        own = {one: f"\0{next(self._numbers)}" for one in names}
        body = self.of(function["expr"], {**bound, **{one: {(own[one],): 1} for one in names}})
        before = _sum(one.made for one in given)
        if name == "invoke":
            values = {own[one]: value.size for one, value in zip(names, given, strict=False)}
            size, made = _replaced(body.size, values), _replaced(body.made, values)
            return _Value(size, _sum([before, made, size]))
        items, total = self._items(arguments_of(call)[0], bound), _sum(one.size for one in given)
        # what is behind the items is a number: the place of the item
        places: dict[str, Size] = {own[one]: {(): 1} for one in names[2 if name in _REDUCE else 1 :]}
        if name in _REDUCE:
            first, second = own[names[0]], own[names[1]] if len(names) > 1 else ""
            if _factor(body.size, first) > 1:
                msg = (
                    f"calls {name}() with a lambda that can make its result a multiple of {names[0]!r} with each item; "
                    f"use {names[0]!r} once, as in {names[0]} || ',' || {names[-1]}"
                )
                raise PipelineError(msg)
            added = {term: factor for term, factor in _replaced(body.size, places).items() if first not in term}
            size = _sum([total, _over(added, second, items, total)])
            step = _replaced(body.made, {first: size, second: total, **places})
            return _Value(size, _sum([before, step, size]))
        each, made = (_over(_replaced(one, places), own[names[0]], items, total) for one in (body.size, body.made))
        size = total if name in _FILTER else _sum([each, items])
        return _Value(size, _sum([before, made, size]))

    def _items(self, of: Node, bound: Mapping[str, Size]) -> Size:
        """Return the number of a list's items."""
        if of.get("class") == "FUNCTION" and of["function_name"].lower() in _LISTS_OF_ITEMS:
            return self._items(arguments_of(of)[0], bound)
        if any(map(_grows, descendants(of))) or _refers(of, bound):
            return self.of(of, bound).size
        return _atom(of, _length(of))


def _closed(node: Node, *, is_repeated: bool) -> _Value:
    """Return the size of a value without parameters of lambdas, which is measured; within a lambda it is repeated."""
    size = _own_size(node)
    if not is_repeated:
        return _Value(size, {})
    return _Value(size, _sum(_own_size(one) for one in descendants(node) if one.get("class") in _CALLS))


_CALLS: Final = frozenset({"FUNCTION", "CAST", "OPERATOR", "CASE"})


def _own_size(node: Node) -> Size:
    if _is_fixed(node):
        return {(): 1}
    return _atom(node, _length(node) if _is_list_of_fixed(node) else _measured(node))


def _measured(node: Node) -> str:
    """Return the SQL of a value's size, that of its text; one that fails where it stands has none."""
    return f"(coalesce(TRY(strlen(CAST({_sql(node)} AS VARCHAR))), 0) + 1)"


def _length(node: Node) -> str:
    """Return the SQL of the number of a list's items, or 1."""
    return f"greatest(coalesce(TRY(len({_sql(node)})), 1), 1)"


def _sql(node: Node) -> str:
    """Return the SQL of a value where it stands alone: a struct gives each of its values a name."""
    return unparse({name: part for name, part in node.items() if name != "alias"})


def _atom(node: Node, sql: str) -> Size:
    """Return a polynomial of a size that SQL measures: what depends on no field is a number."""
    import duckdb  # noqa: PLC0415 - as in `analyse.py`

    if any(one.get("class") == "COLUMN_REF" for one in descendants(node)):
        return {(sql,): 1}
    try:
        row = database().cursor().execute(f"SELECT {sql}").fetchone()
    except (duckdb.Error, UnicodeDecodeError):
        return {}  # the binder says so
    return {(): float(row[0]) if row else 0}


def _refers(node: Node, bound: Mapping[str, Size]) -> bool:
    return any(one.get("column_names", ("",))[0].lower() in bound for one in descendants(node))


def _operands(node: Node) -> Iterator[Node]:
    """Yield the values that a value is made of."""
    match node.get("class"):
        case "FUNCTION":
            yield from arguments_of(node)
        case "CASE":
            for check in node["case_checks"]:
                yield from (check["when_expr"], check["then_expr"])
            yield node["else_expr"]
        case _:
            for part in node.values():
                yield from (one for one in (part if isinstance(part, list) else [part]) if _is_value(one))


def _is_value(node: Any) -> bool:  # noqa: ANN401 - plain JSON
    return isinstance(node, dict) and node.get("class", "TYPE") != "TYPE"


def _size(node: Node, parts: list[Size]) -> Size:
    """Return the size of the value that an operation makes of its operands."""
    if _is_fixed(node):
        return {(): 1}
    match node["class"], node["type"]:
        case "CASE", _:
            return _most([*parts[1::2], parts[-1]])
        case "OPERATOR", "OPERATOR_COALESCE":
            return _most(parts)
        case "OPERATOR", _:
            return parts[0]
        case "FUNCTION", _:
            return _of_function(node["function_name"].lower(), arguments_of(node), parts)
        case _:
            return _scaled(_sum(parts), _GROWTH)


def _of_function(name: str, arguments: list[Node], parts: list[Size]) -> Size:
    total = _sum([*parts, {(): 1}] if name not in {"||", "concat"} else parts)
    if name in SIZES:
        sizes = [constant(arguments[place]) for place in SIZES[name] if place < len(arguments)]
        numbers = [abs(one) for one in sizes if isinstance(one, float)]
        return _scaled(total, max(numbers, default=0)) if len(numbers) == len(sizes) else _sum([total, _LARGEST])
    if name in FORMATS:
        text = str(constant(arguments[0]))
        widths = sum(map(int, _DIGITS.findall(text)))
        # a value can be given by its number more than once, and is cast to text
        return _sum([_scaled(total, 1 + text.count("{") + text.count("%")), {(): widths}])
    if name in _PRODUCTS and _PRODUCTS[name][1] < len(parts):
        first, *rest = _PRODUCTS[name] if name != "concat_ws" else range(len(parts))
        return _sum([total, _product(parts[first], _sum(parts[one] for one in rest))])
    if _is_nested(name, arguments):
        return _sum([total, _product(parts[0], _depth(arguments[0], parts[0]))])
    return total if name in _LINEAR else _scaled(total, 2 if name in _STRUCTS else _GROWTH)


_LARGEST: Final[Size] = {(): MAX_LENGTH}
_DIGITS: Final = re.compile(r"\d+")


def _depth(node: Node, size: Size) -> Size:
    """Return how many lists and objects of a JSON text can be within each other, with four blanks for each."""
    if any(map(_grows, descendants(node))) or any("\0" in one for term in size for one in term):
        return size
    text = f"CAST({_sql(node)} AS VARCHAR)"
    return _scaled(_atom(node, f"(coalesce(TRY(strlen({text}) - strlen(translate({text}, '[{{', ''))), 0) + 1)"), 4)


def _is_fixed(node: Node) -> bool:
    """Return whether the values of an operation have a fixed size, whatever those of its operands."""
    match node["class"], node["type"]:
        case "COMPARISON" | "BETWEEN" | "CONJUNCTION", _:
            return True
        case "OPERATOR", type_:
            return type_ in {
                "OPERATOR_IS_NULL",
                "OPERATOR_IS_NOT_NULL",
                "OPERATOR_NOT",
                "COMPARE_IN",
                "COMPARE_NOT_IN",
            }
        case "CAST", _:
            return _FIXED.fullmatch(node["type_expr"].get("type_name", "")) is not None
        case "FUNCTION", _:
            name = node["function_name"].lower()
            return name in _SHORT or _gives(name, _FIXED)
        case _:
            return False


def _is_list_of_fixed(node: Node) -> bool:
    """Return whether a call gives a list of values that have a fixed size."""
    return node.get("class") == "FUNCTION" and _gives(node["function_name"].lower(), _FIXED_LIST)


def _gives(name: str, of: re.Pattern[str]) -> bool:
    types = {one.text.rpartition(" -> ")[2] for one in table().get(name, ()) if one.kind == "scalar"}
    return bool(types) and all(map(of.fullmatch, types))


def _sum(sizes: Iterable[Size]) -> Size:
    total: dict[tuple[str, ...], float] = {}
    for one in sizes:
        for term, number in one.items():
            total[term] = total.get(term, 0) + number
    return total


def _scaled(size: Size, factor: float) -> Size:
    return {term: factor * number for term, number in size.items()}


def _most(sizes: list[Size]) -> Size:
    return {term: max(one.get(term, 0) for one in sizes) for term in set().union(*sizes)}


def _product(left: Size, right: Size) -> Size:
    return _sum({tuple(sorted([*a, *b])): x * y} for a, x in left.items() for b, y in right.items())


def _replaced(size: Size, values: Mapping[str, Size]) -> Size:
    """Return a polynomial in which parameters are replaced by the sizes of values."""
    made = []
    for term, number in size.items():
        one: Size = {tuple(factor for factor in term if factor not in values): number}
        for factor in term:
            if factor in values:
                one = _product(one, values[factor])
        made.append(one)
    return _sum(made)


def _over(size: Size, item: str, items: Size, total: Size) -> Size:
    """Return the sum of a size over the items of a list: that of the items is `total`, of their powers its powers."""
    each = {term: number for term, number in size.items() if item not in term}
    whole = {term: number for term, number in size.items() if item in term}
    return _sum([_product(each, items), _replaced(whole, {item: total})])


def _factor(size: Size, first: str) -> float:
    """Return by how much a size grows with a parameter: infinite if it is multiplied by another size."""
    return sum(number if term == (first,) else float("inf") for term, number in size.items() if first in term)
