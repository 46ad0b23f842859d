"""Bound expressions: what DuckDB makes of an expression's text, with types, and macros expanded.

A macro hides what it calls: an unnest, an aggregate, the clock. So each call of a bound expression is looked up in the
table of functions, and its plan must be a projection: a row for a row.
"""

from __future__ import annotations

import json
import re

from windrow.errors import PipelineError
from windrow.expressions.engine import database
from windrow.expressions.functions import refuse_bound, refuse_list_aggregate
from windrow.expressions.syntax import descendants

_OPERATORS = {"LOGICAL_PROJECTION", "LOGICAL_DUMMY_SCAN"}
_REFUSED_OPERATORS = {
    "LOGICAL_UNNEST": "returns rows, not a value",
    "LOGICAL_AGGREGATE_AND_GROUP_BY": "has an aggregate function; it can only use the fields of its own record",
    "LOGICAL_WINDOW": "has a window function; it can only use the fields of its own record",
}
_CLASSES = {
    "BOUND_AGGREGATE",  # of a list: one over rows has an operator of its own
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


def refuse_impure_plan(query: str) -> None:
    """Raise PipelineError if a query of one expression, which binds, does not compute a function of each row alone."""
    row = database().cursor().execute(_SERIALIZE, [query]).fetchone()
    # DuckDB writes constants that are no numbers as they are, which is no JSON
    serialized = json.loads(_NO_NUMBER.sub("null", row[0])) if row else {"error": True, "error_message": "no plan"}
    if serialized["error"]:
        msg = f"cannot be checked: {serialized['error_message']}"
        raise PipelineError(msg)
    for node in descendants(serialized["plans"]):
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
            name, given = node["qname"]["path"][-1].lower(), tuple(one["id"] for one in node.get("arguments", ()))
            refuse_bound(name, given)
            if name in _SUMS and _OF_ANY_SIZE.intersection(given):
                msg = f"calls {name}() with a list or a BIGNUM; concatenate lists by ||, and cast numbers to HUGEINT"
                raise PipelineError(msg)


_SUMS = {"+", "-", "add", "subtract"}
_OF_ANY_SIZE = {"ARRAY", "BIGNUM", "LIST"}
_NO_NUMBER = re.compile(r"(?<=[:\[,])-?(?:nan|inf)(?=[,\]}])", re.IGNORECASE)
_SERIALIZE = "SELECT json_serialize_plan(?, skip_null := true, skip_empty := true, optimize := false)"


def _several(kind: str) -> str:
    name = kind.removeprefix("LOGICAL_").removeprefix("BOUND_").lower().replace("_", " ")
    return f"has a {name}, which an expression over a record cannot have"
