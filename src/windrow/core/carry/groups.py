"""Rows by the key group of their key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa

from windrow.core import schema
from windrow.core.aggregates import rescale
from windrow.core.keygroups import key_groups
from windrow.core.packing import pack
from windrow.core.state import MemoryState
from windrow.model import AnyPipeline

Address = tuple[str, int]
"""The kind and bucket of a blob."""


class Groups:
    """Gathers rows of stored tables under the key groups that a pipeline has."""

    def __init__(self, pipeline: AnyPipeline, connection: duckdb.DuckDBPyConnection) -> None:
        self._duck = connection
        self._keys = pa.schema(schema.key_fields(pipeline))
        self._parts: list[dict[Address, list[pa.Table]]] = [defaultdict(list) for _ in range(pipeline.key_groups)]

    def add(self, address: Address, rows: pa.Table) -> None:
        """Add rows with the columns of the key, decimals unscaled or not."""
        keys = rows.select(self._keys.names)
        plain = keys if keys.schema.types == self._keys.types else rescale(keys, self._keys)
        self.add_texts(address, rows, plain)

    def add_texts(self, address: Address, rows: pa.Table, keys: pa.Table) -> None:
        """Add rows whose keys are given."""
        groups = key_groups(self._duck, keys, len(self._parts))
        for group in np.unique(groups).tolist():
            self._parts[group][address].append(rows.filter(pa.array(groups == group)))

    def tables(self) -> Iterator[dict[Address, pa.Table]]:
        """Go through the key groups: what each has, by kind and bucket."""
        for parts in self._parts:
            yield {address: pa.concat_tables(tables).combine_chunks() for address, tables in parts.items()}


def stored(tables: dict[Address, pa.Table]) -> MemoryState:
    """Return a state with a blob for each table."""
    state = MemoryState()
    for (kind, bucket), table in tables.items():
        state.set(kind, bucket, pack(table))
    return state
