"""How the records and the rows of a step come from one of Spark's Python workers to the next, and to the driver."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.sql import SparkSession

from windrow.core.columns import Blob, pack, unpack
from windrow.hosts.stream.stores import is_one_process

_LEAST = 1 << 16
"""Bytes of a table, from which on a file is worth it."""


@dataclass(frozen=True)
class Carrier:
    """Brings tables through Spark; large ones by way of files in a `folder`, if there is one on their way.

    Through Spark they are copied time and again, which costs as much as half of what it takes to make them. With
    `drops` no output comes.
    """

    folder: Path | None = None
    drops: bool = False

    def put(self, table: pa.Table) -> bytes | None:
        """Return what `taken` makes a table of an output of, None if it has no rows."""
        return None if self.drops or not table.num_rows else self.pack(table)

    def pack(self, table: pa.Table) -> bytes:
        """Return what `opened` makes a stream of Arrow's of."""
        if self.folder is None or table.nbytes < _LEAST:
            return pack(table)
        # a machine that tidies its temporary folder may have taken it from a run that is silent for days
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = self.folder / uuid.uuid4().hex
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        return os.fsencode(path)


def taken(blob: bytes) -> pa.Table:
    """Return the table that was put; once, as a file is gone then."""
    return unpack(opened(blob))


def opened(blob: bytes) -> Blob:
    """Return the stream that a table was packed to; once, for the same reason."""
    if not blob.startswith(b"/"):  # no stream of Arrow's does
        return blob
    path = os.fsdecode(blob)
    with pa.memory_map(path) as file:
        Path(path).unlink()
        return file.read_buffer()


@contextmanager
def carrying(spark: SparkSession, *, drops: bool) -> Iterator[Carrier]:
    """Return a carrier for the tasks that run meanwhile."""
    if not is_one_process(spark):
        yield Carrier(drops=drops)
        return
    # a task that was told to end may yet write
    with TemporaryDirectory(prefix="windrow-rows-", ignore_cleanup_errors=True) as folder:
        yield Carrier(Path(folder).absolute(), drops=drops)
