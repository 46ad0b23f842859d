"""Convert PostgreSQL's text output of values to JSON, as Debezium does with `time.precision.mode: adaptive`.

Unlike in Debezium, a numeric becomes a JSON number with all its digits, not text or bytes. A value that cannot be
represented this way, such as an infinite timestamp, stays text, which `decode` rejects if it needs the value.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from windrow.connectors.postgres.client import Connection

ToJson = Callable[[str], str]
"""Converts the text output of a value to JSON."""

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a timestamp without time zone
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_MICROSECOND = dt.timedelta(microseconds=1)

text = json.encoder.encode_basestring


def _number(value: str) -> str:
    return value if value[-1].isdigit() else text(value)  # NaN, Infinity


def _date(value: str) -> str:
    """Convert a date to days since 1970."""
    try:
        return str(dt.date.fromisoformat(value).toordinal() - _EPOCH_DAY)
    except ValueError:
        return text(value)


def _timestamp(value: str) -> str:
    """Convert a timestamp to microseconds since 1970."""
    try:
        return str((dt.datetime.fromisoformat(value) - _EPOCH) // _MICROSECOND)
    except (ValueError, TypeError):
        return text(value)


def _timestamp_with_zone(value: str) -> str:
    """Convert a timestamp with time zone to ISO 8601 in UTC."""
    return f'"{value[:10]}T{value[11:-3]}Z"' if value.endswith("+00") and value[10] == " " else text(value)


def _time(value: str) -> str:
    """Convert a time of day to microseconds since midnight."""
    hour, minute, second = value.split(":")
    whole, _, fraction = second.partition(".")
    seconds = (int(hour) * 60 + int(minute)) * 60 + int(whole)
    return str(seconds * 1_000_000 + int(fraction.ljust(6, "0")))


_BY_OID: dict[int, ToJson] = {
    16: lambda value: "true" if value == "t" else "false",
    17: lambda value: f'"{base64.b64encode(bytes.fromhex(value[2:])).decode()}"',
    **dict.fromkeys((20, 21, 23, 26, 700, 701, 1700), _number),  # integers, oid, floats, numeric
    1082: _date,
    1083: _time,
    1114: _timestamp,
    1184: _timestamp_with_zone,
}


@dataclass(frozen=True)
class _Type:
    """A type in PostgreSQL's catalog: the oids of a domain's base type and of an array's element type, otherwise 0."""

    base: int
    element: int


class TypeCatalog:
    """The types of a database by oid, looked up when they are first needed."""

    def __init__(self) -> None:
        self._types: dict[int, _Type] = {}

    def learn(self, sql: Connection, oids: Iterable[int]) -> None:
        """Look up the types that are not yet known, including their base and element types."""
        missing = [oid for oid in oids if oid and oid not in self._types]
        while missing:
            rows = sql.execute(
                "SELECT oid, CASE typtype WHEN 'd' THEN typbasetype ELSE 0 END, "
                "CASE WHEN typcategory = 'A' AND typtype = 'b' THEN typelem ELSE 0 END "
                "FROM pg_type WHERE oid = ANY($1::oid[])",
                (missing,),
            ).fetchall()
            found = {oid: _Type(base, element) for oid, base, element in rows}
            self._types |= dict.fromkeys(missing, _Type(0, 0)) | found  # a dropped type is text
            missing = [
                oid for type_ in found.values() for oid in (type_.base, type_.element) if oid and oid not in self._types
            ]

    def to_json(self, oid: int) -> ToJson:
        """Return the function that converts the text output of a known type to JSON."""
        known = self._types.get(oid, _Type(0, 0))
        if known.base:
            return self.to_json(known.base)
        if known.element:
            element = self.to_json(known.element)
            return lambda value: array_to_json(value, element)
        return _BY_OID.get(oid, text)

    def encoders(self, columns: Iterable[tuple[str, int]]) -> tuple[tuple[str, ToJson], ...]:
        """Return, for each column, its name as the start of a JSON member and the function that converts its values."""
        return tuple((f"{text(name)}: ", self.to_json(oid)) for name, oid in columns)


def array_to_json(value: str, element: ToJson) -> str:
    r"""Convert an array's text output (``{1,NULL,"a \"b\""}``) to JSON, leaving out its bounds (``[2:3]={...}``)."""
    _, brace, inner = value.partition("{")
    return _array(iter(inner), element) if brace else text(value)  # an int2vector has none


def _array(letters: Iterator[str], element: ToJson) -> str:
    """Parse an array from the letter after its opening brace up to the closing brace."""
    found: list[str] = []
    word, is_quoted = "", False

    def end() -> None:
        if is_quoted or word:
            found.append("null" if not is_quoted and word == "NULL" else element(word))

    for letter in letters:
        match letter:
            case "{":
                found.append(_array(letters, element))
            case "}":
                end()
                break
            case ",":
                end()
                word, is_quoted = "", False
            case '"':
                is_quoted = True
                for inner in letters:
                    if inner == '"':
                        break
                    word += next(letters) if inner == "\\" else inner
            case _:
                word += letter
    return f"[{', '.join(found)}]"
