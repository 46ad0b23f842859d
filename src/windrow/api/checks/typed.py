"""The types of fields and expressions."""

from __future__ import annotations

from windrow.api.checks.named import decoded_type
from windrow.model import AnyPipeline, DataType


def type_of(pipeline: AnyPipeline, text: str) -> DataType | None:
    """Return the type of a field, decoded or derived, or of an expression over them; None if it is neither."""
    return decoded_type(pipeline, text)
