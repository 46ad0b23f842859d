"""Fields that can be decoded and told apart."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.api.checks.named import is_name
from windrow.model import AnyPipeline


def decode_fields(pipeline: AnyPipeline) -> Iterator[Finding]:
    """There are fields, with printable names of their own that differ by more than case; times are always there."""
    if not pipeline.decode.fields:
        yield error("decode", "names no field; name the fields that a record must have, with their types")
    seen: dict[str, str] = {}
    for field in pipeline.decode.fields:
        where = f"decode.{field.name}"
        if not is_name(field.name):
            yield error(where, f"{field.name!r} is not a name; it must be printable and without blanks around it")
        if field.name.startswith("__"):
            yield error(where, f"{field.name!r} begins with two underscores, as windrow's own columns do; rename it")
        other = seen.setdefault(field.name.lower(), field.name)
        if other is not field.name:
            yield error(
                where, f"{field.name!r} and {other!r} are one column to SQL, which ignores case; keep one of them"
            )
        if field.optional and field.name in {pipeline.time.field, pipeline.time.sent}:
            yield error(where, f"a record without {field.name!r} has no event time: it cannot be optional")
    for field in pipeline.decode.fields:
        for index, name in enumerate(field.alias):
            other = seen.setdefault(name.lower(), name)
            if other is not name:
                yield error(
                    f"decode.{field.name}.alias.{index}",
                    f"{name!r} is the name of two fields (or differs from {other!r} in case only); keep one of them",
                )
