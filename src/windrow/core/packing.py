"""Tables packed into bytes, so that Spark moves one row where there are thousands of records."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

Blob: TypeAlias = "bytes | pa.Buffer"
"""A packed table."""


def pack(table: pa.Table) -> bytes:
    """Write a table as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def unpack(blob: Blob) -> pa.Table:
    """Read what `pack` wrote."""
    with pa.ipc.open_stream(blob) as reader:
        return reader.read_all()
