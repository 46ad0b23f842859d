"""Checks of a node with results: its key, its window, process function or rules, and its sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar, assert_never

from windrow import model as m
from windrow.authoring.checks import aggregate, connectors, fields, rules, time, window
from windrow.authoring.checks.places import place
from windrow.declare.findings import Finding, error, too_long, warning
from windrow.declare.python_code import why_not_callable
from windrow.errors import PipelineError
from windrow.expressions import OperatorSpec, ProcessSpec, RulesSpec, Stream, WindowSpec, spec_of, stream_of

WINDOW_RULES: tuple[Callable[[WindowSpec], Iterable[Finding]], ...] = (
    window.window_lengths,
    window.window_zone,
    window.hopping_windows,
    window.cumulate_windows,
    aggregate.aggregate_types,
    aggregate.aggregate_arguments,
    aggregate.expressions,
    aggregate.custom_aggregates,
    aggregate.formulas,
    window.triggers,
    window.session_gap,
    window.session_panes,
    window.discard_panes,
    fields.salt,
    aggregate.float_sums,
)

RULES_RULES: tuple[Callable[[RulesSpec], Iterable[Finding]], ...] = (
    rules.rule_words,
    rules.alert_columns,
    rules.unique_field,
    rules.recent_records,
    rules.list_names,
    rules.rule_names,
    rules.rule_expressions,
)


def process_code(spec: ProcessSpec) -> Iterator[Finding]:
    """Check that the process functions are callable and synchronous, and that there are columns to emit."""
    process = spec.node.process
    functions = {
        "function": process.function,
        "on_timer": process.on_timer,
        "on_processing_timer": process.on_processing_timer,
    }
    for name, function in functions.items():
        if function is not None and not callable(function):
            yield error(f"process.{name}", f"is {function!r}, not a function; give a function of two arguments")
        elif why := why_not_callable(function):
            yield error(f"process.{name}", f"{why}; write rows with ctx.emit(...)")
    if not process.returns:
        yield error("process.returns", "is empty; list the columns that the function emits, such as {'visits': 'long'}")


def process_state(spec: ProcessSpec) -> Iterator[Finding]:
    """Check that state names are Python identifiers, and that no map has doubles as keys."""
    for state in spec.node.process.state:
        where = f"process.state.{state.name}"
        if not state.name.isidentifier() or state.name.startswith("__"):
            yield error(where, f"{state.name!r} must be a Python name, because functions refer to it as ctx.state.NAME")
        if isinstance(state, m.MapState) and isinstance(state.key, m.DoubleType):
            yield error(where, "has doubles as keys, but equal doubles can differ in text; use a decimal or a long")


def process_ttl(spec: ProcessSpec) -> Iterator[Finding]:
    """Check that the time to live is positive; warn if there is none, because keys are then kept forever."""
    ttl = spec.node.process.ttl
    if ttl is None:
        message = (
            "has no `ttl`, so the row and state of each key are kept forever; set one if keys come and go, such as 30d"
        )
        yield warning("process", message)
    elif ttl <= 0:
        yield error("process.ttl", "must be longer than 0")
    else:
        yield from too_long("process.ttl", ttl)


PROCESS_RULES: tuple[Callable[[ProcessSpec], Iterable[Finding]], ...] = (process_code, process_state, process_ttl)


def result_findings(graph: m.Graph, node: m.ResultNode) -> Iterator[Finding]:
    """Check a node with results: a window, a process or rules."""
    origin = graph.producer(node.input)
    try:
        given = None if isinstance(origin, m.SourceNode) else stream_of(graph, node.input)
        spec = _spec(graph, node, given)
    except PipelineError:
        return  # reported at the stream
    findings = [*fields.key_fields(spec), *fields.watermark_key(spec)]
    findings += [*fields.derived_fields(spec, node.derive), *fields.result_columns(spec)]
    match node:
        case m.WindowNode():
            findings += _window(graph, _spec(graph, node, given), given)
        case m.ProcessNode():
            process = _spec(graph, node, given)
            findings += (finding for rule in PROCESS_RULES for finding in rule(process))
        case m.RulesNode():
            rule_set = _spec(graph, node, given)
            findings += (finding for rule in RULES_RULES for finding in rule(rule_set))
        case _:
            assert_never(node)
    findings += fields.null_keys(spec, graph.first_sink(node).sink)
    by_node: list[tuple[m.Node, Iterable[Finding]]] = [(node, findings)]
    if isinstance(node, m.WindowNode) and isinstance(origin, m.SourceNode):
        by_node.append((origin, time.zero_delay(origin, node.window)))
    by_node += ((sink, connectors.sink_key(spec, sink.sink)) for sink in graph.sinks_of(node.name))
    for at, found in by_node:
        yield from (replace(finding, where=place(graph, at, finding.where)) for finding in found)


N = TypeVar("N", bound=m.ResultNode)


def _spec(graph: m.Graph, node: N, given: Stream | None) -> OperatorSpec[N]:
    """Return the spec of an operator, giving sums the type of their terms because they need no further digits."""
    spec = spec_of(graph, node)
    terms = dict(given.terms) if given is not None else {}
    decoded = tuple(replace(field, type=terms.get(field.name, field.type)) for field in spec.decode.fields)
    return replace(spec, decode=m.Decode(decoded))


def _window(graph: m.Graph, spec: WindowSpec, given: Stream | None) -> Iterator[Finding]:
    """Check a window over a stream, or over a source if `given` is None."""
    node = spec.node
    is_changelog = given is not None and given.is_changelog
    for rule in WINDOW_RULES:
        yield from rule(spec)
    is_read = graph.is_read(node)
    # each change of a row revises the results of a global window, which needs no trigger then
    if not (isinstance(node.window, m.Global) and (is_changelog or is_read)):
        yield from window.late_panes(spec)
        yield from window.global_window(spec)
    if not is_changelog:
        # a window over windows has few rows, and accepts all their revisions
        yield from fields.no_key(spec, is_read=is_read)
        yield from window.lateness(spec)
        yield from window.no_lateness(spec, graph.first_sink(node).sink)
    for sink in graph.sinks_of(node.name) or [graph.first_sink(node)]:
        yield from connectors.sqlite_digits(spec, sink.sink)
