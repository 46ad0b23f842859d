"""What happens when all partitions are silent."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.model import AnyPipeline


def all_idle(pipeline: AnyPipeline) -> Iterator[Finding]:
    """That all are idle means something only if one can be."""
    if pipeline.time.all_idle == "advance" and pipeline.time.idle is None:
        yield error("time.all_idle", "needs `idle`, after which a partition counts as silent, such as idle: 1m")
