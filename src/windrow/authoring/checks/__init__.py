"""Checks of a pipeline: errors, and warnings of likely mistakes.

A rule is a function from a part of the graph to its findings: a source, what the operator of a node is built from, or
a sink. The modules hold the rules by the noun of the pipeline that they check, `graph` the lists of them.
"""

from __future__ import annotations

from collections.abc import Callable

from windrow import model as m
from windrow.authoring.checks.alerts import alert_limits
from windrow.authoring.checks.choices import choices
from windrow.authoring.checks.graph import graph_findings
from windrow.authoring.checks.realtime import realtime
from windrow.declare.findings import Finding
from windrow.errors import PipelineError, Place, join_errors

__all__ = ["Finding", "require_valid", "validate"]


def validate(graph: m.Graph) -> list[Finding]:
    """Return what the rules find, in their order."""
    if found := list(choices(graph)):
        return found  # the other rules need values that can be
    found = graph_findings(graph)
    # what a graph means is only known if its names and edges are right
    if graph.is_short or not any(one.level == "error" for one in found):
        found += realtime(graph)
    return [*found, *alert_limits(graph)]


def require_valid(graph: m.Graph, place: Callable[[str], Place] | None = None) -> m.Graph:
    """Return the graph; raise PipelineError if a rule finds errors. `place` tells where a path stands in a file."""
    errors = [
        PipelineError(finding.text, place(finding.where) if place else None)
        for finding in validate(graph)
        if finding.level == "error"
    ]
    if errors:
        raise join_errors(errors)
    return graph
