"""SQL expressions over the fields of a record: their types, the columns they need, and why some are rejected.

DuckDB parses the expressions and determines their types. It is imported when the first expression is analysed.
"""

# the names are listed once: what is imported here is exported
# mypy: implicit-reexport
# ruff: noqa: F401

from windrow.expressions.analyse import Expression, analyse, constant_failure, duckdb_message
from windrow.expressions.inputs import (
    GAP,
    AnySpec,
    Argument,
    Computed,
    Decoded,
    OperatorSpec,
    ProcessSpec,
    RulesSpec,
    WindowSpec,
    aggregate_inputs,
    arguments,
    computed,
    computed_arguments,
    derived,
    is_window_spec,
    key_of,
    nullable_fields,
    own_gap,
    record_fields,
)
from windrow.expressions.origins import origins_of, table_keys
from windrow.expressions.results import Result, formulas, needs_rows, results
from windrow.expressions.rows import Rows, SinkSpec, emitted_rows, rows_of, sink_spec, sink_specs
from windrow.expressions.streams import (
    ROWS_OF,
    JoinSide,
    JoinSpan,
    Stream,
    decoding_spec,
    element_fields,
    is_same_type,
    join_sides,
    join_spans,
    revise_of,
    source_of,
    spec_of,
    stream_of,
    united,
)
from windrow.expressions.syntax import SqlCall, bracket_problem, is_column, split_call
