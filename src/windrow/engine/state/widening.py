"""Type widening: which changes of field types stored state allows, and the conversion of its values to wider types.

A type may replace another if each value of the old type is the same value in the new type. This is not enough where the
stored state depends on the type of the value: in the text of a key, in the hashes of a sketch, or in a rounded mean.
`incompatible_fields` returns such fields, each with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

import pyarrow as pa

from windrow import model as m
from windrow.errors import CheckpointError, PipelineError
from windrow.expressions import AnySpec, Argument, arguments, computed, formulas, is_window_spec, record_fields, results

_S = TypeVar("_S", bound=AnySpec)


@dataclass(frozen=True)
class StateChange:
    """How a restored pipeline differs from the one that wrote the savepoint, as far as state is concerned.

    For each aggregate of the pipeline, `aggregates` has its index in the run that wrote the savepoint, or None if it is
    new. `lateness` is the lateness of that run in microseconds. `same_records` is true if records have the same
    columns. `were` has the fields that the run decoded whose type has changed or that are now optional.
    """

    aggregates: tuple[int | None, ...] = ()
    lateness: int = 0
    same_records: bool = True
    were: tuple[m.Field, ...] = ()

    def forgotten_until(self, forgotten_until: int, low: int, lateness: int) -> int:
        """Return the end time up to which windows can no longer be revised.

        This time was `forgotten_until` in the run that wrote the savepoint, and `low` is the low watermark. A window
        that the run has dropped stays dropped, whatever the lateness of the pipeline.
        """
        return max(forgotten_until, low - self.lateness) if lateness > self.lateness else forgotten_until

    def before(self, spec: _S) -> _S:
        """Return the spec with the field types of the run that wrote the savepoint."""
        were = {field.name: field for field in self.were}
        fields = tuple(were.get(field.name, field) for field in spec.decode.fields)
        return replace(spec, decode=m.Decode(fields))


LONG_DIGITS = 19
"""Number of digits before the decimal point of a decimal that holds every long."""


def why_not_wider(there: m.DataType, here: m.DataType) -> str | None:
    """Return why a type cannot replace another, or None if each value of the old type is the same value in both."""
    if there == here or (isinstance(here, m.DecimalType) and _holds(here, there)):
        return None
    return f"not every {there} is the same value as a {here}"


def _holds(here: m.DecimalType, there: m.DataType) -> bool:
    match there:
        case m.DecimalType(precision, scale):
            return here.scale >= scale and here.precision - here.scale >= precision - scale
        case m.LongType():
            return here.precision - here.scale >= LONG_DIGITS
        case _:
            return False


def added_digits(there: m.DataType, here: m.DataType) -> int:
    """Return how many more digits after the decimal point the wider type has."""
    old, new = (type_.scale if isinstance(type_, m.DecimalType) else 0 for type_ in (there, here))
    return new - old


def incompatible_fields(spec: AnySpec, plan: StateChange) -> dict[str, str]:
    """Map the decoded fields whose new types do not fit the stored state to the reasons."""
    try:
        return _TypeChanges(spec, plan).find()
    except PipelineError as exc:
        # expressions over stored records are computed with the types by which these were decoded
        return {field.name: exc.message for field in plan.were}


class _TypeChanges:
    """Compares the types of a pipeline with those of the run that wrote the savepoint."""

    def __init__(self, spec: AnySpec, plan: StateChange) -> None:
        self._now = spec
        self._was = plan.before(spec)
        self._plan = plan
        self._before = {field.name: field.type for field in record_fields(self._was)}
        self._after = {field.name: field.type for field in record_fields(spec)}
        self._computed = {column.name: column.expression for column in computed(spec)}

    def find(self) -> dict[str, str]:
        """Map each decoded field whose change does not fit the stored state to the reason."""
        found: dict[str, str] = {}
        for columns, why in chain(self._fields(), self._keys(), self._aggregates()):
            for name in self._roots(columns):
                found.setdefault(name, why)
        return found

    def _fields(self) -> Iterator[tuple[Iterable[str], str]]:
        for name, here in self._after.items():
            there = self._before[name]
            why = why_not_wider(there, here)
            if why is not None and name in self._computed:
                why = f"derive.{name} would be {here}, but is {there} in the savepoint; {why}"
            if why is not None:
                yield [name], why

    def _keys(self) -> Iterator[tuple[Iterable[str], str]]:
        for name in self._now.key:
            there, here = self._before[name], self._after[name]
            if added_digits(there, here):
                yield (
                    [name],
                    f"digits after the decimal point are part of a key ({there} in the savepoint, {here} here)",
                )
            elif name in self._computed and isinstance(here, m.StringType):
                yield [name], f"the key {name} is a text computed from it, which would change"

    def _aggregates(self) -> Iterator[tuple[Iterable[str], str]]:
        if not is_window_spec(self._now) or not is_window_spec(self._was):
            return
        inputs = arguments(self._was), arguments(self._now)
        aggregates = zip(self._now.node.aggregates, self._plan.aggregates, *inputs, strict=True)
        kept: dict[str, tuple[Argument, ...]] = {}
        for aggregate, number, there, here in aggregates:
            if number is None:
                continue
            kept[aggregate.name] = here
            for before, after in zip(there, here, strict=True):
                why = _why_not(aggregate, before.type, after.type)
                if why is not None:
                    yield [after.column], f"aggregate.{aggregate.name} {why}"
        types = results(self._was), results(self._now)
        others = {here.name for there, here in zip(*types, strict=True) if _may_differ(there.type, here.type)}
        for name, formula in formulas(self._now, types[1]).items():
            for of in others & set(formula.columns) & kept.keys() if name in kept else set():
                why = f"aggregate.{name} is a formula over {of}, whose type would change"
                yield (argument.column for argument in kept[of]), why

    def _roots(self, columns: Iterable[str]) -> Iterator[str]:
        """Yield the decoded fields with changed types from which the columns are computed."""
        for column in columns:
            if column in self._computed:
                yield from self._roots(self._computed[column].columns)
            elif self._before[column] != self._after[column]:
                yield column


def _may_differ(there: m.DataType, here: m.DataType) -> bool:
    """Return True if results may differ although the values are the same numbers."""
    return there != here and bool(added_digits(there, here) or not isinstance(there, m.DecimalType))


def _why_not(aggregate: m.Aggregate, there: m.DataType, here: m.DataType) -> str | None:
    """Return why an aggregate's state does not fit the new type of its argument, or None if it fits."""
    why = why_not_wider(there, here)
    if why is not None:
        return f"would aggregate {here}, but its state is of {there}; {why}"
    if not _may_differ(there, here):
        return None
    return _why_not_over(aggregate.function, there, added_digits(there, here))


def _why_not_over(function: m.Function, there: m.DataType, digits: int) -> str | None:
    match function:
        case m.TopK() | m.TopKBy() | m.BottomKBy() | m.CollectList() | m.CollectSet():
            return "shows the text of values, which would change earlier results"
        case m.Custom():
            return f"has its own kind of state, which was computed from {there}"
        case m.Avg() if digits:
            return "is rounded to the digits of its field, which would change earlier results"
        case m.MaxBy() | m.MinBy() if digits:
            return "keeps a value and its measure together, and only one would get more digits"
        case m.ApproxCountDistinct() | m.ApproxQuantile() | m.Variance() | m.Stddev() if digits:
            return f"depends on the number of digits, which is that of {there}"
        case _:
            return None


def widen(column: pa.ChunkedArray, type_: pa.DataType, shift: int = 0) -> pa.ChunkedArray:
    """Convert values to a wider type; unscaled decimals are multiplied by 10 to the power of `shift`.

    Values in lists and structs are converted, too. Raise CheckpointError if the type cannot hold a value.
    """
    if column.type == type_ and not shift:
        return column
    table = pa.table({"column": column})
    try:
        # more digits after the decimal point: zeros are appended to the unscaled number
        grown = table.cast(pa.schema({"column": _with_scale(type_, shift)}))
    except pa.ArrowInvalid as exc:
        msg = f"a number in the savepoint has too many digits to add {shift} after the decimal point: {exc}"
        raise CheckpointError(msg) from exc
    return _view(grown, pa.schema({"column": type_})).column("column")


def _with_scale(type_: pa.DataType, scale: int) -> pa.DataType:
    """Return a type in which all decimals, including those in lists and structs, have the given scale."""
    if pa.types.is_decimal(type_):
        return pa.decimal128(type_.precision, scale)
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_with_scale(type_.value_type, scale)))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_with_scale(field.type, scale)) for field in type_])
    return type_


def _view(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """View a table as a schema with the same buffers.

    The conversion uses Arrow's IPC messages, which hold buffers without their types.
    """
    batches = (pa.ipc.read_record_batch(batch.serialize(), schema) for batch in table.to_batches())
    return pa.Table.from_batches(batches, schema=schema)
