"""The columns of stored tables: accumulators of aggregates that stay, go or are new, and fields of waiting records."""

from __future__ import annotations

import re

import duckdb
import pyarrow as pa

from windrow.core import duck
from windrow.core.aggregates import folds, rescale, unscale
from windrow.core.carry.plan import Plan
from windrow.core.decode.evaluate import Evaluator
from windrow.core.duck import identifier
from windrow.core.records import record_schema
from windrow.core.schema import arrow_type
from windrow.expressions import computed
from windrow.model import Pipeline

_ACCUMULATOR = re.compile(r"__a(\d+)(.*)")


class Columns:
    """Fits stored tables to a pipeline; an aggregate that is new begins as that of no records."""

    def __init__(self, pipeline: Pipeline, plan: Plan, connection: duckdb.DuckDBPyConnection) -> None:
        self._pipeline = pipeline
        self._plan = plan
        accumulators = [one for fold in folds(pipeline) for one in fold.accumulators]
        self._names = [one.column for one in accumulators]
        self._no_records = unscale(record_schema(pipeline).empty_table())
        made = ", ".join(f"{one.begin} AS {identifier(one.column)}" for one in accumulators)
        sql = f"SELECT {made or '0 AS __none'} FROM records"
        self._nothing = duck.query(connection, sql, records=self._no_records)
        self._columns = computed(pipeline)

    def panes(self, table: pa.Table) -> pa.Table:
        """Return a table of keys, accumulators and more, in this order, with the accumulators of the pipeline."""
        before = [name for name in table.column_names if _ACCUMULATOR.fullmatch(name)]
        if self._plan.aggregates == tuple(range(len(self._plan.aggregates))) and before == self._names:
            return table
        rest = table.drop_columns(before)
        keys = list(self._pipeline.key)
        rows = pa.array([0] * table.num_rows, pa.int64())
        columns = {name: rest.column(name) for name in keys}
        for name in self._names:
            there = self._before(name)
            columns[name] = table.column(there) if there is not None else self._nothing.column(name).take(rows)
        columns |= {name: rest.column(name) for name in rest.column_names if name not in keys}
        return pa.table(columns)

    def records(self, table: pa.Table) -> pa.Table:
        """Return records that wait with the fields of the pipeline; one that they were not decoded for is null."""
        if self._plan.same_records:
            return table
        fields = self._pipeline.decode.fields
        schema = pa.schema([pa.field(field.name, arrow_type(field.type)) for field in fields])
        there = [name for name in schema.names if name in table.column_names]
        kept = rescale(table.select(there), pa.schema([schema.field(name) for name in there]))
        decoded = pa.table(
            [
                kept.column(field.name) if field.name in there else pa.nulls(table.num_rows, field.type)
                for field in schema
            ],
            schema=schema,
        )
        made, _ = Evaluator(self._columns).compute(decoded)
        values = dict(zip(decoded.column_names, decoded.columns, strict=True))
        values |= {one.name: array for one, array in zip(self._columns, made, strict=True)}
        types = record_schema(self._pipeline)
        columns = {}
        for name in dict.fromkeys([*self._no_records.column_names, *_others(table, schema)]):
            if name in values:
                columns[name] = _column(values[name], types.field(name))
            else:
                columns[name] = table.column(name)
        return unscale(pa.table(columns))

    def _before(self, name: str) -> str | None:
        """Return the column of the run that an accumulator was in."""
        found = _ACCUMULATOR.fullmatch(name)
        if found is None:
            raise ValueError(name)
        number = self._plan.aggregates[int(found[1])]
        return None if number is None else f"__a{number}{found[2]}"


def _others(table: pa.Table, fields: pa.Schema) -> list[str]:
    """Return the columns that an operator adds to records; those that were computed are made anew."""
    return [
        name
        for name in table.column_names
        if name.startswith("__") and not re.fullmatch(r"__e\d+", name) and name not in fields.names
    ]


def _column(values: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    made = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    return made.cast(field.type)
