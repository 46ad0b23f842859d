"""Avro: the values of one record, in plain Python (https://avro.apache.org/docs/1.12.0/specification/).

Values are those of JSON with the same content: numbers are `NumberText`, times have their unit (`TimeText`), enums are
strings; bytes stay bytes, which no field's type holds. So they are converted to fields as JSON values are.

The datum must end where the record ends. Texts that no field reads need not be UTF-8; a text that is not UTF-8 is read
as bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Final, NoReturn, assert_never

from windrow.engine.decode.values import MAX_DEPTH, TOO_DEEP, MalformedError, NumberText, TimeText
from windrow.model import avro_schema as avro

_MOST_DIGITS: Final = 4_000
_MOST_BITS: Final = 13_000
"""Limit of a decimal, so of fewer than `_MOST_DIGITS` digits; longer ones stay bytes, which no field holds."""


def read_record(type_: avro.AvroType, raw: bytes, begin: int = 0) -> dict[str, object]:
    """Return the fields of the datum that begins at a byte of a record; raise MalformedError if it is malformed."""
    datum = _Datum(raw, begin)
    value = datum.read(type_, 1)
    if datum.at < len(raw):
        msg = f"malformed: not Avro at byte {datum.at}: the datum ends here, the record has {len(raw)} bytes"
        raise MalformedError(msg)
    if not isinstance(value, dict):
        msg = "not an object: the datum is not a record"
        raise MalformedError(msg)
    return value


class _Datum:
    """A cursor in the bytes of a record."""

    def __init__(self, raw: bytes, at: int) -> None:
        self._raw = raw
        self._path: list[str] = []
        self.at = at

    def read(self, type_: avro.AvroType, depth: int) -> object:
        """Return a value; `depth` is the number of records, arrays and maps around it, itself included."""
        while isinstance(type_, avro.AvroUnion):
            type_ = type_.branches[self._index(len(type_.branches), "union", "branch")]
        match type_:
            case avro.AvroPrimitive(kind, nanos, scale):
                return self._primitive(kind, nanos, scale)
            case avro.AvroFixed(size, scale):
                return _from_bytes(self._take(size), scale)
            case avro.AvroEnum(symbols):
                return symbols[self._index(len(symbols), "enum", "symbol")]
        if depth > MAX_DEPTH:
            raise MalformedError(TOO_DEEP)
        match type_:
            case avro.AvroRecord():
                return {name: self._field(name, inner, depth) for name, inner in type_.fields}
            case avro.AvroArray(items):
                return [self.read(items, depth + 1) for _ in self._items()]
            case avro.AvroMap(values):
                found: dict[str, object] = {}
                for _ in self._items():
                    name = self._take(self._size()).decode(errors="surrogateescape")
                    found[name] = self.read(values, depth + 1)
                return found
            case _:
                assert_never(type_)

    def _field(self, name: str, type_: avro.AvroType, depth: int) -> object:
        self._path.append(name)
        value = self.read(type_, depth + 1)
        self._path.pop()
        return value

    def _primitive(self, kind: avro.Primitive, nanos: int | None, scale: int | None) -> object:  # noqa: PLR0911 - a case each
        match kind:
            case "null":
                return None
            case "boolean":
                at = self.at
                byte = self._take(1)[0]
                if byte > 1:
                    self._fail("a boolean is 0 or 1", at)
                return byte == 1
            case "int" | "long":
                whole = self._long(32 if kind == "int" else 64)
                return NumberText(whole) if nanos is None else TimeText.of(whole, nanos)
            case "float":
                return NumberText(repr(struct.unpack("<f", self._take(4))[0]))
            case "double":
                return NumberText(repr(struct.unpack("<d", self._take(8))[0]))
            case "bytes":
                return _from_bytes(self._take(self._size()), scale)
            case "string":
                text = self._take(self._size())
                try:
                    return text.decode()
                except UnicodeDecodeError:
                    return text
            case _:
                assert_never(kind)

    def _items(self) -> Iterator[None]:
        """Yield once for each item of the blocks, which the caller reads then."""
        while count := self._long(64):
            end = None
            if count < 0:
                count = -count
                size = self._size()
                end = self.at + size
            if count > len(self._raw) - self.at:  # a limit is needed for items without bytes
                self._fail(f"a block of {count} items is longer than the record", self.at)
            for _ in range(count):
                yield
            if end is not None and self.at != end:
                self._fail("a block has another size than it says", self.at)

    def _index(self, count: int, kind: str, part: str) -> int:
        at = self.at
        index = self._long(64)
        if not 0 <= index < count:
            self._fail(f"the {kind} has no {part} {index}", at)
        return index

    def _size(self) -> int:
        at = self.at
        size = self._long(64)
        if size < 0:
            self._fail(f"a length is {size}", at)
        return size

    def _long(self, bits: int) -> int:
        at, shift, value = self.at, 0, 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the last byte of an integer
                break
            shift += 7
            if shift > 63:  # noqa: PLR2004 - ten bytes are the most
                self._fail("an integer has more than 64 bits", at)
        if value >= 1 << bits:
            self._fail(f"an integer has more than {bits} bits", at)
        return (value >> 1) ^ -(value & 1)

    def _take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self._raw):
            self._fail(f"the record ends after {len(self._raw)} bytes, and needs {end}", self.at)
        taken = self._raw[self.at : end]
        self.at = end
        return taken

    def _fail(self, what: str, at: int) -> NoReturn:
        field = f" ({'.'.join(self._path)})" if self._path else ""
        msg = f"malformed: not Avro at byte {at}{field}: {what}"
        raise MalformedError(msg)


def _from_bytes(value: bytes, scale: int | None) -> object:
    if scale is None or not value:
        return value
    # made of its digits, so that no context rounds it
    unscaled = int.from_bytes(value, "big", signed=True)
    if unscaled.bit_length() > _MOST_BITS:
        return value
    if scale > _MOST_DIGITS:
        return NumberText(f"{unscaled}e-{scale}")
    return NumberText(format(Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale)), "f"))
