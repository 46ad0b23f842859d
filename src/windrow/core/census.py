"""What the states of key groups hold, counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from windrow.core.clocks import Clocks
from windrow.core.operators.slices import windows_of_slices
from windrow.core.packing import unpack
from windrow.core.state import MemoryState
from windrow.model import AnyPipeline, Hopping, Pipeline


@dataclass(frozen=True)
class GroupCensus:
    """What one key group holds: its bytes, its keys, and its blobs (panes by window, slices, buckets of keys)."""

    group: int
    bytes: int
    keys: int
    blobs: int


@dataclass(frozen=True)
class Census:
    """What all hold: the clocks, which every key group knows (None before the first step), open and fired windows.

    `windows` are those that are open in some key group (sessions: of some key), `revisable` those that have fired and
    are kept, but for sessions. `kinds` are the bytes by kind of blob, `largest` the greatest blobs as
    (bytes, key group, kind, bucket).
    """

    clocks: Clocks | None
    windows: int
    revisable: int
    groups: tuple[GroupCensus, ...]
    kinds: dict[str, int]
    largest: tuple[tuple[int, int, str, int], ...]


def take_census(pipeline: AnyPipeline, states: Iterable[tuple[int, MemoryState]], largest: int = 5) -> Census:
    """Count what the key groups of a pipeline hold."""
    clocks: Clocks | None = None
    open_windows: set[int] = set()
    fired: set[int] = set()
    sessions = 0
    groups: list[GroupCensus] = []
    kinds: Counter[str] = Counter()
    blobs: list[tuple[int, int, str, int]] = []
    for group, state in states:
        summary = state.summary()
        if summary is not None:
            fields = json.loads(summary)
            clocks = Clocks.decode(fields["clocks"])
            open_windows.update(fields.get("open", ()))
            open_windows |= _of_slices(pipeline, fields, clocks.low)
            fired.update(fields.get("fired", ()))
            sessions += sum(bucket[-1] for bucket in fields.get("buckets", ()))
        found: list[pa.Table] = []
        count = 0
        for (kind, bucket), blob in state.items():
            count += 1
            kinds[kind] += len(blob)
            blobs.append((len(blob), group, kind, bucket))
            table = unpack(blob)
            found.append(table.select(["key"] if kind == "keys" else list(pipeline.key)))
        blobs = sorted(blobs, reverse=True)[:largest]
        groups.append(GroupCensus(group, state.size, _different(found), count))
    return Census(
        clocks, len(open_windows) + sessions, len(fired), tuple(groups), dict(sorted(kinds.items())), tuple(blobs)
    )


def _of_slices(pipeline: AnyPipeline, summary: Any, low: int) -> set[int]:  # noqa: ANN401 - plain JSON
    """Return the hopping windows that slices are held for."""
    slices = dict(summary.get("slices", ())).get(0, ())
    if not isinstance(pipeline, Pipeline) or not isinstance(pipeline.window, Hopping) or not slices:
        return set()
    return windows_of_slices(pipeline.window, slices, low)


def _different(tables: list[pa.Table]) -> int:
    """Return how many keys are in some tables; those of a process come as text too."""
    return max((_count([one for one in tables if one.schema.names == names]) for names in _names(tables)), default=0)


def _names(tables: list[pa.Table]) -> list[list[str]]:
    return list({tuple(table.schema.names): table.schema.names for table in tables}.values())


def _count(tables: list[pa.Table]) -> int:
    rows = pa.concat_tables(tables)
    return int(rows.group_by(rows.column_names).aggregate([]).num_rows)
