"""Defaults of a reader's Avro schema, for fields that the schema of a record lacks.

Of Avro's schema resolution (https://avro.apache.org/docs/1.12.0/specification/#schema-resolution), this is the part
that the types of decoded fields do not do themselves. Records are paired by their place, not by their names: that of a
field is the name or an alias in the reader's schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import assert_never

from windrow.engine.decode.values import NumberText, TimeText
from windrow.errors import InputError
from windrow.model import avro_schema as avro


def with_defaults(writer: avro.AvroType, reader: avro.AvroType) -> avro.AvroType:
    """Return a writer's type whose records have the reader's defaults for the fields that they lack.

    Raise InputError if a default is not a value of its field.
    """
    return _resolve(writer, reader, {})


_Known = dict[tuple[int, int], avro.AvroRecord]
"""The records that were resolved, by the identities of both types; a record can contain itself."""


def _resolve(writer: avro.AvroType, reader: avro.AvroType, known: _Known) -> avro.AvroType:
    match writer:
        case avro.AvroUnion(branches):
            return avro.AvroUnion(tuple(_resolve(branch, reader, known) for branch in branches))
        case avro.AvroArray(items):
            inner = next((branch.items for branch in _branches(reader) if isinstance(branch, avro.AvroArray)), None)
            return writer if inner is None else avro.AvroArray(_resolve(items, inner, known))
        case avro.AvroMap(values):
            inner = next((branch.values for branch in _branches(reader) if isinstance(branch, avro.AvroMap)), None)
            return writer if inner is None else avro.AvroMap(_resolve(values, inner, known))
        case avro.AvroRecord():
            record = next((branch for branch in _branches(reader) if isinstance(branch, avro.AvroRecord)), None)
            return writer if record is None else _resolve_record(writer, record, known)
        case avro.AvroPrimitive() | avro.AvroFixed() | avro.AvroEnum():
            return writer
        case _:
            assert_never(writer)


def _resolve_record(writer: avro.AvroRecord, reader: avro.AvroRecord, known: _Known) -> avro.AvroRecord:
    if found := known.get((id(writer), id(reader))):
        return found
    made = known[id(writer), id(reader)] = avro.AvroRecord(writer.name)
    own, types = {name for name, _ in writer.fields}, dict(reader.fields)
    of_reader = {name: field for field, names in reader.aliases.items() for name in names} | {n: n for n in types}
    made.fields = tuple(
        (name, _resolve(type_, types[of_reader[name]], known) if name in of_reader else type_)
        for name, type_ in writer.fields
    )
    made.missing = tuple(
        (name, _default(types[name], given, f"{reader.name}.{name}"))
        for name, given in reader.defaults.items()
        if own.isdisjoint((name, *reader.aliases.get(name, ())))
    )
    return made


def _branches(type_: avro.AvroType) -> tuple[avro.AvroType, ...]:
    return type_.branches if isinstance(type_, avro.AvroUnion) else (type_,)


def _default(type_: avro.AvroType, given: object, called: str) -> object:
    """Return a default as `avro.read_datum` returns the value that it stands for."""
    match type_, given:
        case avro.AvroUnion(branches), _:
            for branch in branches:
                with suppress(InputError):
                    return _default(branch, given, called)
        case avro.AvroArray(items), list():
            return [_default(items, item, called) for item in given]
        case avro.AvroMap(values), dict():
            return {name: _default(values, value, called) for name, value in given.items()}
        case avro.AvroRecord(), dict():
            return _record(type_, given, called)
        case avro.AvroPrimitive("null"), None:
            return None
        case _:
            value = _scalar(type_, given)
            if value is not None:
                return value
    msg = f"the reader's schema: the default of {called}, {json.dumps(given)}, is not a value of its type"
    raise InputError(msg)


def _scalar(type_: avro.AvroType, given: object) -> object:  # noqa: PLR0911 - a case for each type
    """Return a default of a type without parts, or None if it is not a value of the type."""
    match type_, given:
        case avro.AvroPrimitive("boolean"), bool():
            return given
        case avro.AvroPrimitive("int" | "long", nanos), int() if not isinstance(given, bool):
            return NumberText(given) if nanos is None else TimeText.of(given, nanos)
        case avro.AvroPrimitive("float" | "double"), int() | float() if not isinstance(given, bool):
            return NumberText(repr(float(given)))
        case avro.AvroPrimitive("string"), str():
            return given
        case avro.AvroEnum(symbols), str() if given in symbols:
            return given
        case avro.AvroPrimitive("bytes", _, scale) | avro.AvroFixed(_, scale), str():
            return _bytes(given, scale)
        case _:
            return None


def _bytes(text: str, scale: int | None) -> object:
    """Return the bytes or the decimal in a text, where each character is a byte; None for other text."""
    try:
        value = text.encode("latin-1")
    except UnicodeEncodeError:
        return None
    if scale is None or not value:
        return value
    return NumberText(format(Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale), "f"))


def _record(type_: avro.AvroRecord, given: Mapping[str, object], called: str) -> dict[str, object]:
    found = {}
    for name, inner in type_.fields:
        if name not in given and name not in type_.defaults:
            msg = f"the reader's schema: the default of {called} has no {name!r}"
            raise InputError(msg)
        found[name] = _default(inner, given.get(name, type_.defaults.get(name)), f"{called}.{name}")
    return found
