"""From a savepoint to what a pipeline begins with that goes on from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from windrow.core.state.migrate import migrate
from windrow.core.state.store import MemoryState
from windrow.core.state.widening import StateChange, incompatible_fields
from windrow.errors import CheckpointError
from windrow.hosts.changed import Change, changes, type_text
from windrow.hosts.meaning import Meaning, meaning
from windrow.hosts.savepoint import Savepoint
from windrow.model import AnyPipeline, Field, ProcessPipeline, parse_duration, parse_field_type


def meant(folder: Path, pipeline: AnyPipeline) -> list[Change]:
    """Return what has changed since the savepoint in a folder, and what that means.

    Raise CheckpointError if the pipeline cannot go on from there.
    """
    kept, now = Savepoint.read(folder).meaning, meaning(pipeline)
    found = [_held(pipeline, change) for change in changes(kept, now)]
    if all(change.means is not None for change in found):
        reasons = {f"decode.{name}": why for name, why in incompatible_fields(pipeline, _plan(kept, now)).items()}
        found = [change.refused(why) if (why := reasons.get(change.field)) else change for change in found]
    refused = [change for change in found if change.means is None]
    if refused:
        listed = "\n  ".join(change.text for change in refused)
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
    # a topic at other servers is one that was moved there: it has another id, and the same offsets
    moved = _servers(savepoint.meaning) != _servers(now)
    identity = None if moved else savepoint.identity
    given = replace(savepoint, key_groups=pipeline.key_groups, meaning=now, identity=identity)
    plan = _plan(savepoint.meaning, now)
    if plan == _plan(now, now) and savepoint.key_groups == pipeline.key_groups:
        return given, Savepoint.states(folder)
    return given, iter(enumerate(migrate(pipeline, plan, (state for _, state in Savepoint.states(folder)))))


def _servers(of: Meaning) -> str | None:
    servers: str | None = of["source"].get("kafka", {}).get("servers")
    return servers


def _plan(kept: Meaning, now: Meaning) -> StateChange:
    before, after = list(kept.get("aggregate", {})), now.get("aggregate", {})
    return StateChange(
        tuple(before.index(name) if name in before else None for name in after),
        parse_duration(kept.get("emit", {}).get("lateness", "0s")),
        same_records=all(
            list(kept.get(name, {}).items()) == list(now.get(name, {}).items())
            for name in ("decode", "derive", "aggregate")
        ),
        were=tuple(_were(kept.get("decode", {}), now.get("decode", {}))),
    )


def _were(kept: dict[str, Any], now: dict[str, Any]) -> Iterator[Field]:
    """Go through the decoded fields that are of another type now, or may be lacking now, as they were."""
    for name in sorted(kept.keys() & now.keys()):
        texts = type_text(kept[name]), type_text(now[name])
        if texts[0] != texts[1]:
            yield Field(name, *parse_field_type(texts[0]))


def _held(pipeline: AnyPipeline, change: Change) -> Change:
    """Return a change, refused if a process holds records until their time has come that it would be lacking in."""
    is_held = isinstance(pipeline, ProcessPipeline) and pipeline.process.order == "event_time"
    is_of_records = change.field.startswith(("decode.", "derive."))
    if is_held and is_of_records and (change.there is None or change.here is None):
        return change.refused("records that are held until their time has come were read without it")
    return change
