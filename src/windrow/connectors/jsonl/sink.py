"""The sink of JSON lines files: a file of changes for each step, published by a rename.

`DIR/TABLE/step-000000000123.jsonl` has the changes, a JSON object a line with the columns of the changelog, and
`late-000000000123.jsonl`, `dead-...` and `clocks-...` have the other rows of the step, if any. Times are ISO 8601
and decimals text, so nothing is rounded; infinite numbers are the texts `inf` and `-inf`.
The bytes of a dead letter are text in `raw`, or in base64 in `raw_base64` if they are not UTF-8.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from windrow.connectors.json_rows import json_objects
from windrow.connectors.step_folder import StepFolder
from windrow.engine.schema import CLOCKS, MICROS

_ROWS = 65_536
"""Rows that are converted to text at a time."""


class JsonlFolder(StepFolder):
    """The output of a pipeline as JSON lines files.

    Exactly once: the file with the changes is renamed last, after those with the other rows of its step. A step that
    was interrupted is written again over its files, with the same bytes; until then a reader can see late records and
    dead letters of a step without its changes.
    """

    STEP: ClassVar[re.Pattern[str]] = re.compile(r"step-(\d{12,})\.jsonl")

    def _write(self, epoch: int, tables: Mapping[str, pa.Table]) -> list[Path]:
        paths = []
        for name, table in tables.items():
            paths.append(self._staging / f"{'step' if name == 'changes' else name}-{epoch:012}.jsonl")
            with paths[-1].open("wb") as file:
                for batch in _plain(table).to_batches(max_chunksize=_ROWS):
                    lines: list[str] = json_objects(batch, "text").to_pylist()
                    file.writelines(f"{line}\n".encode() for line in lines)
                file.flush()
                os.fsync(file.fileno())
        return paths

    def _clocks(self) -> Iterator[pa.Table]:
        for path in sorted(self._folder.glob("clocks-*.jsonl"), key=lambda path: (len(path.name), path)):
            if int(path.stem.partition("-")[2]) in self._steps():
                yield _journal([json.loads(line) for line in path.read_bytes().splitlines()])


def _journal(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {field.name: pa.array([row[field.name] for row in rows]) for field in CLOCKS}
    for name in ("clock", "low_watermark"):
        # of any year
        times = np.array([(row[name] or "NaT").removesuffix("Z") for row in rows], "datetime64[us]")
        columns[name] = pa.array(times).cast(MICROS)
    return pa.table(columns).cast(CLOCKS)


def _plain(table: pa.Table) -> pa.Table:
    """Return rows with bytes as text; bytes that are not UTF-8 are in base64 in a column of their own."""
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
