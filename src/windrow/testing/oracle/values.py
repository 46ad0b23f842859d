"""What a JSON value means as a field of some type."""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal
from typing import assert_never

from windrow.model import BooleanType, DataType, DecimalType, DoubleType, LongType, StringType, TimestampType
from windrow.testing.oracle.answer import Value

MALFORMED = "malformed"
NOT_AN_OBJECT = "not an object"
MISSING = "missing"
NULL = "null"
WRONG_TYPE = "wrong type"
OUT_OF_RANGE = "out of range"
FUTURE = "future"
NO_LOG_TIME = "no log time"
NULL_KEY = "null key"
EXPRESSION = "expression"
CONFLICT = "conflict"

UNITS = {"seconds": 1_000_000, "millis": 1_000, "micros": 1}
YEAR_0001 = -62_135_596_800_000_000
YEAR_10000 = 253_402_300_800_000_000
LONG_LIMIT = 2**63
LONG_DIGITS = 19
MICRO_DIGITS = 6
NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
ISO_TEXT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:[.,]([0-9]+))?"
    r"(?:[Zz]|([+-][0-9]{2})(?::?([0-9]{2}))?)?"
)


class Literal(str):
    """The text of a JSON number, as it was written."""

    __slots__ = ()


class DeadLetterError(Exception):
    """The record is not good; the message is the fixed part of the reason."""


def value_of(type_: DataType, json_value: object) -> Value:
    """Return the value; raise DeadLetterError if the type cannot hold it without losing something."""
    match type_:
        case StringType():
            return _text(json_value)
        case BooleanType():
            return _boolean(json_value)
        case LongType():
            return _long(json_value)
        case DoubleType():
            return _double(json_value)
        case DecimalType(precision, scale):
            return _decimal(json_value, precision, scale)
        case TimestampType(unit):
            return _time(json_value, unit)
        case _:
            assert_never(type_)


def _text(json_value: object) -> str:
    if isinstance(json_value, str) and not isinstance(json_value, Literal) and "\0" not in json_value:
        return json_value
    raise DeadLetterError(WRONG_TYPE)


def _boolean(json_value: object) -> bool:
    if isinstance(json_value, bool):
        return json_value
    raise DeadLetterError(WRONG_TYPE)


def _digits_and_exponent(json_value: object) -> tuple[str, str, int]:
    """Return sign, digits and exponent: -1.50 is ("-", "15", -1), and zero has no digits."""
    match = NUMBER.fullmatch(json_value) if isinstance(json_value, str) else None
    if match is None:
        raise DeadLetterError(WRONG_TYPE)
    sign, before, after, exponent = match[1], match[2], match[3] or "", match[4] or "0"
    digits = (before + after).lstrip("0")
    zeros = len(digits) - len(digits.rstrip("0"))
    if not digits:
        return "", "", 0
    return sign, digits.rstrip("0"), int(exponent) - len(after) + zeros


def _long(json_value: object) -> int:
    sign, digits, exponent = _digits_and_exponent(json_value)
    if exponent < 0:
        raise DeadLetterError(WRONG_TYPE)
    if len(digits) + exponent > LONG_DIGITS:
        raise DeadLetterError(OUT_OF_RANGE)
    whole = int(sign + (digits or "0") + "0" * exponent)
    if not -LONG_LIMIT <= whole < LONG_LIMIT:
        raise DeadLetterError(OUT_OF_RANGE)
    return whole


def _double(json_value: object) -> float:
    _digits_and_exponent(json_value)
    double = float(str(json_value))
    if math.isinf(double):
        raise DeadLetterError(OUT_OF_RANGE)
    return double


def _decimal(json_value: object, precision: int, scale: int) -> Decimal:
    sign, digits, exponent = _digits_and_exponent(json_value)
    if -exponent > scale:
        raise DeadLetterError(WRONG_TYPE)
    if digits and len(digits) + exponent > precision - scale:
        raise DeadLetterError(OUT_OF_RANGE)
    return Decimal(f"{sign}{digits or '0'}E{exponent}")


def _time(json_value: object, unit: str) -> int:
    time = _iso(json_value) if unit == "iso" else _long(json_value) * UNITS[unit]
    if not YEAR_0001 <= time < YEAR_10000:
        raise DeadLetterError(OUT_OF_RANGE)
    return time


def _iso(json_value: object) -> int:
    """Return the microseconds of an ISO 8601 date and time; without an offset it is UTC."""
    text = json_value if isinstance(json_value, str) and not isinstance(json_value, Literal) else ""
    match = ISO_TEXT.fullmatch(text)
    if match is None or (match[4] and not match[3]):
        raise DeadLetterError(WRONG_TYPE)
    fraction = (match[4] or "").rstrip("0")
    if len(fraction) > MICRO_DIGITS:
        raise DeadLetterError(WRONG_TYPE)
    try:
        point = dt.datetime.fromisoformat(f"{match[1]}T{match[2]}{match[3] or ''}+00:00")
        east = dt.time.fromisoformat(f"{(match[5] or '+00')[1:]}:{match[6] or '00'}")
    except ValueError as exc:
        raise DeadLetterError(OUT_OF_RANGE) from exc
    seconds = (point - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(seconds=1)
    ahead = east.hour * 3600 + east.minute * 60
    seconds += ahead if (match[5] or "+").startswith("-") else -ahead
    return seconds * 1_000_000 + int(fraction.ljust(MICRO_DIGITS, "0"))
