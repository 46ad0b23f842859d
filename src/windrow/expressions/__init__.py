"""SQL expressions over the fields of a record: their types, what they need, and why some are refused.

DuckDB parses and types them, and is loaded with the first of them.
"""

from windrow.expressions.analyse import Expression, analyse, said_by
from windrow.expressions.calls import Call, split_call
from windrow.expressions.inputs import (
    Argument,
    Computed,
    arguments,
    computed,
    computed_arguments,
    derived,
    nullable_fields,
    record_fields,
)
from windrow.expressions.results import Result, formulas, results

__all__ = [
    "Argument",
    "Call",
    "Computed",
    "Expression",
    "Result",
    "analyse",
    "arguments",
    "computed",
    "computed_arguments",
    "derived",
    "formulas",
    "nullable_fields",
    "record_fields",
    "results",
    "said_by",
    "split_call",
]
