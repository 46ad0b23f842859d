"""Values in a story, and the types of its keys and results. All problems are reported at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeVar

import yaml

from windrow import model as m
from windrow.authoring.checks.base import type_of
from windrow.declare.yaml_node import YamlMapping, YamlNode
from windrow.errors import PipelineError, join_errors
from windrow.testing.transcript.story import Tabled, Value
from windrow.testing.transcript.times import parse_story_time

DECIMAL_DIGITS = 18
"""The precision of decimals in stories."""
ALERT = ("subject", "rule")
"""The columns that identify an alert, after the key."""
_TAG = "tag:yaml.org,2002:"
# more digits before the point than any type holds, after it as many as a story's decimals can have
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,99})")
_POINT = re.compile(r"-?(?:0|[1-9][0-9]{0,99})\.([0-9]{1,18})")


@dataclass(frozen=True)
class Cell:
    """A value (None for a list), its type, and its JSON text."""

    type: m.DataType
    value: Value
    json: str


def read_cell(node: YamlNode) -> Cell:
    """Read a string, number or boolean without converting digits to a float; raise PipelineError for anything else."""
    if not isinstance(node.node, yaml.ScalarNode):
        msg = f"{node.called} must be one value, not {node.kind}"
        raise node.error(msg)
    written: str = node.node.value
    match node.node.tag.removeprefix(_TAG):
        case "str":
            return Cell(m.StringType(), written, json.dumps(written))
        case "int" if _WHOLE.fullmatch(written):
            return Cell(m.LongType(), int(written), written)
        case "float" if point := _POINT.fullmatch(written):
            return Cell(m.DecimalType(DECIMAL_DIGITS, len(point[1])), Decimal(written), written)
        case "bool" if written in {"true", "false"}:
            return Cell(m.BooleanType(), written == "true", written)
        case _:
            msg = (
                f"{node.called} must be a text, a plain number (5, 5.25) or true or false, not {written!r}; "
                "put a text in quotes"
            )
            raise node.error(msg)


def read_field(node: YamlNode) -> Cell:
    """Read the value of a record's field: a single value, or a list of values or mappings."""
    return _read_list(node) if node.is_list else read_cell(node)


Element = m.SimpleType | m.StructType
NOTHING: Final = m.StructType(())
"""The element type of an empty list."""


def _read_list(node: YamlNode) -> Cell:
    elements = each(node.items(), _read_element)
    common: Element = NOTHING
    for (type_, _), item in zip(elements, node.items(), strict=True):
        both = _common_element(common, type_)
        if both is None:
            msg = f"{item.called} is a {type_}, but the elements before it are a {common}; all must have the same type"
            raise item.error(msg)
        common = both
    return Cell(m.ArrayType(common), None, f"[{', '.join(text for _, text in elements)}]")


def _read_element(node: YamlNode) -> tuple[Element, str]:
    """Read an element of a list and return its type and JSON text."""
    if not node.is_mapping:
        cell = read_field(node)
        if isinstance(cell.type, m.ArrayType):
            msg = f"{node.called} must be one value or a mapping, not a list"
            raise node.error(msg)
        return cell.type, cell.json
    fields = YamlMapping(node)
    found = {name: fields.attempt(read_field, entry) for name, entry in fields}
    fields.check()
    if not found:
        msg = f"{node.called} has no field"
        raise node.error(msg)
    cells = {name: cell.value for name, cell in found.items()}
    return m.StructType(tuple(m.Field(name, cell.type) for name, cell in cells.items())), json_object(cells)


def json_object(cells: Mapping[str, Cell]) -> str:
    """Format fields as a JSON object."""
    return f"{{{', '.join(f'{json.dumps(name)}: {cell.json}' for name, cell in cells.items())}}}"


def common_type(left: m.DataType, right: m.DataType) -> m.DataType | None:
    """Return the type that can hold the values of both types, or None. A decimal gets the larger scale."""
    match left, right:
        case m.ArrayType(element), m.ArrayType(another):
            common = _common_element(element, another)
            return None if common is None else m.ArrayType(common)
        case m.DecimalType(_, scale), m.DecimalType(_, another_scale):
            return m.DecimalType(DECIMAL_DIGITS, max(scale, another_scale))
        case _:
            return left if left == right else None


def _common_element(left: Element, right: Element) -> Element | None:
    if NOTHING in {left, right}:
        return right if left == NOTHING else left
    if isinstance(left, m.StructType) and isinstance(right, m.StructType):
        types = {field.name: field.type for field in right.fields}
        if types.keys() != {field.name for field in left.fields}:
            return None
        common_fields = [(field.name, common_type(field.type, types[field.name])) for field in left.fields]
        fields = tuple(m.Field(name, type_) for name, type_ in common_fields if type_ is not None)
        return m.StructType(fields) if len(fields) == len(common_fields) else None
    if isinstance(left, m.StructType) or isinstance(right, m.StructType):
        return None
    common = common_type(left, right)
    return None if isinstance(common, m.ArrayType) else common


def lacks_elements(type_: m.DataType) -> bool:
    """Return True if the element type of a list is unknown, at any depth."""
    if not isinstance(type_, m.ArrayType):
        return False
    element = type_.element
    is_within = isinstance(element, m.StructType) and any(lacks_elements(field.type) for field in element.fields)
    return element == NOTHING or is_within


def read_time_cell(node: YamlNode) -> Cell:
    """Read a time."""
    micros = node.parsed(parse_story_time)
    return Cell(m.TimestampType("micros"), micros, str(micros))


def read_log_time(node: YamlNode) -> Cell:
    """Read a log timestamp. In JSON it is in milliseconds, so it must be a whole number of them."""
    micros = node.parsed(parse_story_time)
    if micros % 1000:
        msg = f"{node.called} must be in whole milliseconds"
        raise node.error(msg)
    return Cell(m.TimestampType("millis"), micros, str(micros // 1000))


def read_value(node: YamlNode, type_: m.DataType | None) -> Value:
    """Read a value of a key field; None allows any type."""
    if isinstance(type_, m.TimestampType):
        return read_time_cell(node).value
    cell = read_cell(node)
    if (
        type_ is None
        or type(cell.type) is type(type_)
        or (isinstance(type_, m.DecimalType) and isinstance(cell.type, m.LongType))
    ):
        return cell.value
    msg = f"{node.called} must be a {type_}, not {node.node.value!r}"
    raise node.error(msg)


def read_result(node: YamlNode, type_: m.DataType | None) -> Value:
    """Read a result: null, or a value of the given type. If the type is None, any value is accepted.

    Any number is accepted for a numeric type. A time is written as a string. A list is converted to the JSON text that
    aggregates with lists return, in which decimals are strings, too.
    """
    if node.is_null:
        return None
    if node.is_list and isinstance(type_, m.StringType | None):
        return json.dumps(_json_value(node), separators=(",", ":"), ensure_ascii=False)
    cell = read_cell(node)
    match type_:
        case m.LongType() | m.DoubleType() | m.DecimalType():
            fits, what = isinstance(cell.type, m.LongType | m.DecimalType), "number"
        case m.BooleanType():
            fits, what = isinstance(cell.type, m.BooleanType), "boolean"
        case m.StringType() | m.TimestampType():
            fits, what = isinstance(cell.type, m.StringType), "text"
        case _:
            return cell.value
    if fits:
        return node.parsed(parse_story_time) if isinstance(type_, m.TimestampType) else cell.value
    msg = f"{node.called} must be a {what} or null, not {node.node.value!r}"
    raise node.error(msg)


def _json_value(node: YamlNode) -> list[Any] | str | int | bool | None:
    if node.is_list:
        return list(each(node.items(), _json_value))
    if node.is_null:
        return None
    cell = read_cell(node)
    return str(cell.value) if isinstance(cell.value, Decimal) else cell.value  # type: ignore[return-value]


def key_types(pipeline: Tabled) -> list[m.DataType | None]:
    """Return the types of the key fields and, for alerts, of the subject and the rule."""
    alert = [m.StringType() for _ in ALERT] if isinstance(pipeline.node, m.RulesNode) else []
    return [*(type_of(pipeline, name) for name in pipeline.key), *alert]


def result_types(pipeline: Tabled) -> list[m.DataType | None]:
    """Return the types of the results. A number may have any numeric type; None stands for any type."""
    if isinstance(pipeline.node, m.RulesNode):
        return [m.StringType()]
    return [_result_type(pipeline, aggregate) for aggregate in pipeline.node.aggregates]


def _result_type(pipeline: Tabled, aggregate: m.Aggregate) -> m.DataType | None:
    match aggregate.function:
        case m.Custom(function):
            return function.returns
        case m.Formula():
            return None
        case m.Count():
            return m.LongType()
        case function:
            types: dict[str, m.DataType] = {
                "count": m.LongType(),
                **dict.fromkeys(("text", "list"), m.StringType()),
                "boolean": m.BooleanType(),
            }
            result = m.function_spec(function).result
            return type_of(pipeline, function.of) if result == "argument" else types.get(result, m.DoubleType())


S = TypeVar("S")
T = TypeVar("T")


def each(items: Iterable[S], read: Callable[[S], T]) -> tuple[T, ...]:
    """Read each item; raise a PipelineError with the problems of all items."""
    values: list[T] = []
    errors: list[PipelineError] = []
    for item in items:
        try:
            values.append(read(item))
        except PipelineError as exc:
            errors.append(exc)
    if errors:
        raise join_errors(errors)
    return tuple(values)
