"""What a pipeline has that is Python code, and so in no file of another kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from windrow.api.code_name import code_name
from windrow.errors import PipelineError
from windrow.model import (
    AllOf,
    AnyOf,
    AnyPipeline,
    Custom,
    Every,
    Pipeline,
    ProcessPipeline,
    Records,
    Repeat,
    Trigger,
    When,
)


def refuse_code(pipeline: AnyPipeline, form: str) -> Pipeline:
    """Return the pipeline.

    Raise PipelineError if it has functions or aggregates of a person's own, which `form` cannot hold.
    """
    if isinstance(pipeline, ProcessPipeline):
        raise PipelineError(_message([f"process calls {code_name(pipeline.process.function)}"], form))
    code = [
        *(f"emit.early calls {name}" for name in _predicates(pipeline.emit.early)),
        *(
            f"aggregate.{aggregate.name} is {code_name(aggregate.function.aggregate)}"
            for aggregate in pipeline.aggregates
            if isinstance(aggregate.function, Custom)
        ),
    ]
    if code:
        raise PipelineError(_message(code, form))
    return pipeline


def _message(code: list[str], form: str) -> str:
    return f"the pipeline has Python code in it, which {form} cannot hold ({'; '.join(code)}); keep its Python file"


def _predicates(trigger: Trigger | None) -> Iterator[str]:
    match trigger:
        case When(predicate):
            yield code_name(predicate)
        case AnyOf(parts) | AllOf(parts):
            for part in parts:
                yield from _predicates(part)
        case Repeat(part, _):
            yield from _predicates(part)
        case Every() | Records() | None:
            return
        case _:
            assert_never(trigger)
