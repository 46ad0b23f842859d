"""Late records that make revisions, counted by window and key, and split into chunks that fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import duckdb_sql
from windrow.engine.aggregates.catalogue import compile_aggregates
from windrow.engine.columns import pack, to_micros, unpack
from windrow.engine.duckdb_sql import identifier
from windrow.engine.merged_order import in_log_order
from windrow.engine.operators.window.sql import GROUP
from windrow.engine.schema import ID, PLACE, WINDOW
from windrow.engine.state.store import OperatorState
from windrow.engine.state.window_store import WindowSummary, is_in_windows, split_by_window, windows_in
from windrow.expressions import WindowSpec

WAITING_KIND: Final = "waiting"
"""The kind of blobs with late records that wait for their window to fire, or for their revision to be complete."""

_RANK: Final = "__rank"
_COUNT: Final = "__count"


def _window_and_key(spec: WindowSpec) -> str:
    return ", ".join([WINDOW, *(identifier(name) for name in spec.key)])


class LateGroups:
    """Groups the late records of each window and key by `number` in log order; each group makes one revision.

    An incomplete group waits in the state for more records, until its window is dropped.
    """

    def __init__(self, spec: WindowSpec, number: int, connection: duckdb_sql.Connection) -> None:
        self._number = number
        self._duck = connection
        by = _window_and_key(spec)
        self._group = f"""
            SELECT *, (row_number() OVER (PARTITION BY {by} ORDER BY {_RANK}) - 1) // {number} AS {GROUP},
                count(*) OVER (PARTITION BY {by}) AS {_COUNT}
            FROM late ORDER BY {_RANK}
        """

    def take_revisions(
        self, due: pa.Table, leaving: AbstractSet[int], summary: WindowSummary, state: OperatorState
    ) -> pa.Table:
        """Return the late records that make revisions in this step, with the number of the revision as GROUP.

        `due` are late records of windows that have fired; if they have an `ID`, it is not stored. Records of windows in
        `leaving` stop waiting: an incomplete group makes a revision too.
        """
        due = in_log_order(due)
        due = due.drop_columns(ID) if ID in due.column_names else due
        windows = windows_in(due) | (leaving & summary.waiting)
        if not windows:
            return due.append_column(GROUP, pa.array([], pa.int64()))
        stored = sorted(windows & summary.waiting)
        blobs = [blob for blob in (state.get(WAITING_KIND, window) for window in stored) if blob is not None]
        # records that waited before the step are before those of the step
        late = pa.concat_tables([due.slice(0, 0), *(unpack(blob).select(due.column_names) for blob in blobs), due])
        late = late.append_column(_RANK, pa.array(np.arange(late.num_rows)))
        late = duckdb_sql.query(self._duck, self._group, late=late)
        is_whole = np.less_equal((to_micros(late.column(GROUP)) + 1) * self._number, to_micros(late.column(_COUNT)))
        goes = pa.array(is_whole | is_in_windows(late, leaving))
        stays = late.filter(pc.invert(goes)).select(due.column_names)
        for window in set(stored) - windows_in(stays):
            state.drop(WAITING_KIND, window)
        for window, part in split_by_window(stays):
            state.set(WAITING_KIND, window, pack(part))
        summary.waiting = (summary.waiting - windows) | windows_in(stays)
        return late.filter(goes).select([*due.column_names, GROUP])


MAX_REVISIONS: Final = 256
"""Number of revisions of a window and key that are computed at once if accumulators grow with their records."""

_CHUNK: Final = "__chunk"


class LateChunks:
    """Splits late records into chunks small enough to hold an accumulator for each revision in memory."""

    def __init__(self, spec: WindowSpec, connection: duckdb_sql.Connection, place: Sequence[str] = PLACE[1:]) -> None:
        self._duck = connection
        self._keys = spec.key
        accumulators = (accumulator for aggregate in compile_aggregates(spec) for accumulator in aggregate.accumulators)
        self._grows = spec.node.emit.late != "batch" and any(
            accumulator.merge == "list" for accumulator in accumulators
        )
        # rows of one record make one revision: all elements of an array, all pairs of a join
        revision = f"dense_rank() OVER (PARTITION BY {_window_and_key(spec)} ORDER BY {', '.join(place)}) - 1"
        if isinstance(spec.node.emit.late, m.Records):
            revision = GROUP
        self._number = f"SELECT *, ({revision}) // {MAX_REVISIONS} AS {_CHUNK} FROM late"

    def of(self, late: pa.Table) -> Iterator[pa.Table]:
        """Yield late records in the order in which they revise a window and key, in at least one chunk."""
        if not self._grows or late.num_rows <= MAX_REVISIONS:
            yield late
            return
        numbered = duckdb_sql.query(self._duck, self._number, late=late)
        numbers = numbered.column(_CHUNK)
        for number in range(pc.max(numbers).as_py() + 1):
            yield numbered.filter(pc.equal(numbers, number)).drop_columns(_CHUNK)

    def join(self, changes: Iterable[pa.Table]) -> pa.Table:
        """Concatenate the changes of chunks by window and key, keeping the order of the chunks within each."""
        first, *others = changes
        if not others:
            return first
        rows = pa.concat_tables([first, *others])
        by = [(name, "ascending") for name in (*m.WINDOW_BOUNDS, *self._keys)]
        return rows.take(pc.sort_indices(rows, sort_keys=by))  # a stable sort
