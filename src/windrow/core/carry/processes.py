"""States of keyed processes."""

from __future__ import annotations

import pyarrow as pa

from windrow.core import duck
from windrow.core.aggregates import fitted
from windrow.core.carry.groups import Groups
from windrow.core.operators.process import ProcessSummary
from windrow.core.packing import unpack
from windrow.core.process.held import HELD, Held
from windrow.core.process.shelves import KEYS, Directory, Shelves
from windrow.core.records import WATERMARK, record_schema
from windrow.core.state import MemoryState
from windrow.model import ProcessPipeline

_TEXT = pa.schema([("key", pa.string())])


def carry_process(pipeline: ProcessPipeline, states: list[MemoryState]) -> list[MemoryState]:
    """Take over what is kept of each key, and the records that are held."""
    groups, fields = Groups(pipeline, duck.connect()), _held_schema(pipeline)
    clocks = next(ProcessSummary.decode(blob).clocks for state in states if (blob := state.summary()) is not None)
    for state in states:
        for (kind, _), blob in state.items():
            table = unpack(blob)
            if kind == KEYS:
                groups.add_texts((KEYS, 0), table, table.select(["key"]).cast(_TEXT))
            else:
                groups.add((HELD, 0), fitted(table.select(fields.names), fields))
    made = []
    for tables in groups.tables():
        state, directory, held = MemoryState(), Directory(), Held()
        if (KEYS, 0) in tables:
            Shelves(directory, state).fill(tables[KEYS, 0])
        if (HELD, 0) in tables:
            held.put(tables[HELD, 0], state)
        state.set_summary(ProcessSummary(clocks, directory, held).encode())
        made.append(state)
    return made


def _held_schema(pipeline: ProcessPipeline) -> pa.Schema:
    """Return the schema of records that are held; `KeyedProcess` puts the watermark behind the others."""
    fields = list(record_schema(pipeline))
    return pa.schema(sorted(fields, key=lambda field: field.name == WATERMARK))
