"""Fields that are computed of others."""

from __future__ import annotations

import re
from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.api.checks.named import is_name
from windrow.api.checks.typed import derived_field
from windrow.errors import PipelineError
from windrow.model import AnyPipeline, Derive


def derived_fields(pipeline: AnyPipeline) -> Iterator[Finding]:
    """Derived fields have names of their own, and expressions over the decoded fields alone."""
    seen = {field.name.lower(): field.name for field in pipeline.decode.fields}
    for derived in pipeline.derive:
        where = f"derive.{derived.name}"
        if not is_name(derived.name):
            yield error(where, f"{derived.name!r} is not a name; it must be printable and without blanks around it")
        if derived.name.startswith("__"):
            yield error(where, f"{derived.name!r} begins with two underscores, as windrow's own columns do; rename it")
        other = seen.get(derived.name.lower())
        if other is not None:
            yield error(where, f"there is a field {other!r} already (SQL ignores case); give this one another name")
        seen[derived.name.lower()] = derived.name
        made = derived_field(pipeline, derived)
        if isinstance(made, PipelineError):
            yield error(where, f"{made.message}{_of_another(pipeline, derived)}")


def _of_another(pipeline: AnyPipeline, derived: Derive) -> str:
    """Say so if an expression has another derived field's name in it."""
    words = set(re.findall(r"\w+", derived.sql))
    others = [other.name for other in pipeline.derive if other is not derived and other.name in words]
    return f"; a derived field is made of decoded ones alone, and {others[0]!r} is none" if others else ""
