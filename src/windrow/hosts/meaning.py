"""What a checkpoint and a savepoint depend on: what their pipeline means."""

from __future__ import annotations

from typing import Any

from windrow.api.printing import to_dict
from windrow.model import AnyPipeline

Meaning = dict[str, Any]
"""A pipeline as plain JSON in the words of a pipeline file, with its key groups."""

FREE = {
    ("source", "log", "path"),
    ("source", "kafka", "servers"),
    ("source", "kafka", "options"),
    ("source", "kafka", "start"),
    ("emit", "at_end"),
    ("at_end",),
    ("sink",),
}
"""What no state depends on: where things are and how a bounded run ends, not what anything means."""


def meaning(pipeline: AnyPipeline) -> Meaning:
    """Return what the state of a pipeline depends on, and where its things are."""
    return to_dict(pipeline) | {"key_groups": pipeline.key_groups}
