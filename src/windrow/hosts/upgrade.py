"""From a savepoint to what a pipeline begins with that goes on from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from windrow.core.state import MemoryState
from windrow.hosts.meaning import meaning
from windrow.hosts.savepoint import Savepoint
from windrow.model import AnyPipeline


def upgraded(folder: Path, pipeline: AnyPipeline) -> tuple[Savepoint, Iterator[tuple[int, MemoryState]]]:
    """Return the savepoint in a folder as one of a pipeline that goes on from it, and its states."""
    savepoint = Savepoint.read(folder)
    given = replace(savepoint, key_groups=pipeline.key_groups, meaning=meaning(pipeline))
    return given, Savepoint.states(folder)
