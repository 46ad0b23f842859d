"""Merged order: records by watermark, partition and offset, for operators that depend on the order of records.

A record is settled when no other record can precede it any more. This is so if the low watermark has passed the
record's own watermark, or is equal to it and no partition with a lower number can still deliver a record with that
watermark. The watermark of a partition never decreases, so the records that are settled at the end of a step are always
a prefix of the merged order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql
from windrow.engine.columns import MAX_TIME, to_micros, unpack
from windrow.engine.duckdb_sql import identifier
from windrow.engine.merged_order import in_merged_order
from windrow.engine.operators.base import Operator, OperatorOutput, OperatorStep, StepTime
from windrow.engine.operators.route import input_schema
from windrow.engine.schema import DIFF, PARTITION, PLACE, WATERMARK
from windrow.engine.state.migrate import RowsByKeyGroup, StoredState
from windrow.engine.state.store import MemoryState, OperatorState, StoreKind
from windrow.engine.state.time_buffer import Mask, TimeBuffer
from windrow.engine.state.widening import StateChange
from windrow.expressions import AnySpec, spec_of

_KIND: Final = "unsettled"


def settle_ordered(graph: m.Graph, node: m.KeyedNode, operator: Operator) -> Operator:
    """Return the operator, wrapped by `settle` if the node's stream depends on the order of its records."""
    return settle(graph, node, operator) if graph.is_ordered(node) else operator


def settle(graph: m.Graph, node: m.KeyedNode, operator: Operator) -> Operator:
    """Wrap an operator so that it receives its records in the merged order."""
    return SettledOperator(spec_of(graph, node), operator, input_schema(graph, node))


class SettledOperator:
    """Passes records to an operator in the merged order, as soon as each is settled; `records` is their schema."""

    def __init__(self, spec: AnySpec, operator: Operator, records: pa.Schema) -> None:
        self._spec = spec
        self._operator = operator
        self._records = records
        self._duck = duckdb_sql.Connection()

    @property
    def state(self) -> Mapping[str, StoreKind]:
        """The kinds of blobs of the inner operator, and the buffer of unsettled records."""
        return {**self._operator.state, _KIND: "buffer"}

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        fields = dict(state.summary or {})
        held = _buffer(fields.pop(_KIND, None))
        time = step.time
        bound = MAX_TIME if time.end or time.low == MAX_TIME else time.low + 1
        records = held.turn(step.records, bound, state, lambda table: _settled(table, time))
        own = OperatorState(state.name, state.blobs, fields or None)
        output = self._operator.process(replace(step, records=in_merged_order(records)), own)
        held.close(state)
        state.summary = {**own.summary, _KIND: held.encode()}
        return output

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:
        """Migrate the state of the inner operator, and the buffered records."""
        groups = RowsByKeyGroup(self._spec, self._duck, {_KIND: self._records})
        inner: list[StoredState] = []
        for summary, state in states:
            own = MemoryState()
            for (kind, bucket), blob in state.items():
                if kind == _KIND:
                    groups.add((_KIND, 0), unpack(blob))
                else:
                    own.set(kind, bucket, blob)
            inner.append(({name: value for name, value in summary.items() if name != _KIND}, own))
        made: list[StoredState] = []
        migrated = self._operator.migrate(change, low, inner)
        for (summary, state), tables in zip(migrated, groups.tables(), strict=True):
            held = _buffer(None)
            if (_KIND, 0) in tables:
                held.put(tables[_KIND, 0], state)
            made.append(({**summary, _KIND: held.encode()}, state))
        return made


class NetOperator:
    """Reduces the changes that an operator makes at one position to their net effect, for streams.

    When a session fires, late records that waited for it extend its row at once. The shorter row is then inserted and
    deleted at the same position.
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._duck = duckdb_sql.Connection()

    @property
    def state(self) -> Mapping[str, StoreKind]:
        """The kinds of blobs of the inner operator."""
        return self._operator.state

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        output = self._operator.process(step, state)
        return replace(output, records=tuple(net_changes(self._duck, changes) for changes in output.records))

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:
        """Migrate the state of the inner operator."""
        return self._operator.migrate(change, low, states)


def net_changes(connection: duckdb_sql.Connection, changes: pa.Table) -> pa.Table:
    """Return the net changes of equal rows at the same position.

    A row that is inserted and deleted at the same position appears in no stream, because readers see no order among the
    changes at one position.
    """
    if not (to_micros(changes.column(DIFF)) < 0).any():
        return changes
    columns = ", ".join(
        f"sum({DIFF})::BIGINT AS {DIFF}" if name == DIFF else identifier(name) for name in changes.column_names
    )
    query = f"SELECT {columns} FROM changes GROUP BY ALL HAVING sum({DIFF}) <> 0 ORDER BY {', '.join(PLACE)}"
    return duckdb_sql.query(connection, query, changes=changes).cast(changes.schema)


def _settled(records: pa.Table, time: StepTime) -> Mask:
    if time.end:
        return np.ones(records.num_rows, dtype=np.bool_)
    watermarks = to_micros(records.column(WATERMARK))
    partitions = to_micros(records.column(PARTITION))
    settled: Mask = (watermarks < time.low) | ((watermarks == time.low) & (partitions <= time.last_settled))
    return settled


def _buffer(fields: Any) -> TimeBuffer:  # noqa: ANN401 - plain JSON
    if fields is None:
        return TimeBuffer(column=WATERMARK, kind=_KIND)
    return TimeBuffer.decode(fields, WATERMARK, _KIND)
