"""Bound expressions: DuckDB's plan of an expression, with types and with macros expanded.

A macro hides the functions that it calls, such as an unnest, an aggregate or the clock. Therefore each call in a bound
expression is looked up in the table of functions, and the plan must be a projection, which returns one row for each
row.
"""

from __future__ import annotations

import json
import re

from windrow.errors import PipelineError
from windrow.expressions.engine import database
from windrow.expressions.functions import refuse_bound, refuse_list_aggregate
from windrow.expressions.macros import MAX_DIGITS, MAX_MADE, MAX_SLOTS
from windrow.expressions.syntax import Node, descendants

_OPERATORS = {"LOGICAL_PROJECTION", "LOGICAL_DUMMY_SCAN"}
_REFUSED_OPERATORS = {
    "LOGICAL_UNNEST": "returns rows, not a value",
    "LOGICAL_AGGREGATE_AND_GROUP_BY": "has an aggregate function; it can only use the fields of its own record",
    "LOGICAL_WINDOW": "has a window function; it can only use the fields of its own record",
}
_CLASSES = {
    "BOUND_AGGREGATE",  # over a list: an aggregate over rows has its own operator
    "BOUND_BETWEEN",
    "BOUND_CASE",
    "BOUND_CAST",
    "BOUND_COLUMN_REF",
    "BOUND_COMPARISON",
    "BOUND_CONJUNCTION",
    "BOUND_CONSTANT",
    "BOUND_FUNCTION",
    "BOUND_LAMBDA",
    "BOUND_LAMBDA_REF",
    "BOUND_OPERATOR",
    "BOUND_REF",
}


def check_plan(query: str) -> int:
    """Check the plan of a query with one expression; return the weight of each byte and item of its values.

    Raise PipelineError if the value depends on more than its own row.
    """
    row = database().cursor().execute(_SERIALIZE, [query]).fetchone()
    # DuckDB writes the constants nan and inf as they are, which is not JSON
    serialized = json.loads(_NO_NUMBER.sub("null", row[0])) if row else {"error": True, "error_message": "no plan"}
    if serialized["error"]:
        msg = f"cannot be checked: {serialized['error_message']}"
        raise PipelineError(msg)
    weight = 1
    for node in descendants(serialized["plans"]):
        if "type_info" in node or "id" in node:
            weight = max(weight, _weight(node, in_list=False))
        operator, kind = node.get("type"), node.get("expression_class")
        if (
            kind is None
            and isinstance(operator, str)
            and operator.startswith("LOGICAL_")
            and operator not in _OPERATORS
        ):
            raise PipelineError(_REFUSED_OPERATORS.get(operator, _several(operator)))
        if kind is not None and kind not in _CLASSES:
            raise PipelineError(_several(kind))
        if kind == "BOUND_AGGREGATE":
            refuse_list_aggregate(node["qname"]["path"][-1].lower())
        if kind == "BOUND_FUNCTION":
            name = node["qname"]["path"][-1].lower()
            given = tuple(argument["id"] for argument in node.get("arguments", ()))
            refuse_bound(name, given)
            if name in _SUMS and _OF_ANY_SIZE.intersection(given):
                msg = f"calls {name}() with a list or a BIGNUM; concatenate lists with ||, and cast numbers to HUGEINT"
                raise PipelineError(msg)
    return weight


def _weight(type_: Node, *, in_list: bool) -> int:
    """Return the weight of each byte and item of a type's values; raise PipelineError for a type without a limit.

    An array in a list takes memory for all its items even if it is null, and the time for a BIGNUM grows with the
    square of its number of digits.
    """
    info = type_.get("type_info", {})
    match type_.get("id"):
        case "VARIANT":
            msg = "has a VARIANT, whose nesting has no limit; use JSON"
            raise PipelineError(msg)
        case "BIGNUM":
            return MAX_MADE // MAX_DIGITS
        case "ARRAY":
            slots = _slots(type_)
            if slots > MAX_SLOTS:
                msg = f"has an array of {slots:,} items, which takes memory for every record; use a list"
                raise PipelineError(msg)
            inner = _weight(info["child_type"], in_list=in_list)
            return max(inner, slots) if in_list else inner
        case "LIST" | "MAP":
            return _weight(info["child_type"], in_list=True)
        case "STRUCT" | "TUPLE" | "UNION":
            return max((_weight(member, in_list=in_list) for member in _members(info)), default=1)
        case _:
            return 1


def _slots(type_: Node) -> int:
    """Return the number of items for which an array takes memory."""
    info = type_.get("type_info", {})
    match type_.get("id"):
        case "ARRAY":
            return int(info["size"]) * _slots(info["child_type"])
        case "STRUCT" | "TUPLE" | "UNION":
            return sum(map(_slots, _members(info)))
        case _:
            return 1


def _members(info: Node) -> list[Node]:
    return [member.get("second", member) for member in info.get("child_types", ())]


_SUMS = {"+", "-", "add", "subtract"}
_OF_ANY_SIZE = {"ARRAY", "BIGNUM", "LIST"}
_NO_NUMBER = re.compile(r"(?<=[:\[,])-?(?:nan|inf)(?=[,\]}])", re.IGNORECASE)
_SERIALIZE = "SELECT json_serialize_plan(?, skip_null := true, skip_empty := true, optimize := false)"


def _several(kind: str) -> str:
    name = kind.removeprefix("LOGICAL_").removeprefix("BOUND_").lower().replace("_", " ")
    return f"has a {name}, which an expression over a record cannot have"
