"""Infers the fields of sampled records and their types: the first type that accepts all values of a field.

Types are tried with the decoder's own conversion, so the chosen type decodes the values of the sample. If no type
accepts all values, one that accepts nearly all of them is chosen. Records with the remaining values become dead
letters, because the records of a log can be malformed.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from windrow import model as m
from windrow.engine.decode.values import BadValueError, NumberText, convert, parse_number
from windrow.model.types import MAX_PRECISION
from windrow.telemetry.reports import counted

MISFITS: Final = 0.01
"""The share of values, or of records, that may not fit."""
_LEAST_PRECISION: Final = 12
_HEADROOM: Final = 2
"""Additional digits before the point of a decimal, beyond those of the sample."""
_MOST_SCALE: Final = 8
"""A number with more digits behind the point is a double: a measurement, and not an amount."""
_YEARS: Final = (946_684_800, 2_840_140_800)
"""Seconds since 1970 of the years 2000 and 2060; a whole number between them can be a time."""
_SPREAD: Final = 10 * 366 * 86_400
"""Greatest span of the times of a sample, in seconds; ids are further apart."""
_UNITS: Final[tuple[tuple[Literal["millis", "micros", "seconds"], str, int], ...]] = (
    ("millis", "milliseconds", 1_000),
    ("micros", "microseconds", 1_000_000),
    ("seconds", "seconds", 1),
)
_TIME_WORDS: Final = frozenset({"time", "timestamp", "ts", "t", "at", "date", "datetime", "when", "epoch", "on"})
_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case: ``eventTime`` and ``event_time`` both have two."""
    return [word.lower() for word in _WORD.findall(name)]


@dataclass
class SampledField:
    """A field found at a path in the records: its non-null values, and its type (None if no type fits).

    `misfits` is the number of values that the type does not accept, and `missing` the number of records without a
    value. `why` is the reason for the type or its absence.
    """

    path: tuple[str, ...]
    values: list[object] = dataclasses.field(default_factory=list)
    type: m.DataType | None = None
    misfits: int = 0
    why: str = ""
    missing: int = 0

    @property
    def name(self) -> str:
        """The name of the field in a pipeline: its path joined by underscores."""
        return "_".join(self.path)

    @property
    def words(self) -> list[str]:
        """The words of all names in its path."""
        return [word for name in self.path for word in words_of(name)]


def sample_fields(records: Sequence[Mapping[str, object]]) -> list[SampledField]:
    """Return the fields of records in order of first appearance; numbers must be `NumberText`."""
    found: dict[tuple[str, ...], SampledField] = {}
    parents: Counter[tuple[str, ...]] = Counter()
    for record in records:
        _collect(record, (), found, parents)
    # an object in some records and a value in others has no type, and the fields of such an object have none
    mixed = {path for path, field in found.items() if field.values and path in parents}
    for path, field in found.items():
        if path in mixed:
            field.why = "an object in some records and a value in others"
        elif any(path[:depth] in mixed for depth in range(1, len(path))):
            field.why = "inside a field that is an object only in some records"
        elif any("." in name for name in path) and len(path) > 1:
            field.why = "a name with a dot inside an object cannot be a path"
        elif not field.values:
            field.why = "null in all records"
        else:
            field.type, field.misfits, field.why = _type_of(path[-1], field.values)
        field.missing = len(records) - len(field.values)
    return list(found.values())


def _collect(
    record: Mapping[str, object],
    above: tuple[str, ...],
    found: dict[tuple[str, ...], SampledField],
    parents: Counter[tuple[str, ...]],
) -> None:
    # the decoder reads names from the last to the first
    for name, value in reversed(list(record.items())):
        path = (*above, name)
        if isinstance(value, dict):
            parents[path] += 1
            _collect(value, path, found, parents)
        else:
            field = found.setdefault(path, SampledField(path))
            if value is not None:
                field.values.append(value)


def _type_of(name: str, values: Sequence[object]) -> tuple[m.DataType | None, int, str]:
    """Return a type for `values`, the number of values that it does not accept, and the reason for it."""
    best: tuple[m.DataType, int, str] | None = None
    for type_, why in _candidates(name, values):
        misfits = _misfits(type_, values)
        if not misfits:
            return type_, 0, why
        if best is None or misfits < best[1]:
            best = type_, misfits, why
    if best is not None and best[1] <= MISFITS * len(values):
        return best
    kinds = Counter(map(_kind, values)).most_common()
    return None, 0, f"no type accepts all values: {', '.join(counted(number, kind) for kind, number in kinds)}"


def _misfits(type_: m.DataType, values: Sequence[object]) -> int:
    """Count the values that a type does not accept; equal values are tried only once."""
    if isinstance(type_, m.ArrayType):
        return sum(not _accepts(type_, value) for value in values)
    numbers = Counter((type(value), value) for value in values if isinstance(value, str | bool))
    bad = sum(number for (_, value), number in numbers.items() if not _accepts(type_, value))
    return bad + len(values) - numbers.total()


def _accepts(type_: m.DataType, value: object) -> bool:
    try:
        convert("", type_, value)
    except BadValueError:
        return False
    return True


def _kind(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case NumberText():
            return "number"
        case str():
            return "text"
        case list():
            return "array"
        case _:
            return "object"


def _candidates(name: str, values: Sequence[object]) -> Iterator[tuple[m.DataType, str]]:
    """Yield the types that the values can have, most specific first, each with a reason."""
    kinds = Counter(map(_kind, values))
    numbers = [value for value in values if isinstance(value, NumberText)]
    texts = [value for value in values if isinstance(value, str) and not isinstance(value, NumberText)]
    match kinds.most_common(1)[0][0]:
        case "array":
            array = _array([value for value in values if isinstance(value, list)])
            if array is not None:
                yield array, "an array"
        case "boolean":
            yield m.BooleanType(), ""
        case "number":
            yield from _number_types(name, [*numbers, *texts])
        case "text":
            yield m.TimestampType("iso"), "ISO 8601 text"
            if all("." in text for text in texts):
                # whole numbers as text are ids
                yield from ((type_, f"{why}, as text") for type_, why in _number_types("", texts))
            if numbers:
                yield from _number_types(name, [*numbers, *texts])
            yield m.StringType(), ""
        case _:
            return


def _number_types(name: str, values: Sequence[str]) -> Iterator[tuple[m.SimpleType, str]]:
    parsed = {value: number for value in values if (number := parse_number(value)) is not None}
    known = [parsed[value] for value in values if value in parsed]
    if len(known) < (1 - MISFITS) * len(values) or not known:
        return
    is_whole = sum(number.whole for number in known) >= (1 - MISFITS) * len(known)
    if is_whole:
        yield from _time_units(name, [int(value) for value in values if value.removeprefix("-").isdecimal()])
        # 20.00 as text is an amount, and 5.0 as a number an id of a column that had nulls
        has_points = any("." in value for value in values if not isinstance(value, NumberText))
        if all(number.whole for number in known) and not has_points:
            yield m.LongType(), ""
    has_exponents = any("e" in value.lower() for value in parsed)
    scale = max(0, *(-number.exponent for number in known))
    # amounts have two digits even if all end with a zero, as 12.50
    digits_behind = max(len(value.partition(".")[2]) for value in parsed)
    if not has_exponents and digits_behind <= _MOST_SCALE:
        scale = digits_behind
    digits = max(1, *(number.magnitude for number in known))
    behind = f"up to {counted(scale, 'digit')} after the decimal point"
    if scale <= _MOST_SCALE and not has_exponents and digits + scale <= MAX_PRECISION:
        precision = min(MAX_PRECISION, max(_LEAST_PRECISION, digits + _HEADROOM + scale))
        yield m.DecimalType(precision, scale), f"{behind}, so sums are exact"
    why = "exponents" if has_exponents else behind
    yield m.DoubleType(), f"{why}: sums are rounded, and can differ in the last digits"


def _time_units(name: str, values: Sequence[int]) -> Iterator[tuple[m.TimestampType, str]]:
    """Yield timestamp types for the units in which whole numbers are times between 2000 and 2060."""
    if not values:
        return
    is_named = bool(_TIME_WORDS.intersection(words_of(name)))
    for unit, word, size in _UNITS:
        least, greatest = (size * limit for limit in _YEARS)
        times = [value for value in values if least <= value <= greatest]
        if len(times) < (1 - MISFITS) * len(values):
            continue
        # a number of ten digits is a time only if its name says so
        if is_named or (unit != "seconds" and max(times) - min(times) <= size * _SPREAD):
            yield m.TimestampType(unit), f"{word} since 1970"


def _array(values: Iterable[list[object]]) -> m.ArrayType | None:
    """Return the type of arrays, or None if no type fits their elements."""
    elements = [element for value in values for element in value]
    given = [element for element in elements if element is not None]
    has_nulls = len(given) < len(elements)
    if not given:
        return None
    if all(isinstance(element, dict) for element in given):
        fields = sample_fields([element for element in given if isinstance(element, dict)])
        # a struct has no paths, and an element with another type makes a dead letter
        members = [
            m.Field(field.name, field.type, optional=bool(field.missing))
            for field in fields
            if len(field.path) == 1 and field.type is not None and not field.misfits
        ]
        return m.ArrayType(m.StructType(tuple(members)), has_nulls) if members else None
    type_, misfits, _ = _type_of("", given)
    return None if type_ is None or misfits or isinstance(type_, m.ArrayType) else m.ArrayType(type_, has_nulls)
