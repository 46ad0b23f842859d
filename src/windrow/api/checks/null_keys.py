"""Keys that can be null."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, warning
from windrow.api.checks.typed import derived_field
from windrow.expressions import Expression
from windrow.model import AnyPipeline


def null_keys(pipeline: AnyPipeline) -> Iterator[Finding]:
    """A record whose derived key is null belongs to no key."""
    for index, name in enumerate(pipeline.key):
        for derived in pipeline.derive:
            made = derived_field(pipeline, derived) if derived.name == name else None
            if isinstance(made, Expression) and made.nullable:
                message = (
                    f"{name!r} can be null, and a record for which it is goes to {pipeline.sink.table}_dead; "
                    f"if it should not, give it another value there: coalesce({derived.sql}, ...)"
                )
                yield warning(f"key.{index}", message)
