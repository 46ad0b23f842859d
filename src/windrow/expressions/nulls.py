"""Whether an expression can be null: where it is not plain that it cannot, it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Node = dict[str, Any]

_OF_ALL = frozenset(
    """
    + - * || ~~ !~~ abs ceil ceiling concat concat_ws contains date_diff date_part date_trunc ends_with epoch_ms
    epoch_us floor greatest hour instr least left length lower lpad ltrim md5 minute month prefix regexp_matches
    regexp_replace repeat replace reverse right round rpad rtrim second sign split_part starts_with strlen substr
    substring suffix time_bucket trim trunc upper year
    """.split()  # noqa: SIM905 - as a list it would be a page
)
"""Functions whose value is null only if one of their arguments is."""


def can_be_null(node: Node, nullable: frozenset[str]) -> bool:
    """Return whether the value of a tree can be null; `nullable` are the columns that can."""
    if node["class"] == "COLUMN_REF":
        return node["column_names"][0] in nullable
    if node["type"] == "OPERATOR_COALESCE":
        return all(can_be_null(child, nullable) for child in node["children"])
    operands = _OPERANDS.get(node["class"], _unknown)(node)
    return operands is None or any(can_be_null(operand, nullable) for operand in operands)


def _unknown(_: Node) -> list[Node] | None:
    return None


def _constant(node: Node) -> list[Node] | None:
    return None if node["literal"]["kind"] == "NULL_LITERAL" else []


def _comparison(node: Node) -> list[Node] | None:
    return [] if "DISTINCT" in node["type"] else [node["left"], node["right"]]


def _case(node: Node) -> list[Node] | None:
    return [node["else_expr"], *(check["then_expr"] for check in node["case_checks"])]


def _cast(node: Node) -> list[Node] | None:
    return None if node["try_cast"] else [node["child"]]


def _operator(node: Node) -> list[Node] | None:
    match node["type"]:
        case "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL":
            return []
        case "OPERATOR_NOT" | "COMPARE_IN" | "COMPARE_NOT_IN":
            return list(node["children"])
        case _:
            return None


def _function(node: Node) -> list[Node] | None:
    if node["function_name"].lower() not in _OF_ALL:
        return None
    return [argument["expression"] for argument in node.get("arguments", [])]


# by a tree's class, the operands of which one must be null for its value to be so; None: it may be anyhow
_OPERANDS: dict[str, Callable[[Node], list[Node] | None]] = {
    "CONSTANT": _constant,
    "COMPARISON": _comparison,
    "CONJUNCTION": lambda node: list(node["children"]),
    "BETWEEN": lambda node: [node["input"], node["lower"], node["upper"]],
    "CASE": _case,
    "CAST": _cast,
    "OPERATOR": _operator,
    "FUNCTION": _function,
}
