"""Upper bounds on the size of a call's value: growth factors of functions, and polynomials of sizes.

The size of a value is its number of bytes and items. The size of a call's value is a polynomial in the sizes of its
arguments: their sum times the function's factor in `FACTORS`, a product of two of them, or a size that a number
requests. Tests compare the bounds with DuckDB's results for unusual texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from windrow.expressions import macros
from windrow.expressions.engine import quote
from windrow.expressions.functions import table
from windrow.expressions.macros import SIZES
from windrow.expressions.syntax import Node, arguments_of, constant, has_columns, unparse

Size = Mapping[tuple[str, ...], float]
"""A polynomial: maps the factors of each term, which are SQL or parameters of lambdas, to its coefficient."""

Kind = Literal["text", "texts", "other"]
"""The kind of a value: a text, a list of texts, or any other or unknown value."""


@dataclass(frozen=True)
class Value:
    """The size of a value, and of the memory `made` to compute it, including the value itself if it is allocated."""

    size: Size
    made: Size
    kind: Kind = "other"


FACTORS: Final[dict[str, float]] = {
    **dict.fromkeys(("bin", "to_binary"), 8),
    **dict.fromkeys(("base64", "hex", "to_base64", "to_hex"), 2),
    **dict.fromkeys(("hive_partition_component", "url_encode"), 3),
    "regexp_escape": 4,
    # a control character becomes six
    **dict.fromkeys(("array_to_json", "json_array", "json_object", "json_quote", "row_to_json", "to_json"), 6),
    # numbers get all their digits
    **dict.fromkeys(
        """
        json json_deep_merge json_insert json_merge_patch json_merge_patch_diff json_normalize json_pretty json_remove
        json_replace json_set json_strip_nulls
        """.split(),  # noqa: SIM905 - as a list it would be long
        5,
    ),
    **dict.fromkeys(("st_asgeojson", "st_astext", "st_aswkt"), 4),
    "icu_sort_key": 8,
    "decode": 2,
    "json_structure": 10,
    "strftime": 16,
    # an empty part is an item
    **dict.fromkeys(
        """
        list_histogram parse_path regexp_extract_all regexp_split_to_array split str_split str_split_regex string_split
        string_split_regex string_to_array
        """.split(),  # noqa: SIM905 - as a list it would be long
        2,
    ),
}
"""How many times larger a function's value can be than all its arguments together; 1 for functions not listed here.

A character that is mapped to another one, as in `upper`, counts as one byte: it has at most four, however often it
changes.
"""

_PRODUCTS: Final[dict[str, tuple[int, int]]] = {
    "array_aggr": (0, 2),
    "array_aggregate": (0, 2),
    "array_select": (0, 1),
    "array_to_string": (0, 1),
    "from_json": (0, 1),
    "from_json_strict": (0, 1),
    "json_transform": (0, 1),
    "json_transform_strict": (0, 1),
    "list_aggr": (0, 2),
    "list_aggregate": (0, 2),
    "list_select": (0, 1),
}
"""For each function that can repeat an argument for each item or byte of another: the other, and the repeated one."""

_PAIRS: Final = frozenset(
    """
    damerau_levenshtein editdist3 jaro_similarity jaro_winkler_similarity levenshtein
    """.split()  # noqa: SIM905 - as above
)
"""Functions that compare each character of a text with each character of another."""

# `bound.py` refuses the sum of lists
_SHORT: Final = macros.OWN_FUNCTIONS.union(
    "+ - add subtract chr dayname md5 monthname sha1 sha256 timezone typeof".split()  # noqa: SIM905 - as above
)
"""Functions whose values have a fixed size or are a short text, although their types do not say so."""
_FIXED: Final = re.compile(
    r"BOOLEAN|U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|REAL|DECIMAL|NUMERIC|DATE|TIME|INTERVAL|UUID|"
    r"TIMESTAMP(_S|_MS|_NS|TZ)?|TIME(STAMP)? WITH TIME ZONE|INT\d|FLOAT\d|LONG"
)
"""Types whose values have a fixed size."""
_TEXT: Final = re.compile("VARCHAR|TEXT|STRING|CHAR|BPCHAR|JSON", re.IGNORECASE)
_TEXTS: Final = re.compile(r"VARCHAR\[\]")
_SAME_ITEMS: Final = re.compile(
    r"(list|array)_(concat|cat|distinct|intersect|reverse|reverse_sort|slice|sort|where|select|append|resize)"
)
_NESTED: Final = re.compile(r"\.\.|\*\*")
_JSON: Final = re.compile(r"json_(extract|exists|keys|type|value|array_length)\w*|->>")
_REGEXP: Final = re.compile(r"regexp_\w+|str(ing)?_split_regex")
_WITH_PATH: Final = 2
_ONE: Final[Size] = {(): 1}
_TEXT_OF_FIXED: Final = 32
_QUOTED: Final[dict[Kind, float]] = {"text": 1, "texts": 6, "other": 20}
"""How many times larger a value's text is, as texts in a list are quoted and escaped, and numbers get more digits."""
_WIDTH: Final = 400
"""Maximum length of a double in a fixed-point format; the largest has 309 digits before the decimal point."""


def operation(node: Node, parts: Sequence[Value]) -> Value:  # noqa: PLR0911 - a case for each class
    """Return the size of an operation's value and the memory that it takes, given its operands."""
    if _is_fixed(node):
        return Value(_ONE, total(_work(node, parts) or [_ONE]))
    sizes = [part.size for part in parts]
    match node["class"], node["type"]:
        case "CASE", _:
            return Value(most([*sizes[1::2], sizes[-1]]), {}, _kind_of_all([*parts[1::2], parts[-1]]))
        case "OPERATOR", "OPERATOR_COALESCE":
            return Value(most(sizes), {}, _kind_of_all(parts))
        case "OPERATOR", "OPERATOR_TRY":
            return parts[0]
        case "OPERATOR", _:
            return Value(total(sizes), total(sizes))
        case "CAST", _:
            return _cast(node, parts[0])
        case "FUNCTION", _:
            return _call(node, parts)
        case class_, _:
            raise TypeError(class_)


def _kind_of_all(parts: Sequence[Value]) -> Kind:
    kinds = {part.kind for part in parts}
    return kinds.pop() if len(kinds) == 1 else "other"


def _cast(node: Node, part: Value) -> Value:
    """Return the size of the value of a cast; if a list is cast to text, its quotes and commas are escaped."""
    type_ = node["type_expr"]
    name = str(type_.get("type_name", ""))
    if _TEXT.fullmatch(name):
        # a column is measured by its text
        is_text = part.kind == "text" or (node["child"]["class"] == "COLUMN_REF" and not has_parameters(part.size))
        size = part.size if is_text else _text_size(part)
        return Value(size, size, "text")
    texts = name.lower() == "list" and _TEXT.fullmatch(str(type_["children"][0].get("type_name", ""))) is not None
    return Value(part.size, part.size, "texts" if texts else "other")


def _call(node: Node, parts: Sequence[Value]) -> Value:
    name, arguments = node["function_name"].lower(), arguments_of(node)
    size = made = _size(name, arguments, parts)
    if name in SIZES:
        made = scale(_requested(name, arguments, [part.size for part in parts]), _weight(name, arguments))
    return Value(size, total([made, *_work(node, parts)]), _kind(name, parts))


def _kind(name: str, parts: Sequence[Value]) -> Kind:
    if returns_only(name, _TEXT):
        return "text"
    if returns_only(name, _TEXTS):
        return "texts"
    if name in {"list_value", "list_pack"} and parts and all(part.kind == "text" for part in parts):
        return "texts"
    if name in {"||", "concat", "greatest", "least", "if", "ifnull", "nullif"} or _SAME_ITEMS.fullmatch(name):
        return _kind_of_all(parts[1:] if name == "if" else parts[:1] if _SAME_ITEMS.fullmatch(name) else parts)
    return "other"


def _size(name: str, arguments: Sequence[Node], parts: Sequence[Value]) -> Size:  # noqa: PLR0911 - a rule for each kind
    sizes = _as_text(arguments, parts) if name in _OF_TEXT else [part.size for part in parts]
    whole = total(sizes)
    if name in SIZES:
        return total([whole, _requested(name, arguments, sizes)])
    if name in macros.FORMATS:
        return _format_size(name, str(constant(arguments[0])), sizes)
    if name in {"replace", "regexp_replace"} and len(sizes) > _REPLACEMENT:
        return _replacement_size(name, arguments, sizes)
    if name == "concat_ws":
        items = [_ONE if part.kind == "text" else part.size for part in parts[1:]]
        return total([*sizes[1:], product(sizes[0], total(items))])
    if name in _PARTS and len(arguments) > _PARTS[name]:
        length = constant(arguments[_PARTS[name]])
        if isinstance(length, float) and abs(length) <= macros.MAX_IN_LAMBDA:
            return {(): 4 * abs(length) + 1}
    if name in _PRODUCTS and _PRODUCTS[name][1] < len(sizes):
        first, second = _PRODUCTS[name]
        return total([whole, product(sizes[first], _members(name, arguments[second], sizes[second]))])
    if is_nested(name, arguments):
        return total([scale(whole, FACTORS.get(name, 1)), product(sizes[0], _depth(arguments[0], sizes[0]))])
    if _has_list(name, arguments):
        return total([whole, product(sizes[0], sizes[1])])
    names = sum(len(argument.get("alias", "")) + 4 for argument in arguments) if name in _WITH_NAMES else 0
    short = 0 if name in {"||", "concat", "list_concat", "list_cat"} else _TEXT_OF_FIXED if name in FACTORS else 1
    factor = FACTORS["icu_sort_key"] if _COLLATION.fullmatch(name) else FACTORS.get(name, 1)
    return total([scale(whole, factor), {(): names + short}])


_COLLATION: Final = re.compile(r"(icu_)?collate_\w+")
_OF_TEXT: Final = frozenset({"||", "concat", "concat_ws", *macros.FORMATS})
"""Functions that convert any value to a text, or lists to a list."""


def _as_text(arguments: Sequence[Node], parts: Sequence[Value]) -> list[Size]:
    """Return the sizes of arguments as texts.

    A value that is not a text gets quotes within quotes, unless all arguments are lists.
    """
    are_lists = not any(part.kind == "text" for part in parts) and not any(
        node["class"] == "FUNCTION" and node["function_name"].lower() in _WITH_NAMES for node in arguments
    )
    return [
        part.size
        if part.kind == "text" or are_lists or node["class"] in {"COLUMN_REF", "CONSTANT"} or _is_fixed(node)
        else _text_size(part)
        for node, part in zip(arguments, parts, strict=True)
    ]


def _text_size(part: Value) -> Size:
    """Return the size of a value that is cast to text."""
    return total([scale(part.size, _QUOTED[part.kind]), {(): _TEXT_OF_FIXED}])


_PARTS: Final = {"substr": 2, "substring": 2, "left": 1, "right": 1, "substring_grapheme": 2, "left_grapheme": 1}
"""For each function, the position of the argument that is the maximum length of the value."""
_WITH_NAMES: Final = frozenset({"struct_pack", "struct_insert", "struct_update", "row", "json_object", "union_value"})
_REPLACEMENT: Final = 2
"""Position of the replacement among the arguments of `replace` and `regexp_replace`."""


def _requested(name: str, arguments: Sequence[Node], sizes: Sequence[Size]) -> Size:
    """Return the size that numbers among the arguments request, such as the count of `repeat`."""
    numbers = [number(arguments[place]) for place in SIZES[name] if place < len(arguments)]
    if not numbers:
        return _ONE
    if name in {"range", "generate_series"}:
        values = [value for value in map(constant, arguments) if isinstance(value, float)]
        if len(values) == len(arguments):
            return {(): max(map(abs, values))}
        length = try_sql(f"length_of_range({', '.join(map(value_sql, arguments))})", *arguments)
        return {("1", f"greatest(coalesce({length}, 0), 0)"): 1}
    if name == "repeat":
        return product(sizes[0], numbers[0])
    if name in {"list_resize", "array_resize"} and sizes[2:]:
        return product(sizes[2], numbers[0])
    return numbers[0]


def number(node: Node) -> Size:
    """Return a number as a polynomial, with 0 for a negative number.

    The polynomial of a number that is not constant has the number as the second of two factors.
    """
    value = constant(node)
    if isinstance(value, float):
        return {(): abs(value)}
    return {("1", f"greatest(coalesce({try_sql(f'CAST({value_sql(node)} AS DOUBLE)', node)}, 0), 0)"): 1}


def _weight(name: str, arguments: Sequence[Node]) -> float:
    """Return the weight of each byte or item that a number requests, which is 1 if all such numbers are constants."""
    if all(isinstance(constant(arguments[place]), float) for place in SIZES[name] if place < len(arguments)):
        return 1
    return macros.MAX_MADE / (macros.MAX_ITEMS if _is_of_items(name, arguments) else macros.MAX_LENGTH)


def _is_of_items(name: str, arguments: Sequence[Node]) -> bool:
    """Return True if the size of a bounded function's value is a number of items, which are short."""
    return name in _OF_ITEMS and len(arguments) <= _OF_ITEMS[name]


_OF_ITEMS: Final = {"range": 3, "generate_series": 3, "list_resize": 2, "array_resize": 2, "equi_width_bins": 4}


def _format_size(name: str, text: str, sizes: Sequence[Size]) -> Size:
    """Return the size of a formatted text; the format may use the same value more than once."""
    specifiers = _SPECIFIERS[name].findall(text)
    used = Counter(found[0] for found in specifiers)
    again = max((count for index, count in used.items() if index), default=0) + (1 if used[""] else 0)
    widths = sum(4 * int(digits) for found in specifiers for digits in re.findall(r"\d+", found[1]))
    return total([scale(total(sizes[1:]), max(again, 1)), {(): len(text.encode()) + widths + _WIDTH * len(specifiers)}])


_SPECIFIERS: Final = {
    "format": re.compile(r"\{(\d*)([^}]*)\}"),
    "printf": re.compile(r"%(?:(\d+)\$)?([^a-zA-Z]*[a-zA-Z])"),
}


def _replacement_size(name: str, arguments: Sequence[Node], sizes: Sequence[Size]) -> Size:
    """Return the size of a text after parts of it have been replaced."""
    old, new = constant(arguments[1]), constant(arguments[_REPLACEMENT])
    if not isinstance(new, str) or (name == "replace" and not isinstance(old, str)):
        return total([sizes[0], product(sizes[0], sizes[_REPLACEMENT])])
    length = len(new.encode())
    if name == "replace":
        return scale(sizes[0], max(1, length / max(len(str(old).encode()), 1)))
    options = constant(arguments[3]) if len(arguments) > _REPLACEMENT + 1 else ""
    references = new.count("\\")
    if isinstance(options, str) and "g" not in options:
        return total([scale(sizes[0], 1 + references), {(): length}])
    return scale(sizes[0], 1 + references + length)


def _members(name: str, node: Node, size: Size) -> Size:
    """Return how often a function can repeat its argument: once for each member of a JSON structure."""
    text = constant(node)
    return {(): text.count(",") + text.count(":") + 1} if "json" in name and isinstance(text, str) else size


def is_nested(name: str, arguments: Sequence[Node]) -> bool:
    """Return True if a JSON function returns a part once for each part that encloses it."""
    if name == "json_pretty":
        return True
    if len(arguments) < _WITH_PATH or not _JSON.fullmatch(name):
        return False
    # a path that depends on a value has no wildcards, and a list of paths has none
    path = arguments[1]
    if path.get("function_name") == "list_value" or has_columns(path):
        return False
    text = constant(path)
    return path["class"] != "CONSTANT" or (isinstance(text, str) and _NESTED.search(text) is not None)


def _has_list(name: str, arguments: Sequence[Node]) -> bool:
    """Return True if a call has a list of constants that can each select a part of the whole text."""
    return (
        len(arguments) > 1
        and (_JSON.fullmatch(name) is not None or _REGEXP.fullmatch(name) is not None)
        and any(
            argument.get("class") == "FUNCTION" and argument["function_name"].lower() == "list_value"
            for argument in arguments[1:]
        )
    )


def _depth(node: Node, size: Size) -> Size:
    """Return the size of four spaces for each level of nested lists and objects in a JSON text."""
    if has_parameters(size):
        return size
    return {("4", f"coalesce(json_depth(CAST({value_sql(node)} AS VARCHAR)), 0)"): 1}


def has_parameters(size: Size) -> bool:
    """Return True if a size depends on the parameters of lambdas."""
    return any("\0" in part for term in size for part in term)


def _work(node: Node, parts: Sequence[Value]) -> list[Size]:
    """Return the work of a call in addition to its value, such as comparing all pairs of characters of two texts."""
    if node.get("class") != "FUNCTION" or len(parts) < _WITH_PATH:
        return []
    name, arguments = node["function_name"].lower(), arguments_of(node)
    if name in _PAIRS or (_REGEXP.fullmatch(name) and has_columns(arguments[1])):
        return [product(parts[0].size, parts[1].size)]
    if name == "timezone" and has_columns(arguments[0]):
        # an unknown name is compared with all names, to suggest similar ones
        return [scale(parts[0].size, _LENGTH_OF_ZONES)]
    return []


_LENGTH_OF_ZONES: Final = 10_000
_CONDITIONS: Final = frozenset(
    "OPERATOR_IS_NULL OPERATOR_IS_NOT_NULL OPERATOR_NOT COMPARE_IN COMPARE_NOT_IN".split()  # noqa: SIM905 - as above
)


def _is_fixed(node: Node) -> bool:
    """Return True if the values of an operation have a fixed size, regardless of the sizes of its operands."""
    match node["class"], node["type"]:
        case "COMPARISON" | "BETWEEN" | "CONJUNCTION", _:
            return True
        case "OPERATOR", type_:
            return type_ in _CONDITIONS
        case "CAST", _:
            return _FIXED.fullmatch(node["type_expr"].get("type_name", "")) is not None
        case "FUNCTION", _:
            name = node["function_name"].lower()
            return name in _SHORT or returns_only(name, _FIXED)
        case _:
            return False


def returns_only(name: str, types: re.Pattern[str]) -> bool:
    """Return True if all overloads of a function return a type that matches the pattern."""
    found = {overload.text.rpartition(" -> ")[2] for overload in table().get(name, ()) if overload.kind == "scalar"}
    return bool(found) and all(map(types.fullmatch, found))


def limit_message(node: Node, weight: int) -> str:
    """Return the error message for a call that exceeds its limit; each byte and item counts `weight` times."""
    name = node.get("function_name", "cast").lower()
    if name in _PAIRS or name == "timezone" or (_REGEXP.fullmatch(name) and returns_only(name, _FIXED)):
        return f"{macros.LIMIT}{name}() would compare more than {macros.MAX_MADE:,} pairs of characters"
    limit, unit = macros.MAX_MADE // weight, "bytes and items for one record"
    if name in SIZES:
        is_of_items = _is_of_items(name, arguments_of(node))
        limit, unit = (macros.MAX_ITEMS, "items") if is_of_items else (macros.MAX_LENGTH, _UNITS.get(name, "bytes"))
    return f"{macros.LIMIT}{name}() would produce more than {limit:,} {unit}"


_UNITS: Final = {"lpad": "characters", "rpad": "characters", "bar": "characters", "bitstring": "bits"}


def value_sql(node: Node) -> str:
    """Return the SQL of a value by itself, without the name that it has in a struct."""
    if node["class"] == "COLUMN_REF":
        return ".".join(map(quote, node["column_names"]))
    return unparse({name: part for name, part in node.items() if name != "alias"})


def try_sql(text: str, *of: Node) -> str:
    """Return SQL that measures values, or null if computing one of these values fails."""
    return text if all(node["class"] in {"COLUMN_REF", "CONSTANT"} for node in of) else f"TRY({text})"


def total(sizes: Iterable[Size]) -> Size:
    """Return the sum of polynomials."""
    result: dict[tuple[str, ...], float] = {}
    for size in sizes:
        for term, factor in size.items():
            result[term] = result.get(term, 0) + factor
    return result


def scale(size: Size, factor: float) -> Size:
    """Return a polynomial multiplied by a factor."""
    return {term: factor * coefficient for term, coefficient in size.items()}


def most(sizes: Sequence[Size]) -> Size:
    """Return a polynomial that is at least as large as each of the given ones."""
    return {term: max(size.get(term, 0) for size in sizes) for term in set().union(*sizes)}


def product(left: Size, right: Size) -> Size:
    """Return the product of two polynomials."""
    return total({tuple(sorted([*a, *b])): x * y} for a, x in left.items() for b, y in right.items())
