"""The Parquet sink: one folder of files per step, published by a single rename.

`DIR/TABLE/epoch=000000000123/` contains `changes.parquet`, and, if the step has such rows, `_late.parquet`,
`_dead.parquet` and `_clocks.parquet`. To Spark and others, DIR/TABLE is a table with the partitions `epoch`, in which
they skip files whose names begin with an underscore, so they read the changes. In folders of earlier versions, a step
is `step-000000000123`, and the names have no underscore.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from pyarrow import parquet

from windrow import model as m
from windrow.connectors.log.segments import sync_path
from windrow.connectors.step_folder import StepFolder, by_partition, try_parquet, write_parquet
from windrow.connectors.unfit import RefusedError


class ParquetFolder(StepFolder):
    """The output of a pipeline as Parquet files. All files of a step become visible at the same time."""

    STEP: ClassVar[re.Pattern[str]] = re.compile(r"(?:step-|epoch=)(\d{12,})")

    def _write(self, epoch: int, tables: Mapping[str, pa.Table]) -> list[Path]:
        is_old = self._names == 1
        step = self._staging / f"{'step-' if is_old else 'epoch='}{epoch:012}"
        shutil.rmtree(step, ignore_errors=True)
        step.mkdir()
        # a step without changes has a file, too: an empty folder could be replaced by a rename
        for name, table in tables.items():
            is_partitioned = name == "changes" and bool(self._partition_by)
            hidden = "" if is_old or (name == "changes" and not is_partitioned) else "_"
            if is_partitioned and table.num_rows:
                self._write_partitions(step, table)
            else:
                write_parquet(step / f"{hidden}{name}.parquet", table, self._layout.changes.lists)
        sync_path(step)
        return [step]

    @property
    def _partition_by(self) -> tuple[str, ...]:
        return self._layout.changes.partition_by

    def _write_partitions(self, step: Path, changes: pa.Table) -> None:
        for values, rows in by_partition(changes, self._partition_by):
            folders = _below(step, values)
            for folder in folders:
                folder.mkdir(exist_ok=True)
            write_parquet(folders[-1] / "changes.parquet", rows, self._layout.changes.lists)
            for folder in folders:
                sync_path(folder)

    def _encode(self, rows: pa.Table) -> None:
        try_parquet(rows, self._layout.changes.lists)
        for values, _ in by_partition(rows, self._partition_by):
            _below(self._folder, values)

    def _clocks(self) -> Iterator[pa.Table]:
        paths = sorted(self._folder.glob("*/*clocks.parquet"), key=lambda path: (len(path.parent.name), path))
        return (parquet.ParquetFile(path).read() for path in paths)


_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
"""The characters that Hive and Spark escape in the name of a partition."""
_LONGEST = 200
"""Maximum bytes of a value in the name of a folder; file systems allow 255 for the whole name."""


def _below(folder: Path, values: Mapping[str, str | None]) -> list[Path]:
    """Return the nested folders of a partition; raise RefusedError if a value is too long for their names."""
    folders = []
    for name, value in values.items():
        text = m.HIVE_NULL if value is None else _escape(value)
        if len(text.encode()) > _LONGEST:
            msg = f"refused: a text in {name!r} is too long to be a folder's name, as the files are partitioned by it"
            raise RefusedError(msg)
        folder /= f"{_escape(name)}={text}"
        folders.append(folder)
    return folders


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
