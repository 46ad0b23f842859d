"""Syntax of SQL expressions: the parts of calls, syntax trees, and the constructs that expressions must not contain.

DuckDB parses the text. A tree is its JSON, as returned by `json_serialize_sql`. An expression is a function of its
record alone: it has no subquery, aggregate, window function or clock. The checks here give the better error messages,
but `bound.py` guarantees this, because types are known there and macros are expanded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from windrow.errors import HIDDEN_VALUES, PipelineError
from windrow.expressions.engine import database
from windrow.expressions.functions import WHY, refuse_call
from windrow.expressions.macros import EAGER, FORMATS, MAX_IN_LAMBDA, NULL_CHECKED, SIZES

_PLAIN_CALL = re.compile(r"\s*(\w+)\s*\(([\w\s.,]*)\)\s*")
_WORD = re.compile(r"\w+")
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True)
class SqlCall:
    """A function's name, the texts of its arguments, and the condition after `where`, or None."""

    name: str
    arguments: tuple[str, ...]
    where: str | None


def split_call(text: str) -> SqlCall | None:
    """Split a call with an optional condition into its parts, or return None for any other text.

    Brackets and commas in quotes or comments do not count. The parts themselves are not parsed.
    """
    plain = _PLAIN_CALL.fullmatch(text)
    if plain:
        return SqlCall(plain[1], _arguments([argument.strip() for argument in plain[2].split(",")]), None)
    tokens = list(_tokens(text))
    if [_WORD.fullmatch(part) is not None for _, part, _ in tokens[:2]] != [True, False] or tokens[1][1] != "(":
        return None
    depth, cuts = 0, [tokens[1][0]]
    for number, (position, part, _) in enumerate(tokens[1:], 1):
        depth += (part in _OPEN) - (part in _CLOSE)
        if depth == 0 or (depth == 1 and part == ","):
            cuts.append(position)
        if depth == 0:
            where = _condition(text, tokens[number + 1 :])
            arguments = [text[start + 1 : end].strip() for start, end in pairwise(cuts)]
            return None if where is None else SqlCall(tokens[0][1], _arguments(arguments), where or None)
    return None


def bracket_problem(text: str) -> str | None:
    """Return a message if a bracket is missing or extra, or None if all brackets are paired."""
    if text.count("(") == text.count(")"):
        return None
    depth = 0
    for _, part, _ in _tokens(text):
        depth += (part == "(") - (part == ")")
        if depth < 0:
            return "has a closing bracket without an opening one"
    return "lacks a closing bracket" if depth else None


def _arguments(arguments: list[str]) -> tuple[str, ...]:
    return () if arguments == [""] else tuple(arguments)


def _condition(text: str, rest: list[tuple[int, str, str]]) -> str | None:
    """Return the condition in the tokens after a call.

    Return an empty string if there are no tokens, and None if the tokens are not a condition.
    """
    if not rest:
        return ""
    if rest[0][1].lower() != "where" or len(rest) == 1:
        return None
    return text[rest[1][0] :].strip()


def _tokens(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (position, text, kind) for each SQL token; brackets and commas are tokens, and texts keep their quotes."""
    import duckdb  # noqa: PLC0415 - it is heavy, and plain calls are split without it

    # DuckDB counts bytes
    encoded = text.encode()
    found = [(len(encoded[:position].decode()), str(kind)) for position, kind in duckdb.tokenize(text)]
    starts = [position for position, _ in found]
    for (start, kind), end in zip(found, [*starts[1:], len(text)], strict=False):
        if not kind.endswith("comment"):
            yield start, text[start:end].strip(), kind


Node = dict[str, Any]

_NODE_CLASSES = {
    "CONJUNCTION",
    "COMPARISON",
    "BETWEEN",
    "CASE",
    "CAST",
    "COLUMN_REF",
    "CONSTANT",
    "FUNCTION",
    "OPERATOR",
}
_INNER_CLASSES = {"LAMBDA", "TYPE"}
_REFUSED_CLASSES = {
    "SUBQUERY": "has a subquery; an expression can only use the fields of its own record",
    "WINDOW": "has a window function; an expression can only use the fields of its own record",
    "PARAMETER": "has a parameter; write the value",
    "STAR": "has a *; list the fields",
}
_CLOCKS = {"current_timestamp", "current_date", "current_time", "localtimestamp", "localtime"}
_SELECT_OF_ONE = {"type", "cte_map", "select_list", "from_table", "aggregate_handling"}


def parse(text: str, fields: frozenset[str] = frozenset()) -> Node:
    """Return the syntax tree of one expression; raise PipelineError for anything else.

    The expression may use the names in `fields`. If one of them is an SQL keyword, the error message gives a hint.
    """
    if not text.strip():
        msg = "the expression is empty"
        raise PipelineError(msg)
    serialized = _serialize(f"SELECT {text}\n")
    if serialized["error"]:
        reason = duckdb_reason(text, serialized["error_message"])
        msg = f"{text!r} is not an SQL expression: {reason}{_reserved_hint(text, fields)}"
        raise PipelineError(msg)
    nodes = [statement["node"] for statement in serialized["statements"]]
    whole = nodes[0]
    if (
        len(nodes) != 1
        or whole["type"] != "SELECT_NODE"
        or set(whole) - _SELECT_OF_ONE
        or whole["from_table"]["type"] != "EMPTY"
        or len(whole["select_list"]) != 1
        or whole["cte_map"]
        or whole["select_list"][0].get("alias")
    ):
        msg = f"{text!r} is not a single SQL expression; write a value such as price * quantity, without clauses"
        raise PipelineError(msg)
    tree: Node = whole["select_list"][0]
    return tree


def duckdb_reason(text: str, message: str) -> str:
    """Return DuckDB's message about an expression, unless it may quote the value of a variable."""
    if HIDDEN_VALUES.are_in(text):
        return "the reason is not shown, as it may quote the value of a variable; write the value here to see it"
    return message


def unparse(tree: Node) -> str:
    """Return the text of a syntax tree: the inverse of `parse`."""
    template = _template()
    statement = template["statements"][0]
    whole = template | {"statements": [statement | {"node": statement["node"] | {"select_list": [tree]}}]}
    row = database().cursor().execute("SELECT json_deserialize_sql(?)", [json.dumps(whole)]).fetchone()
    return str(row[0]).removeprefix("SELECT ") if row else ""


@lru_cache(maxsize=1)
def _template() -> Node:
    return _serialize("SELECT 1")


def _reserved_hint(text: str, fields: frozenset[str]) -> str:
    """Return the end of a message that says which fields in the text are SQL keywords, and how to write them."""
    keywords = {part.lower() for _, part, kind in _tokens(text) if kind.endswith("keyword")}
    found = sorted(name for name in fields if name.lower() in keywords)
    if not found:
        return ""
    are = "is an SQL keyword" if len(found) == 1 else "are SQL keywords"
    quoted = " and ".join(f'"{name}"' for name in found)
    return f"; {', '.join(found)} {are}: to mean a field, write {quoted} in double quotes"


def columns(tree: Node) -> tuple[str, ...]:
    """Return the columns of a syntax tree without duplicates; raise PipelineError for a column with parts."""
    return tuple(dict.fromkeys(_columns(tree, frozenset())))


def is_column(word: str, fields: frozenset[str]) -> bool:
    """Return True if SQL reads a word as the name of a column; true, null and current_date are values."""
    try:
        tree = parse(word, fields)
        refuse_impure(tree, fields)
        return columns(tree) == (word,)
    except PipelineError:
        return False


def _columns(node: Any, bound: frozenset[str]) -> Iterator[str]:  # noqa: ANN401 - plain JSON
    if isinstance(node, list):
        for part in node:
            yield from _columns(part, bound)
    elif isinstance(node, dict):
        match node.get("class"):
            case "COLUMN_REF":
                name, *parts = node["column_names"]
                if name not in bound:
                    if parts:
                        msg = f"{'.'.join([name, *parts])!r} is not a field; fields have no parts"
                        raise PipelineError(msg)
                    yield name
            case "LAMBDA" if is_lambda(node):
                yield from _columns(node["expr"], bound | set(_columns(node["lhs"], frozenset())))
            case _:
                for part in node.values():
                    yield from _columns(part, bound)


def refuse_impure(tree: Node, fields: frozenset[str]) -> None:
    """Raise PipelineError if a syntax tree, in which types are unknown, depends on more than its record."""
    for node in descendants(tree):
        kind = node.get("class")
        if kind in _REFUSED_CLASSES:
            raise PipelineError(_REFUSED_CLASSES[kind])
        if kind is not None and kind not in _NODE_CLASSES | _INNER_CLASSES:
            msg = f"has a {kind.lower().replace('_', ' ')}, which an expression over a record cannot have"
            raise PipelineError(msg)
        if kind == "COLUMN_REF" and node["column_names"][0].lower() in _CLOCKS - fields:
            msg = f"has {node['column_names'][0]}, {WHY['clock']}"
            raise PipelineError(msg)
    for node in descendants(tree):
        if node.get("class") == "FUNCTION":
            _refuse_call(node)
    _refuse_sizes(tree, depth=0)


def _refuse_call(call: Node) -> None:
    name, arguments = call["function_name"].lower(), arguments_of(call)
    if len(call.get("qualified_name", {}).get("path", ())) > 1:
        msg = f"uses {name}() with a schema or as a method; write {name}(...)"
        raise PipelineError(msg)
    refuse_call(name, len(arguments))
    if name in FORMATS and arguments:
        _refuse_format(name, constant(arguments[0]))


def _refuse_format(name: str, text: str | float | None) -> None:
    """Raise PipelineError for a format with a width that is unknown or greater than `MAX_IN_LAMBDA`."""
    if not isinstance(text, str):
        msg = f"calls {name}() with a format that is not a constant text; write it out"
        raise PipelineError(msg)
    for specifier in _SPECIFIERS[name].findall(text.replace("{{", "").replace("%%", "")):
        if _OPEN_WIDTH.search(specifier) or any(int(width) > MAX_IN_LAMBDA for width in _DIGITS.findall(specifier)):
            msg = f"calls {name}() with {text!r}; a width is a number of at most {MAX_IN_LAMBDA:,}"
            raise PipelineError(msg)


_SPECIFIERS = {"format": re.compile(r"\{[^}]*\}"), "printf": re.compile(r"%[^a-zA-Z]*[a-zA-Z]")}
_OPEN_WIDTH = re.compile(r".\{|\*")
_DIGITS = re.compile(r"\d+")


def _refuse_sizes(node: Any, depth: int) -> None:  # noqa: ANN401 - plain JSON
    """Raise PipelineError for a call of unlimited size within a lambda, which runs for each item of a list."""
    if isinstance(node, list):
        for part in node:
            _refuse_sizes(part, depth)
    elif isinstance(node, dict):
        name = node.get("function_name", "").lower() if node.get("class") == "FUNCTION" else ""
        if depth and name in SIZES:
            given = arguments_of(node)
            sizes = [constant(given[place]) for place in SIZES[name] if place < len(given)]
            if depth > _MAX_DEPTH or any(not isinstance(size, float) or abs(size) > MAX_IN_LAMBDA for size in sizes):
                msg = (
                    f"calls {name}() within a lambda, for each item of a list; there its size must be a constant of at "
                    f"most {MAX_IN_LAMBDA:,}"
                )
                raise PipelineError(msg)
        for part in node.values():
            _refuse_sizes(part, depth + is_lambda(node))


_MAX_DEPTH = 2


def check_nulls(tree: Node) -> Node | None:
    """Replace calls of `EAGER` functions with null-checking macros; return None if the tree has no such call."""
    found = False

    def check(node: Any) -> Any:  # noqa: ANN401 - plain JSON
        nonlocal found
        if isinstance(node, list):
            return [check(part) for part in node]
        if not isinstance(node, dict):
            return node
        changed = {name: check(part) for name, part in node.items()}
        name = node.get("function_name", "").lower()
        if len(arguments_of(node)) in EAGER.get(name, ()) and sum(map(has_columns, arguments_of(node))) > 1:
            found = True
            changed |= {"function_name": NULL_CHECKED + name, "qualified_name": {"path": [NULL_CHECKED + name]}}
        return changed

    changed: Node = check(tree)
    return changed if found else None


def has_columns(node: Node) -> bool:
    """Return True if a syntax tree has a column or an argument of a lambda."""
    return any(part.get("class") == "COLUMN_REF" for part in descendants(node))


def column_ref(name: str) -> Node:
    """Return the syntax tree of a column."""
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": [name]}


def is_lambda(node: Node) -> bool:
    """Return True if a node is a lambda. An arrow has the same class, but is a JSON operator."""
    return node.get("class") == "LAMBDA" and node.get("syntax_type") != "SINGLE_ARROW"


def arguments_of(call: Node) -> list[Node]:
    """Return the arguments of a call."""
    return [argument["expression"] for argument in call.get("arguments", ())]


def constant(node: Node) -> str | float | None:
    """Return the text or number of a constant, or None for other nodes."""
    literal = node.get("literal") if node.get("class") == "CONSTANT" else None
    match literal:
        case {"kind": "STRING", **rest}:
            return str(rest.get("text", ""))  # DuckDB leaves out an empty text
        case {"kind": _, "text": str(text)} if _NUMBER.fullmatch(text):
            return float(text)
        case _:
            return None


_NUMBER = re.compile(r"-?[\d.]+")


def descendants(node: Any) -> Iterator[Node]:  # noqa: ANN401 - plain JSON
    """Yield a syntax tree and all nodes in it, parents first."""
    if isinstance(node, list):
        for part in node:
            yield from descendants(part)
    elif isinstance(node, dict):
        yield node
        for part in node.values():
            yield from descendants(part)


def _serialize(sql: str) -> Node:
    query = "SELECT json_serialize_sql(?, skip_null := true, skip_empty := true)"
    row = database().cursor().execute(query, [sql]).fetchone()
    serialized: Node = json.loads(row[0]) if row else {"error": True, "error_message": "it cannot be read"}
    return serialized
