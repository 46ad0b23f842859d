"""Questions that several rules ask about a pipeline: its names, and the types of its fields and expressions."""

from __future__ import annotations

import difflib
import re

from windrow import model as m
from windrow.errors import PipelineError
from windrow.expressions import Decoded, Expression, OperatorSpec, analyse, is_column

ResultSpec = OperatorSpec[m.ResultNode]


_WORD = re.compile(r"[^\W\d]\w*")


def decoded_type(records: Decoded, name: str) -> m.DataType | None:
    """Return the type of a decoded field, or None if there is no such field."""
    return next((field.type for field in records.decode.fields if field.name == name), None)


def is_field(records: Decoded, name: str) -> bool:
    """Whether it is the name of a field, decoded or derived."""
    return name in _fields(records)


def is_misspelt(records: Decoded, text: str) -> bool:
    """Whether a text looks like the name of a field but is not one; a value, such as true, is an expression."""
    return (
        _WORD.fullmatch(text) is not None
        and not is_field(records, text)
        and is_column(text, frozenset(_fields(records)))
    )


def no_field(records: Decoded, name: str) -> str:
    """Return the message that `name` is not a decoded field."""
    if is_field(records, name):
        return f"{name!r} is a derived field; name a field of decode"
    close = difflib.get_close_matches(name, _fields(records), n=1)
    hint = f"did you mean {close[0]!r}?" if close else "add it there with its type"
    return f"{name!r} is not a field of decode; {hint}"


def sink_path(sink: m.Sink) -> str:
    """Return the path of the sink's own mapping."""
    return f"sink.{sink.section}"


def result_names(spec: ResultSpec) -> list[tuple[str, str]]:
    """Return the columns of a pipeline's results: where each is declared, and its name."""
    if isinstance(spec.node, m.ProcessNode):
        return [(f"process.returns.{field.name}", field.name) for field in spec.node.process.returns]
    if isinstance(spec.node, m.RulesNode):
        return []
    return [(f"aggregate.{aggregate.name}", aggregate.name) for aggregate in spec.node.aggregates]


def _fields(records: Decoded) -> list[str]:
    return [field.name for field in records.decode.fields] + [derived.name for derived in records.derive]


def type_of(records: Decoded, text: str) -> m.DataType | None:
    """Return the type of a field, decoded or derived, or of an expression over them; None if it is neither."""
    decoded = decoded_type(records, text)
    if decoded is not None or is_misspelt(records, text):
        return decoded
    given = next((field.type for field in valid_record_fields(records) if field.name == text), None)
    if given is not None:
        return given
    try:
        return analyse(text, valid_record_fields(records)).type
    except PipelineError:
        return None  # the rule `expressions` says why


def valid_record_fields(records: Decoded) -> tuple[m.Field, ...]:
    """Return the fields of a record, without those whose expressions are wrong."""
    made = [(derived.name, derived_field(records, derived)) for derived in records.derive]
    derived = [m.Field(name, one.type) for name, one in made if isinstance(one, Expression)]
    return (*records.decode.fields, *derived)


def derived_field(records: Decoded, derived: m.Derive) -> Expression | PipelineError:
    """Return the expression of a derived field, or the error in it."""
    try:
        return analyse(derived.sql, records.decode.fields)
    except PipelineError as exc:
        return exc
