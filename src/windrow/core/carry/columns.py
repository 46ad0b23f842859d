"""The columns of stored tables: accumulators of aggregates that stay, go or are new, and fields of waiting records."""

from __future__ import annotations

import re
from itertools import takewhile

import duckdb
import pyarrow as pa

from windrow.core import duck
from windrow.core.aggregates import folds, rescale, unscale
from windrow.core.carry.plan import Plan
from windrow.core.carry.values import widened
from windrow.core.carry.widening import shift, why_not_wider
from windrow.core.decode.evaluate import Evaluator
from windrow.core.duck import identifier
from windrow.core.records import record_schema
from windrow.core.schema import arrow_type
from windrow.expressions import arguments, computed
from windrow.model import Pipeline

_ACCUMULATOR = re.compile(r"__a(\d+)(.*)")
_COMPUTED = re.compile(r"__e\d+")


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
        was = plan.before(pipeline)
        self._were = pa.schema([pa.field(field.name, arrow_type(field.type)) for field in was.decode.fields])
        self._columns = computed(was)
        self._anew = [
            here.name
            for there, here in zip(self._columns, computed(pipeline), strict=True)
            if why_not_wider(there.expression.type, here.expression.type) is not None
        ]
        self._shifts = [
            sum(shift(there.type, here.type) for there, here in zip(*both, strict=True))
            for both in zip(arguments(was), arguments(pipeline), strict=True)
        ]

    def panes(self, table: pa.Table) -> pa.Table:
        """Return a table of keys, accumulators and more, in this order, with the accumulators of the pipeline."""
        before = [name for name in table.column_names if _ACCUMULATOR.fullmatch(name)]
        same_aggregates = self._plan.aggregates == tuple(range(len(self._plan.aggregates))) and before == self._names
        if same_aggregates and not self._plan.were:
            return table
        rest = table.drop_columns(before)
        keys = list(self._pipeline.key)
        rows = pa.array([0] * table.num_rows, pa.int64())
        columns = {name: widened(rest.column(name), self._no_records.schema.field(name).type) for name in keys}
        for name in self._names:
            nothing = self._nothing.column(name)
            number, there = self._before(name)
            columns[name] = (
                nothing.take(rows)
                if there is None
                else widened(table.column(there), nothing.type, self._shifts[number])
            )
        columns |= {name: rest.column(name) for name in rest.column_names if name not in keys}
        return pa.table(columns)

    def records(self, table: pa.Table) -> pa.Table:
        """Return records that wait with the fields of the pipeline; one that they were not decoded for is null.

        What is computed of them is computed of the types that they were decoded by; what no run has computed by those,
        as it would be of no wider type, is computed of the pipeline's.
        """
        if self._plan.same_records:
            return table
        there = [name for name in self._were.names if name in table.column_names]
        kept = rescale(table.select(there), pa.schema([self._were.field(name) for name in there]))
        decoded = pa.table(
            [
                kept.column(field.name) if field.name in there else pa.nulls(table.num_rows, field.type)
                for field in self._were
            ],
            schema=self._were,
        )
        types = record_schema(self._pipeline)
        fields = decoded.cast(pa.schema([types.field(name) for name in decoded.column_names]))
        values = dict(zip(fields.column_names, fields.columns, strict=True))
        values |= {
            name: pa.chunked_array([array.cast(types.field(name).type)])
            for name, array in self._computed(decoded, fields).items()
        }
        columns = {
            name: values[name] if name in values else table.column(name) for name in _in_order(table, list(values))
        }
        return unscale(pa.table(columns))

    def _computed(self, decoded: pa.Table, fields: pa.Table) -> dict[str, pa.Array]:
        """Return what is computed of records as they were decoded, and as the pipeline has them."""
        made, _ = Evaluator(self._columns).compute(decoded)
        found = {one.name: array for one, array in zip(self._columns, made, strict=True)}
        if self._anew:
            columns = computed(self._pipeline)
            made, _ = Evaluator(columns).compute(fields)
            found |= {one.name: array for one, array in zip(columns, made, strict=True) if one.name in self._anew}
        return found

    def _before(self, name: str) -> tuple[int, str | None]:
        """Return the number of an accumulator's aggregate, and the column of the run that it was in."""
        found = _ACCUMULATOR.fullmatch(name)
        if found is None:
            raise ValueError(name)
        number = self._plan.aggregates[int(found[1])]
        return int(found[1]), None if number is None else f"__a{number}{found[2]}"


def _in_order(table: pa.Table, values: list[str]) -> list[str]:
    """Return the columns of records, those of values where they were: what an operator added stays around them."""
    names = table.column_names
    own = [name for name in names if name.startswith("__") and not _COMPUTED.fullmatch(name)]
    before = list(takewhile(lambda name: name in own, names))
    return [*before, *values, *own[len(before) :]]
