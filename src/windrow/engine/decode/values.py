"""Conversion of JSON values to the types of fields; numbers stay text, so no digit is lost."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias, assert_never

from windrow import model as m

_GRAMMAR = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?)([0-9]+))?")
_EXPONENT_DIGITS = 18

MIN_TIMESTAMP = -62_135_596_800_000_000
"""0001-01-01 00:00:00 UTC in microseconds."""
MAX_TIMESTAMP = 253_402_300_799_999_999
"""9999-12-31 23:59:59.999999 UTC in microseconds."""
MICROS_PER_UNIT = {"seconds": 1_000_000, "millis": 1_000, "micros": 1}
_LONG_DIGITS = 19
_MICRO_DIGITS = 6
_SHOWN = 40
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)?"
    r"(?:[Zz]|([+-])([0-9]{2})(?::?([0-9]{2}))?)?"
)

MAX_DEPTH = 256
"""Deeper nesting is malformed. The limit is fixed, so that results do not depend on the depth of the caller's stack."""
TOO_DEEP = f"malformed: nested too deeply (more than {MAX_DEPTH} levels)"


class MalformedError(Exception):
    """Raised for bytes that are not in the record's format; the message is the dead letter's reason."""


class NumberText(str):
    """The text of a JSON number, as distinct from a JSON string."""

    __slots__ = ()


class PlainText(str):
    """A text in a format without types, where ``true`` and ``false`` are booleans."""

    __slots__ = ()


BOOLEAN_TEXTS = {"true": True, "false": False}


class TimeText(NumberText):
    """The number of a time, in the unit of its format; `micros` is the number in microseconds."""

    __slots__ = ("micros",)
    micros: NumberText

    @staticmethod
    def of(number: int, nanos: int) -> TimeText:
        """Return the time that is `number` units of `nanos` nanoseconds after the start of 1970."""
        text = TimeText(number)
        text.micros = NumberText(f"{number * nanos}e-3")
        return text


class Headers(dict[str, PlainText | None]):
    """The values of a record's headers by name; as a string, they are a JSON object."""

    __slots__ = ()

    def text(self) -> str:
        """Return the JSON object."""
        return json.dumps(self, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Number:
    """The number ``(-1)**negative * int(digits) * 10**exponent``; the digits neither begin nor end with a zero.

    Zero itself has no digits.
    """

    negative: bool
    digits: str
    exponent: int

    @property
    def whole(self) -> bool:
        """Whether the number is whole."""
        return self.exponent >= 0

    @property
    def magnitude(self) -> int:
        """The number of digits before the decimal point, or minus the number of zeros after it."""
        return len(self.digits) + self.exponent

    def unscaled(self, scale: int) -> int:
        """Return the number times ``10**scale``, which must be whole; use this only for small magnitudes."""
        if not self.digits:
            return 0
        value = int(self.digits + "0" * (self.exponent + scale))
        return -value if self.negative else value


def parse_number(text: str) -> Number | None:
    """Parse a number in JSON's grammar; return None if the text is not a number."""
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        return None
    sign, before, behind, exponent_sign, exponent_digits = match.groups(default="")
    significand = before + behind
    digits = significand.strip("0")
    if not digits:
        return Number(negative=False, digits="", exponent=0)
    trailing = len(significand) - len(significand.rstrip("0"))
    exponent = _exponent(exponent_sign, exponent_digits) - len(behind) + trailing
    return Number(negative=sign == "-", digits=digits, exponent=exponent)


def _exponent(sign: str, digits: str) -> int:
    """Parse an exponent; one with more digits than a record can have characters is read as the greatest exponent."""
    shortest = digits.lstrip("0") or "0"
    value = int(shortest) if len(shortest) <= _EXPONENT_DIGITS else 10**_EXPONENT_DIGITS
    return -value if sign == "-" else value


_MIN_LONG, _MAX_LONG = -(2**63), 2**63 - 1

Value: TypeAlias = "str | bool | int | float | Decimal | list[Value | dict[str, Value | None] | None]"
"""A field's value. Times are whole microseconds; the elements of an array are values or structs."""


class BadValueError(Exception):
    """Raised for a JSON value that the type of a field cannot hold; the message is the dead letter's reason."""


def convert(name: str, type_: m.DataType, value: object) -> Value:  # noqa: C901, PLR0911 - a case for each type
    """Convert a value to the type of the field `name`; raise BadValueError if the type cannot hold it exactly.

    The value comes from JSON, with its numbers kept as `NumberText`; it is not None.
    """
    match type_:
        case m.StringType():
            return _string(name, value)
        case m.BooleanType():
            if isinstance(value, PlainText) and value in BOOLEAN_TEXTS:
                return BOOLEAN_TEXTS[value]
            if not isinstance(value, bool):
                raise _wrong(name, value, type_)
            return value
        case m.LongType():
            return _long(name, value, type_)
        case m.DoubleType():
            return _double(name, value, type_)
        case m.DecimalType():
            return _decimal(name, value, type_)
        case m.TimestampType():
            return _timestamp(name, value, type_)
        case m.ArrayType():
            if not isinstance(value, list):
                raise _no_kind(name, value, "array")
            return [_element(f"{name}[{index}]", type_, element) for index, element in enumerate(value)]
        case _:
            assert_never(type_)


def _element(name: str, of: m.ArrayType, value: object) -> Value | dict[str, Value | None] | None:
    if value is None:
        if of.optional:
            return None
        msg = f"null: {name}"
        raise BadValueError(msg)
    if not isinstance(of.element, m.StructType):
        return convert(name, of.element, value)
    if not isinstance(value, dict):
        raise _no_kind(name, value, "object")
    return {field.name: _member(f"{name}.{field.name}", field, value) for field in of.element.fields}


def _member(name: str, field: m.Field, struct: Mapping[str, object]) -> Value | None:
    value = struct.get(field.name)
    if value is not None:
        return convert(name, field.type, value)
    if field.optional:
        return None
    msg = f"null: {name}" if field.name in struct else f"missing: {name}"
    raise BadValueError(msg)


def value_at(record: Mapping[str, object], path: Sequence[str]) -> object:
    """Return the value at a path, or None; raise BadValueError if the path leads through a value that is no object."""
    value: object = record
    for depth, name in enumerate(path):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _no_kind(".".join(path[:depth]), value, "object")
        value = value.get(name)
    return value


def _string(name: str, value: object) -> str:
    if isinstance(value, Headers):
        return value.text()
    if not isinstance(value, str) or isinstance(value, NumberText):
        raise _wrong(name, value, m.StringType())
    if "\0" in value:
        msg = f"wrong type: {name}: {_show(value)} holds U+0000"
        raise BadValueError(msg)
    return value


def _number(name: str, value: object, type_: m.DataType) -> Number:
    number = parse_number(value) if isinstance(value, str) else None
    if number is None:
        raise _wrong(name, value, type_)
    return number


def _long(name: str, value: object, type_: m.DataType) -> int:
    number = _number(name, value, type_)
    if not number.whole:
        raise _wrong(name, value, type_)
    if number.magnitude <= _LONG_DIGITS:
        whole = number.unscaled(0)
        if _MIN_LONG <= whole <= _MAX_LONG:
            return whole
    raise _out_of_range(name, value, type_)


def _double(name: str, value: object, type_: m.DataType) -> float:
    if not isinstance(value, str) or parse_number(value) is None:
        raise _wrong(name, value, type_)
    double = float(value) + 0.0  # one zero, not two
    if not math.isfinite(double):
        raise _out_of_range(name, value, type_)
    return double


def _decimal(name: str, value: object, type_: m.DecimalType) -> Decimal:
    number = _number(name, value, type_)
    if -number.exponent > type_.scale:
        raise _wrong(name, value, type_)
    if number.digits and number.magnitude > type_.precision - type_.scale:
        raise _out_of_range(name, value, type_)
    unscaled = number.unscaled(type_.scale)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -type_.scale))


def _timestamp(name: str, value: object, type_: m.TimestampType) -> int:
    if isinstance(value, TimeText):
        micros = _long(name, value.micros, type_)
    elif type_.unit != "iso":
        micros = _long(name, value, type_) * MICROS_PER_UNIT[type_.unit]
    else:
        match = _ISO.fullmatch(value) if isinstance(value, str) and not isinstance(value, NumberText) else None
        if match is None:
            raise _wrong(name, value, type_)
        micros = _iso(name, value, type_, match)
    if not MIN_TIMESTAMP <= micros <= MAX_TIMESTAMP:
        raise _out_of_range(name, value, type_)
    return micros


def _iso(name: str, value: object, type_: m.DataType, match: re.Match[str]) -> int:
    *parts, fraction, sign, hours, minutes = match.groups(default="0")
    fraction = fraction.rstrip("0")
    if len(fraction) > _MICRO_DIGITS:
        raise _wrong(name, value, type_)
    try:
        year, month, day, hour, minute, second = map(int, parts)
        micro = int(fraction.ljust(_MICRO_DIGITS, "0"))
        local = dt.datetime(year, month, day, hour, minute, second, micro, tzinfo=dt.UTC)
        offset = dt.time(int(hours), int(minutes))
    except ValueError as exc:
        raise _out_of_range(name, value, type_) from exc
    east = (offset.hour * 60 + offset.minute) * 60_000_000
    micros = (local - _EPOCH) // _MICROSECOND
    return micros + east if sign == "-" else micros - east


def _wrong(name: str, value: object, type_: m.DataType) -> BadValueError:
    return BadValueError(f"wrong type: {name}: {_show(value)} is not a {type_}")


def _no_kind(name: str, value: object, kind: str) -> BadValueError:
    return BadValueError(f"wrong type: {name}: {_show(value)} is not an {kind}")


def _out_of_range(name: str, value: object, type_: m.DataType) -> BadValueError:
    return BadValueError(f"out of range: {name}: {_show(value)} does not fit {type_}")


def _show(value: object) -> str:
    """Return a JSON value as ASCII text, truncated if long."""
    match value:
        case NumberText():
            text = str(value)
        case dict():
            return "an object"
        case bytes():
            return "bytes"
        case list():
            return "an array"
        case str():
            text = json.dumps(value[: _SHOWN + 1])
        case _:
            return json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
