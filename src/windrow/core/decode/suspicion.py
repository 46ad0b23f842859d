"""One regular expression that finds the records which the fast path must leave to the exact path.

DuckDB reads JSON leniently, and casts leniently: it takes a comma before a closing bracket, NaN and infinities, true as
the number 1, 5 as the text "5", 12.345 as decimal(12,2), and it reads every fraction as a double. So the fast path
asks of the record's own text, before any parsing, whether anything of that kind stands in it. The expression may find
too much (a nested object with a field of the same name), which costs time; it must never find too little.

What it relies on: a field's name is written plainly in the record, because a record with an escape that could spell a
character of it is suspicious too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from windrow.model import BooleanType, DataType, DecimalType, DoubleType, LongType, StringType, TimestampType

DOUBLE_DIGITS = 15
"""Decimals of so many digits and their nearest doubles are one to one."""
_WORKING_SCALE = 6
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]+")

_NOT_STRICT = (
    r",\s*[}\]]",
    r"(?i:[:,\[]\s*-?(?:nan|inf|infinity)\s*[,}\]])",
)
_BAD_NUMBER_TEXT = r'"(?:[^0-9-]|-[^0-9]|-?(?:0[0-9]|[0-9]+(?:[^0-9."]|\.(?:[^0-9]|[0-9]+[^0-9"]))))'
_BAD_WHOLE_TEXT = r'"(?:[^0-9-]|-[^0-9]|-?(?:0[0-9]|[0-9]+[^0-9"]))'


@dataclass(frozen=True)
class Read:
    """A field that is read from the record; an optional one may be null."""

    name: str
    type: DataType
    optional: bool = False


def suspicion(fields: Iterable[Read]) -> str:
    """Return an RE2 expression that matches in every record whose fields must be read by the exact path.

    What remains to be checked of a record without a match: that it is JSON as DuckDB understands it, nested not too
    deeply, that the fields are there, and their ranges; an ISO time's form; nothing else.
    """
    fields = list(fields)
    parts = [*_NOT_STRICT, _escapes(field.name for field in fields)]
    parts += [rf'"{_literal(field.name)}"\s*:\s*(?:{_bad_value(field)})' for field in fields]
    return "|".join(parts)


def working_scale(type_: DecimalType) -> int:
    """Return how many digits behind the point the fast path takes: all, or 6 where that could pass 15 digits."""
    return type_.scale if type_.precision <= DOUBLE_DIGITS else min(type_.scale, _WORKING_SCALE)


def _bad_value(field: Read) -> str:
    null = "n" if field.optional else ""
    number = rf'[^-"0-9\s{null}]'
    match field.type:
        case StringType() | TimestampType(unit="iso"):
            bad = rf'[^"\s{null}]'
        case BooleanType():
            bad = rf"[^tf\s{null}]"
        case TimestampType():
            bad = rf'{number}|{_BAD_WHOLE_TEXT}|-?[0-9]+[.eE]|"?-?[0-9]{{19}}'
        case LongType():
            # 20 digits, where a number that does not fit cannot be taken for one that is not there
            digits = 19 if field.optional else 20
            bad = rf'{number}|{_BAD_WHOLE_TEXT}|-?[0-9]+[.eE]|"?[0-9]{{{digits}}}|"?-[0-9]{{19}}'
        case DoubleType():
            bad = rf"{number}|{_BAD_NUMBER_TEXT}"
            if field.optional:
                bad += r'|-?[0-9.]+[eE]|"?-?[0-9]{300}'
        case DecimalType():
            behind = working_scale(field.type)
            before = max(1, min(field.type.precision - field.type.scale, DOUBLE_DIGITS - behind))
            too_much = rf"[0-9]{{{before + 1}}}|[0-9]+\.[0-9]{{{behind + 1}}}|[0-9]+(?:\.[0-9]+)?[eE]"
            bad = rf'{number}|{_BAD_NUMBER_TEXT}|"?-?(?:{too_much})'
        case _:
            assert_never(field.type)
    return bad


def _escapes(names: Iterable[str]) -> str:
    """Match U+0000 and every escape that could stand for a character of a name."""
    names = list(names)
    if not all(_PLAIN_NAME.fullmatch(name) for name in names):
        return r"\\"
    codes = "|".join(sorted({f"{ord(character):02x}" for name in names for character in name}))
    return rf"(?i:\\u00(?:00|{codes}))"


def _literal(name: str) -> str:
    return "".join(rf"\x{{{ord(character):x}}}" for character in name)
