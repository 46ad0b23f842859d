"""Checks of a pipeline: errors, and warnings of likely mistakes.

A rule is a function from a pipeline to its findings; `RULES` holds them in the order in which they are reported. The
other modules hold the rules by the noun of the pipeline that they check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windrow.authoring.checks.aggregate import (
    aggregate_arguments,
    aggregate_types,
    custom_aggregates,
    expressions,
    float_sums,
    formulas,
)
from windrow.authoring.checks.alerts import alert_limits
from windrow.authoring.checks.choices import choices
from windrow.authoring.checks.connectors import (
    file_fields,
    sink_key,
    sink_settings,
    source_settings,
    sqlite_digits,
)
from windrow.authoring.checks.emit import discard_panes, late_panes, no_lateness, session_panes, triggers
from windrow.authoring.checks.fields import (
    changes_of_rows,
    decode_fields,
    derived_fields,
    nested_fields,
    pipeline_name,
    result_columns,
    tombstones,
)
from windrow.authoring.checks.formats import record_format
from windrow.authoring.checks.graph import graph_findings
from windrow.authoring.checks.key import key_fields, key_groups, no_key, null_keys, salt
from windrow.authoring.checks.process import process_code, process_state, process_ttl
from windrow.authoring.checks.realtime import realtime
from windrow.authoring.checks.rules import (
    alert_columns,
    list_names,
    recent_records,
    rule_expressions,
    rule_names,
    rule_words,
    unique_field,
)
from windrow.authoring.checks.time import (
    adaptive_delay,
    all_idle,
    durations,
    no_future_guard,
    sent_field,
    time_field,
    zero_delay,
)
from windrow.authoring.checks.window import (
    cumulate_windows,
    global_window,
    hopping_windows,
    session_gap,
    window_lengths,
    window_zone,
)
from windrow.authoring.short_form import short_form
from windrow.declare.findings import Finding
from windrow.errors import PipelineError, Place, join_errors
from windrow.model import AnyPipeline, Graph, Pipeline, ProcessPipeline, RulesPipeline

__all__ = ["PROCESS_RULES", "RULES", "Finding", "require_valid", "validate"]

_SOURCE_RULES: tuple[Callable[[AnyPipeline], Iterable[Finding]], ...] = (
    pipeline_name,
    source_settings,
    record_format,
    decode_fields,
    tombstones,
    changes_of_rows,
    file_fields,
    nested_fields,
    derived_fields,
)
"""The rules for where every pipeline begins."""

_SINK_RULES: tuple[Callable[[AnyPipeline], Iterable[Finding]], ...] = (
    result_columns,
    sink_settings,
    sink_key,
    key_groups,
)
"""The rules for where every pipeline ends."""

RULES: tuple[Callable[[Pipeline], Iterable[Finding]], ...] = (
    # errors, in the order of the data flow (with related warnings)
    *_SOURCE_RULES,
    time_field,
    sent_field,
    key_fields,
    window_lengths,
    window_zone,
    hopping_windows,
    cumulate_windows,
    durations,
    adaptive_delay,
    all_idle,
    aggregate_types,
    aggregate_arguments,
    expressions,
    custom_aggregates,
    formulas,
    triggers,
    late_panes,
    global_window,
    session_gap,
    session_panes,
    discard_panes,
    *_SINK_RULES,
    salt,
    # warnings
    zero_delay,
    no_future_guard,
    no_key,
    null_keys,
    float_sums,
    no_lateness,
    sqlite_digits,
)

PROCESS_RULES: tuple[Callable[[ProcessPipeline], Iterable[Finding]], ...] = (
    # errors, in the order of the data flow
    *_SOURCE_RULES,
    time_field,
    sent_field,
    key_fields,
    durations,
    adaptive_delay,
    all_idle,
    process_code,
    process_state,
    process_ttl,
    *_SINK_RULES,
    # warnings
    no_future_guard,
    null_keys,
)
"""The rules for a pipeline that is a Python function."""

RULES_RULES: tuple[Callable[[RulesPipeline], Iterable[Finding]], ...] = (
    # errors, in the order of the data flow (with related warnings)
    *_SOURCE_RULES,
    rule_words,
    time_field,
    sent_field,
    key_fields,
    alert_columns,
    durations,
    adaptive_delay,
    all_idle,
    unique_field,
    recent_records,
    list_names,
    rule_names,
    rule_expressions,
    *_SINK_RULES,
    # warnings
    no_future_guard,
    null_keys,
)
"""The rules for a pipeline with rules."""


def validate(graph: Graph) -> list[Finding]:
    """Return what the rules find, in their order."""
    short = short_form(graph)
    if found := list(choices(short or graph)):
        return found  # the other rules need values that can be
    if short is not None:
        return [*_parts(short), *realtime(graph), *alert_limits(graph)]
    found = graph_findings(graph, _parts)
    # what a graph means is only known if its names and edges are right
    found = found if any(one.level == "error" for one in found) else [*found, *realtime(graph)]
    return [*found, *alert_limits(graph)]


def _parts(pipeline: AnyPipeline) -> list[Finding]:
    if isinstance(pipeline, ProcessPipeline):
        return [finding for rule in PROCESS_RULES for finding in rule(pipeline)]
    if isinstance(pipeline, RulesPipeline):
        return [finding for rule in RULES_RULES for finding in rule(pipeline)]
    return [finding for rule in RULES for finding in rule(pipeline)]


def require_valid(graph: Graph, place: Callable[[str], Place] | None = None) -> Graph:
    """Return the graph; raise PipelineError if a rule finds errors. `place` tells where a path stands in a file."""
    errors = [
        PipelineError(finding.text, place(finding.where) if place else None)
        for finding in validate(graph)
        if finding.level == "error"
    ]
    if errors:
        raise join_errors(errors)
    return graph
