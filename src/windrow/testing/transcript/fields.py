"""The fields of a story's records, inferred from the records."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.errors import PipelineError, Place
from windrow.model import DataType, DecimalType, Decode, EventTime, Field, TimestampType
from windrow.testing.transcript.cells import DECIMAL_DIGITS
from windrow.testing.transcript.records import LOG_TIME, Written, mark_field


def infer_fields(records: Sequence[Written], time: EventTime, place: Place) -> Decode:
    """Return the fields with their types; raise PipelineError if the records do not agree on them.

    The punctuation's field comes last, a time like the event time. The log timestamp is not among them, nor is what
    only raw records hold. A decimal is as fine as the finest that is written.
    """
    mark = mark_field(time)
    others = {LOG_TIME, mark}
    data = [record for record in records if record.raw is None and set(record.cells) - others]
    types: dict[str, DataType] = {}
    lines: dict[str, int] = {}
    for record in data:
        for name, cell in record.cells.items():
            if name in others:
                continue
            lines.setdefault(name, record.place.line)
            types[name] = _both(types.get(name, cell.type), cell.type, name, lines[name], record.place)
    for record in data:
        for name in types:
            if name not in record.cells:
                msg = (
                    f"the record has no {name!r}, and the one on line {lines[name]} has; "
                    "a record that is to be a dead letter is written as `raw: TEXT`"
                )
                raise PipelineError(msg, record.place)
    if not types:
        msg = "the story needs a record that is not raw: from it come the fields and their types"
        raise PipelineError(msg, place)
    if mark is not None:
        types[mark] = TimestampType("micros")
    return Decode(tuple(Field(name, type_) for name, type_ in types.items()))


def _both(known: DataType, new: DataType, name: str, line: int, place: Place) -> DataType:
    """Return the type that holds the values of both."""
    match known, new:
        case DecimalType(_, scale), DecimalType(_, other):
            return DecimalType(DECIMAL_DIGITS, max(scale, other))
        case _ if known == new:
            return known
        case _:
            msg = (
                f"{name!r} is a {new} here, and a {known} on line {line}; "
                "a field has one type in all of a story (5 is a long, 5.00 a decimal)"
            )
            raise PipelineError(msg, place)
