"""The fields of the key."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.api.checks.named import is_field, is_misspelt, no_field
from windrow.api.checks.typed import type_of
from windrow.model import AnyPipeline, DoubleType

_NAMED = "an expression needs a name here, such as {domain: \"split_part(url, '/', 3)\"}"


def key_fields(pipeline: AnyPipeline) -> Iterator[Finding]:
    """There is a key, of decoded fields, each once, and none a double."""
    if not pipeline.key:
        yield error("key", "is empty; name the fields that results are kept for, such as [user_id]")
    for index, name in enumerate(pipeline.key):
        where = f"key.{index}"
        type_ = type_of(pipeline, name)
        if not is_field(pipeline, name):
            word = is_misspelt(pipeline, name)
            yield error(where, no_field(pipeline, name) if word else f"{name!r} is no field; {_NAMED}")
        if isinstance(type_, DoubleType):
            yield error(
                where, f"{name!r} is a double, and equal doubles can differ in text; use a decimal, long or string"
            )
        if any(field.name == name and field.optional for field in pipeline.decode.fields):
            yield error(
                where,
                f"{name!r} is optional, and a key is always there; derive one that is: coalesce({name}, ...)",
            )
        if name in pipeline.key[:index]:
            yield error(where, f"{name!r} is twice in the key; keep one of them")
