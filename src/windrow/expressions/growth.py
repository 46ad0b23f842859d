"""How large the value of a call can be: the table of functions by how they grow, and polynomials of sizes.

The size of a value is the number of its bytes and items. That of a call's value is a polynomial in the sizes of its
arguments: their sum times the factor of the function in `FACTORS`, a product of two of them, or what a number asks for.
It is an upper bound, and tests hold it against what DuckDB makes of odd texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from windrow.expressions.functions import table
from windrow.expressions.macros import (
    FORMATS,
    LIMIT,
    MAX_IN_LAMBDA,
    MAX_ITEMS,
    MAX_LENGTH,
    MAX_MADE,
    OWN_FUNCTIONS,
    SIZES,
)
from windrow.expressions.syntax import Node, arguments_of, constant, descendants, unparse

Size = Mapping[tuple[str, ...], float]
"""A polynomial: by the factors of a term, which are SQL or names of lambdas' parameters, its number."""

Kind = Literal["text", "texts", "other"]
"""What a value is, as far as that is known: a text, a list of texts, or any other."""


@dataclass(frozen=True)
class Value:
    """The size of a value, and that of all that is made to compute it, with itself if it is made."""

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
    # numbers are written with all their digits
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
"""By how much the value of a function can be larger than its arguments together; of all others it is not larger.

A character that becomes another, as in `upper`, counts as one: it has four bytes at the most, however often it does.
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
"""The arguments of each function that can repeat the second for each item or byte of the first."""

_PAIRS: Final = frozenset(
    """
    damerau_levenshtein editdist3 jaro_similarity jaro_winkler_similarity levenshtein
    """.split()  # noqa: SIM905 - as above
)
"""Functions that compare each character of a text with each of another."""

# `bound.py` refuses the sum of lists
_SHORT: Final = frozenset(
    {
        *OWN_FUNCTIONS,
        "+",
        "-",
        "add",
        "subtract",
        "chr",
        "dayname",
        "md5",
        "monthname",
        "sha1",
        "sha256",
        "timezone",
        "typeof",
    }
)
"""Functions whose values have a fixed size, or a short text, which their types do not say."""
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
"""By how much the text of a value is larger: one of a list has quotes and signs before them, a number more digits."""
_WIDTH: Final = 400
"""The length of a double's text in a format with a fixed point: the largest has 309 digits before it."""


def operation(node: Node, parts: Sequence[Value]) -> Value:  # noqa: PLR0911 - a case for each class
    """Return the value that an operation makes of its operands."""
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
    """Return the value of a cast: the text of a list has quotes, with a sign before each, and commas."""
    type_ = node["type_expr"]
    name = str(type_.get("type_name", ""))
    if _TEXT.fullmatch(name):
        # what is measured is measured by its text
        is_text = part.kind == "text" or (node["child"]["class"] == "COLUMN_REF" and not of_parameters(part.size))
        size = part.size if is_text else total([scaled(part.size, _QUOTED[part.kind]), {(): _TEXT_OF_FIXED}])
        return Value(size, size, "text")
    texts = name.lower() == "list" and _TEXT.fullmatch(str(type_["children"][0].get("type_name", ""))) is not None
    return Value(part.size, part.size, "texts" if texts else "other")


def _call(node: Node, parts: Sequence[Value]) -> Value:
    name, arguments = node["function_name"].lower(), arguments_of(node)
    size = _size(name, arguments, parts)
    asked = (
        scaled(_asked(name, arguments, [part.size for part in parts]), _weight(name, arguments))
        if name in SIZES
        else size
    )
    made = total([asked, *_work(node, parts)])
    return Value(size, made, _kind(name, parts))


def _kind(name: str, parts: Sequence[Value]) -> Kind:
    if gives(name, _TEXT):
        return "text"
    if gives(name, _TEXTS):
        return "texts"
    if name in {"list_value", "list_pack"} and parts and all(part.kind == "text" for part in parts):
        return "texts"
    if name in {"||", "concat", "greatest", "least", "if", "ifnull", "nullif"} or _SAME_ITEMS.fullmatch(name):
        return _kind_of_all(parts[1:] if name == "if" else parts[:1] if _SAME_ITEMS.fullmatch(name) else parts)
    return "other"


def _size(name: str, arguments: Sequence[Node], parts: Sequence[Value]) -> Size:  # noqa: PLR0911 - a rule for each kind
    """Return the size of a call's value."""
    sizes = _as_text(arguments, parts) if name in _OF_TEXT else [part.size for part in parts]
    whole = total(sizes)
    if name in SIZES:
        return total([whole, _asked(name, arguments, sizes)])
    if name in FORMATS:
        return _formatted(name, str(constant(arguments[0])), sizes)
    if name in _REPLACED and len(sizes) > _REPLACED[name]:
        return _replaced(name, arguments, sizes)
    if name == "concat_ws":
        items = [_ONE if part.kind == "text" else part.size for part in parts[1:]]
        return total([*sizes[1:], product(sizes[0], total(items))])
    if name in _PARTS and len(arguments) > _PARTS[name]:
        length = constant(arguments[_PARTS[name]])
        if isinstance(length, float) and abs(length) <= MAX_IN_LAMBDA:
            return {(): 4 * abs(length) + 1}
    if name in _PRODUCTS and _PRODUCTS[name][1] < len(sizes):
        first, second = _PRODUCTS[name]
        return total([whole, product(sizes[first], _members(name, arguments[second], sizes[second]))])
    if is_nested(name, arguments):
        return total([scaled(whole, FACTORS.get(name, 1)), product(sizes[0], _depth(arguments[0], sizes[0]))])
    if _has_list(name, arguments):
        return total([whole, product(sizes[0], sizes[1])])
    names = sum(len(argument.get("alias", "")) + 4 for argument in arguments) if name in _WITH_NAMES else 0
    short = 0 if name in {"||", "concat", "list_concat", "list_cat"} else _TEXT_OF_FIXED if name in FACTORS else 1
    factor = FACTORS["icu_sort_key"] if _COLLATION.fullmatch(name) else FACTORS.get(name, 1)
    return total([scaled(whole, factor), {(): names + short}])


_COLLATION: Final = re.compile(r"(icu_)?collate_\w+")


_OF_TEXT: Final = frozenset({"||", "concat", "concat_ws", *FORMATS})
"""Functions that make a text of any value, or of lists a list."""


def _as_text(arguments: Sequence[Node], parts: Sequence[Value]) -> list[Size]:
    """Return the sizes of arguments as texts: what is no text has quotes within quotes, unless all are lists."""
    are_lists = not any(part.kind == "text" for part in parts) and all(map(_can_be_list, arguments))
    return [
        part.size
        if part.kind == "text" or are_lists or node["class"] in {"COLUMN_REF", "CONSTANT"} or _is_fixed(node)
        else total([scaled(part.size, _QUOTED[part.kind]), {(): _TEXT_OF_FIXED}])
        for node, part in zip(arguments, parts, strict=True)
    ]


def _can_be_list(node: Node) -> bool:
    return node["class"] != "FUNCTION" or node["function_name"].lower() not in _WITH_NAMES


_PARTS: Final = {"substr": 2, "substring": 2, "left": 1, "right": 1, "substring_grapheme": 2, "left_grapheme": 1}
"""The argument of each function that is the length of its value."""
_WITH_NAMES: Final = frozenset({"struct_pack", "struct_insert", "struct_update", "row", "json_object", "union_value"})
_REPLACED: Final = {"replace": 2, "regexp_replace": 2}


def _asked(name: str, arguments: Sequence[Node], sizes: Sequence[Size]) -> Size:
    """Return the size that numbers ask for."""
    numbers = [number(arguments[place]) for place in SIZES[name] if place < len(arguments)]
    if not numbers:
        return _ONE
    if name in {"range", "generate_series"}:
        values = [value for value in map(constant, arguments) if isinstance(value, float)]
        if len(values) == len(arguments):
            return {(): max(map(abs, values))}
        length = tried(f"length_of_range({', '.join(map(sql, arguments))})", *arguments)
        return {("1", f"greatest(coalesce({length}, 0), 0)"): 1}
    if name == "repeat":
        return product(sizes[0], numbers[0])
    if name in {"list_resize", "array_resize"} and sizes[2:]:
        return product(sizes[2], numbers[0])
    return numbers[0]


def number(node: Node) -> Size:
    """Return the polynomial that a number is, 0 if it is less; what is not constant is the second of two factors."""
    value = constant(node)
    if isinstance(value, float):
        return {(): abs(value)}
    return {("1", f"greatest(coalesce({tried(f'CAST({sql(node)} AS DOUBLE)', node)}, 0), 0)"): 1}


def _weight(name: str, arguments: Sequence[Node]) -> float:
    """Return how much each byte or item counts of what numbers of the record ask for."""
    if name not in SIZES or all(
        isinstance(constant(arguments[place]), float) for place in SIZES[name] if place < len(arguments)
    ):
        return 1
    return MAX_MADE / (MAX_ITEMS if name in _OF_ITEMS and len(arguments) <= _OF_ITEMS[name] else MAX_LENGTH)


_OF_ITEMS: Final = {"range": 3, "generate_series": 3, "list_resize": 2, "array_resize": 2, "equi_width_bins": 4}


def _formatted(name: str, text: str, sizes: Sequence[Size]) -> Size:
    """Return the size of a format's text, in which a value can be given by its number more than once."""
    specifiers = _SPECIFIERS[name].findall(text)
    used = Counter(found[0] for found in specifiers)
    again = max((count for index, count in used.items() if index), default=0) + (1 if used[""] else 0)
    widths = sum(4 * int(digits) for found in specifiers for digits in re.findall(r"\d+", found[1]))
    return total(
        [scaled(total(sizes[1:]), max(again, 1)), {(): len(text.encode()) + widths + _WIDTH * len(specifiers)}]
    )


_SPECIFIERS: Final = {
    "format": re.compile(r"\{(\d*)([^}]*)\}"),
    "printf": re.compile(r"%(?:(\d+)\$)?([^a-zA-Z]*[a-zA-Z])"),
}


def _replaced(name: str, arguments: Sequence[Node], sizes: Sequence[Size]) -> Size:
    """Return the size of a text in which parts are replaced by another."""
    old, new = constant(arguments[1]), constant(arguments[2])
    if name == "replace":
        if isinstance(new, str) and isinstance(old, str):
            return scaled(sizes[0], max(1, len(new.encode()) / max(len(old.encode()), 1)))
        return total([sizes[0], product(sizes[0], sizes[2])])
    options = constant(arguments[3]) if len(arguments) > _REPLACED[name] + 1 else ""
    references = new.count("\\") if isinstance(new, str) else None
    if references is None:
        return total([sizes[0], product(sizes[0], sizes[2])])
    if isinstance(options, str) and "g" not in options:
        return total([scaled(sizes[0], 1 + references), {(): len(str(new).encode())}])
    return scaled(sizes[0], 1 + references + len(str(new).encode()))


def _members(name: str, node: Node, size: Size) -> Size:
    """Return how often a function can repeat its argument: once for each member of the structure of JSON."""
    text = constant(node)
    return {(): text.count(",") + text.count(":") + 1} if "json" in name and isinstance(text, str) else size


def is_nested(name: str, arguments: Sequence[Node]) -> bool:
    """Return whether a function of JSON gives a part once for each part around it."""
    if name == "json_pretty":
        return True
    if len(arguments) < _WITH_PATH or not _JSON.fullmatch(name):
        return False
    # a path that depends on a value has no wildcards, and a list of paths has none
    path, values = arguments[1], list(descendants(arguments[1]))
    if path.get("function_name") == "list_value" or any(value.get("class") == "COLUMN_REF" for value in values):
        return False
    text = constant(path)
    return path["class"] != "CONSTANT" or (isinstance(text, str) and _NESTED.search(text) is not None)


def _has_list(name: str, arguments: Sequence[Node]) -> bool:
    """Return whether a call has a list of constants of which each can give a part of the whole text."""
    return (
        len(arguments) > 1
        and (_JSON.fullmatch(name) is not None or _REGEXP.fullmatch(name) is not None)
        and any(
            argument.get("class") == "FUNCTION" and argument["function_name"].lower() == "list_value"
            for argument in arguments[1:]
        )
    )


def _depth(node: Node, size: Size) -> Size:
    """Return four blanks for each list and object that are within each other in a JSON text."""
    if of_parameters(size):
        return size
    return {("4", f"coalesce(json_depth(CAST({sql(node)} AS VARCHAR)), 0)"): 1}


def of_parameters(size: Size) -> bool:
    """Return whether a size depends on the parameters of lambdas."""
    return any("\0" in one for term in size for one in term)


def _work(node: Node, parts: Sequence[Value]) -> list[Size]:
    """Return what a call takes beside its value: a comparison of each character with each other."""
    if node.get("class") != "FUNCTION" or len(parts) < _WITH_PATH:
        return []
    name, arguments = node["function_name"].lower(), arguments_of(node)
    if name in _PAIRS or (_REGEXP.fullmatch(name) and _depends(arguments[1])):
        return [product(parts[0].size, parts[1].size)]
    if name == "timezone" and _depends(arguments[0]):
        # an unknown name is compared with all names, to say which are like it
        return [scaled(parts[0].size, _LENGTH_OF_ZONES)]
    return []


_LENGTH_OF_ZONES: Final = 10_000


def _depends(node: Node) -> bool:
    return any(descendant.get("class") == "COLUMN_REF" for descendant in descendants(node))


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
            return name in _SHORT or gives(name, _FIXED)
        case _:
            return False


def gives(name: str, of: re.Pattern[str]) -> bool:
    """Return whether all values of a function have a type of some."""
    types = {one.text.rpartition(" -> ")[2] for one in table().get(name, ()) if one.kind == "scalar"}
    return bool(types) and all(map(of.fullmatch, types))


def too_large(node: Node, weight: int) -> str:
    """Return the text with which a call fails that makes too much of a record; a byte or item counts `weight` times."""
    name = node.get("function_name", "cast").lower()
    if name in _PAIRS or name == "timezone" or (_REGEXP.fullmatch(name) and gives(name, _FIXED)):
        return f"{LIMIT}{name}() compares at most {MAX_MADE:,} pairs of characters"
    most, unit = MAX_MADE // weight, "bytes and items of a record"
    if name in SIZES:
        items = name in _OF_ITEMS and len(arguments_of(node)) <= _OF_ITEMS[name]
        most, unit = (MAX_ITEMS, "items") if items else (MAX_LENGTH, _UNITS.get(name, "bytes"))
    return f"{LIMIT}{name}() makes at most {most:,} {unit}"


_UNITS: Final = {"lpad": "characters", "rpad": "characters", "bar": "characters", "bitstring": "bits"}


def sql(node: Node) -> str:
    """Return the SQL of a value where it stands alone: a struct gives each of its values a name."""
    if node["class"] == "COLUMN_REF":
        return ".".join('"' + name.replace('"', '""') + '"' for name in node["column_names"])
    return unparse({name: part for name, part in node.items() if name != "alias"})


def tried(text: str, *of: Node) -> str:
    """Return the SQL of what is measured of values, null where one that is not there yet fails."""
    return text if all(node["class"] in {"COLUMN_REF", "CONSTANT"} for node in of) else f"TRY({text})"


def total(sizes: Iterable[Size]) -> Size:
    """Return the sum of polynomials."""
    made: dict[tuple[str, ...], float] = {}
    for size in sizes:
        for term, factor in size.items():
            made[term] = made.get(term, 0) + factor
    return made


def scaled(size: Size, factor: float) -> Size:
    """Return a multiple of a polynomial."""
    return {term: factor * one for term, one in size.items()}


def most(sizes: Sequence[Size]) -> Size:
    """Return a polynomial that is at least each of some."""
    return {term: max(size.get(term, 0) for size in sizes) for term in set().union(*sizes)}


def product(left: Size, right: Size) -> Size:
    """Return the product of two polynomials."""
    return total({tuple(sorted([*a, *b])): x * y} for a, x in left.items() for b, y in right.items())
