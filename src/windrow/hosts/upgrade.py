"""From a savepoint to what a pipeline begins with that goes on from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from windrow.core.carry import Plan, carry
from windrow.core.state import MemoryState
from windrow.errors import CheckpointError
from windrow.hosts.changed import Change, changes
from windrow.hosts.meaning import Meaning, meaning
from windrow.hosts.savepoint import Savepoint
from windrow.model import AnyPipeline, ProcessPipeline, parse_duration


def meant(folder: Path, pipeline: AnyPipeline) -> list[Change]:
    """Return what has changed since the savepoint in a folder, and what that means.

    Raise CheckpointError if the pipeline cannot go on from there.
    """
    found = changes(Savepoint.read(folder).meaning, meaning(pipeline))
    refused = [change for change in found if change.means is None or _holds_records(pipeline, change)]
    if refused:
        listed = "\n  ".join(replace(change, means=None).text for change in refused)
        msg = (
            f"the pipeline cannot go on from the savepoint {folder}, as what it knows would mean something else:\n"
            f"  {listed}\nleave that as it was, or begin anew (windrow run --backfill reads the log again)"
        )
        raise CheckpointError(msg)
    return found


def upgraded(folder: Path, pipeline: AnyPipeline) -> tuple[Savepoint, Iterator[tuple[int, MemoryState]]]:
    """Return the savepoint in a folder as one of a pipeline that goes on from it, and its states.

    Raise CheckpointError as `meant` does, and where a file is damaged.
    """
    meant(folder, pipeline)
    savepoint, now = Savepoint.read(folder), meaning(pipeline)
    given = replace(savepoint, key_groups=pipeline.key_groups, meaning=now)
    plan = _plan(savepoint.meaning, now)
    if plan == _plan(now, now) and savepoint.key_groups == pipeline.key_groups:
        return given, Savepoint.states(folder)
    return given, iter(enumerate(carry(pipeline, plan, (state for _, state in Savepoint.states(folder)))))


def _plan(kept: Meaning, now: Meaning) -> Plan:
    before, after = list(kept.get("aggregate", {})), now.get("aggregate", {})
    return Plan(
        tuple(before.index(name) if name in before else None for name in after),
        parse_duration(kept.get("emit", {}).get("lateness", "0s")),
        same_records=all(
            list(kept.get(name, {}).items()) == list(now.get(name, {}).items())
            for name in ("decode", "derive", "aggregate")
        ),
    )


def _holds_records(pipeline: AnyPipeline, change: Change) -> bool:
    """Return whether a change is of records that a process holds until their time has come."""
    is_held = isinstance(pipeline, ProcessPipeline) and pipeline.process.order == "event_time"
    return is_held and change.field.startswith(("decode.", "derive."))
