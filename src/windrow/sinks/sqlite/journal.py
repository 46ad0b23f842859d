"""The clock journal, read from an SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from windrow.core.schema import CLOCKS
from windrow.sinks.layout import Table
from windrow.sinks.quote import quote, quote_all
from windrow.sinks.sqlite.rows import times


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
    arrays = [
        times(column) if pa.types.is_timestamp(field.type) else pa.array(column, field.type)
        for column, field in zip(columns, CLOCKS, strict=True)
    ]
    return pa.table(arrays, schema=CLOCKS)
