"""From what the folds finish to the changelog's rows: scales, and formulas over results."""

from __future__ import annotations

import pyarrow as pa

from windrow.core import duck, schema
from windrow.core.aggregates.scale import fitted, rescale
from windrow.core.duck import identifier
from windrow.expressions import Expression, formulas, results
from windrow.model import DoubleType, Pipeline


class Results:
    """Makes a pipeline's changes of rows whose values are as `Fold.finish` leaves them."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._schema = schema.changes(pipeline)
        self._duck = duck.connect()
        made = [f"{_value(sql)} AS {identifier(name)}" for name, sql in formulas(pipeline, results(pipeline)).items()]
        self._query = f"SELECT * REPLACE ({', '.join(made)}) FROM rows" if made else None

    def of(self, rows: pa.Table) -> pa.Table:
        """Return rows in `schema.changes`; theirs are the same columns in the same order, decimals unscaled."""
        scaled = rescale(rows, self._schema)
        if self._query is None:
            return scaled
        return fitted(duck.query(self._duck, self._query, rows=scaled), self._schema)


def _value(formula: Expression) -> str:
    """Return the SQL of a formula: null where it fails or is no finite number."""
    value = f"TRY({formula.sql})"
    return f"CASE WHEN isfinite({value}) THEN {value} END" if isinstance(formula.type, DoubleType) else value
