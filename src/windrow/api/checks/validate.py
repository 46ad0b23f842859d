"""All rules over one pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from windrow.api.checks import PROCESS_RULES, RULES
from windrow.api.checks.finding import Finding
from windrow.api.problems import joined
from windrow.errors import PipelineError, Place
from windrow.model import AnyPipeline, ProcessPipeline

P = TypeVar("P", bound=AnyPipeline)


def validate(pipeline: AnyPipeline) -> list[Finding]:
    """Return what the rules find, in their order."""
    if isinstance(pipeline, ProcessPipeline):
        return [finding for rule in PROCESS_RULES for finding in rule(pipeline)]
    return [finding for rule in RULES for finding in rule(pipeline)]


def require_valid(pipeline: P, place: Callable[[str], Place] | None = None) -> P:
    """Return the pipeline; raise PipelineError if a rule finds errors. `place` tells where a path stands in a file."""
    errors = [
        PipelineError(finding.text, place(finding.where) if place else None)
        for finding in validate(pipeline)
        if finding.level == "error"
    ]
    if errors:
        raise joined(errors)
    return pipeline
