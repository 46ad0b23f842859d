"""Fast decoder of what is not JSON: columns of a reader, of which the clearly good records are accepted."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa

from windrow.core.decode.acceptance import Acceptance
from windrow.core.decode.exact import ExactDecoder, GoodRows, decode_exactly
from windrow.core.decode.fast import json_fields
from windrow.core.decode.field_columns import ReadColumns
from windrow.core.decode.formats import RecordReader


class FastReader:
    """Decodes the clearly good rows of a batch."""

    def __init__(self, exact: ExactDecoder, reader: RecordReader) -> None:
        self._exact = exact
        self._acceptance = Acceptance(exact)
        self._columns = reader.columns({one.path: one.type for one in json_fields(exact)})

    def decode(self, raw: pa.RecordBatch) -> GoodRows:
        """Decode the clearly good rows of a batch in `schema.RAW`; all other rows need the exact decoder."""
        good = [decode_exactly(self._exact, raw, np.zeros(0, dtype=np.int64))[0]]
        good += [self._accepted(raw, read) for read in self._columns.read(raw.column("value"))]
        if self._exact.tombstones is not None:
            good.append(self._acceptance.tombstones(raw, self._exact.tombstones))
        return reduce(GoodRows.merge, good)

    def _accepted(self, raw: pa.RecordBatch, read: ReadColumns) -> GoodRows:
        at = read.columns
        trusted = np.logical_and.reduce([read.is_record, *(column.trusted for column in at.values())])
        return self._acceptance.judge(raw, read.rows, at, self._acceptance.columns(at), trusted)
