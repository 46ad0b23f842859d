"""Checks of a node with results: its key, what it makes of the records that it takes, and the sinks of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar, assert_never

from windrow import model as m
from windrow.authoring.checks.aggregate import (
    aggregate_arguments,
    aggregate_types,
    custom_aggregates,
    expressions,
    float_sums,
    formulas,
)
from windrow.authoring.checks.connectors import sink_key, sqlite_digits
from windrow.authoring.checks.emit import discard_panes, late_panes, lateness, no_lateness, session_panes, triggers
from windrow.authoring.checks.fields import derived_fields, result_columns
from windrow.authoring.checks.key import key_fields, no_key, null_keys, salt, watermark_key
from windrow.authoring.checks.places import place
from windrow.authoring.checks.process import process_code, process_state, process_ttl
from windrow.authoring.checks.rules import (
    alert_columns,
    list_names,
    recent_records,
    rule_expressions,
    rule_names,
    rule_words,
    unique_field,
)
from windrow.authoring.checks.time import zero_delay
from windrow.authoring.checks.window import (
    cumulate_windows,
    global_window,
    hopping_windows,
    session_gap,
    window_lengths,
    window_zone,
)
from windrow.declare.findings import Finding
from windrow.errors import PipelineError
from windrow.expressions import OperatorSpec, ProcessSpec, RulesSpec, Stream, WindowSpec, spec_of, stream_of

WINDOW_RULES: tuple[Callable[[WindowSpec], Iterable[Finding]], ...] = (
    window_lengths,
    window_zone,
    hopping_windows,
    cumulate_windows,
    aggregate_types,
    aggregate_arguments,
    expressions,
    custom_aggregates,
    formulas,
    triggers,
    session_gap,
    session_panes,
    discard_panes,
    salt,
    float_sums,
)

PROCESS_RULES: tuple[Callable[[ProcessSpec], Iterable[Finding]], ...] = (process_code, process_state, process_ttl)

RULES_RULES: tuple[Callable[[RulesSpec], Iterable[Finding]], ...] = (
    rule_words,
    alert_columns,
    unique_field,
    recent_records,
    list_names,
    rule_names,
    rule_expressions,
)


def result_findings(graph: m.Graph, node: m.ResultNode) -> Iterator[Finding]:
    """Yield what is wrong with a node with results."""
    origin = graph.producer(node.input)
    try:
        given = None if isinstance(origin, m.SourceNode) else stream_of(graph, node.input)
        spec = _spec(graph, node, given)
    except PipelineError:
        return  # found where the stream is made
    findings = [*key_fields(spec), *watermark_key(spec), *derived_fields(spec, node.derive), *result_columns(spec)]
    match node:
        case m.WindowNode():
            findings += _window(graph, _spec(graph, node, given), given)
        case m.ProcessNode():
            process = _spec(graph, node, given)
            findings += (finding for rule in PROCESS_RULES for finding in rule(process))
        case m.RulesNode():
            rules = _spec(graph, node, given)
            findings += (finding for rule in RULES_RULES for finding in rule(rules))
        case _:
            assert_never(node)
    findings += null_keys(spec, graph.first_sink(node).sink)
    yield from (replace(finding, where=place(graph, node, finding.where)) for finding in findings)
    if isinstance(node, m.WindowNode) and isinstance(origin, m.SourceNode):
        yield from (replace(one, where=place(graph, origin, one.where)) for one in zero_delay(origin, node.window))
    for sink in graph.sinks_of(node.name):
        yield from (replace(one, where=place(graph, sink, one.where)) for one in sink_key(spec, sink.sink))


N = TypeVar("N", bound=m.ResultNode)


def _spec(graph: m.Graph, node: N, given: Stream | None) -> OperatorSpec[N]:
    """Return what the operator is built from, with the types of the terms of sums: a sum needs no more digits."""
    spec = spec_of(graph, node)
    terms = dict(given.terms) if given is not None else {}
    fields = tuple(replace(field, type=terms.get(field.name, field.type)) for field in spec.decode.fields)
    return replace(spec, decode=m.Decode(fields))


def _window(graph: m.Graph, spec: WindowSpec, given: Stream | None) -> Iterator[Finding]:
    """Yield what is wrong with a window over a stream, or over a source if None is `given`."""
    node = spec.node
    is_changelog = given is not None and given.is_changelog
    for rule in WINDOW_RULES:
        yield from rule(spec)
    # without windows, each change of a row revises the results, which need no trigger then
    is_read = any(isinstance(reader, m.StreamNode) for reader in graph.readers(node))
    if not (isinstance(node.window, m.Global) and (is_changelog or is_read)):
        yield from late_panes(spec)
        yield from global_window(spec)
    if not is_changelog:
        # a window over windows has few rows, and takes all that these give
        yield from no_key(spec, is_read=graph.is_read(node))
        yield from lateness(spec)
        yield from no_lateness(spec, graph.first_sink(node).sink)
    for sink in graph.sinks_of(node.name) or [graph.first_sink(node)]:
        yield from sqlite_digits(spec, sink.sink)
