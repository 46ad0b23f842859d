"""Samples: every n-th record of each key, counted in the merged order.

The number of a record in the merged order depends on the logs alone. So a sample depends neither on how the log is cut
into steps nor on the number of key groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from windrow import model as m
from windrow.engine import duckdb_sql
from windrow.engine.columns import MAX_TIME
from windrow.engine.duckdb_sql import identifier
from windrow.engine.operators.base import Operator, OperatorOutput, OperatorStep
from windrow.engine.operators.settled import settle_ordered
from windrow.engine.schema import TIME, record_schema
from windrow.engine.state.migrate import RowsByKeyGroup, StoredState
from windrow.engine.state.runs import Runs, migrate_runs
from windrow.engine.state.store import OperatorState, StoreKind
from windrow.engine.state.widening import StateChange
from windrow.expressions import OperatorSpec, spec_of

_COUNTS: Final = "counts"
_COUNT: Final = "__count"
_NUMBER: Final = "__number"


def build_sample(graph: m.Graph, node: m.SampleNode) -> Operator:
    """Return the operator for a sample node."""
    return settle_ordered(graph, node, SampleOperator(spec_of(graph, node)))


class SampleOperator:
    """Emits each record whose number within its key is a multiple of `every`; records must come in the merged order.

    The state counts the records of each key so far. Each step adds its counts as separate rows, which are added up when
    runs are merged. No key is ever forgotten.
    """

    state: Final[Mapping[str, StoreKind]] = {_COUNTS: "runs"}

    def __init__(self, spec: OperatorSpec[m.SampleNode]) -> None:
        self._spec = spec
        self._duck = duckdb_sql.Connection()
        fields = [record_schema(spec).field(name) for name in spec.node.key]
        self._stored = pa.schema([*fields, pa.field(_COUNT, pa.int64()), pa.field(TIME, pa.int64())])
        by = ", ".join(map(identifier, spec.node.key))
        self._counts = f"SELECT {by}, sum({_COUNT})::BIGINT AS {_COUNT}, 0 AS {TIME} FROM counts GROUP BY {by}"
        self._added = f"SELECT {by}, count(*) AS {_COUNT}, 0 AS {TIME} FROM records GROUP BY {by}"
        self._sampled = f"""
            WITH numbered AS (
                SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY {_NUMBER}) AS __place FROM records
            ),
            before AS (SELECT {by}, sum({_COUNT}) AS {_COUNT} FROM stored SEMI JOIN records USING ({by}) GROUP BY {by})
            SELECT {_NUMBER} FROM numbered LEFT JOIN before USING ({by})
            WHERE (__place + coalesce({_COUNT}, 0)) % {spec.node.every} = 0 ORDER BY {_NUMBER}
        """

    def process(self, step: OperatorStep, state: OperatorState) -> OperatorOutput:
        """Run one step of one key group."""
        runs = Runs.decode(_COUNTS, (state.summary or {}).get(_COUNTS))
        records, sampled = step.records, step.records.slice(0, 0)
        if records.num_rows:
            keys = records.select(list(self._spec.node.key))
            keys = keys.append_column(_NUMBER, pa.array(np.arange(records.num_rows)))
            stored = runs.table(self._stored, state)
            rows = duckdb_sql.query(self._duck, self._sampled, records=keys, stored=stored).column(_NUMBER)
            sampled = records.take(rows.combine_chunks())
            added = duckdb_sql.query(self._duck, self._added, records=keys).cast(self._stored)
            runs.add(added, -MAX_TIME, state, self._compact)
        state.summary = {_COUNTS: runs.encode()}
        return OperatorOutput(records=(sampled,))

    def migrate(self, change: StateChange, low: int, states: Sequence[StoredState]) -> list[StoredState]:  # noqa: ARG002 - no type is widened
        """Migrate the counts to their new key groups."""
        return migrate_runs(RowsByKeyGroup(self._spec, self._duck), states)

    def _compact(self, rows: pa.Table, is_all: bool) -> pa.Table:  # noqa: ARG002, FBT001 - as `Compaction` has it
        """Add up the counts of each key."""
        return duckdb_sql.query(self._duck, self._counts, counts=rows).cast(self._stored)
