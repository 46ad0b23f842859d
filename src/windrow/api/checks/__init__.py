"""What is wrong with a pipeline, or likely not meant: one rule a file."""

from collections.abc import Callable, Iterable

from windrow.api.checks.adaptive_delay import adaptive_delay
from windrow.api.checks.aggregate_arguments import aggregate_arguments
from windrow.api.checks.aggregate_types import aggregate_types
from windrow.api.checks.all_idle import all_idle
from windrow.api.checks.custom_aggregates import custom_aggregates
from windrow.api.checks.decode_fields import decode_fields
from windrow.api.checks.derived_fields import derived_fields
from windrow.api.checks.discard_panes import discard_panes
from windrow.api.checks.durations import durations
from windrow.api.checks.expressions import expressions
from windrow.api.checks.finding import Finding
from windrow.api.checks.float_sums import float_sums
from windrow.api.checks.formulas import formulas
from windrow.api.checks.global_window import global_window
from windrow.api.checks.hopping_windows import hopping_windows
from windrow.api.checks.key_fields import key_fields
from windrow.api.checks.key_groups import key_groups
from windrow.api.checks.no_future_guard import no_future_guard
from windrow.api.checks.no_lateness import no_lateness
from windrow.api.checks.null_keys import null_keys
from windrow.api.checks.pipeline_name import pipeline_name
from windrow.api.checks.process_code import process_code
from windrow.api.checks.process_state import process_state
from windrow.api.checks.process_ttl import process_ttl
from windrow.api.checks.result_columns import result_columns
from windrow.api.checks.salt import salt
from windrow.api.checks.sent_field import sent_field
from windrow.api.checks.session_panes import session_panes
from windrow.api.checks.sink_address import sink_address
from windrow.api.checks.sink_key import sink_key
from windrow.api.checks.sink_table import sink_table
from windrow.api.checks.source_address import source_address
from windrow.api.checks.sqlite_digits import sqlite_digits
from windrow.api.checks.time_field import time_field
from windrow.api.checks.triggers import triggers
from windrow.api.checks.window_lengths import window_lengths
from windrow.api.checks.window_zone import window_zone
from windrow.api.checks.zero_delay import zero_delay
from windrow.model import Pipeline, ProcessPipeline

RULES: tuple[Callable[[Pipeline], Iterable[Finding]], ...] = (
    # errors, in the order of the data's way (and what is likely not meant beside them)
    pipeline_name,
    source_address,
    decode_fields,
    derived_fields,
    time_field,
    sent_field,
    key_fields,
    window_lengths,
    window_zone,
    hopping_windows,
    durations,
    adaptive_delay,
    all_idle,
    aggregate_types,
    aggregate_arguments,
    expressions,
    custom_aggregates,
    formulas,
    triggers,
    global_window,
    session_panes,
    discard_panes,
    result_columns,
    sink_address,
    sink_table,
    sink_key,
    key_groups,
    salt,
    # warnings
    zero_delay,
    no_future_guard,
    null_keys,
    float_sums,
    no_lateness,
    sqlite_digits,
)

PROCESS_RULES: tuple[Callable[[ProcessPipeline], Iterable[Finding]], ...] = (
    # errors, in the order of the data's way
    pipeline_name,
    source_address,
    decode_fields,
    derived_fields,
    time_field,
    sent_field,
    key_fields,
    durations,
    adaptive_delay,
    all_idle,
    process_code,
    process_state,
    process_ttl,
    result_columns,
    sink_address,
    sink_table,
    sink_key,
    key_groups,
    # warnings
    no_future_guard,
    null_keys,
)
"""The rules for a pipeline that is a Python function."""

__all__ = ["PROCESS_RULES", "RULES", "Finding"]
