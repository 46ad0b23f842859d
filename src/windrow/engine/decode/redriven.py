"""Redriven records: copies of dead letters that `windrow redrive` has appended to their partitions.

A copy is a record of the log like any other: it has an offset, and its verdict depends on its place. Its value is an
envelope, ``{"_redrive": {"pipeline": ..., "offset": ...}, "value": ...}``, with the bytes and the offset of the
original. It is decoded with the bytes and the log timestamp of the original.

A copy counts if its original was decoded with older settings. This is the case if the original is before the first
offset of the partition that is decoded with the current settings. Otherwise the original and the copy have the same
outcome, since both have the same bytes: if these are good, the original counts at its own place and the copy becomes a
dead letter. So a replay from the beginning counts each record once, at its first place.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.engine import schema
from windrow.engine.decode.decoder import DecodedBatch, Decoder
from windrow.engine.decode.field_columns import Mask, holds_mask

PREFIX: Final = b'{"_redrive":'
REDRIVEN: Final = "redriven"
"""Prefix of the dead letter's reason for a copy that does not count."""


@dataclass(frozen=True)
class Redriven:
    """A copy of the record at `offset` of the same partition, for one pipeline.

    The offset of the first original is `origin`, which differs from `offset` if a copy was redriven again; `attempt`
    counts from 1. `reason` is the reason of the dead letter. It was redriven at the time `at` by `by` (user@host).
    `log_time` is the log timestamp of the original. Times are in microseconds; `value` is None for a tombstone.
    """

    pipeline: str
    offset: int
    origin: int
    attempt: int
    reason: str
    by: str
    at: int
    log_time: int | None
    value: bytes | None

    def encode(self) -> bytes:
        """Encode the copy as the value of a record, on one line."""
        about = {name: value for name, value in vars(self).items() if name != "value"}
        try:
            content = {"value": None if self.value is None else self.value.decode()}
        except UnicodeDecodeError:
            content = {"base64": base64.b64encode(self.value or b"").decode()}
        return json.dumps({"_redrive": about} | content).encode()

    @staticmethod
    def decode(value: bytes | None) -> Redriven | None:
        """Decode a copy from the value of a record; return None if the record is not a copy."""
        if value is None or not value.startswith(PREFIX):
            return None
        try:
            content: dict[str, Any] = json.loads(value)
            text: str | None = None if "base64" in content else content["value"]
            inner = None if text is None else text.encode()
            if "base64" in content:
                inner = base64.b64decode(content["base64"], validate=True)
            found = Redriven(**content["_redrive"], value=inner)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        numbers = (found.offset, found.origin, found.attempt, found.at, 0 if found.log_time is None else found.log_time)
        texts = (found.pipeline, found.reason, found.by)
        is_whole = all(type(number) is int and abs(number) < _FAR for number in numbers)
        return found if is_whole and all(isinstance(text, str) for text in texts) else None


_FAR: Final = 2**62
"""A number greater than all offsets and all times in microseconds."""


def copies(raw: pa.RecordBatch) -> dict[int, Redriven]:
    """Map the row of each copy in a batch of raw records to the copy."""
    values = raw.column("value")
    rows = np.flatnonzero(holds_mask(pc.starts_with(values, PREFIX)))
    found = ((row, Redriven.decode(values[row].as_py())) for row in rows.tolist())
    return {row: copy for row, copy in found if copy is not None}


class RedrivenDecoder:
    """Decodes the records of a source, including redriven copies for a pipeline.

    The mapping `since` has, for each partition, the first offset that is decoded with the current settings; it is 0 for
    partitions that are missing.
    """

    def __init__(self, decoder: Decoder, pipeline: str, since: Mapping[int, int]) -> None:
        self._decoder = decoder
        self._pipeline = pipeline
        self._since = since

    def decode(self, raw: pa.RecordBatch) -> DecodedBatch:
        """Decode records as `Decoder.decode` does; dead letters have the bytes that are in the log."""
        found = copies(raw)
        if not found:
            return self._decoder.decode(raw)
        opened = self._open_copies(raw, found)
        decoded = self._decoder.decode(opened)
        partitions, offsets = (raw.column(name).to_pylist() for name in ("partition", "offset"))
        rows = {(partitions[row], offsets[row]): row for row in found}
        dead = decoded.dead.to_pylist()
        for letter in dead:
            row = rows.get((letter["partition"], letter["offset"]))
            if row is not None:
                letter["raw"] = raw.column("value")[row].as_py()
                if found[row].pipeline != self._pipeline:
                    letter["reason"] = f"{REDRIVEN}: for the pipeline {found[row].pipeline!r}"
        known = {(letter["partition"], letter["offset"]) for letter in dead}
        # the original counts if its bytes are good and it is decoded with the present settings
        repeated = [
            row
            for (partition, offset), row in rows.items()
            if (partition, offset) not in known and found[row].offset >= self._since.get(partition, 0)
        ]
        if repeated:
            reasons = [f"{REDRIVEN}: the record at offset {found[row].offset} counts" for row in repeated]
            letters = self._decoder.dead_letters(opened, np.array(repeated), reasons).to_pylist()
            for row, letter in zip(repeated, letters, strict=True):
                dead.append(letter | {"raw": raw.column("value")[row].as_py()})
            order = {place: row for row, place in enumerate(zip(partitions, offsets, strict=True))}
            dead.sort(key=lambda letter: order[letter["partition"], letter["offset"]])
        places = [(partitions[row], offsets[row]) for row in repeated]
        return DecodedBatch(
            good=_drop_places(decoded.good, places),
            marks=_drop_places(decoded.marks, places),
            dead=pa.Table.from_pylist(dead, schema=schema.DEAD),
            replaced=_drop_places(decoded.replaced, places),
        )

    def have_log_time(self, raw: pa.RecordBatch) -> Mask:
        """Return the mask of records that were decoded with a log timestamp, given good records."""
        return self._decoder.have_log_time(self.opened(raw))

    def opened(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Return records with the originals in place of copies."""
        found = copies(raw)
        return self._open_copies(raw, found) if found else raw

    def _open_copies(self, raw: pa.RecordBatch, found: Mapping[int, Redriven]) -> pa.RecordBatch:
        """Replace copies with their originals; copies for other pipelines lose their key and value."""
        columns = {name: raw.column(name).to_pylist() for name in ("key", "value")}
        times = raw.column("log_time").cast(pa.int64()).to_pylist()
        for row, copy in found.items():
            is_own = copy.pipeline == self._pipeline
            columns["value"][row] = copy.value if is_own else None
            columns["key"][row] = columns["key"][row] if is_own else None
            times[row] = copy.log_time
        arrays = {name: pa.array(columns[name], pa.binary()) for name in ("key", "value")}
        arrays["log_time"] = pa.array(times, pa.int64()).cast(schema.MICROS)
        for name, array in arrays.items():
            raw = raw.set_column(raw.schema.get_field_index(name), name, array)
        return raw


def _drop_places(table: pa.Table, places: Collection[tuple[int, int]]) -> pa.Table:
    """Remove the records at some places from a table whose first columns are partition and offset."""
    if not places:
        return table
    # by position: a field may have any name
    partitions, offsets = (table.column(at).to_numpy() for at in range(2))
    kept = np.ones(table.num_rows, dtype=np.bool_)
    for partition, offset in places:
        kept &= (partitions != partition) | (offsets != offset)
    return table.filter(pa.array(kept))
