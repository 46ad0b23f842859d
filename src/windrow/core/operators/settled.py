"""Merged order: what depends on the order of records takes them by watermark, partition and offset, in every run.

A record is settled when no record can come before it any more: the low watermark has passed its own, or stands at it
and no partition with a lower number can still bring one of that watermark. The watermark of a partition never goes
back, so what is settled at the end of a step is a beginning of the merged order, wherever steps end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import duckdb_sql
from windrow.core.columns import MAX_TIME, Micros, to_micros, unpack
from windrow.core.duckdb_sql import identifier
from windrow.core.operators.base import Operator, OperatorOutput, OperatorStep
from windrow.core.schema import DIFF, ID, OFFSET, PARTITION, PLACE, SIDE, WATERMARK
from windrow.core.state.migrate import RowsByKeyGroup, StoredState
from windrow.core.state.store import MemoryState, OperatorState
from windrow.core.state.time_buffer import Mask, TimeBuffer
from windrow.core.state.widening import StateChange
from windrow.core.watermarks.tracker import StepTime
from windrow.expressions import View

_KIND: Final = "unsettled"

Order = npt.NDArray[np.intp]


class SettledOperator:
    """Gives an operator its records in the merged order, each as soon as it is settled."""

    def __init__(self, view: View, operator: Operator) -> None:
        self._view = view
        self._operator = operator
        self._duck = duckdb_sql.Connection()

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
        """Migrate the state of the operator, and the records that are held."""
        groups = RowsByKeyGroup(self._view, self._duck)
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


def in_merged_order(records: pa.Table) -> pa.Table:
    """Sort records by watermark, partition and offset; with the same ones by side of a join, and by what they are."""
    return _sorted(records, (*PLACE, SIDE) if SIDE in records.column_names else PLACE)


def in_log_order(records: pa.Table) -> pa.Table:
    """Sort records by partition and offset; with the same ones by what they are."""
    return _sorted(records, (PARTITION, OFFSET))


def _sorted(records: pa.Table, names: Sequence[str]) -> pa.Table:
    """Sort records by columns of whole numbers, and where these are the same by `ID`, if they have one."""
    if not records.num_rows:
        return records
    columns = [to_micros(records.column(name)) for name in names]
    order = np.lexsort(columns[::-1])
    if ID in records.column_names and len(rows := tied(columns, order)):
        ranks = np.zeros(records.num_rows, dtype=np.int64)
        ids = records.column(ID).take(pa.array(rows)).combine_chunks()
        ranks[rows] = pc.rank(_with_whole_numbers(ids), tiebreaker="dense").to_numpy()
        order = np.lexsort([ranks, *columns[::-1]])
    return records.take(pa.array(order))


def runs_of_equals(columns: Sequence[Micros]) -> Micros:
    """Number the runs of consecutive rows that have the same values in all of some columns, from 0 on."""
    is_first = np.zeros(len(columns[0]), dtype=np.bool_)
    for column in columns:
        is_first[1:] |= np.diff(column) != 0
    return np.cumsum(is_first)


def net_changes(connection: duckdb_sql.Connection, changes: pa.Table) -> pa.Table:
    """Return what the changes of equal rows at one place come to.

    A row that comes and is taken back at one place is in no stream: what reads the changes knows no order of these.
    """
    if not (to_micros(changes.column(DIFF)) < 0).any():
        return changes
    columns = ", ".join(
        f"sum({DIFF})::BIGINT AS {DIFF}" if name == DIFF else identifier(name) for name in changes.column_names
    )
    query = f"SELECT {columns} FROM changes GROUP BY ALL HAVING sum({DIFF}) <> 0 ORDER BY {', '.join(PLACE)}"
    return duckdb_sql.query(connection, query, changes=changes).cast(changes.schema)


def is_later_sql(one: str, other: str) -> str:
    """Return SQL for whether a row's place is after another's."""
    watermark, partition, offset = ((f"{one}.{name}", f"{other}.{name}") for name in PLACE)
    is_later = f"{' > '.join(partition)} OR ({' = '.join(partition)} AND {' > '.join(offset)})"
    return f"({' > '.join(watermark)} OR ({' = '.join(watermark)} AND ({is_later})))"


def tied(columns: Sequence[Micros], order: Order) -> Order:
    """Return the rows that have the same values in all of some columns as another one, which is next to it in order."""
    runs = runs_of_equals([column[order] for column in columns])
    rows: Order = order[np.bincount(runs)[runs] > 1]
    return rows


def _with_whole_numbers(ids: pa.Array) -> pa.Array:
    """Return ids in which the numbers of elements have as many digits, so that they are in order as text."""
    if not pc.any(pc.match_substring(ids, "#")).as_py():
        return ids
    padded = pc.replace_substring_regex(ids, r"#([0-9]+)", rf"#{'0' * _DIGITS}\1")
    return pc.replace_substring_regex(padded, rf"#[0-9]*([0-9]{{{_DIGITS}}})", r"#\1")


_DIGITS: Final = 10
"""An array in Arrow has less than 2**31 elements."""
_PADDED: Final = f"regexp_replace({ID}, '#([0-9]+)', '#{'0' * _DIGITS}\\1', 'g')"
ID_ORDER: Final = f"regexp_replace({_PADDED}, '#[0-9]*([0-9]{{{_DIGITS}}})', '#\\1', 'g')"
"""SQL for an `ID` as `in_merged_order` compares it."""


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
