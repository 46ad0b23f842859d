"""Avro schemas, data of them, and their bytes, for properties."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

Schema = Any

SIMPLE: list[Schema] = [
    "null",
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "int", "logicalType": "date"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    {"type": "string", "logicalType": "uuid"},
]


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """A record that has a long `t` among other fields."""
    count = iter(range(1000))

    def type_(depth: int) -> Schema:  # noqa: PLR0911 - a case for each kind
        kind = draw(st.sampled_from(["simple"] * 6 + ["optional"] * 4 + ["enum", "fixed"] + ["nested"] * (2 * depth)))
        match kind:
            case "simple":
                return draw(st.sampled_from(SIMPLE))
            case "optional":
                return draw(st.permutations(["null", draw(st.sampled_from(SIMPLE[1:]))]))
            case "enum":
                return {"type": "enum", "name": f"E{next(count)}", "symbols": ["A", "B", "c"]}
            case "fixed":
                logical: list[dict[str, Any]] = [{}, {"logicalType": "decimal", "precision": 9, "scale": 3}]
                return {"type": "fixed", "name": f"F{next(count)}", "size": 4} | draw(st.sampled_from(logical))
        match draw(st.sampled_from(["record", "array", "map", "union"])):
            case "record":
                return record(depth - 1)
            case "array":
                items = type_(depth - 1)
                return {"type": "array", "items": items if _has_bytes(items) else "long"}
            case "map":
                return {"type": "map", "values": type_(depth - 1)}
            case _:
                return ["null", "boolean", "long", "string", record(depth - 1)]

    def record(depth: int) -> Schema:
        names = draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=4))
        fields = [{"name": name, "type": type_(depth)} for name in names]
        return {"type": "record", "name": f"R{next(count)}", "fields": fields}

    found = record(2)
    place = draw(st.integers(0, len(found["fields"])))
    found["fields"].insert(place, {"name": "t", "type": "long"})
    return found


def _has_bytes(schema: Schema) -> bool:
    """Return whether each value has a byte: an array of others is malformed, as nothing limits their number."""
    if isinstance(schema, dict) and schema["type"] == "record":
        return any(_has_bytes(one["type"]) for one in schema["fields"])
    return bool(schema != "null")


def zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = b""
    while number > 0x7F:
        found, number = found + bytes([number & 0x7F | 0x80]), number >> 7
    return found + bytes([number])


LONGS = st.one_of(st.integers(-70, 70), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2_000_000_000_000))


@st.composite
def data(draw: st.DrawFn, schema: Schema) -> bytes:  # noqa: C901, PLR0911, PLR0912 - a case for each type
    """The bytes of some value."""
    if isinstance(schema, list):
        index = draw(st.integers(0, len(schema) - 1))
        return zigzag(index) + draw(data(schema[index]))
    match schema["type"] if isinstance(schema, dict) else schema:
        case "null":
            return b""
        case "boolean":
            return draw(st.sampled_from([b"\0", b"\1"]))
        case "int":
            return zigzag(draw(st.one_of(st.integers(-70, 70), st.integers(-(2**31), 2**31 - 1))))
        case "long":
            return zigzag(draw(LONGS))
        case "float":
            return struct.pack("<f", draw(st.floats(width=32)))
        case "double":
            return struct.pack("<d", draw(st.floats()))
        case "bytes":
            return _sized(draw(st.binary(max_size=10)))
        case "string":
            texts = st.one_of(st.text(max_size=6), st.sampled_from(["2026-01-01T00:00:00Z", "12.50", "-3", "\0"]))
            return _sized(draw(texts).encode())
        case "enum":
            return zigzag(draw(st.integers(0, 2)))
        case "fixed":
            return draw(st.binary(min_size=4, max_size=4))
        case "array":
            return _blocks(draw, [draw(data(schema["items"])) for _ in range(draw(st.integers(0, 4)))])
        case "map":
            names = draw(st.lists(st.text(max_size=2), unique=True, max_size=3))
            return _blocks(draw, [_sized(name.encode()) + draw(data(schema["values"])) for name in names])
        case _:
            return b"".join(draw(data(one["type"])) for one in schema["fields"])


def _sized(content: bytes) -> bytes:
    return zigzag(len(content)) + content


def _blocks(draw: st.DrawFn, items: Sequence[bytes]) -> bytes:
    found, at = b"", 0
    while at < len(items):
        count = draw(st.integers(1, len(items) - at))
        block = b"".join(items[at : at + count])
        found += zigzag(-count) + zigzag(len(block)) + block if draw(st.booleans()) else zigzag(count) + block
        at += count
    return found + b"\0"


@st.composite
def damaged(draw: st.DrawFn, given: bytes) -> bytes:
    """Bytes as given, or with some of them changed, cut off or added."""
    match draw(st.sampled_from(["whole", "whole", "changed", "cut", "longer"])):
        case "changed" if given:
            at = draw(st.integers(0, len(given) - 1))
            return given[:at] + draw(st.binary(min_size=1, max_size=2)) + given[at + 1 :]
        case "cut" if given:
            return given[: draw(st.integers(0, len(given) - 1))]
        case "longer":
            return given + draw(st.binary(min_size=1, max_size=5))
        case _:
            return given


@st.composite
def records(draw: st.DrawFn, count: int) -> tuple[Schema, list[bytes]]:
    """A schema, and records of it, some of them damaged."""
    schema = draw(schemas())
    return schema, [draw(damaged(draw(data(schema)))) for _ in range(count)]
