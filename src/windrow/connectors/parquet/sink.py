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

from windrow.connectors.log.segments import sync_path
from windrow.connectors.step_folder import StepFolder, try_parquet, write_parquet


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
            hidden = "" if is_old or name == "changes" else "_"
            write_parquet(step / f"{hidden}{name}.parquet", table)
        sync_path(step)
        return [step]

    def _encode(self, rows: pa.Table) -> None:
        try_parquet(rows)

    def _clocks(self) -> Iterator[pa.Table]:
        paths = sorted(self._folder.glob("*/*clocks.parquet"), key=lambda path: (len(path.parent.name), path))
        return (parquet.ParquetFile(path).read() for path in paths)
