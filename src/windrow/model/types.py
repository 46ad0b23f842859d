"""The types a decoded field can have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from windrow.errors import PipelineError


@dataclass(frozen=True)
class StringType:
    """Text: a JSON string without U+0000."""

    def __str__(self) -> str:
        return "string"


@dataclass(frozen=True)
class BooleanType:
    """A JSON true or false."""

    def __str__(self) -> str:
        return "boolean"


@dataclass(frozen=True)
class LongType:
    """A whole number of 64 bits."""

    def __str__(self) -> str:
        return "long"


@dataclass(frozen=True)
class DoubleType:
    """An IEEE 754 number of 64 bits, finite."""

    def __str__(self) -> str:
        return "double"


@dataclass(frozen=True)
class DecimalType:
    """An exact number of `precision` digits, `scale` of them behind the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class TimestampType:
    """A point in time: whole units since the epoch, or ISO 8601 text (`unit` is ``iso``)."""

    unit: Literal["seconds", "millis", "micros", "iso"]

    def __str__(self) -> str:
        return "timestamp" if self.unit == "iso" else f"timestamp_{self.unit}"


DataType = StringType | BooleanType | LongType | DoubleType | DecimalType | TimestampType

MAX_PRECISION = 38
_SIMPLE: dict[str, DataType] = {
    str(simple): simple
    for simple in (
        StringType(),
        BooleanType(),
        LongType(),
        DoubleType(),
        TimestampType("seconds"),
        TimestampType("millis"),
        TimestampType("micros"),
        TimestampType("iso"),
    )
}
_DECIMAL = re.compile(r"decimal\s*\(\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*\)")


def parse_type(text: str) -> DataType:
    """Read a type as its `str` writes it; raise PipelineError for anything else."""
    if text in _SIMPLE:
        return _SIMPLE[text]
    decimal = _DECIMAL.fullmatch(text)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= MAX_PRECISION and scale <= precision:
            return DecimalType(precision, scale)
        msg = f"{text!r}: a decimal has 1 to {MAX_PRECISION} digits, and no more of them behind the point than that"
        raise PipelineError(msg)
    msg = f"{text!r} is not a type; expected one of {', '.join(_SIMPLE)}, decimal(PRECISION,SCALE)"
    raise PipelineError(msg)
