"""Codecs that check values given by users, and convert values between Arrow, Python and JSON."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa

from windrow.engine.user_code import shorten_repr

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LEAST, _GREATEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class ValueCodec:
    """Conversion of values of one type between Arrow, Python and JSON.

    The function `accept` converts a user's value to a plain value, or raises TypeError. `write` and `read` convert a
    plain value to JSON and back; they are None if JSON can hold the value itself.
    """

    accept: Callable[[Any], Any]
    write: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None

    def written(self, value: Any) -> Any:  # noqa: ANN401 - a value of the user's type
        """Convert a value or None to plain JSON."""
        return value if self.write is None or value is None else self.write(value)

    def kept(self, value: Any) -> Any:  # noqa: ANN401 - plain JSON
        """Convert plain JSON that `written` returned back to the value or None."""
        return value if self.read is None or value is None else self.read(value)


def value_codec(type_: pa.DataType, name: str) -> ValueCodec:
    """Return the codec of a field type; `name` is the name of the value in messages."""
    if pa.types.is_string(type_):
        return ValueCodec(_text(name))
    if pa.types.is_boolean(type_):
        return ValueCodec(_boolean(name))
    if pa.types.is_int64(type_):
        return ValueCodec(_long(name))
    if pa.types.is_float64(type_):
        return ValueCodec(_double(name))
    if pa.types.is_decimal(type_):
        return ValueCodec(_decimal(name, type_.precision, type_.scale), str, Decimal)
    return ValueCodec(_time(name), micros_of, time_of)


def to_values(values: pa.ChunkedArray) -> list[Any]:
    """Convert a column to Python values; nulls become None, and times are in UTC."""
    type_ = values.type
    if pa.types.is_timestamp(type_):
        times = values.cast(pa.timestamp("us")).to_numpy().tolist()
        return [None if time is None else time.replace(tzinfo=UTC) for time in times]
    if values.null_count == 0 and (pa.types.is_int64(type_) or pa.types.is_float64(type_)):
        return values.to_numpy().tolist()  # type: ignore[no-any-return]
    return values.to_pylist()  # type: ignore[no-any-return]


def micros_of(time: datetime) -> int:
    """Convert a time with a time zone to microseconds since the epoch."""
    return (time - EPOCH) // _MICROSECOND


def time_of(micros: int) -> datetime:
    """Convert microseconds since the epoch to a time in UTC."""
    return EPOCH + timedelta(microseconds=micros)


def _type_error(name: str, value: object, type_: str) -> TypeError:
    return TypeError(f"{name} is {shorten_repr(value)} ({type(value).__name__}), which is not a {type_}")


def _text(name: str) -> Callable[[Any], str]:
    def accept(value: Any) -> str:  # noqa: ANN401 - the user's value
        if type(value) is str and value.isascii() and "\x00" not in value:
            return value
        if not isinstance(value, str) or "\x00" in value:
            raise _type_error(name, value, "string (text without U+0000)")
        try:
            value.encode()
        except UnicodeEncodeError as exc:
            raise _type_error(name, value, "string (half of a surrogate pair is not a character)") from exc
        return str.__str__(value)

    return accept


def _boolean(name: str) -> Callable[[Any], bool]:
    def accept(value: Any) -> bool:  # noqa: ANN401 - the user's value
        if type(value) is bool:
            return value
        if isinstance(value, np.bool_):
            return bool(value)
        raise _type_error(name, value, "boolean")

    return accept


def _long(name: str) -> Callable[[Any], int]:
    def accept(value: Any) -> int:  # noqa: ANN401 - the user's value
        if type(value) is not int:
            if isinstance(value, bool | np.bool_):
                raise _type_error(name, value, "long")
            try:
                value = operator.index(value)
            except TypeError as exc:
                raise _type_error(name, value, "long") from exc
        if _LEAST <= value <= _GREATEST:
            return value  # type: ignore[no-any-return]
        raise _type_error(name, value, "long (64 bits)")

    return accept


def _double(name: str) -> Callable[[Any], float]:
    def accept(value: Any) -> float:  # noqa: ANN401 - the user's value
        if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError as exc:
                raise _type_error(name, value, "double") from exc
            if math.isfinite(number):
                return number
        raise _type_error(name, value, "double (finite)")

    return accept


def _decimal(name: str, precision: int, scale: int) -> Callable[[Any], Decimal]:
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])
    unit = Decimal(1).scaleb(-scale)

    def accept(value: Any) -> Decimal:  # noqa: ANN401 - the user's value
        if isinstance(value, (int, Decimal, np.integer)) and not isinstance(value, bool):
            number = value if isinstance(value, Decimal) else Decimal(int(value))
            if not number.is_finite():
                raise _type_error(name, value, f"decimal({precision},{scale}) (finite)")
            try:
                return number.quantize(unit, context=exact)
            except (Inexact, InvalidOperation) as exc:
                raise _type_error(name, value, f"decimal({precision},{scale})") from exc
        raise _type_error(name, value, f"decimal({precision},{scale}); pass a Decimal or an int")

    return accept


def _time(name: str) -> Callable[[Any], datetime]:
    def accept(value: Any) -> datetime:  # noqa: ANN401 - the user's value
        if isinstance(value, datetime) and value.tzinfo is not None:
            if value.tzinfo is UTC and type(value) is datetime:
                return value
            time = time_of(micros_of(value))
            if time == value:
                return time
            raise _type_error(name, value, "timestamp in whole microseconds")
        raise _type_error(name, value, "timestamp; pass a datetime with a time zone")

    return accept
