"""Runs that read an embedded log: how far each has read it, by its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow import model as m
from windrow.errors import CheckpointError, InputError
from windrow.runtime.stream.checkpoint import Checkpoint
from windrow.telemetry.folders import Folder

if TYPE_CHECKING:
    from windrow.connectors.log.retention import Change
    from windrow.connectors.log.source import LogFolder

DEFAULT = Path(".windrow")


def readers_of(log: LogFolder, named: Sequence[Folder]) -> dict[str, dict[int, int]]:
    """Return the next offset of each partition by the checkpoint that has it: those named, and those in `DEFAULT`.

    Raise InputError if one that is named is no checkpoint of a run over the log, CheckpointError if it is damaged.
    """
    found = {}
    for folder in named:
        checkpoint = Checkpoint.read(folder)
        if checkpoint is None or (offsets := _offsets(checkpoint, log)) is None:
            msg = f"{folder} is not the checkpoint of a run that reads the log {log.path}: correct --checkpoint"
            raise InputError(msg)
        found[str(folder)] = offsets
    for path in sorted(DEFAULT.iterdir()) if DEFAULT.is_dir() else []:
        if path.is_dir() and str(path) not in found:
            try:
                Checkpoint.refuse_foreign(path)
            except CheckpointError:  # a folder of something else
                continue
            checkpoint = Checkpoint.read(path)
            if checkpoint is not None and (offsets := _offsets(checkpoint, log)) is not None:
                found[str(path)] = offsets
    return found


def refuse_unread(readers: Mapping[str, Mapping[int, int]], changes: Sequence[Change], log: str) -> None:
    """Raise InputError if a change removes records before which a run stands."""
    for folder, offsets in readers.items():
        for change in changes:
            at = offsets.get(change.partition, change.before.first.line)
            if at < change.upto:
                msg = (
                    f"the run of the checkpoint {folder} has read partition {change.partition} of {log} up to offset "
                    f"{at:,} only, and records before {change.upto:,} would go: let it catch up first, remove less, or "
                    "give --force"
                )
                raise InputError(msg)


def _offsets(checkpoint: Checkpoint, log: LogFolder) -> dict[int, int] | None:
    """Return how far a checkpoint is in a log, the least if it reads it more than once; None if it does not."""
    if "source" in checkpoint.meaning:
        numbers = [0] if _is(checkpoint.meaning["source"], log) else []
    else:
        at = checkpoint.note(checkpoint.batch).at
        numbers = [number for number, part in enumerate(at.get("sources", [at])) if _begins_as(part, log)]
    if not numbers:
        return None
    offsets = checkpoint.offsets()
    return {
        partition: min(offsets.get(number * m.MAX_PARTITIONS + partition, 0) for number in numbers)
        for partition in log.partitions()
    }


def _begins_as(part: Mapping[str, Any], log: LogFolder) -> bool:
    """Return whether the files of a log begin as those that a source of a graph has read: it keeps no paths."""
    marks = {name: at["head"] for name, at in part.items() if isinstance(at, dict) and "head" in at}
    there = {str(partition) for partition in log.partitions()}
    return bool(marks) and all(name in there and log.head(int(name)) == mark for name, mark in marks.items())


def _is(source: Mapping[str, Any], log: LogFolder) -> bool:
    """Return whether a source is this log; a relative path is taken from here, as the run was."""
    path = source.get("log", {}).get("path") or source.get("file", {}).get("log")
    return path is not None and Path(path).resolve() == log.path.resolve()
