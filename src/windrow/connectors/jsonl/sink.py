"""The sink that writes JSON lines files: one file of changes per step, published by a rename.

`DIR/TABLE/step-000000000123.jsonl` contains the changes, one JSON object per line with the columns of the changelog. If
the step has other rows, they are in `late-000000000123.jsonl`, `dead-...` and `clocks-...`. Times are ISO 8601 and
decimals are text, so nothing is rounded; infinite numbers are the texts `inf` and `-inf`. The bytes of a dead letter
are text in `raw` or, if they are not UTF-8, base64 in `raw_base64`.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from windrow.connectors.json_rows import json_objects
from windrow.connectors.step_folder import StepFolder
from windrow.engine.schema import CLOCKS, MICROS

_ROWS = 65_536
"""Number of rows that are converted to text at a time."""


class JsonlFolder(StepFolder):
    """The output of a pipeline as JSON lines files.

    Exactly once: the file of changes is renamed last, after the files with the step's other rows. An interrupted step
    overwrites its files with the same bytes when it is written again. Until then, a reader may see the step's late
    records and dead letters without its changes.
    """

    STEP: ClassVar[re.Pattern[str]] = re.compile(r"step-(\d{12,})\.jsonl")

    def _write(self, epoch: int, tables: Mapping[str, pa.Table]) -> list[Path]:
        paths = []
        for name, table in tables.items():
            paths.append(self._staging / f"{'step' if name == 'changes' else name}-{epoch:012}.jsonl")
            with paths[-1].open("wb") as file:
                file.writelines(_lines(table))
                file.flush()
                os.fsync(file.fileno())
        return paths

    def _encode(self, rows: pa.Table) -> None:
        deque(_lines(rows), maxlen=0)

    def _clocks(self) -> Iterator[pa.Table]:
        for path in sorted(self._folder.glob("clocks-*.jsonl"), key=lambda path: (len(path.name), path)):
            if int(path.stem.partition("-")[2]) in self._steps():
                yield _journal([json.loads(line) for line in path.read_bytes().splitlines()])


def _lines(table: pa.Table) -> Iterator[bytes]:
    for batch in _plain(table).to_batches(max_chunksize=_ROWS):
        lines: list[str] = json_objects(batch, "text").to_pylist()
        yield from (f"{line}\n".encode() for line in lines)


def _journal(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {field.name: pa.array([row[field.name] for row in rows]) for field in CLOCKS}
    for name in ("clock", "low_watermark"):
        # of any year
        times = np.array([(row[name] or "NaT").removesuffix("Z") for row in rows], "datetime64[us]")
        columns[name] = pa.array(times).cast(MICROS)
    return pa.table(columns).cast(CLOCKS)


def _plain(table: pa.Table) -> pa.Table:
    """Convert bytes to text. Bytes that are not UTF-8 are written as base64 in an additional column."""
    for at, field in enumerate(table.schema):
        if pa.types.is_binary(field.type):
            values = table.column(at).to_pylist()
            texts = [_text(value) for value in values]
            encoded = [
                base64.b64encode(value).decode() if value is not None and text is None else None
                for value, text in zip(values, texts, strict=True)
            ]
            table = table.set_column(at, field.name, pa.array(texts, pa.string()))
            table = table.append_column(f"{field.name}_base64", pa.array(encoded, pa.string()))
    return table


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
