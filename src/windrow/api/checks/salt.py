"""Keys that are spread over several key groups."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.model import Global, Pipeline, Session


def salt(pipeline: Pipeline) -> Iterator[Finding]:
    """A key's parts come together window by window, and nothing looks at them before."""
    if not 1 <= pipeline.salt <= max(pipeline.key_groups, 1):
        yield error("salt", f"must be 1 to key_groups ({pipeline.key_groups}), not {pipeline.salt}")
    if pipeline.salt <= 1:
        return
    if isinstance(pipeline.window, Session | Global):
        kind = "sessions" if isinstance(pipeline.window, Session) else "a global window"
        yield error("salt", f"is for tumbling and hopping windows, not for {kind}; leave it out")
    if pipeline.emit.early is not None:
        yield error("salt", "spreads a key's records, which early panes look at in one place; leave one out")
