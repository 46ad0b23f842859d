"""Single values in a story, and the types of its keys and results. All problems are reported at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

import yaml

from windrow.api.checks.base import type_of
from windrow.api.yaml_node import YamlNode
from windrow.errors import PipelineError, join_errors
from windrow.model import (
    Aggregate,
    BooleanType,
    Count,
    Custom,
    DataType,
    DecimalType,
    DoubleType,
    Formula,
    LongType,
    Pipeline,
    RulesPipeline,
    StringType,
    TimestampType,
    function_spec,
)
from windrow.testing.transcript.story import Tabled, Value
from windrow.testing.transcript.times import parse_story_time

DECIMAL_DIGITS = 18
"""The precision of decimals in stories."""
ALERT = ("subject", "rule")
"""The columns that an alert is known by, behind the key."""
_TAG = "tag:yaml.org,2002:"
# before the point more than any type holds, behind it as much as a story's decimals can
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,99})")
_POINT = re.compile(r"-?(?:0|[1-9][0-9]{0,99})\.([0-9]{1,18})")


@dataclass(frozen=True)
class Cell:
    """A value, its type, and how it is written in JSON."""

    type: DataType
    value: Value
    json: str


def read_cell(node: YamlNode) -> Cell:
    """Read a text, a number or a boolean; no digit goes through a float. Raise PipelineError for anything else."""
    if not isinstance(node.node, yaml.ScalarNode):
        msg = f"{node.called} must be one value, not {node.kind}"
        raise node.error(msg)
    written: str = node.node.value
    match node.node.tag.removeprefix(_TAG):
        case "str":
            return Cell(StringType(), written, json.dumps(written))
        case "int" if _WHOLE.fullmatch(written):
            return Cell(LongType(), int(written), written)
        case "float" if point := _POINT.fullmatch(written):
            return Cell(DecimalType(DECIMAL_DIGITS, len(point[1])), Decimal(written), written)
        case "bool" if written in {"true", "false"}:
            return Cell(BooleanType(), written == "true", written)
        case _:
            msg = (
                f"{node.called} must be a text, a plain number (5, 5.25) or true or false, not {written!r}; "
                "put a text in quotes"
            )
            raise node.error(msg)


def read_time_cell(node: YamlNode) -> Cell:
    """Read a time."""
    micros = node.parsed(parse_story_time)
    return Cell(TimestampType("micros"), micros, str(micros))


def read_log_time(node: YamlNode) -> Cell:
    """Read a log timestamp, which JSON holds in milliseconds."""
    micros = node.parsed(parse_story_time)
    if micros % 1000:
        msg = f"{node.called} must be in whole milliseconds"
        raise node.error(msg)
    return Cell(TimestampType("millis"), micros, str(micros // 1000))


def read_value(node: YamlNode, type_: DataType | None) -> Value:
    """Read a value that a key's field of that type can have (None: any)."""
    if isinstance(type_, TimestampType):
        return read_time_cell(node).value
    cell = read_cell(node)
    if (
        type_ is None
        or type(cell.type) is type(type_)
        or (isinstance(type_, DecimalType) and isinstance(cell.type, LongType))
    ):
        return cell.value
    msg = f"{node.called} must be a {type_}, not {node.node.value!r}"
    raise node.error(msg)


def read_result(node: YamlNode, type_: DataType | None) -> Value:
    """Read a result: null, or a value of that type (a number for any number; None: any value; a time is a text)."""
    if node.is_null:
        return None
    cell = read_cell(node)
    match type_:
        case LongType() | DoubleType() | DecimalType():
            fits, what = isinstance(cell.type, LongType | DecimalType), "number"
        case BooleanType():
            fits, what = isinstance(cell.type, BooleanType), "boolean"
        case StringType() | TimestampType():
            fits, what = isinstance(cell.type, StringType), "text"
        case _:
            return cell.value
    if fits:
        return node.parsed(parse_story_time) if isinstance(type_, TimestampType) else cell.value
    msg = f"{node.called} must be a {what} or null, not {node.node.value!r}"
    raise node.error(msg)


def key_types(pipeline: Tabled) -> list[DataType | None]:
    """Return the types of the key's fields, and of the subject and the rule of an alert."""
    alert = [StringType() for _ in ALERT] if isinstance(pipeline, RulesPipeline) else []
    return [*(type_of(pipeline, name) for name in pipeline.key), *alert]


def result_types(pipeline: Tabled) -> list[DataType | None]:
    """Return the types of the results: any number's for a number, None for what may be anything."""
    if isinstance(pipeline, RulesPipeline):
        return [StringType()]
    return [_result_type(pipeline, aggregate) for aggregate in pipeline.aggregates]


def _result_type(pipeline: Pipeline, aggregate: Aggregate) -> DataType | None:
    match aggregate.function:
        case Custom(function):
            return function.returns
        case Formula():
            return None
        case Count():
            return LongType()
        case function:
            types: dict[str, DataType] = {"count": LongType(), "text": StringType(), "boolean": BooleanType()}
            result = function_spec(function).result
            return type_of(pipeline, function.of) if result == "argument" else types.get(result, DoubleType())


S = TypeVar("S")
T = TypeVar("T")


def each(items: Iterable[S], read: Callable[[S], T]) -> tuple[T, ...]:
    """Read every item; raise one PipelineError that holds the problems of all."""
    done: list[T] = []
    errors: list[PipelineError] = []
    for item in items:
        try:
            done.append(read(item))
        except PipelineError as exc:
            errors.append(exc)
    if errors:
        raise join_errors(errors)
    return tuple(done)
