"""The number of key groups."""

from __future__ import annotations

import os
from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error, warning
from windrow.model import AnyPipeline

_MOST = 32_768


def key_groups(pipeline: AnyPipeline) -> Iterator[Finding]:
    """Key groups are the upper bound of parallelism, for the pipeline's life."""
    groups, cores = pipeline.key_groups, os.cpu_count() or 1
    if not 1 <= groups <= _MOST:
        yield error("key_groups", f"must be 1 to {_MOST}, not {groups}")
    elif groups < cores:
        message = (
            f"{groups} groups keep at most {groups} of this machine's {cores} cores at work; give at least {cores}"
        )
        yield warning("key_groups", message)
