"""The authority on what a record means: one record at a time, in plain Python.

The fast path must agree with it wherever it accepts a record; whatever that one does not accept comes here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from windrow.core.decode.number import NumberText
from windrow.core.decode.values import MAX_TIME, MIN_TIME, BadValueError, Value, convert
from windrow.model import AnyPipeline, EventTime, Field, LogSource, Punctuated, TimestampType

LOG_TIME = "_log_time"
"""The field of an embedded log's record that holds its log timestamp."""
LOG_TIME_TYPE = TimestampType("millis")
MAX_DEPTH = 256
"""Deeper nesting is malformed: a limit of ours, so that the verdict does not hang on how deep the caller's stack is."""

_TOO_DEEP = f"malformed: nested too deeply (more than {MAX_DEPTH} levels)"
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?|([\[{])|([\]}])', re.DOTALL)
_ESCAPE_BUT_LONE_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u]|\\u(?![dD][89a-fA-F])"
)


@dataclass(frozen=True, slots=True)
class Good:
    """A record with data: its fields in declared order, its event time and its mark, if any, in microseconds."""

    values: tuple[Value | None, ...]
    time: int
    mark: int | None


@dataclass(frozen=True, slots=True)
class PureMark:
    """A punctuation mark without data, in microseconds."""

    mark: int


@dataclass(frozen=True, slots=True)
class Bad:
    """A dead letter: why, and the log timestamp in microseconds as far as it is known."""

    reason: str
    log_time: int | None


Outcome = Good | PureMark | Bad


class MalformedError(Exception):
    """Bytes that are no JSON; the message is the dead letter's reason."""


@dataclass(frozen=True)
class ExactDecoder:
    """What a record must hold. `mark` is the field of the punctuation, `log_time_inside` says to read `_log_time`."""

    fields: tuple[Field, ...]
    time: EventTime
    key: tuple[str, ...]
    mark: Field | None
    log_time_inside: bool

    @staticmethod
    def of(pipeline: AnyPipeline) -> ExactDecoder:
        """Build it from a pipeline."""
        return ExactDecoder(
            fields=pipeline.decode.fields,
            time=pipeline.time,
            key=pipeline.key,
            mark=mark_field(pipeline),
            log_time_inside=isinstance(pipeline.source, LogSource),
        )

    def decode(self, raw: bytes | None, log_time: int | None) -> Outcome:
        """Decode one record's value; `log_time` is the log's own timestamp in microseconds, if it has one."""
        try:
            record = parse_object(raw)
            if self.log_time_inside and record.get(LOG_TIME) is not None:
                inside = convert(LOG_TIME, LOG_TIME_TYPE, record[LOG_TIME])
                log_time = _micros(inside)
            return self._meaning(record, log_time)
        except (MalformedError, BadValueError) as exc:
            return Bad(str(exc), log_time)

    def _meaning(self, record: Mapping[str, object], log_time: int | None) -> Good | PureMark:
        mark = self._mark(record, log_time)
        needed = {self.time.field, *self.key}
        if mark is not None and any(not _said(field, record) for field in self.fields if field.name in needed):
            return PureMark(mark)
        values = tuple(self._value(field, record) for field in self.fields)
        names = [field.name for field in self.fields]
        time = _micros(values[names.index(self.time.field)])
        if self.time.sent is not None:
            time = _corrected(self.time.field, time, _micros(values[names.index(self.time.sent)]), log_time)
        self._guard(self.time.field, time, log_time)
        return Good(values, time, mark)

    def _mark(self, record: Mapping[str, object], log_time: int | None) -> int | None:
        if self.mark is None or not _said(self.mark, record):
            return None
        mark = _micros(_value(self.mark, record))
        self._guard(self.mark.name, mark, log_time)
        return mark

    def _value(self, field: Field, record: Mapping[str, object]) -> Value | None:
        if _said(field, record):
            return _value(field, record)
        if is_optional(field, self.mark, self.time, self.key):
            return None
        is_there = any(name in record for name in field.names)
        reason = f"null: {field.name}" if is_there else f"missing: {field.name}"
        raise BadValueError(reason)

    def _guard(self, name: str, time: int, log_time: int | None) -> None:
        future = self.time.future
        if future is not None and log_time is not None and time > log_time + future:
            ahead = time - log_time
            msg = f"future: {name} is {ahead} us ahead of the log's timestamp, and {future} us are allowed"
            raise BadValueError(msg)


def _corrected(name: str, time: int, sent: int, log_time: int | None) -> int:
    """Return an event time without the skew of the device's clock, as the log's timestamp beside `sent` shows it."""
    if log_time is None:
        msg = "no log time"
        raise BadValueError(msg)
    corrected = time + log_time - sent
    if not MIN_TIME <= corrected <= MAX_TIME:
        msg = f"out of range: {name}: corrected by {log_time - sent} us it does not fit a timestamp"
        raise BadValueError(msg)
    return corrected


def mark_field(pipeline: AnyPipeline) -> Field | None:
    """Return the field of the pipeline's punctuation, if it has one: a time like the event time."""
    match pipeline.time.watermark:
        case Punctuated(field):
            declared = next((one for one in pipeline.decode.fields if one.name == field), None)
            alias = () if declared is None else declared.alias
            return Field(field, pipeline.decode.field(pipeline.time.field).type, alias=alias)
        case _:
            return None


def is_optional(field: Field, mark: Field | None, time: EventTime, key: tuple[str, ...]) -> bool:
    """Whether a good record may lack the field: if it says so, and the punctuation's; never the key and the times."""
    may_lack = field.optional or (mark is not None and field.name == mark.name)
    return may_lack and field.name not in {time.field, time.sent, *key}


def _said(field: Field, record: Mapping[str, object]) -> list[str]:
    """Return the names of a field under which a record has a value."""
    return [name for name in field.names if record.get(name) is not None]


def _value(field: Field, record: Mapping[str, object]) -> Value:
    """Return the value of a field that a record has; raise BadValueError if it has two different ones."""
    first, *others = ((name, convert(name, field.type, record[name])) for name in _said(field, record))
    for name, value in others:
        if value != first[1]:
            msg = f"conflict: {field.name}: {first[0]} and {name} differ"
            raise BadValueError(msg)
    return first[1]


def parse_object(raw: bytes | None) -> dict[str, object]:
    """Read a record's bytes as a JSON object (RFC 8259); of a key that comes twice the first counts.

    Numbers stay text (`NumberText`). Raises MalformedError.
    """
    if raw is None:
        msg = "malformed: no value"
        raise MalformedError(msg)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        msg = f"malformed: not UTF-8 at byte {exc.start}"
        raise MalformedError(msg) from exc
    if _too_deep(text):
        raise MalformedError(_TOO_DEEP)
    try:
        value: object = json.loads(
            text,
            parse_float=NumberText,
            parse_int=NumberText,
            parse_constant=_no_constant,
            object_pairs_hook=_first_wins,
        )
    except json.JSONDecodeError as exc:
        msg = f"malformed: not JSON at character {exc.pos}: {exc.msg}"
        raise MalformedError(msg) from exc
    except RecursionError as exc:
        raise MalformedError(_TOO_DEEP) from exc
    if "\\u" in _ESCAPE_BUT_LONE_SURROGATE.sub("", text):
        msg = "malformed: half of a surrogate pair"
        raise MalformedError(msg)
    if not isinstance(value, dict):
        msg = f"not an object: {_kind(value)}"
        raise MalformedError(msg)
    return value


def _too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        if match[1]:
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif match[2]:
            depth -= 1
    return False


def _no_constant(text: str) -> NoReturn:
    msg = f"malformed: not JSON: {text} is no number"
    raise MalformedError(msg)


def _first_wins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return dict(reversed(pairs))


def _kind(value: object) -> str:
    match value:
        case list():
            return "an array"
        case NumberText():
            return "a number"
        case str():
            return "a string"
        case bool():
            return "true" if value else "false"
        case _:
            return "null"


def _micros(value: Value | None) -> int:
    if not isinstance(value, int):
        msg = "a time must decode to whole microseconds"
        raise TypeError(msg)
    return value
