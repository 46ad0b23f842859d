"""The sink's key."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.finding import Finding, error
from windrow.api.checks.named import results, sink_path
from windrow.model import AnyPipeline, Pipeline


def sink_key(pipeline: AnyPipeline) -> Iterator[Finding]:
    """Two windows, and two keys, never share a row; and a row stays one when its values are revised."""
    key = pipeline.sink.key
    if not key:
        return
    where = f"{sink_path(pipeline.sink)}.key"
    # with mode discard each pane is a row of its own
    revision = ("revision",) if isinstance(pipeline, Pipeline) and pipeline.emit.mode == "discard" else ()
    missing = [name for name in ("window_start", *pipeline.key, *revision) if name not in key]
    if missing:
        yield error(
            where, f"lacks {', '.join(missing)}, so rows would overwrite each other; add it, or leave `key` out"
        )
    identity = ("window_start", "window_end", *pipeline.key, *revision)
    values = {name for _, name in results(pipeline)}
    for index, name in enumerate(key):
        if name in values:
            message = f"{name!r} is a result, which revisions change; a key is made of {', '.join(identity)}"
            yield error(f"{where}.{index}", message)
        elif name not in identity:
            yield error(f"{where}.{index}", f"there is no column {name!r}; a key is made of {', '.join(identity)}")
        if name in key[:index]:
            yield error(f"{where}.{index}", f"{name!r} is twice in the key; keep one of them")
