"""SQL expressions of aggregates, and their conditions."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.api.checks.named import arguments, is_field, is_misspelt, no_field
from windrow.api.checks.typed import record_fields
from windrow.errors import PipelineError
from windrow.expressions import analyse
from windrow.model import BooleanType, Formula, Pipeline


def expressions(pipeline: Pipeline) -> Iterator[Finding]:
    """An expression is over the fields of one record, gives the same in every run, and is of a field's type."""
    for aggregate in pipeline.aggregates:
        where = f"aggregate.{aggregate.name}"
        for of in arguments(aggregate.function):
            if not is_field(pipeline, of) and not is_misspelt(pipeline, of):
                yield from _wrong(pipeline, where, of)
        if aggregate.where is None:
            continue
        if isinstance(aggregate.function, Formula):
            yield error(where, "is a formula over results and takes no `where`; give it to the aggregates it is over")
        else:
            yield from _condition(pipeline, where, aggregate.where)


def _wrong(pipeline: Pipeline, where: str, text: str) -> Iterator[Finding]:
    try:
        analyse(text, record_fields(pipeline))
    except PipelineError as exc:
        yield error(where, exc.message)


def _condition(pipeline: Pipeline, where: str, text: str) -> Iterator[Finding]:
    if is_misspelt(pipeline, text):
        yield error(where, no_field(pipeline, text))
        return
    try:
        type_ = analyse(text, record_fields(pipeline)).type
    except PipelineError as exc:
        yield error(where, exc.message)
        return
    if type_ != BooleanType():
        yield error(where, f"{text!r} is a {type_}, not a condition; write one, such as kind = 'buy'")
