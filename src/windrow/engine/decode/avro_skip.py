"""Skips Avro values that no field reads, as `avro.read_datum` would read them but without creating objects.

A skipper is a function that is built once for a type. It maps the bytes of a record and the position of a value to the
position after it. Whatever is not plainly right raises `IndexError`; the value is then read, which gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, assert_never

import numpy as np

from windrow.model import avro_schema as avro

Skipper = Callable[[bytes, int], int]

DEEPEST: Final = 4
"""Maximum nesting of records, arrays and maps in a type that has a skipper."""
_CONTINUES: Final = 0x80
_BITS: Final = 63
_INT: Final = (5, 0x0F)
_LONG: Final = (10, 0x01)
"""Maximum number of bytes of an integer, and the greatest last byte of an integer with this number of bytes."""


class _Type:
    """A type, compared by identity: a type may refer to itself."""

    def __init__(self, type_: avro.AvroType) -> None:
        self.type = type_

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Type) and other.type is self.type

    def __hash__(self) -> int:
        return id(self.type)


@lru_cache(maxsize=1024)
def _skipper_of(given: _Type) -> Skipper | None:
    return _build(given.type, DEEPEST)


def skipper_of(type_: avro.AvroType) -> Skipper | None:
    """Return the skipper of a type, or None if it is nested too deeply."""
    return _skipper_of(_Type(type_))


def _build(type_: avro.AvroType, depth: int) -> Skipper | None:  # noqa: PLR0911 - a case for each type
    match type_:
        case avro.AvroUnion(branches):
            return _union([_build(branch, depth) for branch in branches])
        case avro.AvroPrimitive(kind):
            return _primitive(kind)
        case avro.AvroFixed(size):
            return lambda _, at: at + size
        case avro.AvroEnum(symbols):
            return _enum(len(symbols))
    if depth == 0:
        return None
    match type_:
        case avro.AvroRecord():
            return _record([_build(inner, depth - 1) for _, inner in type_.fields])
        case avro.AvroArray(items):
            return _blocks(_build(items, depth - 1), _run_of(items))
        case avro.AvroMap(values):
            item = _build(values, depth - 1)
            return None if item is None else _blocks(_entry(item), None)
        case _:
            assert_never(type_)


def _primitive(kind: avro.Primitive) -> Skipper:  # noqa: PLR0911 - a case for each kind
    match kind:
        case "null":
            return lambda _, at: at
        case "boolean":
            return _boolean
        case "int":
            return lambda raw, at: _integer(raw, at, _INT)
        case "long":
            return lambda raw, at: _integer(raw, at, _LONG)
        case "float":
            return lambda _, at: at + 4
        case "double":
            return lambda _, at: at + 8
        case "bytes" | "string":
            return _sized
        case _:
            assert_never(kind)


def _boolean(raw: bytes, at: int) -> int:
    if raw[at] > 1:
        raise IndexError
    return at + 1


def _integer(raw: bytes, at: int, limits: tuple[int, int]) -> int:
    first = at
    while raw[at] >= _CONTINUES:
        at += 1
    at += 1
    most, last = limits
    if at - first >= most and (at - first > most or raw[at - 1] > last):
        raise IndexError
    return at


def _number(raw: bytes, at: int) -> tuple[int, int]:
    """Return an integer of at most 63 bits, and the position after it."""
    value = shift = 0
    while (byte := raw[at]) >= _CONTINUES and shift < _BITS:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    value |= byte << shift
    if value >> _BITS:
        raise IndexError
    return (value >> 1) ^ -(value & 1), at + 1


def _sized(raw: bytes, at: int) -> int:
    size = raw[at]
    if size < _CONTINUES and not size & 1:
        return at + 1 + (size >> 1)
    size, at = _number(raw, at)
    if size < 0:
        raise IndexError
    return at + size


def _enum(count: int) -> Skipper:
    def skip(raw: bytes, at: int) -> int:
        index, at = _number(raw, at)
        if not 0 <= index < count:
            raise IndexError
        return at

    return skip


def _union(branches: list[Skipper | None]) -> Skipper | None:
    known = [branch for branch in branches if branch is not None]
    if len(known) < len(branches):
        return None

    def skip(raw: bytes, at: int) -> int:
        index, at = _number(raw, at)
        if index < 0:
            raise IndexError
        return known[index](raw, at)

    return skip


def _record(fields: list[Skipper | None]) -> Skipper | None:
    known = [field for field in fields if field is not None]
    if len(known) < len(fields):
        return None

    def skip(raw: bytes, at: int) -> int:
        for field in known:
            at = field(raw, at)
        return at

    return skip


def _entry(value: Skipper) -> Skipper:
    def skip(raw: bytes, at: int) -> int:
        size = raw[at]
        at = at + 1 + (size >> 1) if size < _CONTINUES and not size & 1 else _sized(raw, at)
        return value(raw, at)

    return skip


Run = Callable[[bytes, int, int], int]
"""Maps the bytes, the position of a number of items, and this number to the position after them."""


def _run_of(items: avro.AvroType) -> Run | None:
    """Return the function that skips many items at once, or None if there is none for the type."""
    match items:
        case avro.AvroPrimitive("float"):
            return lambda _, at, count: at + 4 * count
        case avro.AvroPrimitive("double"):
            return lambda _, at, count: at + 8 * count
        case avro.AvroFixed(size):
            return lambda _, at, count: at + size * count
        case avro.AvroPrimitive("long"):
            return _longs
        case _:
            return None


def _longs(raw: bytes, at: int, count: int) -> int:
    data = np.frombuffer(raw, np.uint8, offset=at)
    ends = np.flatnonzero(data < _CONTINUES)[:count]
    sizes, (most, last) = np.diff(ends, prepend=-1), _LONG
    if len(ends) < count or ((sizes >= most) & ((sizes > most) | (data[ends] > last))).any():
        raise IndexError
    return at + int(ends[-1]) + 1


def _blocks(item: Skipper | None, run: Run | None) -> Skipper | None:
    if item is None:
        return None

    def skip(raw: bytes, at: int) -> int:
        while True:
            count, at = _number(raw, at)
            if count == 0:
                return at
            end = None
            if count < 0:
                count = -count
                size, at = _number(raw, at)
                end = at + size
            if count > len(raw) - at:
                raise IndexError
            if run is not None:
                at = run(raw, at, count)
            else:
                for _ in range(count):
                    at = item(raw, at)
            if at > len(raw) or end not in {None, at}:
                raise IndexError

    return skip
