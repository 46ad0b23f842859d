"""Look up the names of a pipeline, and the types of its fields and expressions, for the rules in other modules."""

from __future__ import annotations

import re
from collections.abc import Iterator

from windrow import model as m
from windrow.declare.findings import is_name
from windrow.errors import PipelineError, did_you_mean
from windrow.expressions import Decoded, Expression, OperatorSpec, analyse, is_column

ResultSpec = OperatorSpec[m.ResultNode]


_WORD = re.compile(r"[^\W\d]\w*")


def decoded_type(records: Decoded, name: str) -> m.DataType | None:
    """Return the type of a decoded field, or None if no decoded field has this name."""
    return next((field.type for field in records.decode.fields if field.name == name), None)


def is_field(records: Decoded, name: str) -> bool:
    """Return True if a decoded or derived field has this name."""
    return name in _fields(records)


def is_misspelt(records: Decoded, text: str) -> bool:
    """Return True if the text looks like a field name but no field has it; constants such as ``true`` do not count."""
    return (
        _WORD.fullmatch(text) is not None
        and not is_field(records, text)
        and is_column(text, frozenset(_fields(records)))
    )


def no_field(records: Decoded, name: str) -> str:
    """Return the error message for a name that is not a decoded field."""
    if is_field(records, name):
        return f"{name!r} is a derived field; use a decoded field"
    hint = did_you_mean(name, _fields(records)) or "; add it there with its type"
    return f"{name!r} is not a field of decode{hint}"


def sink_path(sink: m.Sink) -> str:
    """Return the path of the sink's settings in a pipeline file, such as ``sink.postgres``."""
    return f"sink.{sink.section}"


def name_problems(name: str) -> Iterator[str]:
    """Yield an error message for each reason why a field cannot have this name."""
    if not is_name(name):
        yield f"{name!r} is not a valid name; it must be printable, without spaces around it"
    if name.startswith("__"):
        yield f"{name!r} begins with two underscores, which windrow reserves for its own columns; rename it"


def result_names(spec: ResultSpec) -> list[tuple[str, str]]:
    """Return the path and the name of each result column of an operator."""
    if isinstance(spec.node, m.ProcessNode):
        return [(f"process.returns.{field.name}", field.name) for field in spec.node.process.returns]
    if isinstance(spec.node, m.RulesNode):
        return []
    return [(f"aggregate.{aggregate.name}", aggregate.name) for aggregate in spec.node.aggregates]


def _fields(records: Decoded) -> list[str]:
    return [field.name for field in records.decode.fields] + [derived.name for derived in records.derive]


def type_of(records: Decoded, text: str) -> m.DataType | None:
    """Return the type of a field, or of an expression over fields; None if the text is neither."""
    decoded = decoded_type(records, text)
    if decoded is not None or is_misspelt(records, text):
        return decoded
    given = next((field.type for field in valid_record_fields(records) if field.name == text), None)
    if given is not None:
        return given
    try:
        return analyse(text, valid_record_fields(records)).type
    except PipelineError:
        return None  # reported by the rule `expressions`


def valid_record_fields(records: Decoded) -> tuple[m.Field, ...]:
    """Return the fields of a record, leaving out derived fields with invalid expressions."""
    expressions = [(derived.name, derived_field(records, derived)) for derived in records.derive]
    derived = [m.Field(name, made.type) for name, made in expressions if isinstance(made, Expression)]
    return (*records.decode.fields, *derived)


def derived_field(records: Decoded, derived: m.Derive) -> Expression | PipelineError:
    """Return the expression of a derived field, or the error if the expression is invalid."""
    try:
        return analyse(derived.sql, records.decode.fields)
    except PipelineError as exc:
        return exc
