"""Late records in as many as are told one by one at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from windrow.core import duck
from windrow.core.aggregates import folds
from windrow.core.duck import identifier
from windrow.core.records import OFFSET, PARTITION, WINDOW
from windrow.model import Pipeline

MOST: Final = 256
"""So many revisions of a window and key are made at once, where each holds a state that grows with its records."""

_CHUNK: Final = "__chunk"


class LateChunks:
    """Cuts late records, so that the revisions of a chunk fit into memory with a state each."""

    def __init__(self, pipeline: Pipeline, connection: duckdb.DuckDBPyConnection) -> None:
        self._duck = connection
        self._keys = pipeline.key
        accumulators = (accumulator for one in folds(pipeline) for accumulator in one.accumulators)
        self._grows = pipeline.emit.late == "each" and any(one.merge == "list" for one in accumulators)
        by = ", ".join([WINDOW, *(identifier(name) for name in pipeline.key)])
        self._number = f"""
            SELECT *, (row_number() OVER (PARTITION BY {by} ORDER BY {PARTITION}, {OFFSET}) - 1) // {MOST} AS {_CHUNK}
            FROM late
        """

    def of(self, late: pa.Table) -> Iterator[pa.Table]:
        """Yield late records in the order in which they revise a window and key; there is one chunk at least."""
        if not self._grows or late.num_rows <= MOST:
            yield late
            return
        numbered = duck.query(self._duck, self._number, late=late)
        numbers = numbered.column(_CHUNK)
        for number in range(pc.max(numbers).as_py() + 1):
            yield numbered.filter(pc.equal(numbers, number)).drop_columns(_CHUNK)

    def joined(self, changes: Iterable[pa.Table]) -> pa.Table:
        """Join the changes of chunks: by window and key, and those of each in the order of the chunks."""
        first, *others = changes
        if not others:
            return first
        rows = pa.concat_tables([first, *others])
        by = [(name, "ascending") for name in ("window_start", *self._keys)]
        return rows.take(pc.sort_indices(rows, sort_keys=by))  # a stable sort
