"""Local aggregation of salted keys: on-time records are aggregated before the exchange by key.

The records of a salted key are distributed over several key groups by their offsets. Each of these groups aggregates
its on-time records of a step, whose order does not matter, and sends the partial panes to the group of the key. It
sends all other records there unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from windrow.engine import duckdb_sql, schema
from windrow.engine.columns import pack, rescale, to_micros, unscale
from windrow.engine.keys import KeyGroups, key_groups, split_by_group
from windrow.engine.messages import Packet, PartialPanes, Records
from windrow.engine.operators.base import Judged, OperatorOutput, OperatorStep
from windrow.engine.operators.window.assigner import on_time_for_all
from windrow.engine.operators.window.sql import WindowSql
from windrow.engine.schema import TIME, WATERMARK, WINDOW
from windrow.engine.state.migrate import StoredState
from windrow.engine.state.store import MemoryState, OperatorState, StoreKind
from windrow.engine.state.widening import StateChange
from windrow.expressions import WindowSpec, key_of


class LocalAggregate:
    """Judges the records of a step and pre-aggregates the on-time records for the node called `name`, without state."""

    state: Final[Mapping[str, StoreKind]] = {}

    def __init__(self, name: str, spec: WindowSpec) -> None:
        self._name = name
        self._spec = spec
        self._duck = duckdb_sql.Connection(spec.key)
        self._begin = WindowSql(spec).begin
        self._keys = pa.schema(schema.key_fields(key_of(spec)))

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:  # noqa: ARG002 - no state
        """Run one step of one key group; packets are addressed to the key groups of the keys."""
        times, watermarks = (to_micros(step.records.column(name)) for name in (TIME, WATERMARK))
        on_time, starts = on_time_for_all(self._spec.node.window, times, watermarks, step.time.fired_until)
        groups = self._groups(step.records)
        late = step.records.filter(pa.array(~on_time))
        packets = [Packet(to, Records(self._name, pack(rest))) for to, rest in split_by_group(late, groups[~on_time])]
        records = unscale(step.records).append_column(WINDOW, pa.array(starts)).filter(pa.array(on_time))
        if records.num_rows:
            packets += self._parts(step.group, records)
        judged = (Judged.of_all(records.drop_columns(WINDOW), expired=False),)
        return OperatorOutput(packets=tuple(packets), judged=judged)

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no state
        """Return an empty state for each key group."""
        return [(None, MemoryState()) for _ in range(self._spec.key_groups)]

    def _parts(self, group: int, records: pa.Table) -> Iterator[Packet]:
        """Aggregate records by window and key, and yield packets with the partial panes."""
        parts = duckdb_sql.query(self._duck, self._begin, records=records)
        for to, part in split_by_group(parts, self._groups(parts)):
            yield Packet(to, PartialPanes(self._name, group, pack(part)))

    def _groups(self, rows: pa.Table) -> KeyGroups:
        """Return the key group of each row; decimals in the key may be scaled or unscaled."""
        keys = rows.select(self._keys.names)
        plain = keys if keys.schema.types == self._keys.types else rescale(keys, self._keys)
        return key_groups(self._duck, plain, self._spec.key_groups)
