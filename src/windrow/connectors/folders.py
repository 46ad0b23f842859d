"""Folders that sinks write: where they can be, and durable Parquet files of rows."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from windrow.connectors.tables import pieces
from windrow.errors import SinkAddressError, SinkError


def refuse_folder(path: Path) -> None:
    """Raise SinkAddressError if no folder can be made at a path."""
    if path.exists() and not path.is_dir():
        msg = f"{path} is a file, not a folder: correct the sink's path"
        raise SinkAddressError(msg)
    if not path.parent.is_dir():
        msg = f"the folder {path.parent} of {path} does not exist: create it, or correct the sink's path"
        raise SinkAddressError(msg)


def refuse_unwritable(path: Path) -> None:
    """Raise SinkError if this user may not write a folder, or make it."""
    if not os.access(path if path.exists() else path.parent, os.W_OK | os.X_OK):
        msg = f"{path} cannot be written: give this user write permission on it, or on {path.parent} to make it"
        raise SinkError(msg)


def write_parquet(path: Path, rows: pa.Table) -> None:
    """Write a new file, which is on disk afterwards; of rows that are mapped from files, a piece is in memory."""
    with path.open("xb") as file:
        with parquet.ParquetWriter(file, rows.schema, compression="zstd") as writer:
            for _, piece in pieces(rows):
                writer.write_table(piece)
        file.flush()
        os.fsync(file.fileno())
