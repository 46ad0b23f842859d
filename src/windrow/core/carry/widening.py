"""Which types can take the place of others where a run goes on, and what does not outlast that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from windrow.core.carry.plan import Plan
from windrow.errors import PipelineError
from windrow.expressions import Argument, arguments, computed, formulas, record_fields, results
from windrow.model import (
    Aggregate,
    AnyPipeline,
    ApproxCountDistinct,
    ApproxQuantile,
    Avg,
    CollectList,
    CollectSet,
    Custom,
    DataType,
    DecimalType,
    Function,
    LongType,
    Pipeline,
    Stddev,
    StringType,
    TopK,
    Variance,
)

LONG_DIGITS = 19
"""A decimal has so many digits before the point if it takes every long."""


def why_not_wider(there: DataType, here: DataType) -> str | None:
    """Return why a type cannot take the place of another; None if each of its values is the same value in both."""
    if there == here or (isinstance(here, DecimalType) and _takes(here, there)):
        return None
    return f"not every {there} is the same value as a {here}"


def _takes(here: DecimalType, there: DataType) -> bool:
    match there:
        case DecimalType(precision, scale):
            return here.scale >= scale and here.precision - here.scale >= precision - scale
        case LongType():
            return here.precision - here.scale >= LONG_DIGITS
        case _:
            return False


def shift(there: DataType, here: DataType) -> int:
    """Return how many digits behind the point a wider type has more."""
    return _scale(here) - _scale(there)


def _scale(type_: DataType) -> int:
    return type_.scale if isinstance(type_, DecimalType) else 0


def unsound(pipeline: AnyPipeline, plan: Plan) -> dict[str, str]:
    """Return the decoded fields whose types cannot be what they are now, with the reason of each."""
    try:
        return _Widening(pipeline, plan).found()
    except PipelineError as exc:
        # what is computed of a record that waits is computed of the types that it was decoded by
        return {field.name: exc.message for field in plan.were}


class _Widening:
    """A pipeline with the types of a run, and with its own."""

    def __init__(self, pipeline: AnyPipeline, plan: Plan) -> None:
        self._now = pipeline
        self._was = plan.before(pipeline)
        self._plan = plan
        self._before = {field.name: field.type for field in record_fields(self._was)}
        self._after = {field.name: field.type for field in record_fields(pipeline)}
        self._made = {one.name: one.expression for one in computed(pipeline)}

    def found(self) -> dict[str, str]:
        """Return what is not sound, by decoded field."""
        found: dict[str, str] = {}
        for columns, why in chain(self._fields(), self._keys(), self._aggregates()):
            for name in self._roots(columns):
                found.setdefault(name, why)
        return found

    def _fields(self) -> Iterator[tuple[Iterable[str], str]]:
        for name, here in self._after.items():
            there = self._before[name]
            why = why_not_wider(there, here)
            if why is not None:
                yield [name], why if name not in self._made else f"derive.{name} would be {here}, and is {there}; {why}"

    def _keys(self) -> Iterator[tuple[Iterable[str], str]]:
        for name in self._now.key:
            there, here = self._before[name], self._after[name]
            if shift(there, here):
                yield [name], f"a key's digits behind the point are part of what it is ({there} there, {here} here)"
            elif name in self._made and isinstance(here, StringType):
                yield [name], f"the key {name} is a text that is made of it, and would be another"

    def _aggregates(self) -> Iterator[tuple[Iterable[str], str]]:
        if not isinstance(self._now, Pipeline) or not isinstance(self._was, Pipeline):
            return
        plan = zip(self._now.aggregates, self._plan.aggregates, strict=True)
        both = zip(arguments(self._was), arguments(self._now), strict=True)
        kept: dict[str, tuple[Argument, ...]] = {}
        for (aggregate, number), (there, here) in zip(plan, both, strict=True):
            if number is None:
                continue
            kept[aggregate.name] = here
            for before, after in zip(there, here, strict=True):
                why = _why_not(aggregate, before.type, after.type)
                if why is not None:
                    yield [after.column], f"aggregate.{aggregate.name} {why}"
        types = results(self._was), results(self._now)
        others = {here.name for there, here in zip(*types, strict=True) if _is_another(there.type, here.type)}
        for name, formula in formulas(self._now, types[1]).items():
            for of in others & set(formula.columns) & kept.keys() if name in kept else set():
                yield (
                    (one.column for one in kept[of]),
                    f"aggregate.{name} is a formula over {of}, of another type then",
                )

    def _roots(self, columns: Iterable[str]) -> Iterator[str]:
        """Go through the decoded fields of another type that columns are made of."""
        for column in columns:
            if column in self._made:
                yield from self._roots(self._made[column].columns)
            elif self._before[column] != self._after[column]:
                yield column


def _is_another(there: DataType, here: DataType) -> bool:
    """Whether what is made of values may be another, though they are the same numbers."""
    return there != here and bool(shift(there, here) or not isinstance(there, DecimalType))


def _why_not(aggregate: Aggregate, there: DataType, here: DataType) -> str | None:
    """Return why what an aggregate knows cannot be taken over to another type of its argument."""
    why = why_not_wider(there, here)
    if why is not None:
        return f"would be over {here}, and is over {there}; {why}"
    if not _is_another(there, here):
        return None
    return _why_not_over(aggregate.function, there, shift(there, here))


def _why_not_over(function: Function, there: DataType, digits: int) -> str | None:
    match function:
        case TopK() | CollectList() | CollectSet():
            return "shows values as they are written, which would change what it has said"
        case Custom():
            return f"has a state of its own, made of {there}"
        case Avg() if digits:
            return "is rounded by the digits of its field, which would change what it has said"
        case ApproxCountDistinct() | ApproxQuantile() | Variance() | Stddev() if digits:
            return f"knows numbers by their digits, which are those of {there}"
        case _:
            return None
