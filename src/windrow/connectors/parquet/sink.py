"""The Parquet sink: one folder of files per step, published by a single rename.

`DIR/TABLE/step-000000000123/` contains `changes.parquet`, and, if the step has such rows, `late.parquet`,
`dead.parquet` and `clocks.parquet`.
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

    STEP: ClassVar[re.Pattern[str]] = re.compile(r"step-(\d{12,})")

    def _write(self, epoch: int, tables: Mapping[str, pa.Table]) -> list[Path]:
        step = self._staging / f"step-{epoch:012}"
        shutil.rmtree(step, ignore_errors=True)
        step.mkdir()
        # a step without changes has a file, too: an empty folder could be replaced by a rename
        for name, table in tables.items():
            write_parquet(step / f"{name}.parquet", table)
        sync_path(step)
        return [step]

    def _encode(self, rows: pa.Table) -> None:
        try_parquet(rows)

    def _clocks(self) -> Iterator[pa.Table]:
        paths = sorted(self._folder.glob("step-*/clocks.parquet"), key=lambda path: (len(path.parent.name), path))
        return (parquet.ParquetFile(path).read() for path in paths)
