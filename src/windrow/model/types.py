"""The types a decoded field can have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
