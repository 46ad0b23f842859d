"""Local aggregate of salted keys: the stage that aggregates on-time records before the exchange by key.

A salted key's records are distributed over several key groups by their offsets. Each group aggregates its on-time
records of a step, which need no order, and sends these partial panes to the group of the key. All other records are
sent there unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from windrow.core import duckdb_sql, schema
from windrow.core.columns import MIN_TIME, pack, rescale, to_micros, unscale
from windrow.core.keys import KeyGroups, key_groups
from windrow.core.messages import Message, Packet, PartialPanes, Records
from windrow.core.operators.base import StepInput
from windrow.core.operators.window.assigner import on_time_for_all
from windrow.core.operators.window.sql import window_sql
from windrow.core.schema import TIME, WINDOW
from windrow.core.state.store import State
from windrow.core.watermarks.clocks import PartitionClocks
from windrow.core.watermarks.tracker import advance_clocks
from windrow.model import Pipeline


class LocalAggregate:
    """Judges a step's records and pre-aggregates those on time; `partitions` as an operator is given them."""

    def __init__(self, pipeline: Pipeline, partitions: Iterable[int]) -> None:
        self._pipeline = pipeline
        self._partitions = tuple(partitions)
        self._duck = duckdb_sql.connect()
        self._begin = window_sql(pipeline).begin
        self._keys = pa.schema(schema.key_fields(pipeline))

    def step(self, group: int, messages: Iterable[Message], state: State) -> Iterator[Packet]:
        """Run one step of one key group; yield the packets to the groups of the keys.

        Control messages are forwarded to the group of the same number, since every group gets them.
        """
        taken = list(messages)
        yield from (Packet(group, message) for message in taken if not isinstance(message, Records))
        given = StepInput.of(self._pipeline, taken)
        clocks, ended = _decode(state.summary(), self._partitions)
        time = advance_clocks(self._pipeline, clocks, given)
        times = to_micros(given.records.column(TIME))
        on_time, starts = on_time_for_all(self._pipeline.window, times, time.watermarks, ended)
        keys = given.records.select(list(self._pipeline.key))
        groups = key_groups(self._duck, keys, self._pipeline.key_groups)
        for to, rest in self._by_group(given.records.filter(pa.array(~on_time)), groups[~on_time]):
            yield Packet(to, Records(pack(rest)))
        records = unscale(given.records).append_column(WINDOW, pa.array(starts)).filter(pa.array(on_time))
        if records.num_rows:
            yield from self._parts(group, records, np.bincount(groups[on_time], minlength=self._pipeline.key_groups))
        if given.end:
            ended = max(ended, time.reached)
        state.set_summary(_encode(clocks, ended))

    def _parts(self, group: int, records: pa.Table, counts: KeyGroups) -> Iterator[Packet]:
        """Aggregate records by window and key; `counts` are how many of them each key group has."""
        parts = duckdb_sql.query(self._duck, self._begin, records=records)
        keys = rescale(parts.select(self._keys.names), self._keys)
        for to, part in self._by_group(parts, key_groups(self._duck, keys, self._pipeline.key_groups)):
            yield Packet(to, PartialPanes(group, int(counts[to]), pack(part)))

    def _by_group(self, rows: pa.Table, groups: KeyGroups) -> Iterator[tuple[int, pa.Table]]:
        for group in np.unique(groups).tolist():
            yield group, rows.filter(pa.array(groups == group))


def copy_clocks(known: State, state: State) -> None:
    """Begin with what a key group remembered elsewhere: the clocks, which all know; this stage knows nothing else."""
    summary = known.summary()
    if summary is not None:
        state.set_summary(summary)


def _encode(clocks: PartitionClocks, ended: int) -> bytes:
    return json.dumps({"clocks": clocks.encode(), "ended": ended}).encode()


def _decode(blob: bytes | None, partitions: Iterable[int]) -> tuple[PartitionClocks, int]:
    """Return the clocks, and how far event time had come when the input last ended."""
    if blob is None:
        return PartitionClocks.start(partitions), MIN_TIME
    fields = json.loads(blob)
    return PartitionClocks.decode(fields["clocks"]), fields["ended"]
