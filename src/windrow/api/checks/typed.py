"""The types of fields and expressions."""

from __future__ import annotations

from windrow.api.checks.named import decoded_type, is_misspelt
from windrow.errors import PipelineError
from windrow.expressions import Expression, analyse
from windrow.model import AnyPipeline, DataType, Derive, Field


def type_of(pipeline: AnyPipeline, text: str) -> DataType | None:
    """Return the type of a field, decoded or derived, or of an expression over them; None if it is neither."""
    decoded = decoded_type(pipeline, text)
    if decoded is not None or is_misspelt(pipeline, text):
        return decoded
    given = next((field.type for field in record_fields(pipeline) if field.name == text), None)
    if given is not None:
        return given
    try:
        return analyse(text, record_fields(pipeline)).type
    except PipelineError:
        return None  # the rule `expressions` says why


def record_fields(pipeline: AnyPipeline) -> tuple[Field, ...]:
    """Return the fields of a record, without those whose expressions are wrong."""
    made = [(derived.name, derived_field(pipeline, derived)) for derived in pipeline.derive]
    derived = [Field(name, one.type) for name, one in made if isinstance(one, Expression)]
    return (*pipeline.decode.fields, *derived)


def derived_field(pipeline: AnyPipeline, derived: Derive) -> Expression | PipelineError:
    """Return what a derived field's expression is, or why it is none."""
    try:
        return analyse(derived.sql, pipeline.decode.fields)
    except PipelineError as exc:
        return exc
