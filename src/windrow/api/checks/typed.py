"""The types of fields and expressions."""

from __future__ import annotations

from windrow.api.checks.named import decoded_type
from windrow.model import DataType, Pipeline


def type_of(pipeline: Pipeline, text: str) -> DataType | None:
    """Return the type of a field, decoded or derived, or of an expression over them; None if it is neither."""
    return decoded_type(pipeline, text)
