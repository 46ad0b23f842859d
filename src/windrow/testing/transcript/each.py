"""Several things read, and all their problems told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from windrow.errors import PipelineError, join_errors

S = TypeVar("S")
T = TypeVar("T")


def each(items: Iterable[S], read: Callable[[S], T]) -> tuple[T, ...]:
    """Read every item; raise one PipelineError that holds the problems of all."""
    done: list[T] = []
    errors: list[PipelineError] = []
    for item in items:
        try:
            done.append(read(item))
        except PipelineError as exc:
            errors.append(exc)
    if errors:
        raise join_errors(errors)
    return tuple(done)
