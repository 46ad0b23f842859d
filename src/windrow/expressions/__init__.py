"""SQL expressions over the fields of a record: their types, the columns they need, and why some are refused.

DuckDB parses and types them. It is imported when the first expression is analysed.
"""

from windrow.expressions.analyse import Expression, analyse, constant_failure, duckdb_message
from windrow.expressions.inputs import (
    GAP,
    Argument,
    Computed,
    aggregated_texts,
    arguments,
    computed,
    computed_arguments,
    derived,
    nullable_fields,
    own_gap,
    record_fields,
)
from windrow.expressions.results import Result, formulas, results
from windrow.expressions.streams import (
    ROWS_OF,
    JoinSide,
    JoinSpan,
    RecordStream,
    Stream,
    View,
    is_same_type,
    join_sides,
    join_spans,
    result_pipelines,
    revise_of,
    sink_view,
    sink_views,
    stream_of,
    united,
    view_of,
)
from windrow.expressions.syntax import SqlCall, bracket_problem, split_call

__all__ = [
    "GAP",
    "ROWS_OF",
    "Argument",
    "Computed",
    "Expression",
    "JoinSide",
    "JoinSpan",
    "RecordStream",
    "Result",
    "SqlCall",
    "Stream",
    "View",
    "aggregated_texts",
    "analyse",
    "arguments",
    "bracket_problem",
    "computed",
    "computed_arguments",
    "constant_failure",
    "derived",
    "duckdb_message",
    "formulas",
    "is_same_type",
    "join_sides",
    "join_spans",
    "nullable_fields",
    "own_gap",
    "record_fields",
    "result_pipelines",
    "results",
    "revise_of",
    "sink_view",
    "sink_views",
    "split_call",
    "stream_of",
    "united",
    "view_of",
]
