"""Panes that hold only what is new since the one before."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.api.checks.early_parts import counts, ticks
from windrow.api.checks.finding import Finding, error, warning
from windrow.model import Pipeline, Session


def discard_panes(pipeline: Pipeline) -> Iterator[Finding]:
    """What the on-time pane holds must not depend on processing time; by counts, it depends on the records' order."""
    emit = pipeline.emit
    if emit.mode != "discard" or isinstance(pipeline.window, Session):
        return
    if ticks(emit.early):
        message = (
            "with mode discard the on-time pane holds what no early pane took, so `every` would let it depend on "
            "processing time, which a replay does not repeat; use retract or accumulate, or early: {count: 100}"
        )
        yield error("emit.early", message)
    elif counts(emit.early):
        message = (
            "with mode discard, which pane holds a record depends on the order of its key's records: "
            "it repeats only if each key lives in one partition"
        )
        yield warning("emit.early", message)
