"""What a pipeline has that is Python code, and so in no file of another kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from windrow.api.code_name import code_name
from windrow.errors import PipelineError
from windrow.model import AllOf, AnyOf, Custom, Every, Pipeline, Records, Repeat, Trigger, When


def refuse_code(pipeline: Pipeline, form: str) -> None:
    """Raise PipelineError if a pipeline has functions or aggregates of a person's own, which `form` cannot hold."""
    code = [
        *(f"emit.early calls {name}" for name in _predicates(pipeline.emit.early)),
        *(
            f"aggregate.{aggregate.name} is {code_name(aggregate.function.aggregate)}"
            for aggregate in pipeline.aggregates
            if isinstance(aggregate.function, Custom)
        ),
    ]
    if code:
        msg = f"the pipeline has Python code in it, which {form} cannot hold ({'; '.join(code)}); keep its Python file"
        raise PipelineError(msg)


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
