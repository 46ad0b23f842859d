"""Reads a record as data, a watermark or both, or finds the reason why it is a dead letter."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, assert_never

from windrow import model as m
from windrow.testing.oracle.answer import LogRecord, Value, WindowedSource
from windrow.testing.oracle.expressions import FailedError, derived, inputs, own_gap
from windrow.testing.oracle.windows import windows_of

DEEPEST = 256
"""Deeper nesting is malformed."""
LONGEST_KEY = 2048
"""Maximum total length of a key's strings, in bytes of UTF-8."""


@dataclass(frozen=True)
class Reading:
    """A valid record: its data and event time (None and 0 if it is only a mark), and its mark if it has one.

    `inputs` are the inputs of the aggregates, `gap` is the record's own session gap (microseconds), and `is_checked`
    says whether its event time was compared with a log timestamp. A record without meaning for windows, such as a
    truncation or the tombstone that follows a deletion in Debezium, has neither data nor a mark.
    """

    fields: dict[str, Value] | None
    time: int
    mark: int | None
    inputs: tuple[Value, ...] = ()
    gap: int = 0
    is_checked: bool = False


def read(pipeline: WindowedSource, record: LogRecord) -> Reading:
    """Read a record; raise DeadLetterError if it is invalid, or if it is a copy of another record in the log."""
    if record.is_defect:
        raise DeadLetterError(INTERNAL)
    envelope = _envelope(record.value)
    if envelope is not None:
        about, value = envelope
        if about["pipeline"] == pipeline.name:
            read(pipeline, LogRecord(record.offset, about["log_time"], value, record.key, headers=record.headers))
        raise DeadLetterError(REDRIVEN)
    if pipeline.source.source.format == "debezium":
        return _change(pipeline, record)
    is_bare = record.value is None and record.key is not None and bool(_tombstone_fields(pipeline))
    content = {} if is_bare else _of_folders(pipeline, record) | _json_object(record.value)
    log_time = _log_time(pipeline, record, content)
    if is_bare or (
        not isinstance(pipeline.source.source.records, m.KafkaSource)
        and _tombstone_fields(pipeline)
        and "_value" in content
        and content["_value"] is None
    ):
        fields = _tombstone(pipeline, _utf8(record.key) if is_bare else content.get("_key"), log_time)
        return _reading(pipeline, fields, _micros(fields[pipeline.source.time.field]), None, log_time)
    content = _with_outside(pipeline, record, content, log_time)
    mark = _mark(pipeline, content, log_time)
    derived_names = {derive.name for derive in pipeline.source.derive}
    needed = [pipeline.source.time.field, *(name for name in pipeline.node.key if name not in derived_names)]
    if mark is not None and any(not _values(pipeline, content, name) for name in needed):
        return Reading(None, 0, mark)
    fields = _fields(pipeline, content)
    return _reading(pipeline, fields, _event_time(pipeline, fields, log_time), mark, log_time)


class _FolderText(str):
    """A text without a type, as the name of a folder has it."""

    __slots__ = ()


class _Headers(dict[str, _FolderText | None]):
    """The headers of a record, which are one text if they are read as a whole."""

    __slots__ = ()

    def text(self) -> str:
        return json.dumps(self, ensure_ascii=False, separators=(",", ":"))


def _of_folders(pipeline: WindowedSource, record: LogRecord) -> dict[str, object]:
    """Return the fields of the folders of a record's file, which come after those in the record."""
    if not isinstance(pipeline.source.source, m.FilesSource):
        return {}
    fields = pipeline.source.source.folder_fields(0, _utf8(record.key).rpartition(":")[0])
    return {name: None if text is None else _FolderText(text) for name, text in fields.items() if name != m.LOG_TIME}


def _change(pipeline: WindowedSource, record: LogRecord) -> Reading:
    """Read a row change as written by Debezium: the columns of the row and the fields around them form one record."""
    is_log = not isinstance(pipeline.source.source.records, m.KafkaSource)
    is_bare = record.value is None and record.key is not None
    content = {} if is_bare else _json_object(record.value)
    log_time = _log_time(pipeline, record, content)
    inner = content.get("payload") if "payload" in content and "op" not in content else content
    is_line = is_log and inner is content and "op" not in content and "_value" in content
    if is_bare or inner is None or (is_line and content["_value"] is None):
        return _gone(pipeline, content.get("_key") if record.key is None else record.key, log_time)
    change = _members(inner)
    operation = change.get("op")
    if operation is None:
        raise DeadLetterError(NULL if "op" in change else MISSING)
    if operation == "t" and not isinstance(operation, Literal):
        # it names no rows, and only tables have rows that it removes
        return Reading(None, 0, None)
    if isinstance(operation, Literal) or operation not in {"c", "r", "u", "d"}:
        raise DeadLetterError(NO_CHANGE)
    side = "before" if operation == "d" else "after"
    if change.get(side) is None:
        raise DeadLetterError(NULL if side in change else MISSING)
    row = _members(change[side])
    fields = {field.name: _changed(pipeline, field, change, row) for field in pipeline.source.decode.fields}
    return _reading(pipeline, fields, _event_time(pipeline, fields, log_time), None, log_time)


def _changed(pipeline: WindowedSource, field: m.Field, change: dict[str, object], row: dict[str, object]) -> Value:
    """Return the value of a field: a column of the row, or the value at the field's path in the change."""
    is_deleted = change["op"] == "d"
    if is_deleted and not field.path and field.name == pipeline.source.time.field:
        moment = _at(change, ("source", "ts_ms"))
        if moment is None:
            raise DeadLetterError(MISSING)
        return value_of(m.TimestampType("millis"), moment)
    found = [_at(change, field.path) if field.path else row.get(field.name), *(row.get(name) for name in field.alias)]
    found = [value for value in found if value is not None]
    for value in found:
        _require_logged(field.type, value)
    if found:
        return _require_equal([value_of(field.type, value) for value in found])
    if field.optional or (is_deleted and not field.path and field.name not in pipeline.node.key):
        return None
    is_there = _is_there(change, (field.path,)) if field.path else field.name in row
    raise DeadLetterError(NULL if is_there or any(name in row for name in field.alias) else MISSING)


def _gone(pipeline: WindowedSource, key: object, log_time: int | None) -> Reading:
    """Read a tombstone as a deletion that has only a key, if the pipeline reads tombstones."""
    if key is None:
        raise DeadLetterError(MALFORMED)
    marked = _tombstone_fields(pipeline)
    if not marked:
        return Reading(None, 0, None)
    columns = _json_object(key) if isinstance(key, bytes) else _members(key)
    if set(columns) == {"schema", "payload"}:
        columns = _members(columns["payload"])
    if log_time is None:
        raise DeadLetterError(NO_LOG_TIME)
    if any(columns.get(field.name) is None for field in marked):
        raise DeadLetterError(MISSING)
    fields: dict[str, Value] = {}
    for field in pipeline.source.decode.fields:
        value = None if field.path else columns.get(field.name)
        fields[field.name] = None if value is None else value_of(field.type, value)
    fields[pipeline.source.time.field] = log_time
    return _reading(pipeline, fields, log_time, None, log_time)


def _require_logged(type_: m.DataType, value: object) -> None:
    """Raise DeadLetterError for the placeholders that Debezium writes instead of a value."""
    if isinstance(value, list) and "__debezium_unavailable_value" in value:
        raise DeadLetterError(UNAVAILABLE)
    if isinstance(value, str) and not isinstance(value, Literal):
        if value == "__debezium_unavailable_value":
            raise DeadLetterError(UNAVAILABLE)
        is_number = "." in value or "E-" in value or value in {"NaN", "Infinity", "-Infinity"}
        if isinstance(type_, m.DecimalType) and type_.scale and not is_number:
            raise DeadLetterError(WRONG_TYPE)


def _members(value: object) -> dict[str, object]:
    if not isinstance(value, tuple | dict):
        raise DeadLetterError(WRONG_TYPE)
    return value if isinstance(value, dict) else dict(reversed(value))


def _envelope(value: bytes | None) -> tuple[dict[str, Any], bytes | None] | None:
    """Return the metadata of a copy and the bytes of its original, or None for other records."""
    if value is None or not value.startswith(b'{"_redrive":'):
        return None
    try:
        content = json.loads(value)
        inner = base64.b64decode(content["base64"]) if "base64" in content else content["value"]
        about = content["_redrive"]
        if {"pipeline", "offset", "origin", "attempt", "reason", "by", "at", "log_time"} != set(about):
            return None
    except (ValueError, KeyError, TypeError):
        return None
    return about, inner.encode() if isinstance(inner, str) else inner


def _reading(
    pipeline: WindowedSource, fields: dict[str, Value], time: int, mark: int | None, log_time: int | None
) -> Reading:
    """Return the reading of a record with the given fields, or raise DeadLetterError."""
    if any(start < YEAR_0001 or end > YEAR_10000 - 1 for start, end in windows_of(pipeline.node.window, time)):
        raise DeadLetterError(OUT_OF_RANGE)
    try:
        fields |= derived(pipeline, fields)
        if any(fields[name] is None for name in pipeline.node.key):
            if mark is not None:
                return Reading(None, 0, mark)
            raise DeadLetterError(NULL_KEY)
        taken = inputs(pipeline, fields)
        gap = own_gap(pipeline, fields)
    except FailedError as exc:
        raise DeadLetterError(EXPRESSION) from exc
    texts = [fields[name] for name in pipeline.node.key]
    if sum(len(text.encode()) for text in texts if isinstance(text, str)) > LONGEST_KEY:
        raise DeadLetterError(LONG_KEY)
    is_checked = pipeline.source.time.future is not None and log_time is not None
    return Reading(fields, time, mark, taken, gap, is_checked)


def _tombstone_fields(pipeline: WindowedSource) -> list[m.Field]:
    return [field for field in pipeline.source.decode.fields if field.tombstones]


def _tombstone(pipeline: WindowedSource, key: object, log_time: int | None) -> dict[str, Value]:
    named = _tombstone_fields(pipeline)
    key = _value_of_key(pipeline, key)
    if key is None:
        raise DeadLetterError(MALFORMED)
    fields: dict[str, Value] = dict.fromkeys(field.name for field in pipeline.source.decode.fields)
    for field in named:
        names = [(field.path or (field.name,))[-1], *field.alias]
        values = [key.get(name) for name in names] if isinstance(key, dict) else [key]
        if not isinstance(key, dict) and len(named) > 1:
            raise DeadLetterError(WRONG_TYPE)
        found = [value_of(field.type, value) for value in values if value is not None]
        if not found:
            raise DeadLetterError(MISSING)
        fields[field.name] = _require_equal(found)
    if log_time is None:
        raise DeadLetterError(NO_LOG_TIME)
    if not YEAR_0001 <= log_time < YEAR_10000:
        raise DeadLetterError(OUT_OF_RANGE)
    return fields | {
        name: log_time for name in (pipeline.source.time.field, pipeline.source.time.sent) if name is not None
    }


def _with_outside(
    pipeline: WindowedSource, record: LogRecord, content: dict[str, object], log_time: int | None
) -> dict[str, object]:
    """Return a record's fields with those that are outside its value, unless the value has them."""
    is_topic = isinstance(pipeline.source.source.records, m.KafkaSource)
    columns = [
        field
        for field in _tombstone_fields(pipeline)
        if len(field.paths[0]) == 1 and all(content.get(name) is None for name in field.names)
    ]
    read = {path[0] for field in pipeline.source.decode.fields for path in field.paths}
    found: dict[str, object] = {"_offset": Literal(record.offset)}
    if is_topic:
        found["_log_time"] = None if log_time is None else Literal(log_time // 1000)
        headers = ((name, None if value is None else _FolderText(_header(value))) for name, value in record.headers)
        found["_headers"] = _Headers(headers)
        if record.key is not None and (columns or ("_key" in read and content.get("_key") is None)):
            found["_key"] = _value_of_key(pipeline, _utf8(record.key))
    key = found.get("_key") if is_topic else _value_of_key(pipeline, content.get("_key"))
    for field in columns:
        if isinstance(key, dict):
            values = (key.get(name) for name in field.names)
            found[field.name] = next((value for value in values if value is not None), None)
        elif len(_tombstone_fields(pipeline)) == 1:
            found[field.name] = key
    known = {field.name for field in columns} | read
    more = {name: value for name, value in found.items() if name in known and value is not None}
    return content | {name: value for name, value in more.items() if content.get(name) is None}


def _value_of_key(pipeline: WindowedSource, key: object) -> object:
    """Return the value of a key: its members by name, or a single value."""
    if isinstance(key, str) and not isinstance(key, Literal):
        key = _value_of_text(pipeline, key)
    if isinstance(key, tuple):
        key = dict(reversed(key))
    if isinstance(key, dict) and set(key) == {"schema", "payload"}:
        key = dict(reversed(key["payload"])) if isinstance(key["payload"], tuple) else key["payload"]
    return key


def _value_of_text(pipeline: WindowedSource, text: str) -> object:
    """Return the value of a key that is text: JSON if it is an object or a string, unless the pipeline says text."""
    source = pipeline.source.source
    is_text = isinstance(source, m.KafkaSource) and source.key_format == "text"
    if is_text or text[:1] not in {"{", '"'}:
        return _FolderText(text)
    try:
        return _json(text.encode())
    except DeadLetterError:
        return _FolderText(text)


def _utf8(key: bytes | None) -> str:
    try:
        return (key or b"").decode("utf-8")
    except UnicodeDecodeError as exc:
        raise DeadLetterError(MALFORMED) from exc


def _header(value: bytes) -> str:
    """Return the value of a header as text; bytes that are not UTF-8 are in Base64."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")


def _log_time(pipeline: WindowedSource, record: LogRecord, content: dict[str, object]) -> int | None:
    """Return the log timestamp, or None if there is none."""
    if not isinstance(pipeline.source.source.records, m.KafkaSource) and content.get("_log_time") is not None:
        return _micros(value_of(m.TimestampType("millis"), content["_log_time"]))
    return record.log_time


def _event_time(pipeline: WindowedSource, fields: dict[str, Value], log_time: int | None) -> int:
    """Return the event time, corrected by the error that the device's clock had when it sent the record."""
    time = _micros(fields[pipeline.source.time.field])
    if pipeline.source.time.sent is not None:
        if log_time is None:
            raise DeadLetterError(NO_LOG_TIME)
        time += log_time - _micros(fields[pipeline.source.time.sent])
        if not YEAR_0001 <= time < YEAR_10000:
            raise DeadLetterError(OUT_OF_RANGE)
    return _not_future(pipeline, time, log_time)


def _not_future(pipeline: WindowedSource, time: int, log_time: int | None) -> int:
    """Return an event time or a mark, unless it is too far ahead of the log timestamp."""
    future = pipeline.source.time.future
    if future is not None and log_time is not None and time > log_time + future:
        raise DeadLetterError(FUTURE)
    return time


def _micros(value: Value) -> int:
    if not isinstance(value, int):
        msg = f"{value!r} is not a time"
        raise TypeError(msg)
    return value


def _mark(pipeline: WindowedSource, content: dict[str, object], log_time: int | None) -> int | None:
    """Return the watermark that a record carries, or None if there is none."""
    name = _mark_name(pipeline)
    if name is None or not _values(pipeline, content, name):
        return None
    type_ = pipeline.source.decode.field(pipeline.source.time.field).type
    mark = _micros(_require_equal([value_of(type_, value) for value in _values(pipeline, content, name)]))
    return _not_future(pipeline, mark, log_time)


def _mark_name(pipeline: WindowedSource) -> str | None:
    return pipeline.source.time.watermark.field if isinstance(pipeline.source.time.watermark, m.Punctuated) else None


def _fields(pipeline: WindowedSource, content: dict[str, object]) -> dict[str, Value]:
    """Return the declared fields. Only the punctuation's field may be missing."""
    fields: dict[str, Value] = {}
    for field in pipeline.source.decode.fields:
        values = [value_of(field.type, value) for value in _values(pipeline, content, field.name)]
        if values:
            fields[field.name] = _require_equal(values)
        elif field.optional:
            fields[field.name] = None
        elif field.name != _mark_name(pipeline):
            raise DeadLetterError(NULL if _is_there(content, field.paths) else MISSING)
    return fields


def _values(pipeline: WindowedSource, content: dict[str, object], name: str) -> list[object]:
    """Return the values of a field at all of its paths, without nulls."""
    paths = next((field.paths for field in pipeline.source.decode.fields if field.name == name), ((name,),))
    found = [_at(content, path) for path in paths]
    return [value.text() if isinstance(value, _Headers) else value for value in found if value is not None]


def _at(content: dict[str, object], path: tuple[str, ...]) -> object:
    """Return the value at a path of nested objects, or None."""
    value: object = content
    for name in path:
        if value is None:
            return None
        value = _members(value).get(name)
    return value


def _is_there(content: dict[str, object], paths: tuple[tuple[str, ...], ...]) -> bool:
    above = [(_at(content, path[:-1]), path[-1]) for path in paths]
    return any(isinstance(parent, tuple | dict) and name in _members(parent) for parent, name in above)


def _require_equal(values: list[Value]) -> Value:
    if any(value != values[0] for value in values):
        raise DeadLetterError(CONFLICT)
    return values[0]


def _json_object(raw: bytes | None) -> dict[str, object]:
    """Parse strict JSON. If a key is repeated, its first value counts."""
    content = _json(raw)
    if not isinstance(content, tuple):
        raise DeadLetterError(NOT_AN_OBJECT)
    return dict(reversed(content))


def _json(raw: bytes | None) -> object:
    """Parse strict JSON, with objects as tuples of pairs."""
    if raw is None:
        raise DeadLetterError(MALFORMED)
    try:
        # objects become tuples of pairs, so that repeated keys are validated too
        content = json.loads(
            raw.decode("utf-8"),
            parse_int=Literal,
            parse_float=Literal,
            parse_constant=_not_a_number,
            object_pairs_hook=tuple,
        )
        if _depth(content) > DEEPEST:
            raise DeadLetterError(MALFORMED)
        # half a surrogate pair is not valid
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as exc:
        raise DeadLetterError(MALFORMED) from exc
    return content


def _not_a_number(text: str) -> None:
    msg = f"{text} is not JSON"
    raise ValueError(msg)


def _depth(content: object) -> int:
    match content:
        case tuple():
            return 1 + max((_depth(value) for _, value in content), default=0)
        case list():
            return 1 + max(map(_depth, content), default=0)
        case _:
            return 0


MALFORMED = "malformed"
REDRIVEN = "redriven"
INTERNAL = "internal"
NO_CHANGE = "no change of a row"
UNAVAILABLE = "unavailable"
NOT_AN_OBJECT = "not an object"
MISSING = "missing"
NULL = "null"
WRONG_TYPE = "wrong type"
OUT_OF_RANGE = "out of range"
FUTURE = "future"
NO_LOG_TIME = "no log time"
NULL_KEY = "null key"
LONG_KEY = "long key"
EXPRESSION = "expression"
CONFLICT = "conflict"

UNITS = {"seconds": 1_000_000, "millis": 1_000, "micros": 1}
YEAR_0001 = -62_135_596_800_000_000
YEAR_10000 = 253_402_300_800_000_000
LONG_LIMIT = 2**63
LONG_DIGITS = 19
MICRO_DIGITS = 6
NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
ISO_TEXT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:[.,]([0-9]+))?"
    r"(?:[Zz]|([+-][0-9]{2})(?::?([0-9]{2}))?)?"
)


class Literal(str):
    """The text of a JSON number, as written."""

    __slots__ = ()


class DeadLetterError(Exception):
    """Raised if a record is invalid. The message is the fixed part of the reason."""


def value_of(type_: m.DataType, json_value: object) -> Value:
    """Convert a JSON value to a type; raise DeadLetterError if the type cannot hold it without loss."""
    match type_:
        case m.StringType():
            return _text(json_value)
        case m.BooleanType():
            return _boolean(json_value)
        case m.LongType():
            return _long(json_value)
        case m.DoubleType():
            return _double(json_value)
        case m.DecimalType(precision, scale):
            return _decimal(json_value, precision, scale)
        case m.TimestampType(unit):
            return _time(json_value, unit)
        case m.ArrayType():
            # arrays are for graphs, which have an oracle of their own
            raise TypeError(type_)
        case _:
            assert_never(type_)


def _text(json_value: object) -> str:
    if isinstance(json_value, str) and not isinstance(json_value, Literal) and "\0" not in json_value:
        return json_value
    raise DeadLetterError(WRONG_TYPE)


def _boolean(json_value: object) -> bool:
    if isinstance(json_value, _FolderText) and json_value in {"true", "false"}:
        return json_value == "true"
    if isinstance(json_value, bool):
        return json_value
    raise DeadLetterError(WRONG_TYPE)


def _digits_and_exponent(json_value: object) -> tuple[str, str, int]:
    """Return sign, digits and exponent: -1.50 is ("-", "15", -1), and zero has no digits."""
    match = NUMBER.fullmatch(json_value) if isinstance(json_value, str) else None
    if match is None:
        raise DeadLetterError(WRONG_TYPE)
    sign, before, after, exponent = match[1], match[2], match[3] or "", match[4] or "0"
    digits = (before + after).lstrip("0")
    zeros = len(digits) - len(digits.rstrip("0"))
    if not digits:
        return "", "", 0
    return sign, digits.rstrip("0"), int(exponent) - len(after) + zeros


def _long(json_value: object) -> int:
    sign, digits, exponent = _digits_and_exponent(json_value)
    if exponent < 0:
        raise DeadLetterError(WRONG_TYPE)
    if len(digits) + exponent > LONG_DIGITS:
        raise DeadLetterError(OUT_OF_RANGE)
    whole = int(sign + (digits or "0") + "0" * exponent)
    if not -LONG_LIMIT <= whole < LONG_LIMIT:
        raise DeadLetterError(OUT_OF_RANGE)
    return whole


def _double(json_value: object) -> float:
    _digits_and_exponent(json_value)
    double = float(str(json_value))
    if math.isinf(double):
        raise DeadLetterError(OUT_OF_RANGE)
    return double


def _decimal(json_value: object, precision: int, scale: int) -> Decimal:
    sign, digits, exponent = _digits_and_exponent(json_value)
    if -exponent > scale:
        raise DeadLetterError(WRONG_TYPE)
    if digits and len(digits) + exponent > precision - scale:
        raise DeadLetterError(OUT_OF_RANGE)
    return Decimal(f"{sign}{digits or '0'}E{exponent}")


def _time(json_value: object, unit: str) -> int:
    time = _iso(json_value) if unit == "iso" else _long(json_value) * UNITS[unit]
    if not YEAR_0001 <= time < YEAR_10000:
        raise DeadLetterError(OUT_OF_RANGE)
    return time


def _iso(json_value: object) -> int:
    """Return the microseconds of an ISO 8601 date and time, which is in UTC if it has no offset."""
    text = json_value if isinstance(json_value, str) and not isinstance(json_value, Literal) else ""
    match = ISO_TEXT.fullmatch(text)
    if match is None or (match[4] and not match[3]):
        raise DeadLetterError(WRONG_TYPE)
    fraction = (match[4] or "").rstrip("0")
    if len(fraction) > MICRO_DIGITS:
        raise DeadLetterError(WRONG_TYPE)
    try:
        point = dt.datetime.fromisoformat(f"{match[1]}T{match[2]}{match[3] or ''}+00:00")
        east = dt.time.fromisoformat(f"{(match[5] or '+00')[1:]}:{match[6] or '00'}")
    except ValueError as exc:
        raise DeadLetterError(OUT_OF_RANGE) from exc
    seconds = (point - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(seconds=1)
    ahead = east.hour * 3600 + east.minute * 60
    seconds += ahead if (match[5] or "+").startswith("-") else -ahead
    return seconds * 1_000_000 + int(fraction.ljust(MICRO_DIGITS, "0"))
