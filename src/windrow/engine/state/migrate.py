"""State migration: operators rewrite the states of a run for a pipeline that resumes from its savepoint.

The pipeline may have different aggregates, wider types, a different lateness and a different number of key groups;
`StateChange` describes the differences. Rows of stored tables move to the new key group of their key. The summaries of
all key groups are merged, and each key group gets the part of the merged summary that describes its blobs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from windrow import model as m
from windrow.engine import duckdb_sql, schema
from windrow.engine.aggregates.catalogue import compile_aggregates
from windrow.engine.columns import pack, rescale, unscale
from windrow.engine.decode.evaluation import Evaluator
from windrow.engine.duckdb_sql import identifier
from windrow.engine.keys import KeyGroups, key_groups, place_groups, split_by_group
from windrow.engine.schema import DELETED, arrow_type, record_schema
from windrow.engine.state.store import MemoryState
from windrow.engine.state.widening import StateChange, added_digits, why_not_wider, widen
from windrow.engine.truncations import split_truncations
from windrow.expressions import AnySpec, Computed, WindowSpec, arguments, computed, key_of

StoredState = tuple[Any, MemoryState]
"""An operator's state in a key group: its part of the summary (None in the first step), and its blobs."""

_ACCUMULATOR = re.compile(r"__a(\d+)(.*)")
_COMPUTED = re.compile(r"__e\d+")


class StoredColumns:
    """Converts the columns of stored tables to those of a pipeline; new aggregates start without records."""

    def __init__(self, spec: WindowSpec, plan: StateChange, connection: duckdb_sql.Connection) -> None:
        self._spec = spec
        self._plan = plan
        accumulators = [accumulator for fold in compile_aggregates(spec) for accumulator in fold.accumulators]
        self._names = [accumulator.column for accumulator in accumulators]
        self._no_records = unscale(record_schema(spec).empty_table())
        begin = ", ".join(f"{accumulator.begin} AS {identifier(accumulator.column)}" for accumulator in accumulators)
        sql = f"SELECT {begin or '0 AS __none'} FROM records"
        self._nothing = duckdb_sql.query(connection, sql, records=self._no_records)
        was = plan.before(spec)
        self._were = pa.schema([pa.field(field.name, arrow_type(field.type)) for field in was.decode.fields])
        self._columns = computed(was)
        self._recomputed = [
            here.name
            for there, here in zip(self._columns, computed(spec), strict=True)
            if why_not_wider(there.expression.type, here.expression.type) is not None
        ]
        self._shifts = [
            sum(added_digits(there.type, here.type) for there, here in zip(*both, strict=True))
            for both in zip(arguments(was), arguments(spec), strict=True)
        ]

    def panes(self, table: pa.Table) -> pa.Table:
        """Return stored panes with the accumulators of the pipeline; the columns are keys, accumulators, and others."""
        before = [name for name in table.column_names if _ACCUMULATOR.fullmatch(name)]
        same_aggregates = self._plan.aggregates == tuple(range(len(self._plan.aggregates))) and before == self._names
        if same_aggregates and not self._plan.were:
            return table
        rest = table.drop_columns(before)
        keys = list(self._spec.key)
        first_rows = pa.array([0] * table.num_rows, pa.int64())
        columns = {name: widen(rest.column(name), self._no_records.schema.field(name).type) for name in keys}
        for name in self._names:
            nothing = self._nothing.column(name)
            number, there = self._stored_column(name)
            if there is None:
                columns[name] = nothing.take(first_rows)
            else:
                columns[name] = widen(table.column(there), nothing.type, self._shifts[number])
        columns |= {name: rest.column(name) for name in rest.column_names if name not in keys}
        return pa.table(columns)

    def records(self, table: pa.Table) -> pa.Table:
        """Return waiting records with the fields of the pipeline, null where the run did not decode a field.

        Expressions are computed from the types with which the records were decoded. If the type of the result cannot be
        widened to the pipeline's type, no run has computed the expression, and it is computed from the pipeline's
        types.
        """
        if self._plan.same_records:
            return table
        there = [name for name in self._were.names if name in table.column_names]
        stored = rescale(table.select(there), pa.schema([self._were.field(name) for name in there]))
        decoded = pa.table(
            [
                stored.column(field.name) if field.name in there else pa.nulls(table.num_rows, field.type)
                for field in self._were
            ],
            schema=self._were,
        )
        types = record_schema(self._spec)
        fields = decoded.cast(pa.schema([types.field(name) for name in decoded.column_names]))
        values = _evaluate(self._columns, decoded)
        if self._recomputed:
            again = _evaluate(computed(self._spec), fields)
            values |= {name: again[name] for name in self._recomputed}
        columns = dict(zip(fields.column_names, fields.columns, strict=True))
        columns |= {name: pa.chunked_array([array.cast(types.field(name).type)]) for name, array in values.items()}
        # the columns of the operator are around the fields
        own = [name for name in table.column_names if name.startswith("__") and not _COMPUTED.fullmatch(name)]
        before = list(takewhile(lambda name: name in own, table.column_names))
        names = [*before, *columns, *own[len(before) :]]
        return unscale(pa.table({name: columns[name] if name in columns else table.column(name) for name in names}))

    def _stored_column(self, name: str) -> tuple[int, str | None]:
        """Return the index of an accumulator's aggregate, and the accumulator's column in the run, or None if new."""
        match = _ACCUMULATOR.fullmatch(name)
        if match is None:
            raise ValueError(name)
        number = self._plan.aggregates[int(match[1])]
        return int(match[1]), None if number is None else f"__a{number}{match[2]}"


def _evaluate(columns: tuple[Computed, ...], records: pa.Table) -> dict[str, pa.Array]:
    arrays, _ = Evaluator(columns).compute(records)
    return {column.name: array for column, array in zip(columns, arrays, strict=True)}


BlobAddress = tuple[str, int]
"""The kind and bucket of a blob."""


_NO_SCHEMAS: Mapping[str, pa.Schema] = {}


def _add_missing_fields(rows: pa.Table, fields: pa.Schema) -> pa.Table:
    """Return rows with the fields of a schema in its order, null where the rows lack a field.

    Windrow's internal columns keep their places among the fields.
    """
    names, before = rows.column_names, None
    for field in fields:
        if field.name.startswith("__"):
            continue
        if field.name not in names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
            names.insert(0 if before is None else names.index(before) + 1, field.name)
        before = field.name
    in_order = iter(dict.fromkeys(name for name in (*fields.names, *names) if not name.startswith("__")))
    return rows.select([name if name.startswith("__") else next(in_order) for name in names])


class RowsByKeyGroup:
    """Rows of stored tables, collected in the key group that their key has in the pipeline.

    For a broadcast lookup, records are in the key group of their place, and the versions of a table's rows are in all
    key groups; truncations always are. `schemas` maps each kind to the schema of the pipeline's rows; optional fields
    that stored rows lack are null.
    """

    def __init__(
        self, spec: AnySpec, connection: duckdb_sql.Connection, schemas: Mapping[str, pa.Schema] = _NO_SCHEMAS
    ) -> None:
        self._duck = connection
        self._schemas = schemas
        self._are_ids = spec.is_partitioned_by_ids
        self._is_broadcast = isinstance(spec.node, m.LookupNode) and spec.node.broadcast
        fields = {field.name: field for field in key_of(spec)}
        self._keys = pa.schema(schema.key_fields(fields[name] for name in spec.partition_key))
        self._versions: dict[BlobAddress, list[pa.Table]] = defaultdict(list)
        self._parts: list[dict[BlobAddress, list[pa.Table]]] = [defaultdict(list) for _ in range(spec.key_groups)]

    def add(self, address: BlobAddress, rows: pa.Table) -> None:
        """Add rows that have the key as columns; decimals may be scaled or unscaled."""
        if address[0] in self._schemas:
            rows = _add_missing_fields(rows, self._schemas[address[0]])
        if DELETED in rows.column_names:
            # the run may have stored them in all key groups
            rows, truncations = split_truncations(rows)
            is_version = rows.column(DELETED).is_valid()
            self._versions[address].append(pa.concat_tables([rows.filter(is_version), truncations]))
            rows = rows.filter(pc.invert(is_version))
        if self._is_broadcast:
            self._add(address, rows, place_groups(self._duck, rows, len(self._parts)))
        else:
            self._add_by_key(address, rows)

    def _add_by_key(self, address: BlobAddress, rows: pa.Table) -> None:
        keys = rows.select(self._keys.names)
        plain = keys if keys.schema.types == self._keys.types else rescale(keys, self._keys)
        self.add_texts(address, rows, plain)

    def add_texts(self, address: BlobAddress, rows: pa.Table, keys: pa.Table) -> None:
        """Add rows whose keys are in a separate table."""
        self._add(address, rows, key_groups(self._duck, keys, len(self._parts), are_ids=self._are_ids))

    def _add(self, address: BlobAddress, rows: pa.Table, groups: KeyGroups) -> None:
        for group, part in split_by_group(rows, groups):
            self._parts[group][address].append(part)

    def tables(self) -> Iterator[dict[BlobAddress, pa.Table]]:
        """Yield the tables of each key group as a mapping from (kind, bucket)."""
        for address, tables in self._versions.items():
            stored = pa.concat_tables(tables)
            versions = duckdb_sql.query(self._duck, "SELECT DISTINCT * FROM stored", stored=stored).cast(stored.schema)
            own, for_all = (versions.slice(0, 0), versions) if self._is_broadcast else split_truncations(versions)
            self._add_by_key(address, own)
            for parts in self._parts if for_all.num_rows else ():
                parts[address].append(for_all)
        for parts in self._parts:
            yield {address: pa.concat_tables(tables).combine_chunks() for address, tables in parts.items()}


def state_of_tables(tables: dict[BlobAddress, pa.Table]) -> MemoryState:
    """Return a state that has a blob for each table, and no summary."""
    state = MemoryState()
    for (kind, bucket), table in tables.items():
        state.set(kind, bucket, pack(table))
    return state
