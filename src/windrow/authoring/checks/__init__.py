"""Validation of pipelines: errors, and warnings about likely mistakes.

A rule is a function that takes a part of the graph (a source, the spec of an operator, or a sink) and yields findings.
There is a module for each kind of part; `graph` and `results` list the rules that apply.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from windrow import model as m
from windrow.authoring.checks.alerts import alert_limits
from windrow.authoring.checks.graph import graph_findings
from windrow.authoring.checks.places import place as place_of
from windrow.authoring.checks.realtime import realtime
from windrow.declare.findings import Finding, error
from windrow.errors import PipelineError, Place, join_errors, not_one_of

__all__ = ["Finding", "require_valid", "validate"]


def validate(graph: m.Graph) -> list[Finding]:
    """Return all errors and warnings for a graph, in the order of the rules."""
    if found := list(_choices(graph)):
        return found  # the other rules need valid values
    found = graph_findings(graph)
    # the other rules need valid names and edges
    if graph.is_short or not any(finding.level == "error" for finding in found):
        found += realtime(graph)
    return [*found, *alert_limits(graph)]


def require_valid(graph: m.Graph, place: Callable[[str], Place] | None = None) -> m.Graph:
    """Return the graph, or raise PipelineError if it has errors.

    `place` maps the path of a setting to its place in the file.
    """
    errors = [
        PipelineError(finding.text, place(finding.where) if place else None)
        for finding in validate(graph)
        if finding.level == "error"
    ]
    if errors:
        raise join_errors(errors)
    return graph


def _choices(graph: m.Graph) -> Iterator[Finding]:
    """Find values that the `Literal` type of their field does not allow.

    Only pipelines built in Python can have such values.
    """
    for node in graph.nodes:
        yield from (error(place_of(graph, node, where), message) for where, message in _wrong(node, ""))
    yield from (error(where, message) for where, message in _wrong(dataclasses.replace(graph, nodes=()), ""))


def _wrong(value: object, where: str) -> Iterator[tuple[str, str]]:
    """Yield the path and an error message for each invalid value in a part of the model."""
    if isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from _wrong(item, f"{where}.{getattr(item, 'name', number)}")
    elif (
        dataclasses.is_dataclass(value)
        and type(value).__module__.startswith("windrow.model.")
        and not isinstance(value, type)
    ):
        section = getattr(value, "section", None)
        where = where if section is None else f"{where}.{section}"
        known = _options(type(value))
        for field in dataclasses.fields(value):
            # `rules.rules` of the model is `rules` in a file
            path = where if where == field.name else f"{where}.{field.name}".removeprefix(".")
            given = getattr(value, field.name)
            options, others = known.get(field.name, ((), ()))
            if options and given not in options and not isinstance(given, others):
                yield path, not_one_of(given, options)
            else:
                yield from _wrong(given, path)


@cache
def _options(kind: type) -> dict[str, tuple[tuple[Any, ...], tuple[type, ...]]]:
    """Map each field with a `Literal` type to its allowed values, and to other classes that it allows."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        parts = list(_parts(hint))
        options = tuple(value for part in parts if get_origin(part) is Literal for value in get_args(part))
        if options:
            found[name] = (options, tuple(part for part in parts if isinstance(part, type)))
    return found


def _parts(hint: object) -> Iterator[object]:
    """Yield the members of a union type; yield any other type unchanged."""
    if get_origin(hint) in {Union, UnionType}:
        for part in get_args(hint):
            yield from _parts(part)
    else:
        yield hint
