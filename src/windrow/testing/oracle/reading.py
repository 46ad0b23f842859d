"""What a record says: data, a watermark, both, or nothing that can be used."""

from __future__ import annotations

import json
from dataclasses import dataclass

from windrow.model import LogSource, Pipeline, Punctuated, TimestampType
from windrow.testing.oracle.answer import LogRecord, Value
from windrow.testing.oracle.arguments import derived, inputs
from windrow.testing.oracle.expressions import FailedError
from windrow.testing.oracle.values import (
    CONFLICT,
    EXPRESSION,
    FUTURE,
    MALFORMED,
    MISSING,
    NO_LOG_TIME,
    NOT_AN_OBJECT,
    NULL,
    NULL_KEY,
    OUT_OF_RANGE,
    YEAR_0001,
    YEAR_10000,
    DeadLetterError,
    Literal,
    value_of,
)

DEEPEST = 256
"""More brackets inside one another are malformed."""


@dataclass(frozen=True)
class Reading:
    """A good record: its data (None for a pure mark), its event time then, and its mark if it has one.

    `inputs` is what each aggregate takes of it.
    """

    fields: dict[str, Value] | None
    time: int
    mark: int | None
    inputs: tuple[Value, ...] = ()


def read(pipeline: Pipeline, record: LogRecord) -> Reading:
    """Read one record; raise DeadLetterError if it is not good."""
    content = _json_object(record.value)
    log_time = _log_time(pipeline, record, content)
    latest = None if pipeline.time.future is None or log_time is None else log_time + pipeline.time.future
    mark = _mark(pipeline, content, latest)
    needed = [pipeline.time.field, *(name for name in pipeline.key if name not in _derived(pipeline))]
    if mark is not None and any(_found(pipeline, content, name) is None for name in needed):
        return Reading(None, 0, mark)
    fields = _fields(pipeline, content)
    time = _event_time(pipeline, fields, log_time)
    if latest is not None and time > latest:
        raise DeadLetterError(FUTURE)
    try:
        fields |= derived(pipeline, fields)
        if any(fields[name] is None for name in pipeline.key):
            if mark is not None:
                return Reading(None, 0, mark)
            raise DeadLetterError(NULL_KEY)
        return Reading(fields, time, mark, inputs(pipeline, fields))
    except FailedError as exc:
        raise DeadLetterError(EXPRESSION) from exc


def _log_time(pipeline: Pipeline, record: LogRecord, content: dict[str, object]) -> int | None:
    """Return the log timestamp, if there is one."""
    if isinstance(pipeline.source, LogSource) and content.get("_log_time") is not None:
        return _micros(value_of(TimestampType("millis"), content["_log_time"]))
    return record.log_time


def _event_time(pipeline: Pipeline, fields: dict[str, Value], log_time: int | None) -> int:
    """Return the event time, corrected by how far the device's clock was off when it sent the record."""
    time = _micros(fields[pipeline.time.field])
    if pipeline.time.sent is None:
        return time
    if log_time is None:
        raise DeadLetterError(NO_LOG_TIME)
    corrected = time + log_time - _micros(fields[pipeline.time.sent])
    if not YEAR_0001 <= corrected < YEAR_10000:
        raise DeadLetterError(OUT_OF_RANGE)
    return corrected


def _micros(value: Value) -> int:
    if not isinstance(value, int):
        msg = f"{value!r} is not a time"
        raise TypeError(msg)
    return value


def _derived(pipeline: Pipeline) -> set[str]:
    return {derive.name for derive in pipeline.derive}


def _mark(pipeline: Pipeline, content: dict[str, object], latest: int | None) -> int | None:
    """Return the watermark that a record carries, if it does."""
    name = _mark_name(pipeline)
    if name is None or _found(pipeline, content, name) is None:
        return None
    type_ = pipeline.decode.field(pipeline.time.field).type
    mark = _micros(_agreed([value_of(type_, value) for value in _values(pipeline, content, name)]))
    if latest is not None and mark > latest:
        raise DeadLetterError(FUTURE)
    return mark


def _mark_name(pipeline: Pipeline) -> str | None:
    return pipeline.time.watermark.field if isinstance(pipeline.time.watermark, Punctuated) else None


def _fields(pipeline: Pipeline, content: dict[str, object]) -> dict[str, Value]:
    """Return the declared fields; only the watermark's may be lacking."""
    fields: dict[str, Value] = {}
    for field in pipeline.decode.fields:
        values = [value_of(field.type, value) for value in _values(pipeline, content, field.name)]
        if values:
            fields[field.name] = _agreed(values)
        elif field.optional:
            fields[field.name] = None
        elif field.name != _mark_name(pipeline):
            raise DeadLetterError(NULL if content.keys() & {field.name, *field.alias} else MISSING)
    return fields


def _values(pipeline: Pipeline, content: dict[str, object], name: str) -> list[object]:
    """Return what a record has for a field, under each of its names."""
    alias = [other for field in pipeline.decode.fields if field.name == name for other in field.alias]
    return [content[one] for one in (name, *alias) if content.get(one) is not None]


def _found(pipeline: Pipeline, content: dict[str, object], name: str) -> object:
    return next(iter(_values(pipeline, content, name)), None)


def _agreed(values: list[Value]) -> Value:
    if any(value != values[0] for value in values):
        raise DeadLetterError(CONFLICT)
    return values[0]


def _json_object(raw: bytes | None) -> dict[str, object]:
    """Read strict JSON; of a key that comes twice the first counts."""
    if raw is None:
        raise DeadLetterError(MALFORMED)
    try:
        # objects become tuples of pairs, so that nothing is lost before it was looked at
        content = json.loads(
            raw.decode("utf-8"),
            parse_int=Literal,
            parse_float=Literal,
            parse_constant=_not_a_number,
            object_pairs_hook=tuple,
        )
        if _depth(content) > DEEPEST:
            raise DeadLetterError(MALFORMED)
        # half a surrogate pair is no text
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as exc:
        raise DeadLetterError(MALFORMED) from exc
    if not isinstance(content, tuple):
        raise DeadLetterError(NOT_AN_OBJECT)
    return dict(reversed(content))


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
