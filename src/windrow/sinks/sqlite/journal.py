"""The clock journal, read from an SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.core.schema import CLOCKS
from windrow.sinks.layout import Table
from windrow.sinks.quote import quote, quote_all


def read_journal(path: Path, table: Table) -> pa.Table:
    """Return the rows of the table of clocks in `CLOCKS`, by epoch; none if the file or the table is not there."""
    if not path.is_file():
        return CLOCKS.empty_table()
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ? COLLATE NOCASE", (table.name,)).fetchone():
            return CLOCKS.empty_table()
        rows = db.execute(
            f'SELECT {quote_all(CLOCKS.names)} FROM {quote(table.name)} ORDER BY epoch, partition, "offset", reason'
        ).fetchall()
    columns = list(zip(*rows, strict=True)) or [()] * len(CLOCKS)
    return pa.table([_column(c, f.type) for c, f in zip(columns, CLOCKS, strict=True)], schema=CLOCKS)


def _column(values: tuple[Any, ...], type_: pa.DataType) -> pa.Array:
    if not pa.types.is_timestamp(type_):
        return pa.array(values, type_)
    # unlike Arrow, numpy reads what is before the year 1 and after the year 9999
    return pa.array(np.array(values, dtype="datetime64[us]")).cast(type_)
