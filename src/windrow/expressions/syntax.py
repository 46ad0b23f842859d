"""An expression's syntax tree, as DuckDB parses it, and what must not stand in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from windrow.errors import PipelineError
from windrow.expressions.catalogue import catalogue
from windrow.expressions.engine import database

Node = dict[str, Any]

_PLAIN = {"CONJUNCTION", "COMPARISON", "BETWEEN", "CASE", "CAST", "COLUMN_REF", "CONSTANT", "FUNCTION", "OPERATOR"}
_INSIDE = {"LAMBDA", "TYPE"}
_REFUSED = {
    "SUBQUERY": "has a query in it; an expression sees the fields of its own record alone",
    "WINDOW": "has a window function; an expression sees the fields of its own record alone",
    "PARAMETER": "has a parameter; write the value",
    "STAR": "has a star; name the fields",
}
_CLOCKS = {"current_timestamp", "current_date", "current_time", "localtimestamp", "localtime"}
_ENVIRONMENT = {
    "version",
    "current_localtime",
    "current_localtimestamp",
    "current_role",
    "current_user",
    "session_user",
    "user",
}
"""Functions that DuckDB declares consistent although they depend on its version, the clock or the session."""
_SELECT_OF_ONE = {"type", "cte_map", "select_list", "from_table", "aggregate_handling"}


def parse(text: str, fields: frozenset[str] = frozenset()) -> Node:
    """Return the tree of one expression; raise PipelineError for anything else.

    `fields` are the names that the expression may use, for a hint where one of them is a word of SQL.
    """
    if not text.strip():
        msg = "the expression is empty"
        raise PipelineError(msg)
    said = _serialize(f"SELECT {text}\n")
    if said["error"]:
        msg = f"{text!r} is not an SQL expression: {said['error_message']}{_reserved_hint(text, fields)}"
        raise PipelineError(msg)
    nodes = [statement["node"] for statement in said["statements"]]
    whole = nodes[0]
    if len(nodes) != 1 or whole["type"] != "SELECT_NODE" or set(whole) - _SELECT_OF_ONE:
        raise _not_one(text)
    if whole["from_table"]["type"] != "EMPTY" or len(whole["select_list"]) != 1 or whole["cte_map"]:
        raise _not_one(text)
    tree: Node = whole["select_list"][0]
    if tree.get("alias"):
        raise _not_one(text)
    return tree


def _reserved_hint(text: str, fields: frozenset[str]) -> str:
    """Say which fields in the text are words of SQL, and how to write them."""
    import duckdb  # noqa: PLC0415 - it is heavy, and is loaded by now

    written = text.encode()
    tokens = [(position, str(kind)) for position, kind in duckdb.tokenize(text)]
    ends = [position for position, _ in tokens[1:]] + [len(written)]
    words = {
        written[start:end].decode().strip()
        for (start, kind), end in zip(tokens, ends, strict=True)
        if kind.endswith("keyword")
    }
    found = sorted(name for name in fields if name.lower() in {word.lower() for word in words})
    if not found:
        return ""
    are = "is a word" if len(found) == 1 else "are words"
    quoted = " and ".join(f'"{name}"' for name in found)
    return f"; {', '.join(found)} {are} of SQL: as a field, write {quoted} in double quotes"


def _not_one(text: str) -> PipelineError:
    return PipelineError(f"{text!r} is not one SQL expression; write a value such as price * quantity, without clauses")


def columns(tree: Node) -> tuple[str, ...]:
    """Return the columns that a tree refers to, each once; raise PipelineError for one with parts."""
    return tuple(dict.fromkeys(_columns(tree, frozenset())))


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
                        msg = f"{'.'.join([name, *parts])!r} is no field; fields have no parts"
                        raise PipelineError(msg)
                    yield name
            case "LAMBDA":
                yield from _columns(node["expr"], bound | set(_columns(node["lhs"], frozenset())))
            case _:
                for part in node.values():
                    yield from _columns(part, bound)


def functions(node: Any) -> Iterator[Node]:  # noqa: ANN401 - plain JSON
    """Yield the calls in a tree."""
    for part in _parts(node):
        if part.get("class") == "FUNCTION":
            yield part


def refuse(tree: Node, fields: frozenset[str]) -> None:
    """Raise PipelineError if a tree is not a function of its record alone."""
    for node in _parts(tree):
        kind = node.get("class")
        if kind in _REFUSED:
            raise PipelineError(_REFUSED[kind])
        if kind is not None and kind not in _PLAIN | _INSIDE:
            msg = f"has a {kind.lower().replace('_', ' ')}, which is not for expressions over a record"
            raise PipelineError(msg)
        if kind == "COLUMN_REF" and node["column_names"][0] in _CLOCKS - fields:
            raise PipelineError(_changing(node["column_names"][0]))
    for call in functions(tree):
        _refuse_call(call["function_name"].lower(), len(call.get("arguments", ())))


def _refuse_call(name: str, arguments: int) -> None:
    known = catalogue().get(name)
    if known is None:
        return  # the binder says so, with the names that are close
    if known.kinds & {"aggregate", "window"}:
        msg = f"calls {name}(), which is over many records; an expression sees the fields of its own record alone"
        raise PipelineError(msg)
    if not known.kinds & {"scalar", "macro"}:
        msg = f"calls {name}(), which gives rows and not a value"
        raise PipelineError(msg)
    if name == "age" and arguments == 1:
        msg = "calls age() of one time, which is as of today; give it two"
        raise PipelineError(msg)
    if name in _ENVIRONMENT or known.stabilities - {"CONSISTENT"} or any(_changes(text) for text in known.definitions):
        raise PipelineError(_changing(f"{name}()"))


@lru_cache(maxsize=256)
def _changes(definition: str) -> bool:
    """Return whether a macro calls something that gives another value each time."""
    said = _serialize(f"SELECT {definition}\n")
    if said["error"]:
        return True
    calls = {call["function_name"].lower() for call in functions(said["statements"][0]["node"])}
    known = [catalogue()[call] for call in calls if call in catalogue()]
    return bool(calls & _ENVIRONMENT) or any(one.stabilities - {"CONSISTENT"} for one in known)


def _changing(what: str) -> str:
    return f"has {what}, which is not the same in every run; results must be a function of the log alone"


def _parts(node: Any) -> Iterator[Node]:  # noqa: ANN401 - plain JSON
    if isinstance(node, list):
        for part in node:
            yield from _parts(part)
    elif isinstance(node, dict):
        yield node
        for part in node.values():
            yield from _parts(part)


def _serialize(sql: str) -> Node:
    query = "SELECT json_serialize_sql(?, skip_null := true, skip_empty := true)"
    row = database().cursor().execute(query, [sql]).fetchone()
    said: Node = json.loads(row[0]) if row else {"error": True, "error_message": "it cannot be read"}
    return said
