"""Avro schemas as types (https://avro.apache.org/docs/1.12.0/specification/), in plain Python."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from windrow.errors import InputError

Primitive = Literal["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
_PRIMITIVES: Final[tuple[Primitive, ...]] = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NANOS: Final = {
    "date": 86_400_000_000_000,
    **{
        f"{kind}-{unit}": nanos
        for kind in ("timestamp", "local-timestamp")
        for unit, nanos in (("millis", 1_000_000), ("micros", 1_000), ("nanos", 1))
    },
}
"""The nanoseconds in a unit of the logical types that are points in time."""


@dataclass(frozen=True)
class AvroPrimitive:
    """A primitive type.

    With `nanos`, it is a time in units of that many nanoseconds; with `scale`, a decimal in bytes.
    """

    kind: Primitive
    nanos: int | None = None
    scale: int | None = None


@dataclass(frozen=True)
class AvroFixed:
    """A fixed number of bytes, `size`; a decimal if there is a scale."""

    size: int
    scale: int | None = None


@dataclass(frozen=True)
class AvroEnum:
    """One of several symbols."""

    symbols: tuple[str, ...]


@dataclass(frozen=True)
class AvroArray:
    """An array, whose items are encoded in blocks."""

    items: AvroType


@dataclass(frozen=True)
class AvroMap:
    """A map from strings to values, which are encoded in blocks."""

    values: AvroType


@dataclass(frozen=True)
class AvroUnion:
    """A value of one of several types."""

    branches: tuple[AvroType, ...]


@dataclass(eq=False)
class AvroRecord:
    """Named fields. They are set after construction, because a record can contain itself.

    `defaults` has the defaults in the schema, as JSON, and `aliases` the other names of fields; both are for readers.
    `missing` are the names and values of fields that data does not have, as its reader has defaults for them.
    """

    name: str
    fields: tuple[tuple[str, AvroType], ...] = field(default=(), repr=False)
    defaults: dict[str, Any] = field(default_factory=dict, repr=False)
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    missing: tuple[tuple[str, object], ...] = field(default=(), repr=False)


AvroType: TypeAlias = AvroPrimitive | AvroFixed | AvroEnum | AvroArray | AvroMap | AvroUnion | AvroRecord


def parse_schema(text: str, called: str, references: Iterable[str] = ()) -> AvroType:
    """Parse the JSON of a schema, which may use types that the schemas `references` define.

    Raise InputError if it is not an Avro schema; the message calls it `called`.
    """
    reader = _SchemaReader()
    try:
        for other in references:
            reader.read(json.loads(other), "")
        return reader.read(json.loads(text), "")
    except json.JSONDecodeError as exc:
        msg = f"{called} is not an Avro schema: not JSON at line {exc.lineno}: {exc.msg}"
        raise InputError(msg) from exc
    except (_SchemaError, RecursionError) as exc:
        msg = f"{called} is not an Avro schema: {exc}"
        raise InputError(msg) from exc


class _SchemaError(Exception):
    """A schema is invalid; the message says why."""


class _SchemaReader:
    """Reads the JSON of a schema; a name stands for a type that has been defined before."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def read(self, given: Any, namespace: str) -> AvroType:  # noqa: ANN401, PLR0911 - JSON; each form of a type
        match given:
            case list():
                return AvroUnion(tuple(self.read(branch, namespace) for branch in given))
            case str():
                return self._by_name(given, namespace)
            case {"type": "array"}:
                return AvroArray(self.read(_part(given, "items"), namespace))
            case {"type": "map"}:
                return AvroMap(self.read(_part(given, "values"), namespace))
            case {"type": "record" | "error" | "enum" | "fixed"}:
                return self._define(given, namespace)
            case {"type": str(kind)} if kind in _PRIMITIVES:
                return _logical(given, kind)
            case {"type": type_}:
                return self.read(type_, namespace)
            case _:
                msg = f"{json.dumps(given)[:60]} is not a type"
                raise _SchemaError(msg)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroPrimitive(name)
        for full in (name, f"{namespace}.{name}" if namespace and "." not in name else name):
            if full in self._named:
                return self._named[full]
        msg = f"there is no type {name!r}; a type is defined before its name is used"
        raise _SchemaError(msg)

    def _define(self, given: dict[str, object], namespace: str) -> AvroType:
        name = _part(given, "name")
        space = given.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(space, str):
            msg = "a name or a namespace is not a text"
            raise _SchemaError(msg)
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._named:
            msg = f"{full!r} is defined twice"
            raise _SchemaError(msg)
        if given["type"] == "fixed":
            size = _part(given, "size")
            if not isinstance(size, int) or size < 0:
                msg = f"the size of {full!r} is not a whole number"
                raise _SchemaError(msg)
            self._named[full] = AvroFixed(size, _scale(given))
        elif given["type"] == "enum":
            self._named[full] = AvroEnum(tuple(map(str, _list(given, "symbols"))))
        else:
            record = self._named[full] = AvroRecord(full)
            inner = full.rpartition(".")[0]
            items: list[Any] = _list(given, "fields")
            record.fields = tuple(self._field(item, full, inner) for item in items)
            record.defaults = {item["name"]: item["default"] for item in items if "default" in item}
            named = [item for item in items if "aliases" in item]
            record.aliases = {item["name"]: tuple(map(str, _list(item, "aliases"))) for item in named}
        return self._named[full]

    def _field(self, given: object, record: str, namespace: str) -> tuple[str, AvroType]:
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            msg = f"a field of {record!r} has no name"
            raise _SchemaError(msg)
        return given["name"], self.read(_part(given, "type"), namespace)


def _part(given: object, name: str) -> object:
    if not isinstance(given, dict) or name not in given:
        msg = f"{json.dumps(given)[:60]} has no {name!r}"
        raise _SchemaError(msg)
    return given[name]


def _list(given: Mapping[str, object], name: str) -> list[object]:
    found = _part(given, name)
    if not isinstance(found, list):
        msg = f"the {name} of {given.get('name')!r} are not a list"
        raise _SchemaError(msg)
    return found


def _logical(given: Mapping[str, object], kind: Primitive) -> AvroPrimitive:
    """Return a primitive type; a logical type that does not fit is ignored, as the specification says."""
    logical = given.get("logicalType")
    if kind == "bytes":
        return AvroPrimitive(kind, scale=_scale(given))
    if isinstance(logical, str) and kind == ("int" if logical == "date" else "long"):
        return AvroPrimitive(kind, nanos=_NANOS.get(logical))
    return AvroPrimitive(kind)


def _scale(given: Mapping[str, object]) -> int | None:
    precision, scale = given.get("precision"), given.get("scale", 0)
    if given.get("logicalType") != "decimal" or not isinstance(precision, int) or not isinstance(scale, int):
        return None
    return scale if 0 <= scale <= precision else None
