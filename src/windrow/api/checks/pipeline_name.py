"""The pipeline's name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.model import AnyPipeline

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def pipeline_name(pipeline: AnyPipeline) -> Iterator[Finding]:
    """The name marks the pipeline's rows and checkpoint, so it is plain."""
    if not _NAME.fullmatch(pipeline.name):
        yield error(
            "name", f"{pipeline.name!r} must be 1 to 100 letters, digits, '.', '_' or '-', a letter or digit first"
        )
